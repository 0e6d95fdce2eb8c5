"""The options of the axes: their names on the command line and in a suite file.

One line for each axis of ``adapters/axes.py``; `values.parse_plain` reads their words. Commands,
suite files, plans and the pytest plugin walk this table. The plugin is loaded into every pytest
session, so this module imports little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlbench.adapters.axes import word
from dlbench.adapters.protocol import (
    BOUND,
    OVERSUBSCRIBED,
    PLACEMENTS,
    PRECISIONS,
    STORAGES,
    TASKS,
    Cell,
)

from ..errors import UsageError

if TYPE_CHECKING:
    from .own import OwnSteps
    from .values import Build


MOST_WORKERS = 64


@dataclass(frozen=True)
class AxisOption:
    """The option of an axis: ``known`` names, numbers up to ``most``, or words of its own.

    ``key`` is the key in suite files and names the option ("world_sizes" is --world-sizes).
    ``example`` gives --help two names if there is no list of them. ``help`` fits a line of it,
    ``details`` (shown by `dlbench list --axes`) explains every word.
    """

    axis: str
    key: str
    help: str
    metavar: str
    known: tuple[str, ...] = ()
    most: int = 0
    example: str = ""
    details: str = ""

    @property
    def option(self) -> str:
        """The option on the command line."""
        return option_of(self.key)

    @property
    def usual(self) -> str:
        """The default word if a suite does not name the axis; empty if it must."""
        defaults = {"device": "cpu", **Cell._field_defaults}
        return word(self.axis, defaults[self.axis]) if self.axis in defaults else ""


def listed_or(names: Sequence[str]) -> str:
    """Return names in a sentence: "fed, prefetched or loader"."""
    *first, last = names
    return f"{', '.join(first)} or {last}"


def option_of(key: str) -> str:
    """Return the option of a key: "world_sizes" is --world-sizes."""
    return "--" + key.replace("_", "-")


AXIS_OPTIONS = (
    AxisOption(
        "network",
        "networks",
        "Names or patterns: `fcn5,resnet50`, `'lstm*'`.",
        "NAMES",
        example="fcn5,lstm32",
        details="Networks, such as `fcn5,resnet50`, or a pattern: `'lstm*'`.",
    ),
    AxisOption(
        "framework",
        "frameworks",
        "`torch`, `torch:compile` (one mode), `torch:*` (every mode).",
        "NAMES",
        example="torch,jax",
        details="`torch` (its default mode), `torch:compile`, `torch:*` (every mode).",
    ),
    AxisOption(
        "threads",
        "threads",
        "Thread counts: `1,2,4-8`, `1..4*cpus`, `cores`, `quota`, `default`.",
        "COUNTS",
        details="`1,2,4-8`, `cores`, `4*cpus`, `1..4*cpus` (1, 2, 3, 4, 6, 8, 12, ...), `default` "
        "(no count is set), `quota` (the CPU quota rounded up).",
    ),
    AxisOption(
        "batch_size",
        "batch_sizes",
        "Mini-batch sizes: `64`, `16,32,64`, `16..128`.",
        "SIZES",
        details="`64`, `16,32,64`, `16..128` (16, 24, 32, ...).",
    ),
    AxisOption(
        "device",
        "devices",
        "`cpu`, `cuda:0`, `cuda:all`, `gpus` (all, if any) or a GPU's UUID.",
        "NAMES",
        example="cpu,cuda:0",
    ),
    AxisOption(
        "precision",
        "precisions",
        f"Arithmetic: {listed_or(PRECISIONS)}.",
        "NAMES",
        known=PRECISIONS,
    ),
    AxisOption(
        "placement",
        "placements",
        f"Mini-batches: {listed_or(PLACEMENTS)}.",
        "NAMES",
        known=PLACEMENTS,
        details="Where a step gets its mini-batch: `resident` on the device; copied to a GPU from "
        "`pinned` or `pageable` memory; a new one at each step: `fed` from memory, `prefetched`, "
        "or from a file by the framework's `loader`.",
    ),
    AxisOption(
        "tuning",
        "tuning",
        "Settings: `installed` (none), `tuned` (all), `tuned+NAME`, `each`, ...",
        "WHICH",
        example="installed,tuned",
        details="Settings: `installed` (none), `tuned` (all), `installed+NAME`, `tuned-NAME`, "
        "`each` (every one in turn), `tuned+jemalloc` (a launch setting too), `launch` (each of "
        "those in turn).",
    ),
    AxisOption(
        "affinity",
        "affinity",
        "CPUs of the threads: `oversubscribed` (all) or `bound` (one each).",
        "WHICH",
        known=(BOUND, OVERSUBSCRIBED),
        details="CPUs that threads may use: `oversubscribed` (all), `bound` (one per thread), or "
        "both.",
    ),
    AxisOption(
        "world_size",
        "world_sizes",
        "Workers that share each mini-batch equally: `1,2`.",
        "COUNTS",
        most=MOST_WORKERS,
        details="Number of workers that share each mini-batch equally, each on a GPU or with its "
        "own threads: `1,2`.",
    ),
    AxisOption(
        "instances",
        "instances",
        "Independent processes at once, for joint throughput: `1,2`.",
        "COUNTS",
        most=MOST_WORKERS,
        details="Independent processes that run at once, each on its own CPUs; their joint "
        "throughput counts: `1,2`.",
    ),
    AxisOption(
        "cpu_quota",
        "cpu_quota",
        "CPU time of a launch, in CPUs: `none`, `0.5,1,1.5`, `0.5..cpus`.",
        "CPUS",
        example="0.5,1",
        details="CPU time that a launch may use, in CPUs: `none`, `0.5,1,1.5`, `0.5..cpus` (0.5, "
        "1, 1.5, 2, 3, 4, 6, ...).",
    ),
    AxisOption(
        "loader_workers",
        "loader_workers",
        "Workers of the framework's data loader: `0,1,2`.",
        "COUNTS",
        details="Threads or processes of a framework's loader, in addition to the step's threads: "
        "`0,1,2` (0: the step waits).",
    ),
    AxisOption(
        "storage",
        "storage",
        "Where the loader finds its file: `cache` (memory) or `disk`.",
        "NAMES",
        known=STORAGES,
        details="Where a loader finds its file: `cache` (in memory, since it was read before), "
        "`disk` (dropped from memory).",
    ),
    AxisOption(
        "sync",
        "sync",
        "How often workers synchronise: `step`, `local:4`, `async`.",
        "WHEN",
        example="step,local:4",
        details="How often workers synchronise: `step` (gradients at every step), `local:4` "
        "(parameters after every 4 steps), `async` (shared parameters, without waiting).",
    ),
    AxisOption(
        "task",
        "task",
        "`training`, `inference` (the forward pass), or both with a comma.",
        "NAMES",
        known=TASKS,
        details="A step is `training` (forward, backward, update) or `inference` (the forward "
        "pass, as in serving); both with a comma.",
    ),
)
LIMITS = (
    AxisOption(
        "threads",
        "threads_limit",
        "Leave out the suite's thread counts above this: `4*cpus`.",
        "COUNT",
    ),
    AxisOption(
        "threads",
        "device_threads",
        "Threads of cells on a GPU, which only launch kernels: `cores`.",
        "COUNT",
    ),
)
"""Further options of an axis."""
_WITH_A_FIELD = ("network", "framework", "threads", "batch_size", "device")
PLAIN = tuple(option for option in AXIS_OPTIONS if option.axis not in _WITH_A_FIELD)
"""Axes whose words mean the same for every cell: a suite needs no separate field for them."""
KEYS = tuple(option.key for option in (*AXIS_OPTIONS, *LIMITS))


def joined(value: object) -> object:
    """Return a value of a suite file as words: text, a number, or a list of them.

    Anything else is returned as it is.
    """
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


PROTOCOL_KEYS = ("launches", "interval", "cell_budget")


class SuiteOverrides:
    """Words by key, as they were typed; the suite decides for a key that is absent."""

    def __init__(
        self,
        *,
        steps: int | None = None,
        builds: tuple[Build, ...] = (),
        joining: tuple[str, ...] = (),
        own: OwnSteps | None = None,
        variables: Mapping[str, str] | None = None,
        **words: Any,
    ) -> None:
        """Take the words that are given; raises UsageError for empty ones.

        ``joining`` are frameworks that join the suite's rows where none are named: adapters given
        for this command. ``own`` are steps of the user's own, which take the place of the suite's
        networks and rows. ``variables`` are environment variables of all launches.
        """
        self.steps = steps
        self.builds = builds
        self.joining = joining
        self.own = own
        self.variables = dict(variables or {})
        self.words: Mapping[str, str] = {
            key: str(text) for key, text in words.items() if text is not None
        }
        for key, text in self.words.items():
            if not text.strip():
                raise UsageError(
                    f"{option_of(key)} is empty. Give a value, or leave the option out."
                )

    def __getitem__(self, key: str) -> str:
        """Return the words of this key; empty where none were given."""
        return self.words.get(key, "")

    def but(self, **changed: Any) -> SuiteOverrides:
        """Return these choices with some changed; None takes one away."""
        names = ("steps", "builds", "joining", "own", "variables")
        kept = {name: getattr(self, name) for name in names}
        return SuiteOverrides(**{**kept, **self.words, **changed})
