"""The result of a search: the fastest way to run a network here, its gain, and how to run it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
from ..planning.rerun import rerun_command
from ..planning.values import Build
from .schedules import PAIRS, HalvingSchedule

_CONFIDENCE = 0.95
_REASONS = 3


@dataclass(frozen=True)
class Way:
    """A finalist: a way to run the network, and how many times its seconds are those of the fastest."""

    cell: Cell
    seconds: float
    """A step's, median over its launches in pairs."""
    slower: PairedEstimate | None
    """Its seconds over the fastest's, in pairs; None for the fastest itself."""
    flags: tuple[Flag, ...] = ()
    """What is doubtful about it, such as more threads at work than were asked for."""


@dataclass(frozen=True)
class SearchResult:
    """The finalists, the fastest first, and the number of ways that were tried."""

    ways: tuple[Way, ...]
    start: Cell
    """What a user starts from."""
    beaten: Cell
    """The same, or the nearest to it that has a number."""
    planned: int
    tried: int
    failed: Mapping[str, int]
    """Of how many ways there is no number, by the reason."""
    confidence: float = _CONFIDENCE
    """Of each interval, so that all hold together: the fastest is chosen by the same pairs that its gain comes from."""
    disturbed: int = 0
    """Pairs that are left out, since other programs disturbed one of their launches."""

    @property
    def gain(self) -> PairedEstimate | None:
        """How many times as fast the fastest is as the one to beat; None where that is it, or has no number."""
        return next((way.slower for way in self.ways if way.cell == self.beaten), None)


@dataclass(frozen=True)
class Remeasuring:
    """What a command needs to measure a way again: the suite, and options that name builds and the store."""

    suite: str
    options: Sequence[str] = ()
    trains: bool = False
    """Whether the suite's launches train on a text, which a search leaves out: no command measures the same again."""


def search_result(plan: Plan, schedule: HalvingSchedule) -> SearchResult | None:
    """Return the result of a search; None where it did not reach a pair."""
    blocks = schedule.pairs()
    if not blocks:
        return None
    seconds = {cell: schedule.timed(cell) for cell in schedule.finalists()}
    timed = {cell: [by_block[block] for block in blocks] for cell, by_block in seconds.items()}
    # Bonferroni over every comparison of two finalists: whichever is then called the fastest, its intervals hold.
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(timed) * (len(timed) - 1) // 2)

    def slower(cell: Cell, than: Cell) -> PairedEstimate:
        return estimate_pairs(timed[than], timed[cell], confidence)

    def place(cell: Cell) -> tuple[int, float]:
        # By the very estimates that are shown, so that none of them says that another is faster.
        return sum(slower(cell, other).ratio > 1 for other in timed), fmean(np.log(timed[cell]))

    best, *others = sorted(timed, key=place)
    ways = [Way(best, median(timed[best]), None, tuple(schedule.flags(best)))]
    ways += [Way(cell, median(timed[cell]), slower(cell, best), tuple(schedule.flags(cell))) for cell in others]
    failed, lost = schedule.without_number(), len(schedule.pairs(fit=False)) - len(blocks)
    cells = schedule.starts[0], schedule.to_beat
    return SearchResult(tuple(ways), *cells, len(plan.cells), schedule.tried(), failed, confidence, lost)


def how(plan: Plan, cell: Cell) -> tuple[dict[str, str], dict[str, str]]:
    """Return how to run a cell's way: the variables to set, and the settings in force with their effect.

    What a row's process has besides, to keep it quiet or in its own folder, is left out.
    """
    build = plan.row_of(cell).build
    framework = build.framework
    names = tuning.in_force(cell.tuning, plan.tunable(cell))
    wanted = {name for name, value in framework.variables.items() if "{threads}" in value}
    wanted = wanted.union(framework.modes[cell.mode].variables, *(framework.tuning[name].variables for name in names))
    found = framework.launch_variables(cell.mode, cell.threads, _folder(build), names)
    settings = {}
    for name in names:
        tuned = framework.tuning[name]
        sentences = ", ".join(f"{key} = {json.dumps(value)}" for key, value in tuned.settings.items())
        settings[name] = f"{tuned.why} ({sentences})" if sentences else tuned.why
    return {name: value for name, value in found.items() if name in wanted}, settings


def _beside_variables(plan: Plan, cell: Cell) -> list[str]:
    """Return in sentences the steps that no variable covers."""
    framework = plan.row_of(cell).build.framework
    in_force = tuning.in_force(cell.tuning, plan.tunable(cell))
    variables = [framework.variables, framework.modes[cell.mode].variables]
    variables += [framework.tuning[name].variables for name in in_force]
    has_one = any("{threads}" in value for each in variables for value in each.values())
    sentences = []
    if cell.world_size > 1:
        sentences.append(f"Workers: {cell.world_size}, on equal parts of the mini-batch")
    if cell.affinity == BOUND:
        sentences.append(f"CPUs: the process is bound to {cell.all_threads} of them, as by taskset")
    if cell.on_cpu and cell.threads and not has_one:
        hint = f"`dlbench list --capabilities` says how {framework.title} is sentences a number"
        sentences.append(f"Threads: {cell.threads}; {hint}")
    return sentences


def _folder(build: Build) -> Path | None:
    if build.interpreter is not None:
        return environment.external_source(build).folder
    return environment.locate(build.framework).directory


def command(plan: Plan, cell: Cell, remeasuring: Remeasuring) -> str | None:
    """Return what measures a way again; None where nothing does."""
    if remeasuring.trains:
        return None
    words = rerun_command(
        cell, remeasuring.suite, plan.row_of(cell).build.framework.file, tuning=cell.tuning, launches=PAIRS
    )
    return " ".join([words, *map(shlex.quote, remeasuring.options)])


def lines(plan: Plan, found: SearchResult, remeasuring: Remeasuring) -> list[str]:
    """Return the result in sentences."""
    best = found.ways[0]
    rate = best.cell.batch_size / best.seconds
    of = f"{found.tried} of {found.planned}" if found.tried < found.planned else f"{found.planned}"
    sentences = [
        f"Fastest of {of} ways: {_named(plan, best.cell)}: {best.seconds:.4g} s a step, {rate:.4g} items/s.",
        _gain(plan, found),
        *(
            f"Next: {_named(plan, way.cell)} takes {_times(way.slower)} as long{_doubt(found, way.slower)}."
            for way in found.ways[1:]
            if way.slower is not None and way.cell != found.beaten
        ),
    ]
    if sum(way.slower is not None and way.slower.low > 0 for way in found.ways) > 1:
        sentences.append(f"These intervals hold simultaneously at {_CONFIDENCE:.0%} confidence.")
    if found.disturbed:
        sentences.append(f"Left out: {counted(found.disturbed, 'pair')} that other programs disturbed.")
    sentences += [f"Mark on {_named(plan, way.cell)}: {flag.sentence}." for way in found.ways for flag in way.flags]
    mode = plan.row_of(best.cell).build.framework.modes[best.cell.mode]
    sentences.append(f"Mode {best.cell.mode}: {mode.summary}")
    sentences += _beside_variables(plan, best.cell)
    variables, settings = how(plan, best.cell)
    if variables:
        sentences.append("Variables: " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()))
    sentences += [f"Setting {name}: {what}" for name, what in settings.items()]
    sentences += reasons(found.failed)
    if found.tried < found.planned:
        others = found.planned - found.tried
        sentences.append(
            f"The budget was too short for the other {others}: a new search with a longer one tries them too."
        )
    again_by = command(plan, best.cell, remeasuring)
    return sentences + ([f"Measure it again: {as_called(again_by)}"] if again_by else [])


def reasons(failed: Mapping[str, int]) -> list[str]:
    """Return in sentences why ways gave no number, the most frequent reasons."""
    shown = [f"No number from {counted(count, 'way')}: {reason}" for reason, count in failed.items()]
    return shown[:_REASONS] + ([f"{len(shown) - _REASONS} more reasons"] if len(shown) > _REASONS else [])


def data(plan: Plan, found: SearchResult, remeasuring: Remeasuring) -> dict[str, Any]:
    """Return the result as plain JSON types."""
    best = found.ways[0].cell
    variables, settings = how(plan, best)
    return {
        "ways": [
            {
                **axes.values(way.cell),
                "seconds_per_minibatch": way.seconds,
                "times_the_fastest": of_estimate(way.slower),
                "flags": plain(way.flags),
            }
            for way in found.ways
        ],
        "start": axes.values(found.start),
        "against": axes.values(found.beaten),
        "gain": of_estimate(found.gain),
        "confidence": found.confidence,
        "disturbed_pairs": found.disturbed,
        "planned": found.planned,
        "tried": found.tried,
        "failed": dict(found.failed),
        "mode": plan.row_of(best).build.framework.modes[best.mode].summary,
        "variables": variables,
        "settings": settings,
        "command": command(plan, best, remeasuring),
    }


def _named(plan: Plan, cell: Cell) -> str:
    # In a row without settings nothing is tuned.
    return rest_of(cell) + (", tuned" if cell.tuning == TUNED and plan.tunable(cell) else "")


def _gain(plan: Plan, found: SearchResult) -> str:
    if found.ways[0].cell == found.start:
        return "This is already the configuration as installed."
    lost = f"{_named(plan, found.start)}, what a user starts from, failed"
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
