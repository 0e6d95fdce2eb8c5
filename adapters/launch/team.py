"""Workers that train together, each in a process of its own: how they are started, told what to do, and lost.

The process that the host started is the first worker. It starts the others, which run the same guest with the same
``cell.json``, and tells them through pipes what it is about to do: they join in, since a step, and the mean of the
losses, need everybody. Each step of the first worker waits for the others inside the framework's own engine, so its
clock times the step of all.

A sample of several short steps is told in one line: what telling costs, some microseconds, is spread over a sample.
Engines that drive all their devices from one process need none of this.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Mapping, NamedTuple, Optional

import numpy as np

from ..base import PROCESSES, Adapter
from ..networks import Network
from ..protocol import Launch, Outcome, Status, read_json_object, write_json, write_outcome
from . import batches, check, evidence
from .batches import Batch

OPTION = "--worker"  # as `__main__` reads it
#: A worker that is lost makes the engine of the others fail, with words of sockets: its own reason is waited for so
#: many seconds, and as long the others may take to fail by themselves.
GRACE_SECONDS = 2.0
_END_SECONDS = 5.0


class WorkerLost(Exception):  # noqa: N818 - a finding about the launch
    """Another worker ended before its time; the text tells which, and why."""


def needed(adapter: Adapter, launch: Launch) -> bool:
    """Tell whether the launch is carried out by a process for each worker."""
    return launch.cell.world_size > 1 and adapter.data_parallel == PROCESSES


def refusal(adapter: Adapter, launch: Launch) -> str:
    """Return why these workers cannot train together; empty where they can, or where there is one alone."""
    workers, size = launch.cell.world_size, launch.cell.batch_size
    if workers == 1:
        return ""
    if not adapter.data_parallel:
        return "world size %d: this adapter trains with one worker only" % workers
    if size % workers:
        return "world size %d: a mini-batch of %d cannot be dealt out evenly" % (workers, size)
    return ""


def see_own_gpu(launch: Launch, worker: int) -> None:
    """Let this process see its worker's GPU alone, before the framework looks: it is device 0 then."""
    if launch.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = launch.gpu.split(",")[worker]


def part_of(batch: Batch, worker: int, workers: int) -> Batch:
    """Return the worker's part of the mini-batch: examples in a row, as many as every other's."""
    each = len(batch.labels) // workers
    mine = slice(worker * each, (worker + 1) * each)
    return Batch(batch.inputs[mine], batch.labels[mine])


def reset(adapter: Adapter, network: Network, launch: Launch, worker: int) -> None:
    """Give a worker the weights of the parity check and its part of that mini-batch."""
    batch = batches.of_launch(network, launch)
    adapter.reset(check.Weights(network), part_of(batch, worker, launch.cell.world_size))


def meeting_place(directory: str) -> str:
    """Return the file, not there yet, by which the workers of a launch find one another."""
    return os.path.join(directory, "meeting")


def _last_words(directory: str, worker: int) -> str:
    return os.path.join(directory, "worker-%d.json" % worker)


def say_why(directory: str, worker: int, outcome: Outcome) -> None:
    """Leave a worker's reason for ending where the first one looks for it."""
    write_json(_last_words(directory, worker), {"status": outcome.status.value, "reason": outcome.reason})


class _Lost(NamedTuple):
    """What a lost worker makes of the launch, and whether it is the cause: the lowest rank, then the first moment."""

    rank: int
    moment: float
    outcome: Outcome


class Team:
    """The other workers, as the first one sees them."""

    def __init__(self, launch: Launch, directory: str) -> None:
        """Start them; they prepare while the first one does."""
        self._directory = directory
        self._world_size = launch.cell.world_size
        self._lock = threading.Lock()
        self._over = False
        self._oom_kills = evidence.oom_kills()
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self._others = [
            subprocess.Popen(
                [sys.executable, "-I", here, directory, OPTION, str(worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            for worker in range(1, self._world_size)
        ]
        self._pipes = [other.stdin.fileno() for other in self._others if other.stdin is not None]
        for place, other in enumerate(self._others):
            watch = threading.Thread(target=self._watch, args=(place + 1, other), name="worker %d" % (place + 1))
            watch.daemon = True
            watch.start()

    def tell(self, line: bytes) -> None:
        """Tell all others what comes next; raises WorkerLost where one cannot be told."""
        for place, pipe in enumerate(self._pipes):
            try:
                os.write(pipe, line)
            except OSError:
                raise WorkerLost("worker %d of %d takes no more orders" % (place + 1, self._world_size)) from None

    def why_lost(self) -> Optional[Outcome]:
        """Return the outcome that a lost worker makes of this launch, its own reason in it; None where all are there.

        Of several lost ones the first cause counts, others fail for the lack of that worker: memory that ran out, or
        what cannot be done; then an end without words; then the reason that was told first.
        """
        deadline = time.monotonic() + GRACE_SECONDS
        while True:
            lost = [each for each in map(self._lost, range(1, self._world_size)) if each is not None]
            if any(each.rank == 0 for each in lost) or (lost and time.monotonic() > deadline):
                return min(lost, key=lambda each: (each.rank, each.moment)).outcome
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)

    def _lost(self, worker: int) -> Optional[_Lost]:
        path = _last_words(self._directory, worker)
        words = read_json_object(path)
        if words is not None:
            status = Status(words.get("status", "crashed"))
            reason = "worker %d of %d: %s" % (worker, self._world_size, words.get("reason", ""))
            rank = 2 if status is Status.CRASHED else 0
            return _Lost(rank, os.stat(path).st_mtime, Outcome(status, reason))
        code = self._others[worker - 1].poll()
        if code is None:
            return None
        if code == -signal.SIGKILL and evidence.oom_kills() > self._oom_kills:
            reason = "worker %d of %d was killed by the kernel: memory ran out" % (worker, self._world_size)
            return _Lost(0, 0.0, Outcome(Status.OUT_OF_MEMORY, reason))
        ended = "by signal %d" % -code if code < 0 else "with exit code %d" % code
        reason = "worker %d of %d ended %s" % (worker, self._world_size, ended)
        return _Lost(1, 0.0, Outcome(Status.CRASHED, reason))

    def _watch(self, worker: int, other: "subprocess.Popen[bytes]") -> None:
        """Wait for a worker's end. Where it comes too soon, and the first hangs waiting for it, end the launch."""
        other.wait()
        # Let the first worker fail by itself, if it can.
        time.sleep(2 * GRACE_SECONDS)
        with self._lock:
            if self._over:
                return
            self._over = True
            try:
                write_outcome(self._directory, self.why_lost() or Outcome(Status.CRASHED, "worker %d ended" % worker))
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(0)

    def end(self) -> None:
        """Let the others go; from now on the end of one is no loss."""
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


class Step:
    """The first worker's step: the others are told to take theirs, then it takes its own."""

    def __init__(self, team: Team, adapter: Adapter) -> None:
        self._tell = team.tell
        self._adapter = adapter  # whose step may be another one once it has prepared

    def __call__(self) -> None:
        """Carry out one step."""
        self._tell(b"step 1\n")
        self._adapter.step()

    def several(self, count: int) -> Callable[[], None]:
        """Return a call that carries out this many steps, told in one line."""
        tell, step, line = self._tell, self._adapter.step, b"step %d\n" % count

        def steps() -> None:
            tell(line)
            for _ in range(count):
                step()

        return steps


class Lead:
    """The first worker's adapter, whose calls the others join in; anything else is asked of the adapter itself."""

    def __init__(self, team: Team, adapter: Adapter) -> None:
        self._team = team
        self._adapter = adapter
        self.step = Step(team, adapter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def set_learning_rate(self, rate: float) -> None:
        """Use this rate in all workers."""
        self._team.tell(("rate %r\n" % rate).encode("ascii"))
        self._adapter.set_learning_rate(rate)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Put the check's weights, and of its mini-batch each worker's part, in place in all of them."""
        self._team.tell(b"reset\n")
        self._adapter.reset(weights, part_of(batch, 0, self._adapter.cell.world_size))

    def last_loss(self) -> float:
        """Return the mean over all workers."""
        self._team.tell(b"loss\n")
        return self._adapter.last_loss()


def follow(adapter: Adapter, orders: Any, reset: Callable[[], None]) -> None:
    """Join in what the first worker does, until its end of the pipe is closed."""
    for line in iter(orders.readline, b""):
        what, _, rest = line.decode("ascii").strip().partition(" ")
        if what == "step":
            for _ in range(int(rest)):
                adapter.step()
        elif what == "rate":
            adapter.synchronize()
            adapter.set_learning_rate(float(rest))
        elif what == "loss":
            adapter.last_loss()
        elif what == "reset":
            adapter.synchronize()
            reset()
        else:
            raise ValueError("no order is %r" % line)
