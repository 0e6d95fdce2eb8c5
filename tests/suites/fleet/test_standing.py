"""How jobs stand: neither the scheduler nor the heartbeat is believed alone."""

import pytest

from dlbench.reports.storage.servers.fleets import Job
from dlbench.suites.fleet import standing
from dlbench.suites.fleet.schedulers.scheduler import ENDED, GONE, RUNNING, UNKNOWN, WAITING, Seen


def state_of(job: Job, seen: Seen | None = None, finished: tuple[str, ...] = ()) -> str:
    told = {} if seen is None or job.handle is None else {job.handle: seen}
    return standing.standings([job], told, {}, finished)[0].state


@pytest.mark.parametrize(
    ("beat_age", "seen", "state"),
    [
        (None, WAITING, standing.QUEUED),
        (None, RUNNING, standing.STARTING),
        (None, UNKNOWN, standing.HANDED_OVER),
        (None, GONE, standing.LOST),
        (None, ENDED, standing.LOST),
        (5.0, RUNNING, standing.MEASURING),
        (5.0, UNKNOWN, standing.MEASURING),
        # A controller that was started anew may have forgotten a job that lives.
        (5.0, GONE, standing.MEASURING),
        # A killed job beat a moment ago.
        (5.0, ENDED, standing.LOST),
        # A node that vanished: its scheduler believes in it for some minutes.
        (61.0, RUNNING, standing.LOST),
        (61.0, UNKNOWN, standing.LOST),
        (61.0, GONE, standing.LOST),
    ],
)
def test_a_job_that_has_not_said_how_it_ended(beat_age: float | None, seen: str, state: str) -> None:
    assert state_of(Job(1, "n1", handle="7", beat_age=beat_age), Seen(seen)) == state


def test_what_a_job_said_of_its_end_counts() -> None:
    ended = Job(1, "n1", handle="7", run="r", beat_age=900.0, ending=standing.DONE)
    assert state_of(ended, Seen(GONE)) == standing.FINISHED
    broken = Job(1, "n1", handle="7", beat_age=900.0, ending="The store is damaged.")
    (found,) = standing.standings([broken], {"7": Seen(ENDED)}, {}, ())
    assert (found.state, found.words) == (standing.FAILED, "The store is damaged.")
    assert state_of(Job(1, "n1")) == standing.FAILED


def test_a_finished_run_is_finished_though_its_job_could_not_say_so() -> None:
    lost = Job(1, "n1", handle="7", run="r", beat_age=900.0)
    assert state_of(lost, Seen(ENDED), finished=("r",)) == standing.FINISHED


def test_a_job_that_another_goes_on_with_is_no_trouble() -> None:
    jobs = [Job(1, "n1", handle="7", beat_age=99.0), Job(2, "n1", handle="8", replaces=1)]
    found = standing.standings(jobs, {"7": Seen(ENDED), "8": Seen(WAITING)}, {}, ())
    assert [each.state for each in found] == [standing.REPLACED, standing.QUEUED]
    assert found[0].words == "job 2 goes on"
