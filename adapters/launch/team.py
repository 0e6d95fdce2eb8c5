"""Workers that train together, each in its own process: their start, commands and loss.

The process that the host started is the first worker. It starts the others, which run the same
guest with the same ``cell.json``, and sends them a line through a pipe before each of its own
calls: they join in, since a step, and the mean of the losses, need all workers. Each step of the
first worker waits for the others inside the framework's own engine, so its clock times the step of
all.

A sample of several short steps is one line: its cost, some microseconds, is spread over a sample.
Engines that drive all their devices from one process need none of this.

Asynchronous workers wait for one another at the end of each line (`Adapter.meet`): a sample lasts
until the slowest worker has taken its steps, and between them none waits.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, List, Mapping, Optional, Tuple

import numpy as np

from ..base import PROCESSES, Adapter
from ..networks import Network
from ..protocol import (
    ASYNC,
    EVERY_STEP,
    Answer,
    Launch,
    Status,
    read_json_object,
    write_answer,
    write_json,
)
from . import batches, evidence, parity
from .batches import Batch

OPTION = "--worker"  # as `__main__` reads it
#: A lost worker makes the engine of the others fail with a message about sockets. Wait this many
#: seconds for the lost worker's own reason, and as long for the others to fail by themselves.
GRACE_SECONDS = 2.0
_END_SECONDS = 5.0


def needed(adapter: Adapter, launch: Launch) -> bool:
    """Return whether each worker of the launch is a process."""
    return launch.cell.world_size > 1 and adapter.data_parallel == PROCESSES


def refusal(adapter: Adapter, launch: Launch) -> str:
    """Return why these workers cannot train together; empty where they can.

    It is also empty for one worker that exchanges after every step.
    """
    workers = launch.cell.world_size
    size = launch.cell.batch_size
    sync = launch.cell.sync
    if sync not in (EVERY_STEP, ASYNC) and not launch.cell.local_steps:
        return "sync %s: known values are step, local:H with H local steps, and async" % sync
    if workers == 1 and sync == EVERY_STEP:
        return ""
    if workers == 1:
        return "sync %s: it needs a world size of 2 or more" % sync
    if not adapter.data_parallel:
        return "world size %d: this adapter trains with one worker only" % workers
    if size is None:
        return "world size %d: the mini-batch size is not known, so it cannot be split" % workers
    if size % workers:
        return "world size %d: a mini-batch of %d cannot be split evenly" % (workers, size)
    return ""


def see_own_gpu(launch: Launch, worker: int) -> None:
    """Let this process see its worker's GPU only, before the framework looks.

    Then it is device 0.
    """
    if launch.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = launch.gpu.split(",")[worker]


def part_of(batch: Batch, worker: int, workers: int) -> Batch:
    """Return the worker's part of the mini-batch: examples in a row, as many as every other's."""
    size = len(batch.labels) // workers
    part = slice(worker * size, (worker + 1) * size)
    return Batch(batch.inputs[part], batch.labels[part])


def reset(adapter: Adapter, network: Network, launch: Launch, worker: int) -> None:
    """Give a worker the weights of the parity check and its part of that mini-batch."""
    weights = parity.Weights(network, launch.weights)
    batch = batches.launch_batch(network, launch)
    adapter.reset(weights, part_of(batch, worker, launch.cell.world_size))


def meeting_place(directory: str) -> str:
    """Return the file, not there yet, by which the workers of a launch find one another."""
    return os.path.join(directory, "meeting")


def _report_path(directory: str, worker: int) -> str:
    return os.path.join(directory, "worker-%d.json" % worker)


def say_why(directory: str, worker: int, answer: Answer) -> None:
    """Write a worker's reason for ending where the first one looks for it."""
    report = {"status": answer.status.value, "reason": answer.reason}
    write_json(_report_path(directory, worker), report)


#: A lost worker's rank as the cause, the moment of its report, and the launch's answer.
_Lost = Tuple[int, float, Answer]


class Team:
    """The other workers, as the first one sees them."""

    def __init__(self, launch: Launch, directory: str) -> None:
        """Start the workers; they prepare while the first one does."""
        self._directory = directory
        self._world_size = launch.cell.world_size
        self._lock = threading.Lock()
        self._over = False
        self._oom_kills = evidence.oom_kills()
        guest = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        # As the host started this one: an isolated interpreter ignores PYTHONPATH.
        flag = "-I" if sys.flags.isolated else "-s"
        self._others = []
        for worker in range(1, self._world_size):
            command = [sys.executable, flag, guest, directory, OPTION, str(worker)]
            other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            self._others.append(other)
        self._pipes = [other.stdin.fileno() for other in self._others if other.stdin is not None]
        for worker, other in enumerate(self._others, 1):
            name = "worker %d" % worker
            watch = threading.Thread(target=self._watch, args=(worker, other), name=name)
            watch.daemon = True
            watch.start()

    def send(self, line: bytes) -> None:
        """Send this command to all other workers; raises ConnectionError where it cannot."""
        for place, pipe in enumerate(self._pipes):
            try:
                os.write(pipe, line)
            except OSError:
                raise ConnectionError(
                    "worker %d of %d has closed its pipe" % (place + 1, self._world_size)
                ) from None

    def why_lost(self) -> Optional[Answer]:
        """Return the answer of a launch that lost a worker, with that worker's reason.

        It is None where no worker is lost. Of several lost ones the first cause counts, since the
        others fail for lack of that worker: out of memory or an unsupported cell; then an end
        without a report; then the earliest report.
        """
        deadline = time.monotonic() + GRACE_SECONDS
        while True:
            late = time.monotonic() > deadline
            lost_workers: List[_Lost] = []
            for worker in range(1, self._world_size):
                lost = self._lost(worker)
                if lost is not None:
                    lost_workers.append(lost)
            if any(rank == 0 for rank, _, _ in lost_workers) or (lost_workers and late):
                _, _, answer = min(lost_workers, key=lambda lost: lost[:2])
                return answer
            if late:
                return None
            time.sleep(0.05)

    def _lost(self, worker: int) -> Optional[_Lost]:
        path = _report_path(self._directory, worker)
        name = "worker %d of %d" % (worker, self._world_size)
        report = read_json_object(path)
        if report is not None:
            status = Status(report.get("status", "crashed"))
            answer = Answer(status, "%s: %s" % (name, report.get("reason", "")))
            rank = 2 if status is Status.CRASHED else 0
            return rank, os.stat(path).st_mtime, answer
        code = self._others[worker - 1].poll()
        if code is None:
            return None
        if code == -signal.SIGKILL and evidence.oom_kills() > self._oom_kills:
            words = name + " was killed by the kernel: memory ran out"
            return 0, 0.0, Answer(Status.OUT_OF_MEMORY, words)
        ended = "by signal %d" % -code if code < 0 else "with exit code %d" % code
        return 1, 0.0, Answer(Status.CRASHED, "%s ended %s" % (name, ended))

    def _watch(self, worker: int, other: "subprocess.Popen[bytes]") -> None:
        """Wait for a worker's end; end the launch where the first worker hangs waiting for it."""
        other.wait()
        # Let the first worker fail by itself, if it can.
        time.sleep(2 * GRACE_SECONDS)
        with self._lock:
            if self._over:
                return
            self._over = True
            try:
                answer = self.why_lost() or Answer(Status.CRASHED, "worker %d ended" % worker)
                write_answer(self._directory, answer)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(0)

    def end(self) -> None:
        """Let the other workers end; from now on one that ends does not count as lost."""
        with self._lock:
            self._over = True
        for other in self._others:
            try:
                if other.stdin is not None:
                    other.stdin.close()
            except OSError:
                pass
        deadline = time.monotonic() + _END_SECONDS
        for other in self._others:
            try:
                other.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                other.kill()


def _meeting(adapter: Adapter) -> Callable[[], None]:
    """Return the call at the end of a line of steps: asynchronous workers wait for one another."""
    return adapter.meet if adapter.cell.sync == ASYNC else lambda: None


def _step_of_all(team: Team, adapter: Adapter) -> Any:
    """Return the first worker's step: the others are sent theirs, then it takes its own."""
    meet = _meeting(adapter)

    def step() -> None:
        team.send(b"step 1\n")
        adapter.step()  # may be another one once the adapter has prepared
        meet()

    def several(count: int) -> Callable[[], None]:
        send = team.send
        own = adapter.step
        line = b"step %d\n" % count

        def steps() -> None:
            send(line)
            for _ in range(count):
                own()
            meet()

        return steps

    step.several = several  # type: ignore[attr-defined]
    return step


class Lead:
    """The first worker's adapter, whose calls the others join in.

    Other attributes are the adapter's own.
    """

    def __init__(self, team: Team, adapter: Adapter) -> None:
        self._team = team
        self._adapter = adapter
        self.step = _step_of_all(team, adapter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def set_learning_rate(self, rate: float) -> None:
        self._team.send(("rate %r\n" % rate).encode("ascii"))
        self._adapter.set_learning_rate(rate)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Give all workers the check's weights, and each its part of the mini-batch."""
        self._team.send(b"reset\n")
        self._adapter.reset(weights, part_of(batch, 0, self._adapter.cell.world_size))

    def last_loss(self) -> float:
        self._team.send(b"loss\n")
        return self._adapter.last_loss()


def follow(adapter: Adapter, lines: Any, reset: Callable[[], None]) -> None:
    """Join in the first worker's calls, until its end of the pipe is closed."""
    meet = _meeting(adapter)
    for line in iter(lines.readline, b""):
        command, _, rest = line.decode("ascii").strip().partition(" ")
        if command == "step":
            for _ in range(int(rest)):
                adapter.step()
            meet()
        elif command == "rate":
            adapter.synchronize()
            adapter.set_learning_rate(float(rest))
        elif command == "loss":
            adapter.last_loss()
        elif command == "reset":
            adapter.synchronize()
            reset()
        else:
            raise ValueError("unknown line from the first worker: %r" % line)
