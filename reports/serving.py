"""`dlbench report serving`: the mini-batch, threads and instances that answer most examples.

There is one row for each network and row of the matrix. A choice counts if its slowest call in a
hundred stays within a limit (`--within`). The best choice is compared with the usual one of the
same mini-batch: one process with the framework's own number of threads, or the most that was
measured. These are MLPerf's scenarios: SingleStream is the percentile of single calls, Offline the
throughput without a limit.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column, axis_columns, host_columns, table
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import MEDIAN
from dlbench.reports.formats.layout import MISSING, Page
from dlbench.reports.report import ALL_RUNS, WITHIN, Report, ReportOptions
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, listed, row_name, short_extra, work_name
from dlbench.reports.results.number_text import number
from dlbench.reports.results.quantities import FEWEST_BEYOND
from dlbench.reports.results.statistics import Summary

_CHOSEN = ("batch_size", "threads", "instances")
"""The axes among whose values a server chooses."""
_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")
NOTHING = (
    "No cell of inference was measured yet. Measure some: `dlbench run serving`, or --task "
    "inference."
)


class Served(NamedTuple):
    """The best choice of a row for a network, and the usual one."""

    best: CellResult | None
    """None: no choice stays within the limit."""
    usual: CellResult
    choices: int
    """The number of measured choices."""
    judged: int
    """Those whose slowest call in a hundred is known, or all without a limit."""
    unknown: CellResult | None = None
    """The choice without a known tail that answers most, if it answers more than the best."""

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
    """Cells that do not count, since their calls are too few for a 99th percentile."""


def limit_of(text: str) -> float | None:
    """Return the seconds of a limit such as "20ms", or None for an empty text.

    Raises ReportError for any other text.
    """
    if not text:
        return None
    match = _LIMIT.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ReportError(
            f"--within {text[:40]!r} cannot be read. Write a time such as 20ms or 0.5s."
        )
    unit = 1e-3 if match[2] == "ms" else 1.0
    return float(match[1]) * unit


def tail_of(cell: CellResult) -> Summary | None:
    """Return the time within which 99 calls in 100 end; None where it is not known."""
    return cell.measured.get("p99")


def serving(matrix: Matrix, within: float | None) -> Serving:
    """Return the choice of each network and row with the most examples per second in the limit."""
    choices_by_row: dict[tuple[str, Cell], list[CellResult]] = {}
    without_tail = []
    for cell in matrix.cells.values():
        if cell.cell.infers and cell.timed is not None and cell.items_per_second is not None:
            row = (cell.machine, axes.without(cell.cell, *_CHOSEN))
            choices_by_row.setdefault(row, []).append(cell)
            if within is not None and tail_of(cell) is None:
                without_tail.append(cell)
    rows = [_best_choice(choices, within) for choices in choices_by_row.values()]
    return Serving(matrix, within, tuple(rows), tuple(without_tail))


def _best_choice(choices: Sequence[CellResult], within: float | None) -> Served:
    """Return the best of a row's choices, and the usual one with the same mini-batch."""
    allowed = []
    unjudged = []
    for cell in choices:
        tail = tail_of(cell)
        if within is None:
            allowed.append(cell)
        elif tail is None:
            unjudged.append(cell)
        elif tail.median <= within:
            allowed.append(cell)
    best = max(allowed, key=_examples, default=None)
    alike = choices
    if best is not None:
        alike = [cell for cell in choices if cell.cell.batch_size == best.cell.batch_size]
    usual_choice = min(alike, key=_unusual)
    unknown = max(unjudged, key=_examples, default=None)
    if unknown is not None and best is not None and _examples(unknown) <= _examples(best):
        unknown = None
    return Served(best, usual_choice, len(choices), len(choices) - len(unjudged), unknown)


def _examples(cell: CellResult) -> float:
    return cell.items_per_second or 0.0


def _unusual(cell: CellResult) -> tuple[bool, bool, int, int]:
    """Return a key that is least for the usual choice.

    That is one process with its own number of threads, or else the most.
    """
    choice = cell.cell
    return choice.instances > 1, choice.threads != 0, -choice.threads, choice.batch_size or 0


def _choice_text(cell: CellResult) -> str:
    """Return a choice in words: "mini-batch 16, 2 threads, 2 instances"."""
    choice = cell.cell
    threads = "its own threads" if choice.threads == 0 else counted(choice.threads, "thread")
    words = [f"mini-batch {choice.batch_size}", threads]
    if choice.instances > 1:
        words.append(counted(choice.instances, "instance"))
    return listed(words)


def _chosen(cell: CellResult) -> dict[str, int | None]:
    """Return a choice by the names of its axes."""
    return {name: getattr(cell.cell, name) for name in _CHOSEN}


def _name(served: Served) -> str:
    """Return the name of a row with its other axes: "torch eager q1" under a CPU quota of 1."""
    cell = served.usual
    return short_extra(row_name(cell.row), axes.without(cell.cell, *_CHOSEN))


def _best(served: Served) -> dict[str, int | None] | None:
    if served.best is None:
        return None
    return _chosen(served.best)


def _best_text(served: Served) -> str:
    if served.best is not None:
        return _choice_text(served.best)
    if not served.judged:
        return "too few calls to tell"
    unknown = served.choices - served.judged
    if unknown:
        return f"none of {served.judged} within the limit, {unknown} unknown"
    return "none within the limit"


def _best_examples(served: Served) -> float | None:
    if served.best is None:
        return None
    return served.best.items_per_second


def _best_examples_text(served: Served) -> str:
    if served.best is None:
        return MISSING
    return number(_examples(served.best))


def _best_tail(served: Served) -> Summary | None:
    if served.best is None:
        return None
    return tail_of(served.best)


def _times_text(served: Served) -> str:
    if served.times is None:
        return MISSING
    return f"{served.times:.2f}x"


_COLUMNS = (
    Column[Served]("", "", _name),
    Column[Served]("best", "choice", _best, _best_text, fields=_CHOSEN),
    Column[Served]("items_per_second", "examples/s", _best_examples, _best_examples_text),
    Column[Served]("p99", "p99 s", _best_tail, fields=MEDIAN),
    Column[Served]("times_as_many", "times", lambda served: served.times, _times_text),
    Column[Served]("usual", None, lambda served: _chosen(served.usual), fields=_CHOSEN),
    Column[Served]("usual_items_per_second", None, lambda served: served.usual.items_per_second),
    Column[Served]("choices", None, lambda served: served.choices),
)


def _page(serving: Serving) -> Page:
    hosts = serving.matrix.hosts
    other_axes = [name for name in axes.NAMES if name not in _CHOSEN]
    columns = (
        *host_columns(lambda served: hosts[served.usual.machine]),
        *axis_columns(lambda served: served.usual.cell, other_axes),
        *_COLUMNS,
    )
    if not serving.rows:
        return Page((NOTHING, *serving.matrix.notes), (table(columns, (), key="rows"),))
    limit = ""
    if serving.within is not None:
        limit = f", 99 calls in 100 within {serving.within * 1e3:g} ms"
    tables = []
    for machine, rows in grouped(serving.rows, lambda served: served.usual.machine).items():
        title = f"Most examples per second{limit}, on {hosts[machine].name}"
        tables.append(table(columns, rows, title, "rows", _network))
    return Page((), tuple(tables), tuple(_notes(serving)))


def _network(served: Served) -> str:
    return work_name(axes.without(served.usual.cell, *_CHOSEN))


def _notes(serving: Serving) -> Iterator[str]:
    yield (
        "times: as many examples as by the usual choice for that mini-batch, which is one process "
        "with the framework's own number of threads, or else the most that was measured."
    )
    if any(served.usual.cell.cpu_quota for served in serving.rows):
        yield "qN: under a CPU quota of N."
    if serving.rows:
        first = serving.rows[0].usual.cell
        yield (
            f"`dlbench tune --task inference --network {first.network} --framework "
            f"{first.framework} --write Dockerfile` searches settings to paste. For a network of "
            "your own, add `--suite FILE`."
        )
    for served in serving.rows:
        if served.unknown is not None:
            yield (
                f"{_network(served)}, {_name(served)}: {_choice_text(served.unknown)} answered "
                f"{number(_examples(served.unknown))} examples/s. Its p99 is unknown."
            )
    if serving.without_tail:
        count = counted(len(serving.without_tail), "cell")
        yield (
            f"Not counted, since the p99 needs {FEWEST_BEYOND * 100} calls in a launch: {count}. "
            "Give launches more `seconds` in the suite's [protocol]."
        )
    shown = [served.best or served.usual for served in serving.rows]
    yield from layout.flag_lines(shown, layout.common_flags(shown))
    yield from serving.matrix.notes


def _check(options: ReportOptions) -> None:
    limit_of(options.within)


def _has_choices(cells: Collection[Cell]) -> bool:
    choices = {axes.project(cell, _CHOSEN) for cell in cells if cell.infers}
    return len(choices) > 1


REPORT = Report(
    name="serving",
    summary="""The mini-batch, threads and instances with the best throughput.

With --within only choices count whose slowest call in a hundred ends in time.""",
    examples=(
        "dlbench report serving",
        "dlbench report serving --within 20ms",
        "dlbench report serving --within 20ms --frameworks onnx,openvino --json",
    ),
    analyse=lambda source: serving(source.matrix(), limit_of(source.options.within)),
    page=lambda serving, options: _page(serving),
    suggestion="which mini-batch, threads and instances answer most examples",
    applies=_has_choices,
    options=frozenset({ALL_RUNS, WITHIN}),
    validate=_check,
)
