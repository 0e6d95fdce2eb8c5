"""Carries out one launch, data in and data out; `launch_process` starts the interpreter.

A `Launcher` is any function that does so. Tests replace it by one that answers at once. The host
reads its clock and the guest's CPU time at each mark of the guest, which waits for an answer there:
nothing is read while a step runs. This module draws the parity check after the timed samples at
random, and sends it only then.
"""

import contextlib
import json
import math
import os
import random
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil

from dlbench.adapters.launch import parity
from dlbench.adapters.launch.evidence import oom_kills
from dlbench.adapters.networks import from_data
from dlbench.adapters.protocol import (
    BEGIN,
    END,
    HOST_LINE,
    PROFILE,
    READ,
    RESET,
    STEPS,
    TRAINING,
    TURN,
    WARM_UP,
    Answer,
    Launch,
    Status,
    write_launch,
)
from dlbench.hardware_probe.energy import Microjoules, PackageCounters
from dlbench.hardware_probe.telemetry import descends_from_this_process
from dlbench.reports.results.losses import Numbers
from dlbench.reports.results.outcome import (
    CpuEnergy,
    HostFacts,
    HostObservation,
    LaunchVerdict,
    Outcome,
    QuotaUse,
    TurnObservation,
)
from dlbench.reports.results.safe_text import one_line

from ..errors import FrameworkEnvironmentError
from ..planning.framework import GUEST_DIRECTORY
from ..planning.variables import GIVEN_NAMES, INHERITED, LAUNCH_MARK
from . import quota
from .answers import UnreadableError, bytes_in, read_answer, read_phase, read_step_seconds
from .standstill import descendants
from .supervisor import TAIL_BYTES
from .taking_turns import TurnTaking, without_growth, without_pauses
from .turns import Member, Turns

_TICK_SECONDS = 0.5
_SUSPENDED_SECONDS = 1.5  # between two looks: this process was stopped
_POLL_SECONDS = 0.05  # where the system does not report the end of a process
_GRACE_SECONDS = 3.0
_LAST_LINES, _LONGEST_REASON = 4, 1000  # of stderr, and characters of an outcome's reason
_MOST_BYTES = 2 * 1024**3  # in a launch's folder, which holds its temporary files too
_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class LaunchRequest:
    """A launch with all that is needed to carry it out."""

    launch: Launch
    interpreter: Path
    variables: dict[str, str]
    timeout: float  # seconds from start to end
    guest: Path | None = None  # the folder of adapters to run; None: this installation's own
    reference: Path | None = None  # of its parity check
    computes: bool = True  # False: the framework says of itself that it computes nothing
    first_losses: tuple[Numbers, ...] | None = None
    """Losses or outputs of an earlier launch, with which this one must agree.

    They are given where only the guest knows the mathematics."""
    meeting: "Meeting | None" = None
    """Where it begins and ends its timed steps together with other instances. See `instances`."""
    member: Member | None = None
    """Its place among launches that take turns."""
    shown: bool = False
    """Whether the guest's output is shown as it comes. Otherwise it is dropped."""

    @property
    def check_steps(self) -> tuple[int, ...]:
        """The lengths in steps that the parity check may have.

        They are those of the reference. Without mathematics there are none.
        """
        if self.launch.network is not None and not from_data(self.launch.network).family.specified:
            return ()
        if self.reference is None:
            return (1,)
        try:
            return parity.steps_in(str(self.reference))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise FrameworkEnvironmentError(
                f"The reference {self.reference} cannot be read ({error}). Remove it to compute it "
                "again."
            ) from error


@dataclass(frozen=True)
class Launched:
    """A launch whose processes have ended: its guest's answer, and the host's observation."""

    verdict: LaunchVerdict
    """How it ended, without the judge's verdict on a timed launch."""
    wall_seconds: float = 0.0
    """Seconds from start to end, without those in which it stood still for others."""
    answer: Answer | None = None
    """None where the guest left none that can be believed. Of a launch in turns it is corrected."""
    outside: HostObservation | None = None
    """None where nothing was timed."""
    paused_ns: Sequence[int] = ()
    """How long it stood still within each sample. Empty: no turn was cut."""
    started: float | None = None
    """When its process was started, by the monotonic clock. None: it was not."""
    suspended: bool = False
    """Whether this process was stopped meanwhile, so that its observations are worthless."""

    def outcome(self, verdict: LaunchVerdict | None = None) -> Outcome:
        """Return the outcome with the judge's verdict. None: it is not judged."""
        status, reason, parity = verdict or self.verdict
        phases = {}
        if self.started is not None:
            phases["start"] = self.started
        if self.answer is None:
            return Outcome(status, reason, parity, phases=phases)
        kept = {name: getattr(self.answer, name) for name in _KEPT_OF_ANSWER}
        software = dict(self.answer.software)
        for name in HostFacts._fields:
            software.pop(name, None)
        kept["software"] = software
        # A guest cannot say when its own process was started.
        kept["phases"] = {**phases, **self.answer.phases, **phases}
        return Outcome(
            **kept,
            status=status,
            reason=reason,
            parity=parity,
            outside=self.outside,
            paused_ns=list(self.paused_ns),
        )


_KEPT_OF_ANSWER = (set(Answer._fields) & set(Outcome._fields)) - set(LaunchVerdict._fields)
"""Fields of an answer that its outcome keeps as they are."""


Tick = Callable[[Path], None]
"""Called now and then during a launch, with its control directory."""
Launcher = Callable[[LaunchRequest, Tick], Launched]
Result = TypeVar("Result")


def no_tick(directory: Path) -> None:
    """Show nothing."""


class _Stopped(Exception):  # noqa: N818 - raised and caught in this module
    """Another of the launches at once was interrupted."""


class Meeting(threading.Barrier):
    """The barrier at which launches begin and end their timed steps together."""

    def wait_to_start(self, number: int) -> bool:
        """Return at once: the launches start together."""
        return not self.broken

    def leave(self, number: int) -> None:
        """Release the launches that wait for this one."""
        self.abort()


def run_together(
    launches: Sequence[Callable[[Tick], Result]], meeting: Meeting | Turns, tick: Tick
) -> list[Result]:
    """Run launches that meet or take turns, each in a thread, and return their results.

    Raises the error of a launch, and KeyboardInterrupt as it comes. No process of any launch is
    left then.
    """
    stopped = threading.Event()

    def look(directory: Path) -> None:
        if stopped.is_set():
            raise _Stopped
        tick(directory)

    def carry_out(number: int) -> Result:
        try:
            if not meeting.wait_to_start(number):
                raise _Stopped
            return launches[number](look)
        finally:
            meeting.leave(number)

    with ThreadPoolExecutor(len(launches)) as pool:
        try:
            futures = [pool.submit(carry_out, number) for number in range(len(launches))]
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            # Ctrl-C comes to this thread alone: the launches end at their next look.
            stopped.set()
            meeting.abort()
            raise


def guest_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a guest: a few inherited variables, and the launch's own."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**kept, **variables, GIVEN_NAMES: ",".join(sorted(variables))}


_LONGEST_LINE = 200
_LONG_STEP = 0.15
"""Seconds of a step from which one check step more is noticeable.

Mostly the shortest check is requested then."""
_SELDOM = 0.1
"""Probability of requesting another length than the shortest."""
_ENOUGH_SECONDS = 0.2
"""Seconds until which the rounds of a check are repeated.

Shorter ones cannot be compared with the timed samples."""
_MOST_ROUNDS = 6
_SLOW = 1.4
_FAST = 0.4
_SLACK_SECONDS = 0.03
"""Limits of the time of a check's steps, in multiples of the timed steps' and with this slack.

Beyond them the check is repeated: other programs may have used the CPUs."""
_MOST_CHECKS = 4
_NOTHING = (0.0, 0.0, 0.0)
"""Time by the clock, CPU time and waiting up to a mark that never came."""


class LaunchMonitor:
    """The host's side of one launch: it answers the guest's marks and observes the launch."""

    def __init__(
        self,
        line: socket.socket,
        supervisor: int,
        check_steps: Sequence[int],
        meeting: Meeting | None = None,
        control_group: quota.ControlGroup | None = None,
        counters: PackageCounters | None = None,
        member: Member | None = None,
        profiled: bool = False,
    ) -> None:
        """Listen on this line. The launch's processes descend from ``supervisor``.

        A check takes one of ``check_steps``. Without any there is no check. ``meeting`` joins it
        with the monitor of another launch, in another thread. As a ``member`` it takes turns with
        others, and has the machine to itself for its profile if it is ``profiled``. A launch with a
        CPU quota has a ``control_group``. ``counters`` are those of the packages' energy (None:
        this machine's).
        """
        line.setblocking(False)
        self.line = line
        self.wrong = ""
        """The guest's violation of the protocol, or empty."""
        self.timed_steps: int | None = None
        """Number of steps that the guest reports as timed."""
        self.over = False
        """Whether the guest can send nothing more."""
        self.held_seconds = 0.0
        """Seconds that the guest had to wait for the other launch."""
        self._meeting = meeting
        self._control_group = control_group
        self._profiled = profiled and member is not None
        self.turns = None if member is None else TurnTaking(member, supervisor)
        """Its part in the turns, where it takes turns with others."""
        self._quota: list[QuotaUse] = []  # at the marks around the timed steps
        self._counters = PackageCounters() if counters is None else counters
        self._energy_before: Microjoules | str = ""  # the timed samples, or those of this turn
        self._energy_parts: list[tuple[Microjoules | str, Microjoules | str]] = []
        self._supervisor = supervisor
        self._check_steps = check_steps
        self._chance = random.Random(secrets.randbits(64))
        self._heard = b""
        self._expected = [BEGIN] if member is None else [WARM_UP]
        self._last = (0.0, 0.0, 0.0)  # monotonic clock, CPU time and waiting at the last mark
        self._spent: dict[str, tuple[float, float, float]] = {}
        self._check = (0, 0)  # steps and rounds of the last check
        self._checks = 1
        self._asked = False  # whether a check was requested

    def listen(self) -> bool:
        """Read from the guest and answer it, and return False once nothing more can come."""
        try:
            heard = self.line.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            heard = b""
        self._heard += heard
        while b"\n" in self._heard and not self.wrong:
            line, _, self._heard = self._heard.partition(b"\n")
            self._mark(line[:_LONGEST_LINE].decode("ascii", "replace"))
        if len(self._heard) > _LONGEST_LINE and not self.wrong:
            self.wrong = f"it said more than {_LONGEST_LINE} characters where a word belongs"
        if self.wrong:
            with contextlib.suppress(OSError):
                self.line.shutdown(socket.SHUT_RDWR)  # the guest need not wait for an answer
        self.over = not heard or bool(self.wrong)
        return not self.over

    def observation(self) -> HostObservation | None:
        """Return the observation, or None where the timed samples or the check never ended."""
        if END not in self._spent or self.wrong or (self._asked and self._expected):
            return None
        steps, rounds = 0, 0
        if self._asked:
            steps, rounds = self._check
        quota_use = None
        if len(self._quota) == 2:
            quota_use = quota.used_between(*self._quota)
        turns: list[TurnObservation] = []
        stopped_cpu_seconds = 0.0
        if self.turns is not None:
            turns = self.turns.observed
            stopped_cpu_seconds = self.turns.stopped_cpu_seconds
        seconds, cpu_seconds, waiting = self._spent[END]
        reset_seconds, reset_cpu_seconds, _ = self._spent.get(RESET, _NOTHING)
        steps_seconds, steps_cpu_seconds, _ = self._spent.get(STEPS, _NOTHING)
        read_seconds, read_cpu_seconds, _ = self._spent.get(READ, _NOTHING)
        return HostObservation(
            timed_seconds=seconds,
            timed_cpu_seconds=cpu_seconds,
            check_steps=steps,
            check_rounds=rounds,
            reset_seconds=reset_seconds,
            reset_cpu_seconds=reset_cpu_seconds,
            steps_seconds=steps_seconds,
            steps_cpu_seconds=steps_cpu_seconds,
            read_seconds=read_seconds,
            read_cpu_seconds=read_cpu_seconds,
            timed_waiting_seconds=waiting,
            checks=self._checks,
            energy=self._energy(seconds),
            quota=quota_use,
            turns=turns,
            stopped_cpu_seconds=stopped_cpu_seconds,
        )

    def _energy(self, seconds: float) -> CpuEnergy:
        if self._meeting is not None:
            return CpuEnergy(
                None, "several instances ran at once, and the counters are of all programs"
            )
        return CpuEnergy(*self._counters.spent(self._energy_parts, seconds))

    def _mark(self, words: str) -> None:
        closing = END if self.turns is None else TURN
        if words.startswith(closing):
            self._energy_parts.append((self._energy_before, self._counters.read()))
        now = (time.monotonic(), *used_and_awaited(self._supervisor))
        word, _, number = words.partition(" ")
        counts = word in (END, TURN) or (word == BEGIN and self.turns is not None)
        if word == PROFILE and self._may_profile():
            self._expected = [PROFILE]
        if not self._expected or word != self._expected[0] or counts != number.isdecimal():
            awaited = "nothing more"
            if self._expected:
                awaited = repr(self._expected[0])
            self.wrong = f"it sent {words[:40]!r}, expected {awaited}"
            return
        self._expected.pop(0)
        self._add(word, now)
        if self._control_group is not None and word in (BEGIN, END):
            self._quota.append(self._control_group.use())
        if word == WARM_UP:
            self._expected = [BEGIN]
        if word == BEGIN:
            self._expected = [closing]
        answer = b"{}\n"
        if word == END:
            self.timed_steps = int(number[:18])
            if self._check_steps:
                answer = self._order()
        elif word == RESET:
            self._asked = True
        elif word == READ and self._checks < _MOST_CHECKS:
            expected = math.prod(self._check) * self._step_seconds()
            took = self._spent[STEPS][0]
            if not _FAST * expected - _SLACK_SECONDS <= took <= _SLOW * expected + _SLACK_SECONDS:
                # Only the steps of the last check count, as its answer does.
                self._checks += 1
                del self._spent[STEPS]
                answer = self._order()
        if self._meeting is not None and word in (BEGIN, END):
            # The other launch arrives, or its time limit ends it and breaks the barrier.
            with contextlib.suppress(threading.BrokenBarrierError):
                self._meeting.wait()
            self.held_seconds += time.monotonic() - now[0]
        if self.turns is not None and word in (WARM_UP, PROFILE):
            if word == WARM_UP:
                self.turns.warm_up()
            else:
                self.turns.profile()
            self.held_seconds += time.monotonic() - now[0]
        if self.turns is not None and word in (BEGIN, TURN):
            if word == BEGIN:
                self.turns.begin(int(number[:18]) * 1e-9)
            elif not self.turns.end_turn(int(number[:18]), now[0]):
                self.wrong = f"it timed {number[:18]} samples in a turn of another length"
                return
            self.held_seconds += time.monotonic() - now[0]
            self._expected = [END]
            if self.turns.in_turn:
                self._expected = [TURN]
            answer = self.turns.order()
            now = (now[0], *used_and_awaited(self._supervisor))
        if word in (BEGIN, TURN):
            self._energy_before = self._counters.read()
        # The guest waits meanwhile: it used no CPU time since.
        self._last = (time.monotonic(), now[1], now[2])
        try:
            # Without a signal that would end dlbench, where the guest is gone meanwhile.
            self.line.sendall(answer, socket.MSG_NOSIGNAL)
        except OSError:
            self.wrong = "it closed the connection"
        if self.turns is not None and word in (BEGIN, TURN):
            self.turns.start()

    def _may_profile(self) -> bool:
        """Return whether a profile may come now: after the timed steps and a check that began."""
        return self._profiled and END in self._spent and not (self._asked and self._expected)

    def _add(self, word: str, now: tuple[float, float, float]) -> None:
        """Add the time since the last mark to the time that leads to this kind of mark.

        The time of turns is that of the timed steps.
        """
        if word == TURN:
            word = END
        spent = self._spent.get(word, _NOTHING)
        since = [max(0.0, after - before) for after, before in zip(now, self._last, strict=True)]
        self._spent[word] = (spent[0] + since[0], spent[1] + since[1], spent[2] + since[2])

    @property
    def slice_seconds(self) -> float:
        """The seconds that are left of the slice that runs, or infinity outside of turns."""
        if self.turns is None:
            return math.inf
        return self.turns.slice_seconds

    def pause_at_the_end_of_a_slice(self) -> None:
        """Stop the launch until the others of its round had their slice, if its own is over."""
        if self.turns is None or not self.turns.slice_is_over():
            return
        self.turns.stop()
        if self._has_news():
            self.turns.end_slices()  # its turn has ended: the mark that came is read next
            return
        self._energy_parts.append((self._energy_before, self._counters.read()))
        _, waited_before = used_and_awaited(self._supervisor)
        self.turns.let_others_run()
        _, waited_after = used_and_awaited(self._supervisor)
        self._energy_before = self._counters.read()
        paused = self.turns.go_on()
        self.held_seconds += paused
        clock, used, waited = self._last
        self._last = (clock + paused, used, waited + waited_after - waited_before)

    def _has_news(self) -> bool:
        """Return whether the guest has written, or is gone."""
        try:
            self.line.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def _step_seconds(self) -> float:
        return self._spent[END][0] / max(1, self.timed_steps or 0)

    def _order(self) -> bytes:
        """Draw the requested check: the guest cannot know its length in advance."""
        step_seconds = self._step_seconds()
        shortest, longest = min(self._check_steps), max(self._check_steps)
        if step_seconds > _LONG_STEP:
            rounds = 1
            steps = shortest
            if self._chance.random() < _SELDOM:
                steps = longest
        else:
            steps = self._chance.choice(self._check_steps)
            enough = int(_ENOUGH_SECONDS / max(steps * step_seconds, 1e-6)) + 1
            rounds = min(_MOST_ROUNDS, enough + self._chance.randrange(2))
        self._expected = [RESET, STEPS] * rounds + [READ]
        self._check = (steps, rounds)
        return json.dumps({"steps": steps, "rounds": rounds}).encode() + b"\n"


def used_and_awaited(supervisor: int) -> tuple[float, float]:
    """Return the CPU seconds of a supervisor and its descendants, and those they waited for a CPU.

    The first include ended descendants. The second are those of the main threads, of the host
    itself, and the hypervisor's steal time, or 0 if the kernel does not report them.
    """
    used = 0.0
    awaited = _waited(os.getpid()) + getattr(psutil.cpu_times(), "steal", 0.0)
    for process in (supervisor, *descendants(supervisor)):
        with contextlib.suppress(psutil.Error):
            # The first four are those of user and system, its own and of ended children.
            used += sum(psutil.Process(process).cpu_times()[:4])
            awaited += _waited(process)
    return used, awaited


def _waited(process: int) -> float:
    """Return the seconds that a process's main thread was ready to run and did not.

    They are those of the kernel's scheduler.
    """
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


def launch_process(request: LaunchRequest, tick: Tick = no_tick) -> Launched:
    """Run one launch in its own process group. Its processes are gone when this returns or raises.

    A launch whose CPU quota cannot be set is skipped.
    """
    try:
        with quota.limited(request.launch.cell.cpu_quota) as control_group:
            return _launch_in_control_group(request, tick, control_group)
    except quota.NoQuotaError as error:
        return Launched(LaunchVerdict(Status.SKIPPED, str(error)), 0.0)


def _launch_in_control_group(
    request: LaunchRequest, tick: Tick, control_group: quota.ControlGroup | None
) -> Launched:
    check_steps = request.check_steps
    directory = _control_directory(request.launch)
    ours, theirs = socket.socketpair()
    try:
        start = time.monotonic()
        kills = oom_kills()
        child = _start(request, directory, theirs.fileno(), control_group)
        theirs.close()
        monitor = LaunchMonitor(
            ours,
            child.pid,
            check_steps,
            request.meeting,
            control_group,
            member=request.member,
            profiled=request.launch.profiled_steps > 0,
        )
        try:
            try:
                ended, suspended = _wait(child, request.timeout, monitor, directory, tick)
            finally:
                if control_group is not None:
                    control_group.lift()
            if ended:
                signal_process_group(child.pid, signal.SIGTERM)
                _wait(child, _GRACE_SECONDS, monitor, directory, no_tick)
            stderr = _reap(child)
            kills = oom_kills() - kills
        finally:
            _reap(child)
            end_strays(str(directory))
        wall_seconds = time.monotonic() - start - monitor.held_seconds
        launched = launched_of(
            request.launch, directory, monitor, child.returncode, stderr, ended, kills
        )
        return replace(launched, wall_seconds=wall_seconds, started=start, suspended=suspended)
    finally:
        ours.close()
        theirs.close()
        shutil.rmtree(directory, ignore_errors=True)


def _start(
    request: LaunchRequest, directory: Path, line: int, control_group: quota.ControlGroup | None
) -> "subprocess.Popen[bytes]":
    """Start the supervisor, which starts the guest.

    Raises NoQuotaError where it cannot be put into its control group.
    """
    supervisor = [sys.executable, "-I", "-S", str(_SUPERVISOR), str(os.getpid()), str(line)]
    output = None
    if request.shown:
        supervisor.append("shown")
    else:
        supervisor.append("dropped")
        output = subprocess.DEVNULL
    # An isolated interpreter (-I) would ignore PYTHONPATH and the like. Without -I it leaves out
    # the user's packages.
    isolated = not any(name.startswith("PYTHON") for name in request.variables)
    options = ["-I"] if isolated else ["-s"]
    if request.shown:
        options.append("-u")
    command = [
        str(request.interpreter),
        *options,
        str(request.guest or GUEST_DIRECTORY),
        str(directory),
    ]
    own = {"TMPDIR": str(directory / "tmp"), HOST_LINE: str(line), LAUNCH_MARK: str(directory)}
    variables = json.dumps({**guest_environment(request.variables), **own})
    # A write to a pipe whose reader was killed would end this process too (SIGPIPE). A write to a
    # socket need not.
    host_end, supervisor_end = socket.socketpair()
    with host_end:
        with supervisor_end:
            child = subprocess.Popen(
                supervisor + command,
                stdin=supervisor_end.fileno(),
                stdout=output,
                stderr=subprocess.PIPE,
                env={**os.environ, LAUNCH_MARK: str(directory)},
                cwd=directory,
                pass_fds=(line,),
                start_new_session=True,
            )
        if control_group is not None:
            try:
                control_group.add(child.pid)  # it starts the guest only when it has the variables
            except quota.NoQuotaError:
                _reap(child)
                raise
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            host_end.sendall(variables.encode(), socket.MSG_NOSIGNAL)
    return child


def _control_directory(launch: Launch) -> Path:
    """Return a new folder with ``cell.json`` in it.

    Raises FrameworkEnvironmentError where there is no room for it.
    """
    directory = None
    try:
        # Absolute, since the guest has it as its working folder.
        directory = Path(tempfile.mkdtemp(prefix="dlbench-launch-")).absolute()
        (directory / "tmp").mkdir()
        write_launch(str(directory), launch)
        return directory
    except OSError as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise FrameworkEnvironmentError(
            f"A launch cannot write its folder for temporary files: {error.strerror or error}. "
            "Make room there, or set TMPDIR to a folder you may write to; --resume continues."
        ) from error


def _reap(child: "subprocess.Popen[bytes]") -> str:
    """End the processes left of a launch, and return the end of the guest's stderr.

    Its supervisor has ended then.
    """
    if child.poll() is None:
        with contextlib.suppress(psutil.Error):
            processes = psutil.Process(child.pid).children(recursive=True)
            for process in reversed(processes):  # the last started first
                with contextlib.suppress(psutil.Error):
                    process.kill()
    signal_process_group(child.pid, signal.SIGKILL)
    child.wait()
    assert child.stderr is not None
    if child.stderr.closed:
        return ""
    # Only the supervisor, which has ended, held the other end.
    with child.stderr as stream:
        return stream.read(2 * TAIL_BYTES).decode("utf-8", errors="replace")


def _wait(
    child: "subprocess.Popen[bytes]",
    seconds: float,
    monitor: LaunchMonitor,
    directory: Path,
    tick: Tick,
) -> tuple[tuple[Status, str] | None, bool]:
    """Wait for the child without spinning.

    Return the status and reason with which it must be ended, and whether this process was stopped.
    """
    awake = time.monotonic()
    suspended = False
    deadline = awake + seconds
    next_tick = awake + _TICK_SECONDS
    with _news(child, monitor) as wait:
        while child.poll() is None:
            now = time.monotonic()
            if now >= deadline:
                return (Status.TIMED_OUT, f"ended after {seconds:g} s"), suspended
            held = monitor.held_seconds
            wait(max(0.0, min(deadline - now, next_tick - now, monitor.slice_seconds)))
            monitor.pause_at_the_end_of_a_slice()
            held = monitor.held_seconds - held
            deadline += held
            asleep = awake + held
            awake = time.monotonic()
            suspended |= awake - asleep > _SUSPENDED_SECONDS
            if awake >= next_tick:
                next_tick = awake + _TICK_SECONDS
                tick(directory)
                if bytes_in(directory, _MOST_BYTES) > _MOST_BYTES:
                    reason = (
                        f"ended: it wrote more than {_MOST_BYTES // 1024**3} GiB into its folder"
                    )
                    return (Status.CRASHED, reason), suspended
    return None, suspended


@contextlib.contextmanager
def _news(
    child: "subprocess.Popen[bytes]", monitor: LaunchMonitor
) -> Iterator[Callable[[float], None]]:
    """Give a function that sleeps until the child ends, the guest writes, or some seconds are over.

    On Linux it uses a pidfd: ``Popen.wait`` with a time-out polls, and wakes a core that may be
    measuring.
    """
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        descriptor = -1
    with selectors.DefaultSelector() as selector:
        if descriptor >= 0:
            selector.register(descriptor, selectors.EVENT_READ)
        if not monitor.over:
            selector.register(monitor.line, selectors.EVENT_READ)

        def wait(seconds: float) -> None:
            if descriptor < 0:
                seconds = min(seconds, _POLL_SECONDS)
            for key, _ in selector.select(seconds):
                if key.fileobj is monitor.line and not monitor.listen():
                    selector.unregister(monitor.line)

        try:
            yield wait
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def launched_of(
    launch: Launch,
    directory: Path,
    monitor: LaunchMonitor,
    code: int,
    stderr: str = "",
    ended: tuple[Status, str] | None = None,
    oom_kills: int = 0,
) -> Launched:
    """Return a launch whose processes ended, without its times.

    They ended with this exit code and the end of this stderr. ``ended`` is the status and the
    reason where the host ended them. ``oom_kills`` counts the kernel's kills on the whole machine
    meanwhile.
    """
    status, reason = ended or (None, "")
    phase = ""
    if ended:
        phase, _ = read_phase(directory)
    # Then the measurement was on disk already: a later failure does not lose it.
    measured = status is Status.TIMED_OUT and (phase == PROFILE or phase.startswith(TRAINING))
    if status is not None and not measured:
        if phase and status is Status.TIMED_OUT:
            activity = "timing" if phase == "timed" else phase
            reason = f"{reason} during {activity}"
            seconds = read_step_seconds(directory)
            if seconds is not None:
                reason = f"{reason}; the last step before it took {seconds:.3g} s"
        return Launched(LaunchVerdict(status, reason))
    try:
        answer = read_answer(directory, launch)
    except FileNotFoundError:
        if not monitor.wrong:
            return Launched(_verdict_without_answer(code, stderr, oom_kills))
        return _unbelievable(monitor.wrong)
    except UnreadableError as error:
        return _unbelievable(str(error))
    if phase == PROFILE:  # the guest is dead, so the host records it
        answer = answer._replace(software={**answer.software, "profile_failed": reason})
    verdict = LaunchVerdict(answer.status, one_line(answer.reason, _LONGEST_REASON))
    if answer.status is not Status.OK or not launch.times_steps:
        return Launched(verdict, answer=answer)
    return _observed(verdict, answer, monitor)


def _observed(verdict: LaunchVerdict, answer: Answer, monitor: LaunchMonitor) -> Launched:
    """Return a launch with the host's observation, or a crash where it contradicts the answer."""
    outside = monitor.observation()
    if outside is None:
        return _unbelievable(monitor.wrong or "it came without the requested parity check")
    turns: list[int] = []
    if monitor.turns is not None:
        turns = monitor.turns.samples
    if answer.turns != turns:
        return _unbelievable(
            "its outcome and its messages have different numbers of samples in turns"
        )
    if monitor.timed_steps != answer.observed_steps():
        return _unbelievable(
            f"its outcome has {answer.observed_steps()} timed steps, its messages have "
            f"{monitor.timed_steps}"
        )
    paused_ns: list[int] = []
    if monitor.turns is not None:
        answer, paused_ns = without_pauses(answer, monitor.turns.pauses)
        answer, outside, paused_ns = without_growth(answer, outside, paused_ns)
    return Launched(verdict, answer=answer, outside=outside, paused_ns=paused_ns)


def _unbelievable(reason: str) -> Launched:
    text = one_line(f"its answer cannot be believed: {reason}", _LONGEST_REASON)
    return Launched(LaunchVerdict(Status.CRASHED, text))


def _verdict_without_answer(code: int, stderr: str, oom_kills: int) -> LaunchVerdict:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    end = one_line(" | ".join(lines[-_LAST_LINES:])[-600:])
    tail = ""
    if end:
        tail = f"; end of stderr: {end}"
    if code == -signal.SIGKILL and oom_kills > 0:
        return LaunchVerdict(
            Status.OUT_OF_MEMORY,
            "killed by the kernel: the machine or its cgroup ran out of memory",
        )
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        return LaunchVerdict(Status.CRASHED, f"ended by signal {-code} ({name}){tail}")
    return LaunchVerdict(Status.CRASHED, f"exit code {code}, no answer{tail}")


def belongs_to_launch(pid: int) -> bool | None:
    """Return whether a process belongs to a launch, or None where it cannot be seen.

    One that left its launch's tree still carries the mark. There is one launch at a time on a GPU.
    """
    descends = descends_from_this_process(pid)
    if descends is not False:
        return descends
    try:
        return LAUNCH_MARK in psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False


def signal_process_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a launch's process group, which may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_strays(mark: str) -> None:
    """Kill the processes that a launch left in other sessions.

    They would disturb later measurements.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(LAUNCH_MARK) == mark:
                process.kill()
