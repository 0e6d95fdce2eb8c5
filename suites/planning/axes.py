"""The options of the axes: what the command line and a suite file call them, and how their words become values.

One line for each axis of ``adapters/axes.py``. Commands, suite files, the pytest plugin and plans walk this table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dlbench.adapters.protocol import BOUND, OVERSUBSCRIBED, PLACEMENTS, PRECISIONS

from ..errors import UsageError
from . import values
from .values import Capacity

Parser = Callable[[str, Capacity], tuple[Any, ...]]
"""Words to distinct values, in the order in which they are measured; raises UsageError."""
MOST_WORKERS = 64


@dataclass(frozen=True)
class AxisOption:
    """How an axis is chosen."""

    axis: str
    """Its name in the table of axes."""
    key: str
    """In suite files, and of the option: "world_sizes" is --world-sizes."""
    help: str
    """For --help: the words that may be given."""
    metavar: str = "TEXT"
    parse: Parser | None = None
    """None: the plan itself reads the words, since they mean different things for different cells."""
    usual: str = ""
    """The words of a suite that does not name the axis."""

    @property
    def option(self) -> str:
        """The option on the command line."""
        return option_of(self.key)


def option_of(key: str) -> str:
    """Return the option of a key: "world_sizes" is --world-sizes."""
    return "--" + key.replace("_", "-")


def one_of(what: str, known: tuple[str, ...]) -> Parser:
    """Return a parser of names from a fixed list."""

    def parse(text: str, capacity: Capacity) -> tuple[str, ...]:
        return tuple(dict.fromkeys(values.one_of(word, what, known) for word in values.words(text)))

    return parse


def numbers(what: str, most: int) -> Parser:
    """Return a parser of whole numbers: "1,2,4-8", ladders, multiples of cores and CPUs."""

    def parse(text: str, capacity: Capacity) -> tuple[int, ...]:
        return values.counts(text, capacity, what, most)

    return parse


AXIS_OPTIONS: tuple[AxisOption, ...] = (
    AxisOption("network", "networks", "Networks: `fcn5,resnet50`, patterns: `'lstm*'`.", "NAMES"),
    AxisOption(
        "framework", "frameworks", "Rows: `torch` (default mode), `torch:compile`, or `torch:*` for all.", "NAMES"
    ),
    AxisOption(
        "threads", "threads", "Thread counts: `1,2,4-8`, `cores`, `2*cores`, `4*cpus`, ladders: `1..4*cpus`.", "COUNTS"
    ),
    AxisOption("batch_size", "batch_sizes", "Mini-batch sizes: `64`, `16,32,64`, or a ladder, `16..128`.", "SIZES"),
    AxisOption(
        "device", "devices", "Devices: `cpu`, `cuda:0`, `cuda:all`, `gpus` (all there are, if any), `GPU-...`.", "NAMES"
    ),
    AxisOption(
        "precision",
        "precisions",
        f"Precisions of the arithmetic: {', '.join(PRECISIONS)}.",
        "NAMES",
        one_of("precision", PRECISIONS),
        PRECISIONS[0],
    ),
    AxisOption(
        "placement",
        "placements",
        "Where mini-batches lie: `resident` on the GPU, or copied in each step from `pinned`, `pageable` memory.",
        "NAMES",
        one_of("placement", PLACEMENTS),
        PLACEMENTS[0],
    ),
    AxisOption(
        "affinity",
        "affinity",
        "CPUs of the threads: `oversubscribed` (all), `bound` (as many as threads), or both.",
        "WHICH",
        one_of("affinity", (BOUND, OVERSUBSCRIBED)),
        OVERSUBSCRIBED,
    ),
    AxisOption(
        "world_size",
        "world_sizes",
        "Workers that train on equal parts of a mini-batch together, each on a GPU or with its own threads: `1,2`.",
        "COUNTS",
        numbers("world size", MOST_WORKERS),
        "1",
    ),
)
LIMITS: tuple[AxisOption, ...] = (
    AxisOption("threads", "threads_limit", "Largest thread count taken from the suite (table4: `4*cpus`).", "COUNT"),
    AxisOption(
        "threads", "device_threads", "Thread count of cells on a GPU, where threads only start work: `cores`.", "COUNT"
    ),
)
"""Further options of an axis."""
PLAIN = tuple(each for each in AXIS_OPTIONS if each.parse is not None)
"""Those whose words mean the same for every cell: what a suite says of them needs no field of its own."""
KEYS = tuple(each.key for each in (*AXIS_OPTIONS, *LIMITS))


def parse_plain(option: AxisOption, text: str, capacity: Capacity) -> tuple[Any, ...]:
    """Return the values that these words mean; raises UsageError."""
    if option.parse is None:
        raise UsageError(f"The values of {option.key} depend on the cell.")
    return option.parse(text, capacity)


def joined(value: object) -> object:
    """Return the words of a value of a suite file: text, a number, or a list of them; anything else as it is."""
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def keys_of(options: Iterable[AxisOption]) -> list[str]:
    """Return the keys of these options."""
    return [each.key for each in options]
