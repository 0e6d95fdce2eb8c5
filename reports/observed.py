"""What was observed of a cell's threads and of what stood in their way, over all its launches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from dlbench.adapters.protocol import Contention, Outcome, ThreadEvidence
from dlbench.reports.evidence import wanting_threads, working_threads


@dataclass(frozen=True)
class Observed:
    """Medians over the launches of a cell; None where the system did not tell."""

    requested: int
    framework_says: int | None
    """The framework's own word, of the newest launch."""
    os_threads: int | None
    working_threads: int | None
    """Threads with at least 1 % of the wall time as CPU time."""
    wanting_threads: float
    """Threads running or waiting for a CPU, on average."""
    cpu_per_wall: float
    """CPU seconds per second."""
    cpu_seconds_per_step: float
    waiting_per_wall: float | None
    """Run-queue delay of all threads together, seconds per second."""
    involuntary_switches_per_step: float | None
    throttled_share: float | None
    """Of the wall time."""
    steal_per_wall: float | None
    """Seconds that the hypervisor took from all CPUs together, per second."""


def observe(outcomes: Sequence[Outcome]) -> Observed | None:
    """Return what these timed outcomes of one cell show; None where none of them has evidence."""
    pairs = [(outcome.threads, outcome) for outcome in outcomes if outcome.threads and outcome.threads.wall_seconds > 0]
    if not pairs:
        return None
    newest = pairs[-1][0]

    def of_threads(value: Callable[[ThreadEvidence, Outcome], float | None]) -> float | None:
        found = [each for threads, outcome in pairs if (each := value(threads, outcome)) is not None]
        return median(found) if found else None

    def of_contention(value: Callable[[Contention], float | None], per_step: bool = False) -> float | None:
        def rate(threads: ThreadEvidence, outcome: Outcome) -> float | None:
            amount = None if outcome.contention is None else value(outcome.contention)
            if amount is None:
                return None
            return amount / (max(1, outcome.observed_steps()) if per_step else threads.wall_seconds)

        return of_threads(rate)

    def whole(value: float | None) -> int | None:
        return None if value is None else round(value)

    return Observed(
        requested=newest.requested,
        framework_says=newest.framework_says,
        os_threads=whole(of_threads(lambda threads, _: threads.os_threads)),
        working_threads=whole(of_threads(lambda threads, _: working_threads(threads))),
        wanting_threads=of_threads(lambda threads, outcome: wanting_threads(threads, outcome.contention)) or 0.0,
        cpu_per_wall=of_threads(lambda threads, _: threads.cpu_seconds / threads.wall_seconds) or 0.0,
        cpu_seconds_per_step=of_threads(lambda threads, outcome: threads.cpu_seconds / max(1, outcome.observed_steps()))
        or 0.0,
        waiting_per_wall=of_contention(lambda contention: contention.run_queue_seconds),
        involuntary_switches_per_step=of_contention(lambda contention: contention.involuntary_switches, per_step=True),
        throttled_share=of_contention(lambda contention: contention.throttled_seconds),
        steal_per_wall=of_contention(lambda contention: contention.steal_seconds),
    )
