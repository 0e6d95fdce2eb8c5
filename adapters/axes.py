"""The table of axes in which cells differ.

Everything else walks this table: plans and options (``suites/planning/axes.py`` adds an option to
every axis), the matrix, the names of cells, JSON, CSV, the store. A new axis is a field of
``Cell``, a line in this table, and a line in that one. An adapter supports it only once it says so
(``COMMON_AXES`` in ``base.py``). ``tests/adapters/test_axes.py`` walks the table.
"""

from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

from .protocol import (
    ASYNC,
    BOUND,
    EVERY_STEP,
    INSTALLED,
    OVERSUBSCRIBED,
    PLACEMENTS,
    PRECISIONS,
    STORAGES,
    TASKS,
    TUNED,
    UNKNOWN,
    Cell,
)

#: Cells that differ in such an axis do different work: a matrix shows them in different blocks.
WORK = "work"
ROW = "row"  # ways to do the same work
COLUMN = "column"  # resources of the work

DEFAULT = "default"
NO_QUOTA = "none"
_WORDS: Dict[str, Dict[Any, str]] = {"threads": {0: DEFAULT}, "cpu_quota": {0.0: NO_QUOTA}}
_WORKERS = (
    "xN: N workers train together, each on an equal part of the mini-batch: on the CPU with that "
    "many threads each, on GPUs with one GPU each, from the named one on"
)
_QUOTA = "qN: CPU quota of N: all processes of a launch together get N CPUs' worth of time"
_LOADERS = (
    "wN: N threads or processes of the framework's own loader load mini-batches while the step "
    "computes"
)


class Axis(NamedTuple):
    """One axis."""

    name: str  # the field of Cell, and the key in JSON, CSV and the store
    role: str  # WORK, ROW or COLUMN: the place of its values in a matrix
    usual: Any = None  # the value that names leave out; None: every value is written
    short: str = "{}"  # an unusual value in the head of a column, in a benchmark's name
    long: str = "{}"  # an unusual value in a sentence
    order: Tuple[Any, ...] = ()  # values in the order of reports; others follow, sorted
    #: The axis that decides this one, which then has no option, and no place in a name.
    goes_with: str = ""
    legend: str = ""  # explains an unusual value in the head of a column


#: In the order of JSON keys and CSV columns.
AXES = (
    Axis("network", WORK),
    Axis("specification", WORK, "", goes_with="network"),
    Axis("framework", ROW),
    Axis("mode", ROW),
    Axis("tuning", ROW, TUNED, order=(INSTALLED, TUNED)),
    Axis("affinity", ROW, OVERSUBSCRIBED, order=(BOUND, OVERSUBSCRIBED)),
    Axis("instances", ROW, 1, "{} instances", "{} instances"),
    Axis("device", COLUMN),
    Axis("threads", COLUMN),
    Axis("world_size", COLUMN, 1, "x{}", "x {} workers", legend=_WORKERS),
    Axis("cpu_quota", COLUMN, 0.0, "q{:g}", "under a CPU quota of {:g}", legend=_QUOTA),
    Axis("loader_workers", COLUMN, 0, "w{}", "+ {} loading", legend=_LOADERS),
    Axis("batch_size", WORK),
    Axis("precision", WORK, PRECISIONS[0], order=PRECISIONS),
    Axis("placement", WORK, PLACEMENTS[0], order=PLACEMENTS),
    Axis("storage", WORK, STORAGES[0], order=STORAGES),
    Axis("sync", WORK, EVERY_STEP, order=(EVERY_STEP, ASYNC)),
    Axis("task", WORK, TASKS[0], order=TASKS),
)

NAMES = tuple(axis.name for axis in AXES)
#: No value of an axis that is always written, the usual one of all others.
BLANK = Cell("", "", "", "", "", 0, 0)


def with_role(*roles: str) -> Tuple[Axis, ...]:
    """Return the axes that have one of these roles, in the order of the table."""
    return tuple(axis for axis in AXES if axis.role in roles)


def project(cell: Cell, names: Iterable[str]) -> Cell:
    """Return the cell with these axes only.

    The others, and the adapter's folder, are as in ``BLANK``.
    """
    return BLANK._replace(**{name: getattr(cell, name) for name in names})


def without(cell: Cell, *names: str) -> Cell:
    """Return the cell without these axes, and without the adapter's folder.

    It is the same for cells that differ in them only.
    """
    return project(cell, [name for name in NAMES if name not in names])


def unusual(cell: Cell, *roles: str) -> List[Axis]:
    """Return the axes (of these roles; of any where none is given) whose value is unusual.

    An unknown value is not: a name states nothing about it.
    """
    axes = []
    for axis in AXES:
        is_named = axis.usual is not None and not axis.goes_with
        has_role = not roles or axis.role in roles
        if is_named and has_role and getattr(cell, axis.name) not in (axis.usual, UNKNOWN):
            axes.append(axis)
    return axes


def values(cell: Cell) -> Dict[str, Any]:
    """Return the value of every axis by its name, in the order of the table."""
    return {name: getattr(cell, name) for name in NAMES}


def word(name: str, value: Any) -> str:
    """Return a value of an axis as options and suite files write it, such as "2" and "default"."""
    if value is None:
        return UNKNOWN
    special = _WORDS.get(name, {}).get(value)
    if special:
        return special
    return "%g" % value if isinstance(value, float) else str(value)


def legends(cells: Iterable[Cell]) -> List[str]:
    """Return the legends of the axes that are unusual in one of these cells."""
    shown = list(cells)
    legends = []
    if any(cell.on_cpu and cell.threads == 0 for cell in shown):
        legends.append(
            "default: the number of threads that the framework chooses where none is set"
        )
    for axis in AXES:
        if axis.legend and any(getattr(cell, axis.name) != axis.usual for cell in shown):
            legends.append(axis.legend)
    return legends


def order_of(value: Any) -> Tuple[bool, Any]:
    """Return a sort key of an axis's value: unknown numbers come last."""
    if value is None:
        return True, 0
    return False, value


def sort_key(cell: Cell) -> Tuple[Any, ...]:
    """Return a key that puts cells in the order of the table.

    On an axis with an order its values come first.
    """
    key: List[Any] = []
    for axis in AXES:
        value = getattr(cell, axis.name)
        key.append(axis.order.index(value) if value in axis.order else len(axis.order))
        key.append(order_of(value))
    return tuple(key)
