"""`dlbench report costs`: the start, memory and energy of each row, and which mode takes least for
how many steps.

The start is the time to the end of the first step, so n steps take the start plus n - 1 times the
step. One of two rows takes clearly less for n steps if the interval of the difference excludes 0;
between the two ends of a break-even (`statistics.break_even`) neither does.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import GROUP, PLACE, Column, axis_columns, host_columns, table
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.left_out import left_out
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.keys import differ, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, group_name, place_name, row_name
from dlbench.reports.results.number_text import NEVER, deviation, number
from dlbench.reports.results.quantities import QUANTITIES, legend, reasons
from dlbench.reports.results.statistics import Summary, clearly_slower, combination

STEPS = (10, 1_000, 100_000)
NOTHING = "No cell here has a time and the seconds of its start."
_PARTS = ("import", "prepare", "first_step")
_LEAST = ("start", "memory", "gpu_memory", "cpu_joules")
_LEGEND = (
    "Medians over launches. n steps: seconds of the start and of n - 1 further steps.",
    (
        f"{layout.BEST} the least at its place, or not clearly more. ± is the wider side of the "
        "95 % interval over launches; with fewer than 3, the interval of n steps assumes the "
        "deviation between launches that other cells show (5 % where too few show it)."
    ),
)
_OR = "x or y: the intervals do not say which takes less; the first has the lower value."


class Cost(NamedTuple):
    """A row at a place, beside the others there."""

    cell: CellResult
    least: frozenset[object]
    """Quantities, and numbers of steps, for which no other row there takes clearly less."""


class Choice(NamedTuple):
    """The rows that take least at a place."""

    machine: str
    at: Cell
    """The axes of work and place; the framework, or "" for all frameworks."""
    rows: dict[int, tuple[CellResult, ...]]
    """For this many steps the row with the least time, and those that do not clearly take
    longer."""


Costs = Compared[list[Cost]]
"""A list for each place of each network on each machine."""


def costs(matrix: Matrix) -> Costs:
    """Return for each place the costs of the rows that may be fastest there, ordered by the end of
    the first step.
    """
    found = []
    started = [cell for cell in matrix.cells.values() if "start" in cell.measured]
    for here in grouped(started, lambda cell: (cell.column, cell.group)).values():
        cells = sorted(
            (cell for cell, _ in in_the_running(here)),
            key=lambda cell: cell.measured["start"].median,
        )
        if cells:
            found.append([_cost(cell, cells) for cell in cells])
    return Compared(matrix, tuple(found))


def _terms(
    cell: CellResult, steps: int, sign: int = 1
) -> tuple[tuple[float, Summary], tuple[float, Summary]]:
    """Return the summands of this many steps: the start, and the further steps."""
    assert cell.seconds is not None  # it is timed
    return (sign, cell.measured["start"]), (sign * (steps - 1), cell.seconds)


def seconds_after(cell: CellResult, steps: int) -> tuple[float, float, float]:
    """Return the seconds of this many steps, the start included, with the ends of their
    interval.
    """
    return combination(*_terms(cell, steps))


def least_for(cells: Iterable[CellResult], steps: int) -> tuple[CellResult, ...]:
    """Return the row that takes least for this many steps, and those that do not clearly take
    longer.
    """
    first, *others = sorted(cells, key=lambda cell: seconds_after(cell, steps)[0])

    def more(cell: CellResult) -> float:
        """Return the least that a row may take more than the first."""
        return combination(*_terms(cell, steps), *_terms(first, steps, -1))[1]

    return (first, *(each for each in others if more(each) <= 0))


def _cost(cell: CellResult, cells: Sequence[CellResult]) -> Cost:
    least: set[object] = {
        steps for steps in STEPS if any(each is cell for each in least_for(cells, steps))
    }
    for name in _LEAST:
        known = [each.measured[name] for each in cells if name in each.measured]
        if name in cell.measured and not clearly_slower(
            cell.measured[name], min(known, key=lambda of: of.median)
        ):
            least.add(name)
    return Cost(cell, frozenset(least if len(cells) > 1 else ()))


def choices(found: Costs) -> Iterator[Choice]:
    """Yield which mode of a framework takes least at a place, and where there are several
    frameworks, which row.
    """
    for here in found.rows:
        cells = [each.cell for each in here]
        of_frameworks = grouped(cells, lambda cell: cell.row.framework)
        rivals = {name: of for name, of in of_frameworks.items() if len(of) > 1}
        rivals |= {"": cells} if len(of_frameworks) > 1 else {}
        for name, of in rivals.items():
            at = axes.project(cells[0].cell, (*GROUP, *PLACE))._replace(framework=name)
            yield Choice(cells[0].machine, at, {steps: least_for(of, steps) for steps in STEPS})


# Its tables.


def _measured(found: Costs, name: str) -> Column[Cost]:
    """Return the column of a quantity; tables have it where any row does."""

    def text(cost: Cost) -> Entry:
        if (found := QUANTITIES[name].value(cost.cell)) is None:
            return Entry(MISSING)
        return Entry(
            number(found[0]), "" if name in _PARTS else deviation(*found), best=name in cost.least
        )

    def value(cost: Cost) -> dict[str, float | None] | None:
        found = QUANTITIES[name].value(cost.cell)
        return None if found is None else dict(zip(MEDIAN, found, strict=True))

    known = any(name in cost.cell.measured for here in found.rows for cost in here)
    return Column(name, QUANTITIES[name].unit if known else None, value, text, MEDIAN)


def _after(steps: int) -> Column[Cost]:
    def text(cost: Cost) -> Entry:
        found = seconds_after(cost.cell, steps)
        return Entry(number(found[0]), deviation(*found), best=steps in cost.least)

    def value(cost: Cost) -> dict[str, float]:
        return dict(zip(VALUE, seconds_after(cost.cell, steps), strict=True))

    return Column(f"seconds_of_{steps}_steps", f"{steps:,} steps", value, text, VALUE)


def _even(cost: Cost) -> Entry:
    """Return the break-even: "412 350-510", or "never"."""
    found = cost.cell.break_even
    if found is None:
        return Entry(MISSING)
    if found.steps is None or found.low is None or found.high is None:
        return Entry(NEVER)
    return Entry(number(found.steps), f" {number(found.low)}-{number(found.high)}")


def _cells(found: Costs) -> list[CellResult]:
    return [cost.cell for here in found.rows for cost in here]


def _columns(found: Costs) -> tuple[Column[Cost], ...]:
    seconds, common = QUANTITIES["seconds"], layout.common_flags(_cells(found))
    return (
        *host_columns(lambda cost: found.matrix.hosts[cost.cell.machine]),
        *axis_columns(lambda cost: cost.cell.cell),
        Column("", "", lambda cost: row_name(cost.cell.row)),
        *(_measured(found, name) for name in (*_PARTS, "start")),
        Column("cold_start", None, lambda cost: cost.cell.cold_start),
        Column(
            "seconds_per_minibatch",
            seconds.unit,
            lambda cost: cost.cell.seconds,
            lambda cost: layout.entry(cost.cell, seconds, common),
            MEDIAN,
        ),
        *(_measured(found, name) for name in _LEAST[1:]),
        Column(
            "break_even",
            QUANTITIES["break_even"].unit,
            lambda cost: cost.cell.break_even,
            _even,
            ("steps", "low", "high"),
        ),
        *map(_after, STEPS),
    )


def _choice(steps: int) -> Column[Choice]:
    def names(choice: Choice) -> list[str]:
        return [
            row_name(each.row).removeprefix(f"{choice.at.framework} ")
            for each in choice.rows[steps]
        ]

    return Column(
        f"least_of_{steps}_steps",
        f"{steps:,} steps",
        names,
        lambda choice: " or ".join(names(choice)),
        csv=lambda choice: "; ".join(names(choice)),
    )


def _choices(found: Costs) -> tuple[Column[Choice], ...]:
    return (
        *host_columns(lambda choice: found.matrix.hosts[choice.machine]),
        *axis_columns(lambda choice: choice.at, (*GROUP, *PLACE)),
        Column(
            "framework",
            "",
            lambda each: each.at.framework or None,
            lambda each: f"{_place(each.at)}: {each.at.framework or 'all'}",
        ),
        *map(_choice, STEPS),
    )


def _place(cell: Cell) -> str:
    return ", ".join(filter(None, (group_name(cell), place_name(cell))))


def _page(found: Costs) -> Page:
    """Return for each machine a table of its rows, and one of which takes least for how many
    steps.
    """
    columns, of_choices = _columns(found), _choices(found)
    if not found.rows:
        # JSON and CSV have their keys all the same.
        empty = (table(columns, (), key="cells"), table(of_choices, (), key="choices"))
        return Page((NOTHING, *left_out(_left_out(found)), *found.matrix.notes), empty)
    tables, chosen = [], list(choices(found))
    for machine in found.matrix.machines:
        here = [cost for of in found.rows for cost in of if cost.cell.machine == machine]
        if here:
            title = f"What a step costs, on {found.name(machine)}"
            tables.append(
                table(columns, here, title, "cells", lambda cost: _place(cost.cell.cell), _LEGEND)
            )
        if mine := [each for each in chosen if each.machine == machine]:
            title = "Which row takes least time for how many steps"
            tables.append(table(of_choices, mine, title, "choices", notes=(_OR,), words=True))
    return Page((), tuple(tables), tuple(_notes(found)))


def _notes(found: Costs) -> Iterator[str]:
    cells = _cells(found)
    yield from layout.flag_lines(cells, layout.common_flags(cells))
    for name in (*_LEAST, "break_even"):
        if any(QUANTITIES[name].value(cell) is not None for cell in cells):
            yield f"{QUANTITIES[name].unit}: {legend(name)}"
    if warm := sum(not cell.cold_start for cell in cells):
        yield (
            f"{counted(warm, 'cell')} may have reused code that earlier launches had compiled; "
            "`dlbench run costs` gives each launch an empty cache."
        )
    for why, of in reasons(cells, "cpu_joules").items():
        yield (
            f"{QUANTITIES['cpu_joules'].title}: not measured for {counted(len(of), 'cell')}: {why}."
        )
    yield from left_out(_left_out(found))
    yield from found.matrix.notes


def _left_out(found: Costs) -> list[CellResult]:
    """Return the cells of the matrix that are in no table."""
    shown = {(cell.machine, cell.cell) for cell in _cells(found)}
    return [cell for cell in found.matrix.cells.values() if (cell.machine, cell.cell) not in shown]


def headline(found: Costs) -> list[str]:
    """Return for each machine how many modes make up for a later first step, and within how many
    steps.
    """
    lines = []
    for machine, places in grouped(found.rows, lambda here: here[0].cell.machine).items():
        evens = [
            each for here in places for cost in here if (each := cost.cell.break_even) is not None
        ]
        soon = sum(each.high is not None and each.high <= STEPS[1] for each in evens)
        never = sum(each.steps is None for each in evens)
        if evens:
            lines.append(
                f"{found.name(machine)}: of {counted(len(evens), 'cell')} that end their first "
                f"step later than another mode of their framework, {soon} clearly make up for it "
                f"within {STEPS[1]:,} steps, {never} never."
            )
    return lines


REPORT = Report(
    name="costs",
    summary="""The start, memory and energy of each row, and which mode is fastest for 10, 1,000 and
100,000 steps.

The start is import, building the network and the first step, compilation included. A mode has made
up for its start once it has taken less time in total than the mode of the same framework that
starts first.""",
    examples=(
        "dlbench report costs",
        "dlbench report costs --networks fcn5 --frameworks torch --threads 2",
        "dlbench report costs --run latest --json",
    ),
    analyse=lambda source: costs(source.matrix()),
    page=lambda found, options: _page(found),
    suggestion="which mode takes least time for how many steps, and which the least memory",
    applies=lambda cells: differ(cells, "mode"),
    options=frozenset({ALL_RUNS}),
    heading="What else a step costs",
    place=30,
    headline=headline,
)
