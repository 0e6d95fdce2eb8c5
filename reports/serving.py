"""`dlbench report serving`: for each network and row the mini-batch, threads and instances that
answer most examples.

A choice counts where its slowest call in a hundred stays within a limit (`--within`). Beside the
best choice stands the usual one of the same mini-batch: one process with the framework's own number
of threads, or the most that was measured. These are MLPerf's scenarios: SingleStream is the
percentile of single calls, Offline the throughput without a limit.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.reports.columns import Column, axis_columns, host_columns, table
from dlbench.reports.formats.csv import MEDIAN
from dlbench.reports.formats.layout import MISSING, Page
from dlbench.reports.report import ALL_RUNS, WITHIN, Report, ReportOptions
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, group_name, listed, row_name, short_extra
from dlbench.reports.results.number_text import number
from dlbench.reports.results.statistics import Summary

_CHOSEN = ("batch_size", "threads", "instances")
"""The axes among whose values a server chooses."""
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")
NOTHING = "No cell here is of inference. Measure some: `dlbench run serving`, or --task inference."


class Served(NamedTuple):
    """The best choice of a row for a network, and the usual one."""

    best: CellResult | None
    """None: no choice stays within the limit."""
    usual: CellResult
    choices: int
    """That were measured."""
    judged: int
    """Of these, those whose slowest call in a hundred is known, or all without a limit."""

    @property
    def times(self) -> float | None:
        """Examples per second of the best choice over those of the usual one."""
        if (
            self.best is None
            or not self.usual.items_per_second
            or self.best.items_per_second is None
        ):
            return None
        return self.best.items_per_second / self.usual.items_per_second


class Serving(NamedTuple):
    """The choices of a matrix within a limit."""

    matrix: Matrix
    within: float | None
    """Seconds; None: no limit."""
    rows: tuple[Served, ...]
    without_tail: tuple[CellResult, ...]
    """Cells that do not count since too few calls show no 99th percentile."""


def limit_of(text: str) -> float | None:
    """Return the seconds of a limit such as "20ms"; None for an empty text. Raises ReportError for
    any other.
    """
    if not text:
        return None
    read = _LIMIT.fullmatch(text.strip())
    if read is None or float(read[1]) == 0:
        raise ReportError(
            f"--within {text[:40]!r} cannot be read. Write a time such as 20ms or 0.5s."
        )
    return float(read[1]) * (1e-3 if read[2] == "ms" else 1.0)


def tail_of(cell: CellResult) -> Summary | None:
    """Return the time within which 99 calls in 100 end; None where it is not known."""
    return cell.measured.get("p99")


def serving(matrix: Matrix, within: float | None) -> Serving:
    """Return for each network and row the choice with the most examples per second within the
    limit.
    """
    cells = [each for each in matrix.cells.values() if each.cell.infers and each.timed is not None]
    known = [each for each in cells if each.items_per_second is not None]
    found = []
    for choices in grouped(
        known, lambda each: (each.machine, axes.without(each.cell, *_CHOSEN))
    ).values():
        allowed = [each for each in choices if within is None or _ends_within(each, within)]
        best = max(allowed, key=_examples, default=None)
        alike = [
            each for each in choices if best is None or each.cell.batch_size == best.cell.batch_size
        ]
        judged = [each for each in choices if within is None or tail_of(each) is not None]
        found.append(Served(best, min(alike, key=_unusual), len(choices), len(judged)))
    lacking = () if within is None else tuple(each for each in known if tail_of(each) is None)
    return Serving(matrix, within, tuple(found), lacking)


def _ends_within(cell: CellResult, within: float) -> bool:
    tail = tail_of(cell)
    return tail is not None and tail.median <= within


def _examples(cell: CellResult) -> float:
    return cell.items_per_second or 0.0


def _unusual(cell: CellResult) -> tuple[bool, bool, int, int]:
    """Return a key whose least is the usual choice: one process, its own number of threads or else
    the most.
    """
    at = cell.cell
    return at.instances > 1, at.threads != 0, -at.threads, at.batch_size or 0


def _choice(cell: CellResult) -> str:
    """Return a choice in words: "mini-batch 16, 2 threads, 2 instances"."""
    at = cell.cell
    threads = "its own threads" if at.threads == 0 else counted(at.threads, "thread")
    words = [f"mini-batch {at.batch_size}", threads]
    return listed(words + ([counted(at.instances, "instance")] if at.instances > 1 else []))


def _none(served: Served) -> str:
    """Return why there is no best choice, in words."""
    return "none within the limit" if served.judged else "too few calls to tell"


def _name(cell: CellResult) -> str:
    """Return the name of its row, and what else tells it from others: "torch eager q1" under a CPU
    quota of 1.
    """
    return short_extra(row_name(cell.row), axes.without(cell.cell, *_CHOSEN))


def _chosen(cell: CellResult) -> dict[str, int | None]:
    """Return a choice by the names of its axes."""
    return {name: getattr(cell.cell, name) for name in _CHOSEN}


_COLUMNS = (
    Column[Served]("", "", lambda each: _name(each.usual)),
    Column[Served](
        "best",
        "choice",
        lambda each: each.best and _chosen(each.best),
        lambda each: _none(each) if each.best is None else _choice(each.best),
        fields=_CHOSEN,
    ),
    Column[Served](
        "items_per_second",
        "examples/s",
        lambda each: each.best and each.best.items_per_second,
        lambda each: MISSING if each.best is None else number(_examples(each.best)),
    ),
    Column[Served]("p99", "p99 s", lambda each: each.best and tail_of(each.best), fields=MEDIAN),
    Column[Served](
        "times_as_many",
        "times",
        lambda each: each.times,
        lambda each: MISSING if each.times is None else f"{each.times:.2f}x",
    ),
    Column[Served]("usual", None, lambda each: _chosen(each.usual), fields=_CHOSEN),
    Column[Served]("usual_items_per_second", None, lambda each: each.usual.items_per_second),
    Column[Served]("choices", None, lambda each: each.choices),
)


def _page(found: Serving) -> Page:
    columns = (
        *host_columns(lambda each: found.matrix.hosts[each.usual.machine]),
        *axis_columns(
            lambda each: each.usual.cell, [name for name in axes.NAMES if name not in _CHOSEN]
        ),
        *_COLUMNS,
    )
    if not found.rows:
        return Page((NOTHING, *found.matrix.notes), (table(columns, (), key="rows"),))
    limit = "" if found.within is None else f", 99 calls in 100 within {number(found.within)} s"
    tables = []
    for machine, rows in grouped(found.rows, lambda each: each.usual.machine).items():
        title = f"Most examples per second{limit}, on {found.matrix.hosts[machine].name}"
        tables.append(table(columns, rows, title, "rows", lambda each: _network(each.usual)))
    return Page((), tuple(tables), tuple(_notes(found)))


def _network(cell: CellResult) -> str:
    return group_name(axes.without(cell.cell, *_CHOSEN))


def _notes(found: Serving) -> Iterator[str]:
    yield (
        "times: as many examples as by the usual choice for that mini-batch, which is one process "
        "with the framework's own number of threads, or else the most that was measured."
    )
    if any(each.usual.cell.cpu_quota for each in found.rows):
        yield "qN: under a CPU quota of N."
    if found.rows:
        first = found.rows[0].usual.cell
        yield (
            "Settings to paste, for example: `dlbench tune --task inference "
            f"--network {first.network} --framework {first.framework} --write Dockerfile`."
        )
    if found.without_tail:
        lacking = counted(len(found.without_tail), "cell")
        yield (
            f"Without the slowest in a hundred, since calls are too few: {lacking}, not counted. "
            "Give launches more `seconds` in the suite's [protocol]."
        )
    yield from found.matrix.notes


REPORT = Report(
    name="serving",
    summary="""The mini-batch, threads and instances with the most examples per second, and what the
usual choice costs.

With --within only choices count whose slowest call in a hundred ends in time.""",
    examples=(
        "dlbench report serving",
        "dlbench report serving --within 20ms",
        "dlbench report serving --within 20ms --frameworks onnx,openvino --json",
    ),
    analyse=lambda source: serving(source.matrix(), limit_of(source.options.within)),
    page=lambda found, options: _page(found),
    suggestion="which mini-batch, threads and instances answer most examples",
    applies=lambda cells: len({axes.project(cell, _CHOSEN) for cell in cells if cell.infers}) > 1,
    options=frozenset({ALL_RUNS, WITHIN}),
    validate=lambda options: _check(options),
)


def _check(options: ReportOptions) -> None:
    limit_of(options.within)
