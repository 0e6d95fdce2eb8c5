"""How the jobs of a fleet stand: what the store knows of each, beside what the scheduler says.

Neither is believed alone. A scheduler without accounting forgets what has ended, and one whose node vanished calls its
job running for a while; a heartbeat says nothing of why it stopped.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dlbench.reports.storage.servers.fleets import Job

from .heartbeat import LOST_SECONDS
from .schedulers.scheduler import ENDED, GONE, RUNNING, UNKNOWN, WAITING, Seen

FINISHED, MEASURING, STARTING, QUEUED, LOST, FAILED, REPLACED, HANDED_OVER = (
    *("finished", "running", "starting", "waiting", "lost", "failed", "replaced", "not followed"),
)
AT_WORK = frozenset({MEASURING, STARTING, QUEUED, HANDED_OVER})
"""In these states a job may still bring records."""
BROKEN = frozenset({LOST, FAILED})
"""In these it brings none, and its fleet lacks something."""
DONE = "finished"
"""The ending of a job that measured all of its run."""


@dataclass(frozen=True)
class Standing:
    """One job, its state, and why it is called so."""

    job: Job
    state: str
    words: str = ""
    launches: int = 0
    """Records in the store."""


def standings(
    jobs: Sequence[Job], seen: Mapping[str, Seen], launches: Mapping[str, int], finished: Collection[str]
) -> list[Standing]:
    """Return how each job stands; ``seen`` by handle, ``launches`` by run, ``finished`` the ids of runs."""
    replaced = {job.replaces: job.number for job in jobs if job.replaces is not None}
    found = []
    for job in jobs:
        state, words = _state(job, seen.get(job.handle or ""))
        if job.number in replaced and state != FINISHED:
            state, words = REPLACED, f"job {replaced[job.number]} goes on"
        elif job.run in finished:  # though its job could not say so: the server was away when it ended
            state, words = FINISHED, ""
        found.append(Standing(job, state, words, launches.get(job.run or "", 0)))
    return found


def _state(job: Job, seen: Seen | None) -> tuple[str, str]:
    if job.ending is not None:
        return (FINISHED, "") if job.ending == DONE else (FAILED, job.ending)
    if job.handle is None and job.beat_age is None:
        return FAILED, "it was not submitted"
    # Without a handle: what submitted it ended before it could say so.
    state, words = (seen.state, seen.words) if seen is not None else (GONE if job.handle else UNKNOWN, "")
    if state == WAITING:
        return QUEUED, words
    if state == ENDED:
        return LOST, f"the scheduler says {words}"
    if job.beat_age is None:
        return {RUNNING: (STARTING, words), GONE: (LOST, "the scheduler does not know it, and it never began")}.get(
            state, (HANDED_OVER, words)
        )
    if job.beat_age > LOST_SECONDS:
        return LOST, f"no heartbeat for {job.beat_age:.0f} s" + (f"; the scheduler says {words}" if words else "")
    return MEASURING, ""
