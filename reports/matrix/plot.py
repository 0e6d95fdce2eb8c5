"""The matrix as a picture: a panel for each network, rows down, the share of the measured ceiling across."""

from collections.abc import Iterable
from pathlib import Path

from dlbench.reports.cells import NO_THREADS, CellResult, Matrix
from dlbench.reports.formats.dots import Dots, Panel, dots_to_picture
from dlbench.reports.formats.pictures import Interval
from dlbench.reports.naming import group_name, head_of, row_name
from dlbench.reports.storage.hosts import name_among


def drawn_cells(matrix: Matrix, machine: str = "") -> list[CellResult]:
    """Return the cells with a time that counts and a share of the ceiling, of one machine or of all."""
    of_one = (cell for cell in matrix.cells.values() if not machine or cell.column.machine == machine)
    return [cell for cell in of_one if cell.timed is not None and cell.ceiling_fraction is not None]


def matrix_to_picture(matrix: Matrix, path: Path) -> list[Path]:
    """Draw the share of the measured ceiling, a page for each machine, and return the files. Raises ReportError."""
    machines = [machine for machine in matrix.machines if drawn_cells(matrix, machine)]
    return dots_to_picture([_page(matrix, machine) for machine in machines], path)


def _page(matrix: Matrix, machine: str) -> Dots:
    cells = drawn_cells(matrix, machine)
    panels = tuple(_panel([cell for cell in cells if cell.group == group]) for group in _groups(cells))
    title = f"Share of the measured ceiling, on {name_among(matrix.hosts, machine)}"
    across = "per cent of the ceiling at no more than this many threads; bars: the 95 % interval of the time"
    return Dots(title, across, panels)


def _groups(cells: Iterable[CellResult]) -> list[object]:
    return list(dict.fromkeys(cell.group for cell in cells))


def _panel(cells: list[CellResult]) -> Panel:
    names = tuple(dict.fromkeys(row_name(cell.row) for cell in cells))
    return Panel(group_name(cells[0].group), names, {(row_name(c.row), _place(c)): _share(c) for c in cells})


def _place(cell: CellResult) -> str:
    where = cell.column
    return head_of(where.cell if where.on_cpu else where.cell._replace(threads=NO_THREADS))


def _share(cell: CellResult) -> Interval:
    """Return per cent of the ceiling: the shorter the time, the more."""
    share, seconds = 100 * (cell.ceiling_fraction or 0.0), cell.seconds
    if seconds is None or seconds.low is None or seconds.high is None:
        return share, None, None
    return share, share * seconds.median / seconds.high, share * seconds.median / seconds.low
