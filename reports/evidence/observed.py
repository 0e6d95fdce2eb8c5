"""What was observed of a cell's threads and of what stood in their way, over all its launches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dlbench.adapters.protocol import Contention, Outcome, ThreadEvidence
from dlbench.reports.evidence.raised_flags import wanting_threads, working_threads

# What tells a library's threads how to wait for work: to spin, which burns a CPU that others may need, or to sleep.
WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY", "OPENBLAS_THREAD_TIMEOUT")
"""Environment variables: OpenMP's own, libgomp's, libomp's (two), OpenBLAS's."""
WAIT_FACTS = ("spin", "allow_spinning")
"""Settings of a mode, and what an adapter says of its session."""


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
    wait_policy: Mapping[str, str] | None = None
    """What was set of `WAIT_VARIABLES` and `WAIT_FACTS`, of the newest launch; empty: the libraries' defaults."""


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
        wait_policy=wait_policy(pairs[-1][1].software),
    )


def wait_policy(software: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what was set that decides how waiting threads wait; None where the launch did not record settings."""
    variables, settings = software.get("variables"), software.get("mode_settings")
    if not isinstance(variables, Mapping):
        return None
    told = {**software, **(settings if isinstance(settings, Mapping) else {})}
    found = {name: variables[name] for name in WAIT_VARIABLES if name in variables}
    return {name: str(value) for name, value in {**found, **{n: told[n] for n in WAIT_FACTS if n in told}}.items()}
