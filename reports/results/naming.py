"""Names of cells, in words: the axes with unusual values, in the order of the table of axes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlbench.adapters import axes
from dlbench.adapters.protocol import INSTALLED, TUNED, UNKNOWN, Cell

if TYPE_CHECKING:  # it loads the families, and a name needs none
    from dlbench.reports.results.keys import RowKey


def name_of(cell: Cell) -> str:
    """Return a unique name of a cell: "fcn5, mini-batch 64, torch eager, 2 threads x 2 workers"."""
    return f"{work_name(cell)}, {rest_of(cell)}"


def rest_of(cell: Cell) -> str:
    """Return the name of a cell within its work: "torch eager, 2 threads x 2 workers"."""
    return ", ".join(filter(None, (row_name(cell), place_name(cell))))


def work_name(cell: Cell) -> str:
    """Return the name of the work, which heads its cells: "fcn5, mini-batch 64, bfloat16"."""
    batch = f", mini-batch {cell.batch_size}" if cell.batch_size else ""
    return f"{cell.network}{batch}{_extra(cell, ', ', axes.WORK)}"


def network_name(cell: Cell) -> str:
    """Return the work without its mini-batch: "fcn5, bfloat16"."""
    return cell.network + _extra(cell, ", ", axes.WORK)


def row_name(cell: Cell) -> str:
    """Return the name of a row: "torch eager", "torch eager, bound"."""
    mode = "" if cell.mode in ("", cell.framework) else f" {cell.mode}"
    return f"{cell.framework}{mode}{_extra(cell, ', ', axes.ROW)}"


def row_names(rows: "Iterable[RowKey]") -> "tuple[Callable[[RowKey], str], str]":
    """Return how to name rows, and the settings that all of them share, for their title."""
    settings = {row.tuning for row in rows} - {UNKNOWN}
    if len(settings) > 1:
        return row_name, ""
    title = ""
    for setting in settings - {TUNED}:
        title = ", as installed" if setting == INSTALLED else f", {setting}"
    return _row_name_without_tuning, title


def _row_name_without_tuning(row: "RowKey") -> str:
    return row_name(row._replace(tuning=TUNED))


def place_name(cell: Cell) -> str:
    """Return the device and threads of a cell, for a sentence.

    For example "2 threads" or "cuda:0, 1 thread x 2 workers". Empty where they are not known.
    """
    if cell.device == UNKNOWN:
        return ""
    device = "" if cell.on_cpu and cell.threads >= 0 else cell.device
    words = [word for word in (device, threads_name(cell.threads)) if word]
    return ", ".join(words) + extra_of_place(cell)


def condition_name(cell: Cell) -> str:
    """Return how a cell was run, without its framework and work: "4 threads, bound"."""
    return place_name(cell) + _extra(cell, ", ", axes.ROW)


def threads_name(threads: int | None) -> str:
    """Return a thread count for a sentence; empty where the device has none to choose."""
    if threads is None or threads < 0:
        return ""
    return "default threads" if threads == 0 else counted(threads, "thread")


def extra_of_place(cell: Cell) -> str:
    """Return the unusual axes of a place, to follow its threads or device: " x 2 workers"."""
    words = ""
    for axis in axes.unusual(cell, axes.COLUMN):
        words += " " + axis.long.format(getattr(cell, axis.name))
    return words


def head_of(cell: Cell) -> str:
    """Return the heading of a cell's column: "2", "default", "cuda:0/4", of two workers "2 x2"."""
    if not cell.on_cpu:
        heading = f"{cell.device}/{cell.threads}" if cell.threads > 0 else cell.device
    elif cell.threads > 0:
        heading = str(cell.threads)
    else:
        heading = "default" if cell.threads == 0 else cell.device
    return short_extra(heading, cell)


def place_heading(cell: Cell) -> str:
    """Return a cell's threads, or its device, for a column.

    For example "2", "cuda:0", or of two workers "2 x2".
    """
    return head_of(cell) if cell.on_cpu else short_extra(cell.device, cell)


def short_extra(name: str, cell: Cell) -> str:
    """Return a column's name with its unusual axes: "4 x2"."""
    return name + _extra(cell, " ", axes.COLUMN)


def slug(cell: Cell) -> str:
    """Return a unique name for files and options: "fcn5-b64-torch-eager-cpu-2-x2"."""
    network = "-".join(word for word in (cell.network, cell.specification[:6]) if word)
    words = [network, cell.framework, cell.mode]
    if cell.batch_size is not None:
        words.insert(1, f"b{cell.batch_size}")
    if cell.device != UNKNOWN:
        words += [cell.device, str(cell.threads)]
    return "-".join([*words, *(_short(cell, axis) for axis in axes.unusual(cell))])


def _extra(cell: Cell, joiner: str, role: str) -> str:
    return "".join(joiner + _short(cell, axis) for axis in axes.unusual(cell, role))


def _short(cell: Cell, axis: axes.Axis) -> str:
    return axis.short.format(getattr(cell, axis.name))


def variables_in_a_field(variables: Mapping[str, str]) -> str:
    """Return environment variables for CSV and data frames: "A=1 B=2", values whole.

    Empty without any.
    """
    return " ".join(f"{name}={value}" for name, value in variables.items())


_LONGEST_VALUE = 60


def variables_in_words(variables: Mapping[str, str]) -> str:
    """Return environment variables for a sentence: "OMP_WAIT_POLICY=passive, XLA_FLAGS=...".

    "none" without any.
    """
    words = []
    for name, value in variables.items():
        shown = value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 3] + "..."
        words.append(f"{name}={shown}")
    return ", ".join(words) or "none"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return "1 node", "2 nodes", "2 launches"."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {plural or noun + 's'}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return the first of these names, and how many others there are."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} others"
