"""`dlbench report costs`: start, memory and energy of each row, and the fastest mode for n steps.

The start is the time to the end of the first step, so n steps take the start plus n - 1 times the
step. One of two rows takes clearly less for n steps if the interval of the difference excludes 0;
between the two ends of a break-even (`statistics.break_even`) neither does.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import PLACE, WORK, Column, axis_columns, host_columns, table
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.left_out import left_out
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.keys import Place, differ, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, place_name, row_name, work_name
from dlbench.reports.results.number_text import NEVER, deviation, number
from dlbench.reports.results.quantities import QUANTITIES, legend, reasons
from dlbench.reports.results.statistics import Summary, clearly_slower, combination

STEPS = (10, 1_000, 100_000)
NOTHING = "None of these cells has a time and the seconds of its start."
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
    """A row at a place, compared with the others there."""

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
"""One list for each place of each network on each machine."""


def costs(matrix: Matrix) -> Costs:
    """Return the costs of the rows that may be fastest at each place, by their start."""
    cells_by_place: dict[tuple[Place, Cell], list[CellResult]] = {}
    for cell in matrix.cells.values():
        if "start" in cell.measured:
            cells_by_place.setdefault((cell.column, cell.work), []).append(cell)
    places = []
    for cells_at_place in cells_by_place.values():
        rivals = [cell for cell, _ in in_the_running(cells_at_place)]
        rivals.sort(key=lambda cell: cell.measured["start"].median)
        costs_at_place = [_cost(cell, rivals) for cell in rivals]
        if costs_at_place:
            places.append(costs_at_place)
    return Compared(matrix, tuple(places))


def _terms(
    cell: CellResult, steps: int, sign: int = 1
) -> tuple[tuple[float, Summary], tuple[float, Summary]]:
    """Return the summands of this many steps: the start, and the further steps."""
    assert cell.seconds is not None  # it is timed
    return (sign, cell.measured["start"]), (sign * (steps - 1), cell.seconds)


def seconds_after(cell: CellResult, steps: int) -> tuple[float, float, float]:
    """Return the seconds of this many steps and of the start, with the ends of their interval."""
    return combination(*_terms(cell, steps))


def least_for(cells: Iterable[CellResult], steps: int) -> tuple[CellResult, ...]:
    """Return the row that takes least for this many steps, and those not clearly longer."""

    def time_of(cell: CellResult) -> float:
        seconds, _, _ = seconds_after(cell, steps)
        return seconds

    first, *others = sorted(cells, key=time_of)
    least = [first]
    for cell in others:
        difference = combination(*_terms(cell, steps), *_terms(first, steps, -1))
        lower_end = difference[1]
        if lower_end <= 0:
            least.append(cell)
    return tuple(least)


def _cost(cell: CellResult, rivals: Sequence[CellResult]) -> Cost:
    if len(rivals) == 1:
        return Cost(cell, frozenset())
    least: set[object] = set()
    for steps in STEPS:
        if any(rival is cell for rival in least_for(rivals, steps)):
            least.add(steps)
    for name in _LEAST:
        if name not in cell.measured:
            continue
        summaries = [rival.measured[name] for rival in rivals if name in rival.measured]
        lowest = min(summaries, key=lambda summary: summary.median)
        if not clearly_slower(cell.measured[name], lowest):
            least.add(name)
    return Cost(cell, frozenset(least))


def choices(costs: Costs) -> Iterator[Choice]:
    """Yield the mode of each framework that takes least at a place, and the row of all of them."""
    for place in costs.rows:
        cells = [cost.cell for cost in place]
        cells_by_framework = grouped(cells, lambda cell: cell.row.framework)
        rivals = []
        for framework, modes in cells_by_framework.items():
            if len(modes) > 1:
                rivals.append((framework, modes))
        if len(cells_by_framework) > 1:
            rivals.append(("", cells))
        for framework, rows in rivals:
            at = axes.project(cells[0].cell, (*WORK, *PLACE))._replace(framework=framework)
            rows_by_steps = {steps: least_for(rows, steps) for steps in STEPS}
            yield Choice(cells[0].machine, at, rows_by_steps)


# Its tables.


def _quantity_column(costs: Costs, name: str) -> Column[Cost]:
    """Return the column of a quantity; tables have it where any row does."""
    quantity = QUANTITIES[name]

    def text(cost: Cost) -> Entry:
        numbers = quantity.value(cost.cell)
        if numbers is None:
            return Entry(MISSING)
        spread = "" if name in _PARTS else deviation(*numbers)
        return Entry(number(numbers[0]), spread, best=name in cost.least)

    def value(cost: Cost) -> dict[str, float | None] | None:
        numbers = quantity.value(cost.cell)
        if numbers is None:
            return None
        return dict(zip(MEDIAN, numbers, strict=True))

    is_measured = any(name in cell.measured for cell in _cells(costs))
    heading = quantity.unit if is_measured else None
    return Column(name, heading, value, text, MEDIAN)


def _steps_column(steps: int) -> Column[Cost]:
    def text(cost: Cost) -> Entry:
        seconds = seconds_after(cost.cell, steps)
        return Entry(number(seconds[0]), deviation(*seconds), best=steps in cost.least)

    def value(cost: Cost) -> dict[str, float]:
        return dict(zip(VALUE, seconds_after(cost.cell, steps), strict=True))

    return Column(f"seconds_of_{steps}_steps", f"{steps:,} steps", value, text, VALUE)


def _break_even_text(cost: Cost) -> Entry:
    """Return the break-even: "412 350-510", or "never"."""
    even = cost.cell.break_even
    if even is None:
        return Entry(MISSING)
    if even.steps is None or even.low is None or even.high is None:
        return Entry(NEVER)
    return Entry(number(even.steps), f" {number(even.low)}-{number(even.high)}")


def _cells(costs: Costs) -> list[CellResult]:
    cells = []
    for costs_at_place in costs.rows:
        for cost in costs_at_place:
            cells.append(cost.cell)
    return cells


def _cost_columns(costs: Costs) -> tuple[Column[Cost], ...]:
    seconds = QUANTITIES["seconds"]
    common = layout.common_flags(_cells(costs))
    start_columns = [_quantity_column(costs, name) for name in (*_PARTS, "start")]
    other_columns = [_quantity_column(costs, name) for name in _LEAST[1:]]
    return (
        *host_columns(lambda cost: costs.matrix.hosts[cost.cell.machine]),
        *axis_columns(lambda cost: cost.cell.cell),
        Column("", "", lambda cost: row_name(cost.cell.row)),
        *start_columns,
        Column("cold_start", None, lambda cost: cost.cell.cold_start),
        Column(
            "seconds_per_minibatch",
            seconds.unit,
            lambda cost: cost.cell.seconds,
            lambda cost: layout.entry(cost.cell, seconds, common),
            MEDIAN,
        ),
        *other_columns,
        Column(
            "break_even",
            QUANTITIES["break_even"].unit,
            lambda cost: cost.cell.break_even,
            _break_even_text,
            ("steps", "low", "high"),
        ),
        *map(_steps_column, STEPS),
    )


def _least_column(steps: int) -> Column[Choice]:
    def names(choice: Choice) -> list[str]:
        prefix = f"{choice.at.framework} "
        return [row_name(cell.row).removeprefix(prefix) for cell in choice.rows[steps]]

    def text(choice: Choice) -> str:
        return " or ".join(names(choice))

    def csv(choice: Choice) -> str:
        return "; ".join(names(choice))

    return Column(f"least_of_{steps}_steps", f"{steps:,} steps", names, text, csv=csv)


def _choice_columns(costs: Costs) -> tuple[Column[Choice], ...]:
    return (
        *host_columns(lambda choice: costs.matrix.hosts[choice.machine]),
        *axis_columns(lambda choice: choice.at, (*WORK, *PLACE)),
        Column("framework", "", lambda choice: choice.at.framework or None, _choice_text),
        *map(_least_column, STEPS),
    )


def _choice_text(choice: Choice) -> str:
    return f"{_place_text(choice.at)}: {choice.at.framework or 'all'}"


def _place_text(cell: Cell) -> str:
    names = [name for name in (work_name(cell), place_name(cell)) if name]
    return ", ".join(names)


def _page(costs: Costs) -> Page:
    """Return a table of each machine's rows, and one of the fastest row for n steps."""
    cost_columns = _cost_columns(costs)
    choice_columns = _choice_columns(costs)
    if not costs.rows:
        # JSON and CSV have their keys all the same.
        empty = (table(cost_columns, (), key="cells"), table(choice_columns, (), key="choices"))
        return Page((NOTHING, *left_out(_left_out(costs)), *costs.matrix.notes), empty)
    costs_by_machine: dict[str, list[Cost]] = {}
    for costs_at_place in costs.rows:
        for cost in costs_at_place:
            costs_by_machine.setdefault(cost.cell.machine, []).append(cost)
    choices_by_machine = grouped(choices(costs), lambda choice: choice.machine)
    tables = []
    for machine in costs.matrix.machines:
        machine_costs = costs_by_machine.get(machine)
        if machine_costs:
            title = f"What a step costs, on {costs.name(machine)}"
            tables.append(
                table(
                    cost_columns,
                    machine_costs,
                    title,
                    "cells",
                    lambda cost: _place_text(cost.cell.cell),
                    _LEGEND,
                )
            )
        machine_choices = choices_by_machine.get(machine)
        if machine_choices:
            title = "Which row takes least time for how many steps"
            tables.append(
                table(choice_columns, machine_choices, title, "choices", notes=(_OR,), words=True)
            )
    return Page((), tuple(tables), tuple(_notes(costs)))


def _notes(costs: Costs) -> Iterator[str]:
    cells = _cells(costs)
    yield from layout.flag_lines(cells, layout.common_flags(cells))
    for name in (*_LEAST, "break_even"):
        if any(QUANTITIES[name].value(cell) is not None for cell in cells):
            yield f"{QUANTITIES[name].unit}: {legend(name)}"
    warm = sum(not cell.cold_start for cell in cells)
    if warm:
        yield (
            f"{counted(warm, 'cell')} may have reused code that earlier launches had compiled; "
            "`dlbench run costs` gives each launch an empty cache."
        )
    for reason, cells_without in reasons(cells, "cpu_joules").items():
        count = counted(len(cells_without), "cell")
        yield f"{QUANTITIES['cpu_joules'].title}: not measured for {count}: {reason}."
    yield from left_out(_left_out(costs))
    yield from costs.matrix.notes


def _left_out(costs: Costs) -> list[CellResult]:
    """Return the cells of the matrix that are in no table."""
    shown = {Place(cell.machine, cell.cell) for cell in _cells(costs)}
    left_out_cells = []
    for cell in costs.matrix.cells.values():
        if Place(cell.machine, cell.cell) not in shown:
            left_out_cells.append(cell)
    return left_out_cells


def headline(costs: Costs) -> list[str]:
    """Return for each machine how many modes make up for a later first step, and how soon."""
    lines = []
    for machine, cells in grouped(_cells(costs), lambda cell: cell.machine).items():
        later = soon = never = 0
        for cell in cells:
            even = cell.break_even
            if even is None:
                continue
            later += 1
            if even.high is not None and even.high <= STEPS[1]:
                soon += 1
            if even.steps is None:
                never += 1
        if later:
            lines.append(
                f"{costs.name(machine)}: of {counted(later, 'cell')} that end their first "
                f"step later than another mode of their framework, {soon} clearly make up for it "
                f"within {STEPS[1]:,} steps, {never} never."
            )
    return lines


REPORT = Report(
    name="costs",
    summary="""Start, memory and energy, and when a mode pays off.

The start is import, building the network and the first step, compilation included. A mode has made
up for its start once it has taken less time in total than the mode of the same framework that
starts first.""",
    examples=(
        "dlbench report costs",
        "dlbench report costs --networks fcn5 --frameworks torch --threads 2",
        "dlbench report costs --run latest --json",
    ),
    analyse=lambda source: costs(source.matrix()),
    page=lambda costs, options: _page(costs),
    suggestion="which mode takes least time for how many steps, and which the least memory",
    applies=lambda cells: differ(cells, "mode"),
    options=frozenset({ALL_RUNS}),
    heading="What else a step costs",
    place=30,
    headline=headline,
)
