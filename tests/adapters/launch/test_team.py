"""Workers of one launch: what each is dealt and told, and what becomes of a launch that loses one."""

import io
import threading

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import launch_null, workers_of

from dlbench.adapters.base import Adapter
from dlbench.adapters.launch import evidence, team, timing
from dlbench.adapters.launch.batches import Batch
from dlbench.adapters.protocol import Cell, Launch, Protocol, Status

CELL = Cell("null", "null", "null", "fcn5", "cpu", 2, 12, world_size=3)
MINI_BATCH = Batch(np.zeros((4, 1)), np.arange(4))
LAUNCH = Launch(CELL, Protocol(), {}, None, "")


@given(workers=st.integers(1, 9), each=st.integers(1, 9))
def test_the_parts_of_a_mini_batch_are_equal_and_together_the_whole(workers, each):
    whole = Batch(np.arange(workers * each * 2).reshape(-1, 2), np.arange(workers * each))
    parts = [team.part_of(whole, worker, workers) for worker in range(workers)]
    assert {len(part.labels) for part in parts} == {each}
    assert np.array_equal(np.concatenate([part.inputs for part in parts]), whole.inputs)
    assert np.array_equal(np.concatenate([part.labels for part in parts]), whole.labels)


@given(workers=st.integers(1, 9), each=st.integers(1, 9))
def test_the_workers_share_the_cpus_of_a_bound_launch(workers, each):
    launch = LAUNCH._replace(cell=CELL._replace(world_size=workers), cpus=list(range(workers * each)))
    shares = [evidence.cpus_of_worker(launch, worker) for worker in range(workers)]
    assert [cpu for share in shares for cpu in share] == launch.cpus
    assert {len(share) for share in shares} == {each}
    assert evidence.cpus_of_worker(launch._replace(cpus=None), 0) is None


class Noting(Adapter):
    """Notes what it is asked to do."""

    def __init__(self):
        self.notes = []
        self.cell = CELL._replace(world_size=2)

    def reset(self, weights, batch):
        self.notes.append("reset")
        self.labels = list(batch.labels)

    def step(self):
        self.notes.append("step")

    def synchronize(self):
        self.notes.append("wait")

    def set_learning_rate(self, rate):
        self.notes.append(rate)

    def last_loss(self):
        self.notes.append("loss")
        return 2.5

    def effective_threads(self):
        return 7


class Pipe:
    """Stands for the pipes to the other workers."""

    def __init__(self):
        self.written = b""

    def tell(self, line):
        self.written += line


def test_the_others_join_in_whatever_the_first_worker_does():
    first, pipe, other = Noting(), Pipe(), Noting()
    lead = team.Lead(pipe, first)
    lead.step()
    lead.set_learning_rate(0.1 + 0.2)
    assert lead.last_loss() == 2.5
    timing.several(lead.step, 3)()
    timing.several(lead.step, 1)()
    assert lead.effective_threads() == 7  # nobody else is asked
    lead.reset({}, MINI_BATCH)
    assert pipe.written.count(b"\n") == 6
    team.follow(other, io.BytesIO(pipe.written), lambda: other.reset({}, team.part_of(MINI_BATCH, 1, 2)))
    assert first.notes == ["step", 0.1 + 0.2, "loss", "step", "step", "step", "step", "reset"]
    assert (first.labels, other.labels) == ([0, 1], [2, 3])
    assert [note for note in other.notes if note != "wait"] == first.notes


@pytest.mark.parametrize("unlucky", [1, 2])
def test_of_several_lost_workers_the_cause_is_told(unlucky, tmp_path):
    settings = {"fault": "memory", "fault_worker": unlucky, "step_seconds": 0.05}
    outcome = launch_null(tmp_path, settings, world_size=4)
    assert outcome.status is Status.OUT_OF_MEMORY
    assert outcome.reason.startswith(f"worker {unlucky} of 4: MemoryError")


def test_a_mini_batch_that_cannot_be_dealt_out_is_refused(tmp_path):
    outcome = launch_null(tmp_path, {}, batch_size=10, world_size=3)
    assert outcome.status is Status.UNSUPPORTED
    assert outcome.reason == "world size 3: a mini-batch of 10 cannot be dealt out evenly"
    assert launch_null(tmp_path, {}, batch_size=12, world_size=3).status is Status.OK


def test_the_workers_deal_out_the_step_and_their_cpu_time_is_the_launches_own(tmp_path):
    outcome = launch_null(tmp_path, {"step_seconds": 0.2, "serial_fraction": 0.0}, world_size=2)
    assert outcome.status is Status.OK, outcome.reason
    assert min(outcome.step_seconds()) == pytest.approx(0.1, rel=0.2)
    assert outcome.threads.requested == 2
    busiest, second, *_ = outcome.threads.cpu_seconds_by_thread
    assert second > 0.3 * busiest > 0.0
    assert outcome.threads.cpu_seconds >= busiest + second - 0.05


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("crash", Status.CRASHED, "worker 1 of 2 ended by signal 11"),
        ("exit", Status.CRASHED, "worker 1 of 2 ended with exit code 3"),
        ("memory", Status.OUT_OF_MEMORY, "worker 1 of 2: MemoryError: the null framework was told to run out"),
        ("error", Status.CRASHED, "worker 1 of 2: RuntimeError: the null framework was told to fail"),
        ("unsupported", Status.CRASHED, "worker 1 of 2"),
    ],
)
def test_a_lost_worker_is_told_with_its_own_reason(fault, status, words, tmp_path):
    outcome = launch_null(tmp_path, {"fault": fault, "fault_worker": 1, "step_seconds": 0.05}, world_size=2)
    assert words in outcome.reason
    assert outcome.status is status or fault == "unsupported"
    assert not outcome.samples_ns


def test_a_first_worker_that_waits_for_a_lost_one_for_ever_is_ended(tmp_path):
    given_up = []

    def lose():
        worker = workers_of(tmp_path)[0]
        given_up.append(worker.pid)
        worker.kill()

    # It hangs in its first step, as an engine may whose other end is gone.
    threading.Timer(0.0, lose).start()
    outcome = launch_null(tmp_path, {"fault": "stubborn", "fault_worker": 0}, world_size=2)
    assert outcome.status is Status.CRASHED
    assert outcome.reason == "worker 1 of 2 ended by signal 9"
    assert not any(psutil.pid_exists(pid) for pid in given_up)
