"""Thread evidence: how many threads worked and wanted to work, and on how many CPUs.

The number of threads that *wanted* to run, on average, is (CPU seconds + run-queue delay) / wall
seconds: a thread is running, waiting for a CPU, or asleep. Unlike CPU / wall it is not capped by
the number of CPUs, so it distinguishes eight threads from four on two CPUs; and unlike counting
threads that used any CPU it is not misled by frameworks whose threads take turns (such as a
separate thread for the backward pass).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dlbench.adapters.protocol import BOUND, Contention, ThreadEvidence
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.naming import counted
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Record

EXCEEDED_FACTOR, EXCEEDED_SLACK = 1.10, 0.15
"""Threads are exceeded when more than ``asked * factor + slack`` wanted to run on average."""
UNUSED_SHARE = 0.10
"""Threads are unused when those beyond the first wanted to run less than this share of the time on
average ..."""
WORKER_SHARE = 0.01
"""... or when fewer threads than asked each had this share of the wall time as CPU time."""
SHORTEST_REGION = 0.2
"""Seconds. A shorter timed region has only a few ticks of the clocks behind the evidence."""


def long_enough(outcome: Outcome) -> ThreadEvidence | None:
    """Return the thread evidence of a launch whose timed region was long enough to judge it."""
    threads = outcome.threads
    return threads if threads is not None and threads.wall_seconds >= SHORTEST_REGION else None


def wanting_threads(threads: ThreadEvidence, contention: Contention | None) -> float:
    """Return how many threads were running or waiting for a CPU, on average while timing."""
    if threads.wall_seconds <= 0:
        return 0.0
    waited = 0.0 if contention is None else contention.run_queue_seconds or 0.0
    return (threads.cpu_seconds + waited) / threads.wall_seconds


def working_threads(threads: ThreadEvidence) -> int | None:
    """Return how many threads had at least `WORKER_SHARE` of the wall time.

    None where the system does not say.
    """
    if threads.cpu_seconds_by_thread is None:
        return None
    least = WORKER_SHARE * threads.wall_seconds
    return sum(seconds >= least for seconds in threads.cpu_seconds_by_thread)


def threads_seen(threads: ThreadEvidence, contention: Contention | None) -> int:
    """Return how many threads the operating system saw working at once."""
    # No more than the average number of runnable threads: threads that take turns (TensorFlow's
    # caller and its pool) are fewer than they look. The quarter allows for clocks and helper
    # threads.
    at_once = max(1, math.ceil(wanting_threads(threads, contention) - 0.25))
    return min(at_once, working_threads(threads) or at_once)


def more_threads_than(asked: int, threads: ThreadEvidence, contention: Contention | None) -> bool:
    """Tell whether clearly more threads than asked had work to do.

    More must have wanted to run, and the threads beyond the busiest ``asked`` ones must have done
    some of the work: beside other programs a thread that does next to nothing still waits long for
    a CPU each time it wakes.
    """
    if wanting_threads(threads, contention) <= asked * EXCEEDED_FACTOR + EXCEEDED_SLACK:
        return False
    if threads.cpu_seconds_by_thread is None:
        return True
    busiest = sorted(threads.cpu_seconds_by_thread, reverse=True)[:asked]
    return threads.cpu_seconds - sum(busiest) > EXCEEDED_SLACK * threads.wall_seconds


def capacity_of(record: Record, host: Host | None) -> float | None:
    """Return how many CPUs' worth of time a launch could get; None if unknown.

    That is its CPUs or its quota, the smaller. Its outcome counts first, then the request of its
    cell, then the host as it was probed. The record's quota was in force around dlbench; the cell
    may have one of its own.
    """
    cell = record.cell
    outcome = record.outcome
    quota_cpus = record.quota_cpus
    cpus: float | None = None
    if host is not None:
        cpus = host.capacity_cpus or host.effective_cpus
        mask = host.logical_cpus
        if quota_cpus is None and cpus is not None and mask is not None and cpus < mask:
            quota_cpus = cpus  # less than the host's mask: then it is the quota
    if outcome.cpus:
        cpus = len(outcome.cpus)
    elif cell.affinity == BOUND:
        cpus = cell.all_threads
    limits = cpus, quota_cpus, cell.cpu_quota or None
    return min((limit for limit in limits if limit is not None), default=None)


WAIT_VARIABLES = (
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "KMP_LIBRARY",
    "OPENBLAS_THREAD_TIMEOUT",
)
"""Environment variables that decide how a library's threads wait for work: spinning or asleep.

Spinning burns a CPU. The variables are OpenMP's own, libgomp's, libomp's (two) and OpenBLAS's.
"""
WAIT_FACTS = ("spin", "allow_spinning")
"""The same among settings of a mode and facts that an adapter reports of its session."""


@dataclass(frozen=True)
class Observed:
    """Thread and contention evidence: medians over the launches of a cell; None where unknown."""

    requested: int
    framework_says: int | None
    """The framework's own count, in the newest launch."""
    os_threads: int | None
    working_threads: int | None
    wanting_threads: float
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
    taken_threads: int | None = None
    """Threads that the framework took: as it reports, else as many as the system saw at once."""
    throttled_periods: float | None = None
    """Share of the kernel's periods in which the cell's own CPU quota ran out; None without one."""
    wait_policy: Mapping[str, str] | None = None
    """Settings among `WAIT_VARIABLES` and `WAIT_FACTS` in the newest launch; empty: the libraries'
    defaults."""


def observe(outcomes: Sequence[Outcome]) -> Observed | None:
    """Return the thread evidence of timed outcomes of one cell; None where none has any."""
    observed = []
    rates = []
    for outcome in outcomes:
        threads = outcome.threads
        if threads and threads.wall_seconds > 0:
            observed.append((threads, outcome))
            rates.append(_rates(threads, outcome))
    if not observed:
        return None
    medians: dict[str, Any] = {}
    for name in rates[0]:
        values = [launch[name] for launch in rates if launch[name] is not None]
        medians[name] = median(values) if values else None
    for name in ("os_threads", "working_threads", "taken_threads"):
        if medians[name] is not None:
            medians[name] = round(medians[name])
    newest, outcome = observed[-1]
    return Observed(
        newest.requested,
        newest.framework_says,
        **medians,
        wait_policy=wait_policy(outcome.software),
    )


def _rates(threads: ThreadEvidence, outcome: Outcome) -> dict[str, Any]:
    """Return the fields of `Observed` that are medians over launches, of one launch."""
    wall = threads.wall_seconds
    steps = max(1, outcome.observed_steps())
    contention = outcome.contention

    def rate(name: str, divisor: float) -> float | None:
        amount = getattr(contention, name, None)
        return None if amount is None else amount / divisor

    quota = None if outcome.outside is None else outcome.outside.quota
    throttled_periods = None
    if quota is not None and quota.periods:
        throttled_periods = quota.throttled_periods / quota.periods
    return {
        "os_threads": threads.os_threads,
        "working_threads": working_threads(threads),
        "wanting_threads": wanting_threads(threads, contention),
        "cpu_per_wall": threads.cpu_seconds / wall,
        "cpu_seconds_per_step": threads.cpu_seconds / steps,
        "waiting_per_wall": rate("run_queue_seconds", wall),
        "involuntary_switches_per_step": rate("involuntary_switches", steps),
        "throttled_share": rate("throttled_seconds", wall),
        "steal_per_wall": rate("steal_seconds", wall),
        "taken_threads": threads.framework_says or threads_seen(threads, contention),
        "throttled_periods": throttled_periods,
    }


def wait_policy(software: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the settings that decide how waiting threads wait; None where none were recorded."""
    variables = software.get("variables")
    if not isinstance(variables, Mapping):
        return None
    facts = dict(software)
    settings = software.get("mode_settings")
    if isinstance(settings, Mapping):
        facts.update(settings)
    policy = {name: str(variables[name]) for name in WAIT_VARIABLES if name in variables}
    policy |= {name: str(facts[name]) for name in WAIT_FACTS if name in facts}
    return policy


def misused_threads(outcome: Outcome, capacity: float | None) -> tuple[int, str]:
    """Return 1 where more threads worked than requested, -1 where fewer did, else 0; and why.

    Unused threads are looked for only up to ``capacity``: more threads than CPUs are rarely all
    seen runnable, since waiting ones may sleep and a quota stops them. Threads that fetch
    mini-batches may rest, so they are not counted.
    """
    threads = long_enough(outcome)
    if threads is None or not threads.requested:
        return 0, ""  # without a request: as many as the framework takes by itself
    asked = threads.requested
    reported = threads.framework_says
    wanting = wanting_threads(threads, outcome.contention)
    if more_threads_than(asked, threads, outcome.contention):
        return 1, f"{wanting:.1f} runnable threads on average, {asked} requested"
    if reported is not None and reported != asked:
        sentence = f"the framework reports {counted(reported, 'thread')}, {asked} requested"
        misuse = 1 if reported > asked else -1
        return misuse, sentence
    computing = asked - threads.helpers
    if computing < 2 or capacity is None or asked > capacity:
        return 0, ""
    if wanting < 1 + UNUSED_SHARE * (computing - 1):
        return -1, f"{wanting:.1f} runnable threads on average, {computing} requested"
    working = working_threads(threads)
    seen = len(threads.cpu_seconds_by_thread or ())
    if reported is not None and working is not None and working < computing <= seen:
        return -1, f"{working} threads did the work, {computing} requested"
    return 0, ""
