"""Scaling over workers as words and tables; `workers_data` has it for scripts."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dlbench.reports.flags import CONTENDED, FEW_LAUNCHES, FlagKind
from dlbench.reports.formats import layout
from dlbench.reports.naming import row_name, work_name
from dlbench.reports.scaling.analysis import Gain, Line, Point, Workers
from dlbench.reports.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, judge

NOTHING = "Nothing was measured with several workers yet; `dlbench run` does it with --world-sizes 1,2."


class _Field(NamedTuple):
    """A column of a table, after seconds and items."""

    head: str
    text: Callable[[Point], str]


def _speedup(gain: Gain | None) -> str:
    if gain is None:
        return ""
    if (found := gain.speedup) is None:
        return layout.MISSING
    return f"{layout.number(found.value)}x{layout.deviation(found.value, found.low, found.high)}"


def _efficiency(gain: Gain | None) -> str:
    return "" if gain is None or gain.efficiency is None else f"{gain.efficiency.value:.2f}"


_FIELDS = (
    _Field("strong", lambda point: _speedup(point.strong)),
    _Field("eff.", lambda point: _efficiency(point.strong)),
    _Field("weak", lambda point: _speedup(point.weak)),
    _Field("eff.", lambda point: _efficiency(point.weak)),
)
_ONE_PROCESS = _Field("1 process", lambda point: _speedup(point.one_process))


def workers_page(found: Workers) -> layout.Page:
    """Return the report as words and tables: one for each row, network and place."""
    if not found.lines:
        return layout.Page((NOTHING,), (), found.notes)
    common = layout.common_flags(p.cell for line in found.lines for p in line.points if p.cell.timed is not None)
    before = (
        "Synchronous data-parallel training: each step w workers compute the gradients of their equal parts of the "
        "mini-batch, average them, and make the same update.",
    )
    return layout.Page(
        before, tuple(_table(found, line, common) for line in found.lines), tuple(_legend(found, common))
    )


def line_name(found: Workers, line: Line, machine: bool = True) -> str:
    """Return what a line is called: its network, row, and where it was measured."""
    place = line.place
    name = f"{work_name(place.cell)}: {row_name(place.cell)}" + ("" if place.on_cpu else f", {place.device}")
    return f"{name}, on {found.hosts[place.machine].name}" if machine else name


def _table(found: Workers, line: Line, common: set[FlagKind]) -> layout.Table:
    fields = [*_FIELDS, *([_ONE_PROCESS] if any(point.one_process for point in line.points) else [])]
    with_threads = line.place.device == "cpu" or len({point.threads for point in line.points}) > 1
    rows = tuple(
        (
            *([layout.Entry("own" if not point.threads else str(point.threads))] if with_threads else []),
            layout.Entry(str(point.world_size)),
            layout.Entry(str(point.batch_size)),
            layout.entry(point.cell, layout.QUANTITIES["seconds"], common)._replace(best=False),
            layout.Entry(layout.number(point.cell.items_per_second or 0.0) if point.cell.timed is not None else ""),
            *(layout.Entry(field.text(point) if point.cell.timed is not None else "") for field in fields),
        )
        for point in line.points
    )
    head = (*(["p"] if with_threads else []), "w", "batch", "s/batch", "items/s", *(field.head for field in fields))
    return layout.Table(
        line_name(found, line), head, rows, tuple(_notes(found, line)), (1,) * len(head), keys=2 + with_threads
    )


def _notes(found: Workers, line: Line) -> list[str]:
    """Return what follows from a table, and why there is nothing where there is nothing."""
    host = found.hosts[line.place.machine]
    lines = list(_verdicts(line))
    sharing = [point for point in line.teams if point.shares_cpus]
    if sharing:
        which = ", ".join(dict.fromkeys(_team(point) for point in sharing))
        lines.append(
            f"More threads altogether than the {host.effective_cpus} CPUs here, which they share, so that no speed-up "
            f"can be expected: {which}."
        )
    holes = [(layout.why_hole(p.cell), _team(p), str(p.batch_size)) for p in line.points if not p.cell.shown]
    missing: dict[str, list[str]] = {}
    for point in line.teams:
        if point.cell.timed is None:
            continue  # its own reason is told
        named = (("strong", point.strong), ("weak", point.weak), ("against 1 process", point.one_process))
        for what, gain in named:
            if gain is not None and gain.reason and gain.measured:
                missing.setdefault(f"{what}: {gain.reason}", []).append(_team(point))
    return [
        *lines,
        *layout.reasons(holes),
        *(f"No figure for {', '.join(dict.fromkeys(of))}, {why}." for why, of in missing.items()),
    ]


def _verdicts(line: Line) -> Iterable[str]:
    """Give a sentence for each way in which teams stand against one process of as many threads."""
    found: dict[str, list[str]] = {}
    for point in line.teams:
        rival = None if point.one_process is None else point.one_process.speedup
        if rival is None:
            continue
        # Of speeds: a ratio above 1 is faster.
        word = {"worse": "faster", "better": "slower"}.get(
            "" if rival.low is None else judge(rival), "cannot be told from it"
        )
        disturbed = any(
            other.cell.has(CONTENDED)
            for other in line.points
            if other.batch_size == point.batch_size
            and (other is point or (other.world_size, other.threads) == (1, (point.threads or 0) * point.world_size))
        )
        found.setdefault(word + " (other programs interfered)" * disturbed, []).append(
            f"{_team(point)} on {point.batch_size}"
        )
    told = [f"{', '.join(teams)} {word}" for word, teams in found.items()]
    if told:
        yield f"Compared with one process of as many threads: {'; '.join(told)}."


def _team(point: Point) -> str:
    """Return a number of workers and their threads in words: "2 x 1 thread", of GPUs "2 workers"."""
    if not point.threads or point.cell.column.device != "cpu":
        return f"{point.world_size} worker{'s' if point.world_size != 1 else ''}"
    return f"{point.world_size} x {point.threads} thread{'s' if point.threads != 1 else ''}"


def _legend(found: Workers, common: set[FlagKind]) -> list[str]:
    points = [point for line in found.lines for point in line.points]
    lines = [
        "p threads of each worker; w workers, on GPUs each on one of its own; batch the whole mini-batch; strong "
        "speed-up over one worker on the same mini-batch (Amdahl 1967); weak throughput over that of one worker on a "
        "mini-batch of as many examples as each of the w has (Gustafson 1988); eff. that speed-up / w."
    ]
    if any(point.one_process is not None for point in points):
        lines.append(
            "1 process: seconds of one worker with w x p threads / those of w workers with p each; above 1 the workers "
            "are faster. On a CPU that is the fair comparison: strong and weak hold more threads against fewer."
        )
    few = (
        f"; of a ratio with fewer than {ENOUGH_LAUNCHES} launches on a side from their steps, widened by an assumed "
        f"deviation of {LAUNCH_DEVIATION:.0%} between launches"
    )
    lines.append(
        "± half-width of the 95 % interval (the wider side)"
        + (few if any(p.cell.has(FEW_LAUNCHES) for p in points) else "")
    )
    gains = [gain for point in points for gain in (point.strong, point.weak, point.one_process)]
    if any(gain is not None and gain.speedup is None for gain in gains):
        lines.append(f"{layout.MISSING} what it would be compared with was not measured, or cannot be used")
    return [*lines, *layout.flag_lines((point.cell for point in points), common), *found.notes]
