"""The options of the axes: what the command line and a suite file call them, and how their words become values.

One line for each axis of ``adapters/axes.py``. Commands, suite files, the pytest plugin and plans walk this table. The
plugin is loaded into every pytest session, so this module imports little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlbench.adapters import tuning
from dlbench.adapters.axes import NO_QUOTA
from dlbench.adapters.protocol import (
    ASYNC,
    BOUND,
    EVERY_STEP,
    LOCAL,
    OVERSUBSCRIBED,
    PLACEMENTS,
    PRECISIONS,
    STORAGES,
    TUNED,
)

from ..errors import UsageError

if TYPE_CHECKING:
    from .own import OwnSteps
    from .values import Build, Capacity


MOST_WORKERS = 64


@dataclass(frozen=True)
class AxisOption:
    """How an axis is chosen: among ``known`` names, by whole numbers up to ``most``, or by words that ``parse`` reads.

    Without any of these the plan reads the words, which mean different things for different cells. ``key`` is that of
    suite files and of the option ("world_sizes" is --world-sizes), ``usual`` stands where a suite does not name the
    axis, ``example`` gives --help two names where there is no list of them.
    """

    axis: str
    key: str
    help: str
    metavar: str
    known: tuple[str, ...] = ()
    most: int = 0
    usual: str = ""
    example: str = ""
    parse: Callable[[str, Capacity], tuple[Any, ...]] | None = None

    @property
    def option(self) -> str:
        """The option on the command line."""
        return option_of(self.key)


def narrowing_help(option: AxisOption) -> str:
    """Return the help of an option that shows the stored cells of some values only."""
    irregular = {
        "affinity": "affinities",
        "batch_sizes": "mini-batch sizes",
        "cpu_quota": "CPU quotas",
        "storage": "storages",
        "sync": "exchanges",
        "threads": "thread counts",
        "tuning": "tunings",
    }
    words = irregular.get(option.key, option.key.replace("_", " "))
    names = option.example or ",".join(option.known[:2])
    if not names:
        return f"Only these {words}: `1` or `1,2,4`."
    first = names.partition(",")[0]
    return f"Only these {words}: `{first}` or `{names}` or `'{first[0]}*'`."


def option_of(key: str) -> str:
    """Return the option of a key: "world_sizes" is --world-sizes."""
    return "--" + key.replace("_", "-")


def _tunings(text: str, capacity: Capacity) -> tuple[str, ...]:
    """Return the distinct words of the axis tuning as they are; raises UsageError for any other."""
    from . import values

    found = tuple(dict.fromkeys(values.words(text)))
    try:
        for word in found:
            if word not in tuning.SWEEPS:
                tuning.named(word)
    except ValueError as error:
        raise UsageError(f"{error}, {', '.join(tuning.SWEEPS)}.") from error
    return found


def _loader_workers(text: str, capacity: Capacity) -> tuple[int, ...]:
    from . import values

    return values.parse_threads(text, capacity, "0", "number of loader workers")


def _quotas(text: str, capacity: Capacity) -> tuple[float, ...]:
    from . import values

    return values.parse_quotas(text, capacity)


_LOCAL_STEPS = re.compile(rf"{LOCAL}:([1-9][0-9]{{0,5}})")


def _syncs(text: str, capacity: Capacity) -> tuple[str, ...]:
    """Return the distinct ways in which workers exchange, as they are; raises UsageError for any other word."""
    from . import values

    found = tuple(dict.fromkeys(values.words(text)))
    for word in found:
        if word not in (EVERY_STEP, ASYNC) and not _LOCAL_STEPS.fullmatch(word):
            raise UsageError(
                f"{word[:40]!r} is not a way in which workers exchange. Give {EVERY_STEP} (gradients at every step), "
                f"{LOCAL}:4 (parameters after every 4 steps; a whole number from 1 to 999999) or {ASYNC} (without "
                "waiting)."
            )
    return found


AXIS_OPTIONS = (
    AxisOption(
        "network",
        "networks",
        "Networks, such as `fcn5,resnet50`, or a pattern: `'lstm*'`.",
        "NAMES",
        example="fcn5,lstm32",
    ),
    AxisOption(
        "framework",
        "frameworks",
        "Frameworks: `torch` (its default mode), `torch:compile`, `torch:*` (every mode).",
        "NAMES",
        example="torch,jax",
    ),
    AxisOption(
        "threads",
        "threads",
        "Thread counts: `1,2,4-8`, `cores`, `4*cpus`, `1..4*cpus` (1, 2, 3, 4, 6, 8, 12, ...), `default` (none is "
        "set), `quota` (the CPU quota rounded up).",
        "COUNTS",
    ),
    AxisOption(
        "batch_size", "batch_sizes", "Mini-batch sizes: `64`, `16,32,64`, `16..128` (16, 24, 32, ...).", "SIZES"
    ),
    AxisOption(
        "device",
        "devices",
        "Devices: `cpu`, `cuda:0`, `cuda:all`, `gpus` (all, if any), or a GPU's UUID.",
        "NAMES",
        usual="cpu",
        example="cpu,cuda:0",
    ),
    AxisOption(
        "precision",
        "precisions",
        f"Arithmetic precision: {', '.join(PRECISIONS)}.",
        "NAMES",
        known=PRECISIONS,
        usual=PRECISIONS[0],
    ),
    AxisOption(
        "placement",
        "placements",
        "Where a step finds its mini-batch: `resident` on the device; copied to a GPU from `pinned`, `pageable` "
        "memory; another one each time: `fed` from memory, `prefetched`, from a file by the framework's `loader`.",
        "NAMES",
        known=PLACEMENTS,
        usual=PLACEMENTS[0],
    ),
    AxisOption(
        "tuning",
        "tuning",
        "Settings: `installed` (none), `tuned` (all), `installed+NAME`, `tuned-NAME`, `each` (every one in turn), "
        "`tuned+jemalloc` (a launch setting too), `launch` (each of those in turn).",
        "WHICH",
        usual=TUNED,
        example="installed,tuned",
        parse=_tunings,
    ),
    AxisOption(
        "affinity",
        "affinity",
        "CPUs that threads may use: `oversubscribed` (all), `bound` (one per thread), or both.",
        "WHICH",
        known=(BOUND, OVERSUBSCRIBED),
        usual=OVERSUBSCRIBED,
    ),
    AxisOption(
        "world_size",
        "world_sizes",
        "Number of workers that share each mini-batch equally, each on a GPU or with its own threads: `1,2`.",
        "COUNTS",
        most=MOST_WORKERS,
        usual="1",
    ),
    AxisOption(
        "instances",
        "instances",
        "Independent processes at once, each with its threads on CPUs of its own; their throughput counts: `1,2`.",
        "COUNTS",
        most=MOST_WORKERS,
        usual="1",
    ),
    AxisOption(
        "cpu_quota",
        "cpu_quota",
        "CPU time that a launch may use, in CPUs: `none`, `0.5,1,1.5`, `0.5..cpus` (0.5, 1, 1.5, 2, 3, 4, 6, ...).",
        "CPUS",
        usual=NO_QUOTA,
        example="0.5,1",
        parse=_quotas,
    ),
    AxisOption(
        "loader_workers",
        "loader_workers",
        "Threads or processes of a framework's loader, beside the step's threads: `0,1,2` (0: the step waits).",
        "COUNTS",
        usual="0",
        parse=_loader_workers,
    ),
    AxisOption(
        "storage",
        "storage",
        "Where a loader finds its file: `cache` (read before, so that it is in memory), `disk` (dropped from memory).",
        "NAMES",
        known=STORAGES,
        usual=STORAGES[0],
    ),
    AxisOption(
        "sync",
        "sync",
        "When workers exchange: `step` (gradients at every step), `local:4` (parameters after every 4 steps), `async` "
        "(shared parameters, without waiting).",
        "WHEN",
        usual=EVERY_STEP,
        example="step,local:4",
        parse=_syncs,
    ),
)
LIMITS = (
    AxisOption("threads", "threads_limit", "Leave out the suite's thread counts above this: `4*cpus`.", "COUNT"),
    AxisOption(
        "threads",
        "device_threads",
        "Thread count of cells on a GPU, where threads only launch kernels: `cores`.",
        "COUNT",
    ),
)
"""Further options of an axis."""
PLAIN = tuple(each for each in AXIS_OPTIONS if each.known or each.most or each.parse)
"""Axes whose words mean the same for every cell: a suite needs no separate field for them."""
KEYS = tuple(each.key for each in (*AXIS_OPTIONS, *LIMITS))


def parse_plain(option: AxisOption, text: str, capacity: Capacity) -> tuple[Any, ...]:
    """Return the distinct values that these words mean, in the order of measuring; raises UsageError."""
    from . import values

    what = option.axis.replace("_", " ")
    if option.parse is not None:
        return option.parse(text, capacity)
    if option.known:
        return tuple(dict.fromkeys(values.one_of(word, what, option.known) for word in values.words(text)))
    return values.parse_counts(text, capacity, what, option.most)


def joined(value: object) -> object:
    """Return the words of a value of a suite file: text, a number, or a list of them; anything else as it is."""
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


PROTOCOL_KEYS = ("launches", "interval", "cell_budget")


class SuiteOverrides:
    """Words by key, as they were typed; a key that is absent is as the suite says."""

    def __init__(
        self,
        given: Mapping[str, str | None] | None = None,
        *,
        steps: int | None = None,
        builds: tuple[Build, ...] = (),
        joining: tuple[str, ...] = (),
        own: OwnSteps | None = None,
        **further: Any,
    ) -> None:
        """Take the words that are given; raises UsageError for empty ones.

        ``joining`` are frameworks that join the suite's rows where none are named: adapters given for this command.
        ``own`` are steps of the user's own, which take the place of the suite's networks and rows.
        """
        self.steps, self.builds, self.joining, self.own = steps, builds, joining, own
        words = {**(given or {}), **further}
        self.words: Mapping[str, str] = {key: str(word) for key, word in words.items() if word is not None}
        for key, word in self.words.items():
            if not word.strip():
                raise UsageError(f"{option_of(key)} is empty. Give a value, or leave the option out.")

    def __getitem__(self, key: str) -> str:
        """Return the words of this key; empty where none were given."""
        return self.words.get(key, "")

    def but(self, **changed: Any) -> SuiteOverrides:
        """Return these choices with some changed; None takes one away."""
        kept = {"steps": self.steps, "builds": self.builds, "joining": self.joining, "own": self.own, **self.words}
        return SuiteOverrides(**{**kept, **changed})
