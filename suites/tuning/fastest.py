"""What a race found: the fastest way to run a network here, what it gains, and how to run it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dlbench.adapters import axes, tuning
from dlbench.adapters.protocol import TUNED, Cell, Status
from dlbench.reports.comparison.paired import FEWEST_PAIRS, PairedEstimate, estimate_pairs
from dlbench.reports.naming import rest_of
from dlbench.reports.storage.record import Record
from dlbench.reports.tuning.data import of_estimate

from ..environments import environment
from ..planning.plan import Plan
from ..publishing.again import again
from .race import PAIRS, Race


@dataclass(frozen=True)
class Way:
    """A finalist: a way to run the network, and how many times its seconds are those of the fastest."""

    cell: Cell
    seconds: float
    """A step's, median over its launches in pairs."""
    slower: PairedEstimate | None
    """Its seconds over the fastest's, in pairs; None for the fastest itself."""


@dataclass(frozen=True)
class Answer:
    """The finalists, the fastest first, and what was tried beside them."""

    ways: tuple[Way, ...]
    beaten: Cell
    tried: int
    failed: Mapping[str, str]
    """Why ways gave no number, by their names."""

    @property
    def gain(self) -> PairedEstimate | None:
        """How many times as fast the fastest is as what a user starts from; None where that is it, or has no number."""
        return next((way.slower for way in self.ways if way.cell == self.beaten), None)


def answer(plan: Plan, race: Race, records: Sequence[Record], beaten: Cell) -> Answer | None:
    """Return what a race found; None where it did not come to its pairs."""
    timed = {cell: times for cell in race.finalists() if (times := race.timed(cell))}
    if not timed:
        return None
    ranked = sorted(timed, key=lambda cell: median(timed[cell].values()))
    first = timed[ranked[0]]
    ways = [Way(ranked[0], median(first.values()), None)]
    for cell in ranked[1:]:
        both = sorted(first.keys() & timed[cell].keys())
        pairs = [first[block] for block in both], [timed[cell][block] for block in both]
        ways.append(Way(cell, median(timed[cell].values()), estimate_pairs(*pairs) if both else None))
    failed = {
        rest_of(record.cell): record.outcome.reason or record.outcome.status.value
        for record in records
        if record.outcome.status is not Status.OK
    }
    return Answer(tuple(ways), beaten, len(plan.cells), failed)


def how(plan: Plan, cell: Cell) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of a cell's process, and its settings in force with what each tells and does."""
    build = plan.row_of(cell).build
    names = tuning.in_force(cell.tuning, plan.tunable(cell))
    place = None if build.interpreter else environment.locate(build.framework).interpreter
    folder = None if place is None else place.parent.parent
    variables = build.framework.launch_variables(cell.mode, cell.threads, folder, names)
    settings = {}
    for name in names:
        tuned = build.framework.tuning[name]
        told = ", ".join(f"{key} = {json.dumps(value)}" for key, value in tuned.settings.items())
        settings[name] = f"{tuned.why} ({told})" if told else tuned.why
    return variables, settings


def command(plan: Plan, cell: Cell) -> str:
    """Return what measures a way again."""
    return again(cell, "tuning", plan.row_of(cell).build.framework.file, tuning=cell.tuning, launches=PAIRS)


def lines(plan: Plan, found: Answer) -> list[str]:
    """Return the answer in sentences."""
    best = found.ways[0]
    rate = best.cell.batch_size / best.seconds
    told = [
        f"Fastest of {found.tried} ways: {_named(plan, best.cell)}: {best.seconds:.4g} s a step, {rate:.4g} items/s.",
        _gain(plan, found),
        *(
            f"Next: {_named(plan, way.cell)}: {_times(way.slower)} its time{_doubt(way.slower)}."
            for way in found.ways[1:]
            if way.slower is not None and way.cell != found.beaten
        ),
    ]
    variables, settings = how(plan, best.cell)
    if variables:
        told.append("Variables: " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()))
    told += [f"Setting {name}: {what}" for name, what in settings.items()]
    if found.failed:
        name, reason = next(iter(found.failed.items()))
        told.append(f"{len(found.failed)} ways gave no number, such as {name}: {reason}")
    told.append(f"Measure it again: {command(plan, best.cell)}")
    return told


def data(plan: Plan, found: Answer) -> dict[str, Any]:
    """Return the answer as plain JSON types."""
    best = found.ways[0].cell
    variables, settings = how(plan, best)
    return {
        "ways": [
            {
                **axes.values(way.cell),
                "seconds_per_minibatch": way.seconds,
                "times_the_fastest": of_estimate(way.slower),
            }
            for way in found.ways
        ],
        "against": axes.values(found.beaten),
        "gain": of_estimate(found.gain),
        "tried": found.tried,
        "failed": dict(found.failed),
        "variables": variables,
        "settings": settings,
        "command": command(plan, best),
    }


def _named(plan: Plan, cell: Cell) -> str:
    # A row without settings is what it is: nothing is tuned.
    return rest_of(cell) + (", tuned" if cell.tuning == TUNED and plan.tunable(cell) else "")


def _gain(plan: Plan, found: Answer) -> str:
    if found.ways[0].cell == found.beaten:
        return "That is what a user starts from: nothing that was tried is faster."
    if found.gain is None:
        return f"{_named(plan, found.beaten)} gave no number to hold it against."
    return f"{_times(found.gain)} as fast as {_named(plan, found.beaten)}{_doubt(found.gain)}."


def _times(found: PairedEstimate | None) -> str:
    if found is None:
        return "an unknown number of times"
    interval = (
        f" ({found.low:.3f} to {found.high:.3f}, {found.pairs} pairs)" if found.low > 0 else f" ({found.pairs} pairs)"
    )
    return f"{found.ratio:.3f} times{interval}"


def _doubt(found: PairedEstimate | None) -> str:
    if found is None or not found.low <= 1.0 <= found.high:
        return ""
    return "; noise may explain it" if found.low > 0 else f"; {FEWEST_PAIRS} pairs are needed for an interval"
