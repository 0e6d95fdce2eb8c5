"""Where the time of a step goes: a launch's profile by kinds of operators, and held against the network's FLOPs.

On the CPU the operators are those that ran there; on a GPU they are the device's kernels and copies, and what the CPU
did to start them is left out. What no operator took of a step is `IDLE`: on the CPU the framework's own work between
its operators, and waiting; on a GPU a device without work.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from dlbench.adapters.families import Family
from dlbench.adapters.libraries.profiles import CONVOLUTION, MATRIX, RECURRENT
from dlbench.adapters.protocol import Cell, Operator, Outcome, Profile
from dlbench.reports.errors import ReportError
from dlbench.reports.flags import starting_words

IDLE = "idle"
PRODUCTS = (MATRIX, CONVOLUTION, RECURRENT)
"""The kinds of operators that a network's counted FLOPs are done in."""
SLOWER = 1.5
"""A profiled step this many times as long as others tells little of them."""


@dataclass(frozen=True)
class Share:
    """What one kind, or one operator, takes of a step."""

    name: str
    kind: str
    seconds: float
    share: float
    """Of the step: of `Explained.whole_seconds`."""
    calls: float | None
    """None of `IDLE`."""


@dataclass(frozen=True)
class Explained:
    """A step of one cell, explained."""

    cell: Cell
    software: str
    """Framework and version; empty where they were not told."""
    profiler: str
    steps: int
    """Profiled ones."""
    on_device: bool
    """Whether the operators are those of a GPU."""
    seconds: float | None
    """Median of the timed steps, without the profiler."""
    profiled_seconds: float
    whole_seconds: float
    """What shares are of: a profiled step, or all its operators together where they ran side by side for longer."""
    kinds: tuple[Share, ...]
    """The longest first, `IDLE` last; their shares add up to 1."""
    operators: tuple[Share, ...]
    """The longest first."""
    flops: int | None
    """Of matrix products and convolutions, a step's; None of a network that is not known here."""
    product_seconds: float
    """What the kinds in `PRODUCTS` take of a step."""
    own_rate: float | None
    """FLOP/s of the framework's own large matrix product, timed in the same launch."""
    starting: str = ""
    """On a GPU, what starting the operators takes of a step without the profiler; empty where nobody told."""

    @property
    def slowdown(self) -> float | None:
        """How many times as long a step takes under the profiler."""
        return None if self.seconds is None else self.profiled_seconds / self.seconds

    @property
    def busy_seconds(self) -> float:
        """What all operators take of a step; of those that ran side by side each in full."""
        return sum(each.seconds for each in self.operators)

    @property
    def side_by_side(self) -> bool:
        """Whether operators must have run side by side: together they take longer than the step."""
        return self.busy_seconds > self.profiled_seconds

    @property
    def calls(self) -> float:
        """Operators a step."""
        return sum(each.calls or 0.0 for each in self.operators)

    @property
    def product_rate(self) -> float | None:
        """FLOP/s within the operators of `PRODUCTS`; None where nothing took any time in them."""
        return self.flops / self.product_seconds if self.flops and self.product_seconds > 0 else None

    @property
    def step_rate(self) -> float | None:
        """FLOP/s over a step without the profiler."""
        return self.flops / self.seconds if self.flops and self.seconds else None


def explain(cell: Cell, outcome: Outcome, family: Family | None = None) -> Explained:
    """Return what the launch's profile says; raises ReportError where there is none, or nothing in it."""
    profile = outcome.profile
    if profile is None:
        raise ReportError("This launch has no profile.")
    shown = _shown(cell, profile)
    busy = sum(each.seconds for each in shown)
    whole = max(profile.step_seconds, busy)
    if not shown or whole <= 0:
        where = "the CPU" if cell.on_cpu else cell.device
        raise ReportError(f"{profile.profiler} reported no operator on {where}.")
    operators = tuple(
        Share(each.name, each.kind, each.seconds, each.seconds / whole, each.calls)
        for each in sorted(shown, key=lambda each: (-each.seconds, each.name))
    )
    seconds = outcome.step_seconds()
    told = outcome.software
    return Explained(
        cell=cell,
        software=" ".join(str(told[key]) for key in ("framework", "version") if told.get(key)),
        profiler=profile.profiler,
        steps=profile.steps,
        on_device=not cell.on_cpu,
        seconds=median(seconds) if seconds else None,
        profiled_seconds=profile.step_seconds,
        whole_seconds=whole,
        kinds=_kinds(operators, whole, busy),
        operators=operators,
        flops=None if family is None else family.training_flops(cell.batch_size),
        product_seconds=sum(each.seconds for each in operators if each.kind in PRODUCTS),
        own_rate=outcome.gemm_flops_per_second,
        starting="" if cell.on_cpu else starting_words(outcome),
    )


def _shown(cell: Cell, profile: Profile) -> list[Operator]:
    return [each for each in profile.operators if each.on_device is not cell.on_cpu and each.calls > 0]


def _kinds(operators: Iterable[Share], whole: float, busy: float) -> tuple[Share, ...]:
    found: dict[str, tuple[float, float]] = {}
    for each in operators:
        seconds, calls = found.get(each.kind, (0.0, 0.0))
        found[each.kind] = seconds + each.seconds, calls + (each.calls or 0.0)
    kinds = [Share(kind, kind, seconds, seconds / whole, calls) for kind, (seconds, calls) in found.items()]
    kinds.sort(key=lambda each: -each.seconds)
    idle = max(0.0, whole - busy)
    return (*kinds, Share(IDLE, IDLE, idle, idle / whole, None))
