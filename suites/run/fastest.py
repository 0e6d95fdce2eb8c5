"""The result of a search: the fastest way to run a network here, its gain, and how to run it."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from dlbench.adapters import axes, tuning
from dlbench.adapters.protocol import BOUND, TUNED, Cell
from dlbench.reports.compare.verdict import PairedEstimate, estimate_pairs, pairs_for
from dlbench.reports.flags import Flag
from dlbench.reports.formats.json import plain
from dlbench.reports.naming import rest_of
from dlbench.reports.ratio.tuning import of_estimate

from ..display.screen import as_called, counted
from ..environments import environment
from ..planning.plan import Plan
from .schedules import HalvingSchedule

_CONFIDENCE = 0.95
_REASONS = 3


@dataclass(frozen=True)
class SearchResult:
    """The finalists of a search, and how many ways were planned and tried."""

    seconds: Mapping[Cell, float]
    """Of a step, median over the launches in pairs, by finalist, the fastest first."""
    slower: Mapping[Cell, PairedEstimate]
    """Seconds over the fastest's, in pairs, of each finalist but the fastest."""
    flags: Mapping[Cell, list[Flag]]
    start: Cell
    """Where a user starts."""
    beaten: Cell
    """The same, or the nearest to it that has a number."""
    planned: int
    tried: int
    failed: Mapping[str, int]
    """Number of ways without a number, by the reason."""
    confidence: float = _CONFIDENCE
    """Of each interval, so that all hold together: the fastest is chosen by the same pairs that its gain comes from."""
    disturbed: int = 0
    """Pairs that are left out, since other programs disturbed one of their launches."""

    @property
    def best(self) -> Cell:
        """The fastest way."""
        return next(iter(self.seconds))

    @property
    def gain(self) -> PairedEstimate | None:
        """How many times as fast the fastest is as the one to beat; None where that is it, or has no number."""
        return self.slower.get(self.beaten)


def search_result(plan: Plan, schedule: HalvingSchedule) -> SearchResult | None:
    """Return the result of a search; None where it did not reach a pair."""
    blocks = schedule.pairs()
    if not blocks:
        return None
    by_block = {cell: schedule.timed(cell) for cell in schedule.finalists()}
    timed = {cell: [seconds[block] for block in blocks] for cell, seconds in by_block.items()}
    # Bonferroni over every comparison of two finalists: whichever is then called the fastest, its intervals hold.
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(timed) * (len(timed) - 1) // 2)

    def slower(cell: Cell, than: Cell) -> PairedEstimate:
        return estimate_pairs(timed[than], timed[cell], confidence)

    def place(cell: Cell) -> tuple[int, float]:
        # By the very estimates that are shown, so that none of them says that another is faster.
        return sum(slower(cell, other).ratio > 1 for other in timed), fmean(np.log(timed[cell]))

    cells = sorted(timed, key=place)
    return SearchResult(
        {cell: median(timed[cell]) for cell in cells},
        {cell: slower(cell, cells[0]) for cell in cells[1:]},
        {cell: schedule.flags(cell) for cell in cells},
        schedule.starts[0],
        schedule.to_beat,
        len(plan.cells),
        schedule.tried(),
        schedule.without_number(),
        confidence,
        len(schedule.pairs(fit=False)) - len(blocks),
    )


def recipe(plan: Plan, cell: Cell) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return how to run a way: variables to set, the settings in force with their effect, and steps besides in words.

    What a row's process has besides, to keep it quiet or in its own folder, is left out.
    """
    build = plan.row_of(cell).build
    framework = build.framework
    in_force = {name: framework.tuning[name] for name in tuning.in_force(cell.tuning, plan.tunable(cell))}
    chosen = [framework.modes[cell.mode].variables, *(tuned.variables for tuned in in_force.values())]
    of_threads = {name for each in (framework.variables, *chosen) for name, text in each.items() if "{threads}" in text}
    own = build.interpreter is None
    folder = environment.locate(framework).directory if own else environment.external_source(build).folder
    wanted = of_threads.union(*chosen)
    variables = framework.launch_variables(cell.mode, cell.threads, folder, in_force)
    settings = {}
    for name, tuned in in_force.items():
        values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in tuned.settings.items())
        settings[name] = f"{tuned.why} ({values})" if values else tuned.why
    besides = []
    if cell.world_size > 1:
        besides.append(f"Workers: {cell.world_size}, on equal parts of the mini-batch")
    if cell.affinity == BOUND:
        besides.append(f"CPUs: the process is bound to {cell.all_threads} of them, as by taskset")
    if cell.on_cpu and cell.threads and not of_threads:
        hint = f"`dlbench list --capabilities` says how {framework.title} takes a thread count"
        besides.append(f"Threads: {cell.threads}; {hint}")
    return {name: value for name, value in variables.items() if name in wanted}, settings, besides


def lines(plan: Plan, found: SearchResult, command: str | None) -> list[str]:
    """Return the result in sentences; ``command`` is the one that measures the fastest again, where there is one."""
    best = found.best
    of = f"{found.tried} of {found.planned}" if found.tried < found.planned else f"{found.planned}"
    speed = f"{found.seconds[best]:.4g} s a step, {best.batch_size / found.seconds[best]:.4g} items/s"
    sentences = [f"Fastest of {of} ways: {_named(plan, best)}: {speed}.", _gain(plan, found)]
    for cell, slower in found.slower.items():
        if cell != found.beaten:
            sentences.append(f"Next: {_named(plan, cell)} takes {_times(slower)} as long{_doubt(found, slower)}.")
    if sum(slower.low > 0 for slower in found.slower.values()) > 1:
        sentences.append(f"These intervals hold simultaneously at {_CONFIDENCE:.0%} confidence.")
    if found.disturbed:
        sentences.append(f"Left out: {counted(found.disturbed, 'pair')} that other programs disturbed.")
    for cell, flags in found.flags.items():
        sentences += [f"Mark on {_named(plan, cell)}: {flag.sentence}." for flag in flags]
    sentences.append(f"Mode {best.mode}: {plan.row_of(best).build.framework.modes[best.mode].summary}")
    variables, settings, besides = recipe(plan, best)
    sentences += besides
    if variables:
        sentences.append("Variables: " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()))
    sentences += [f"Setting {name}: {effect}" for name, effect in settings.items()]
    sentences += reasons(found.failed)
    if others := found.planned - found.tried:
        sentences.append(
            f"The budget was too short for the other {others}: a new search with a longer one tries them too."
        )
    return sentences + ([f"Measure it again: {as_called(command)}"] if command else [])


def reasons(failed: Mapping[str, int]) -> list[str]:
    """Return in sentences why ways gave no number, the most frequent reasons."""
    shown = [f"No number from {counted(count, 'way')}: {reason}" for reason, count in failed.items()]
    return shown[:_REASONS] + ([f"{len(shown) - _REASONS} more reasons"] if len(shown) > _REASONS else [])


def data(plan: Plan, found: SearchResult, command: str | None) -> dict[str, Any]:
    """Return the result as plain JSON types."""
    variables, settings, _ = recipe(plan, found.best)
    return {
        "ways": [
            {
                **axes.values(cell),
                "seconds_per_minibatch": seconds,
                "times_the_fastest": of_estimate(found.slower.get(cell)),
                "flags": plain(tuple(found.flags[cell])),
            }
            for cell, seconds in found.seconds.items()
        ],
        "start": axes.values(found.start),
        "against": axes.values(found.beaten),
        "gain": of_estimate(found.gain),
        "confidence": found.confidence,
        "disturbed_pairs": found.disturbed,
        "planned": found.planned,
        "tried": found.tried,
        "failed": dict(found.failed),
        "mode": plan.row_of(found.best).build.framework.modes[found.best.mode].summary,
        "variables": variables,
        "settings": settings,
        "command": command,
    }


def _named(plan: Plan, cell: Cell) -> str:
    # In a row without settings nothing is tuned.
    return rest_of(cell) + (", tuned" if cell.tuning == TUNED and plan.tunable(cell) else "")


def _gain(plan: Plan, found: SearchResult) -> str:
    if found.best == found.start:
        return "This is already the configuration as installed."
    lost = f"{_named(plan, found.start)}, where a user starts, failed"
    if found.gain is None:
        return f"{lost}."
    gain = f"{_times(found.gain)} as fast as {_named(plan, found.beaten)}{_doubt(found, found.gain)}."
    return gain if found.beaten == found.start else f"{lost}; it is {gain}"


def _times(found: PairedEstimate) -> str:
    pairs = counted(found.pairs, "pair")
    interval = f" ({found.low:.3f} to {found.high:.3f}, {pairs})" if found.low > 0 else f" ({pairs})"
    return f"{found.ratio:.3f} times{interval}"


def _doubt(result: SearchResult, found: PairedEstimate) -> str:
    if not found.low <= 1.0 <= found.high:
        return ""
    needed = pairs_for(result.confidence)
    return "; noise may explain it" if found.low > 0 else f"; {needed} pairs are needed for an interval"
