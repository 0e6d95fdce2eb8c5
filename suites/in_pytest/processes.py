"""The processes of `--dlbench-processes`: a session's benchmarks, in fresh processes of pytest.

The launch is the unit of every verdict, and a session is only one. So once the tests are done, the
benchmarks among those that passed run again in processes of their own, one after another. The
session itself is not one of them: it may have run other tests before, under coverage, or spread
over workers, and the processes must differ by chance alone.

With `--dlbench-baseline-checkout` as many processes run in another checkout of the code, the
baseline. Both sides take turns, in random order, so that a machine that becomes slower meanwhile
slows both. Benchmarks that got slower then run once more in pairs of processes that profile them
in turns.

A process gets the arguments, the folder and the environment of the session (`process` turns off the
options that may have their effect only once). It writes a pytest-benchmark JSON with all samples,
and how its tests ended. Its output is kept in case it crashes, and is never parsed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from ..errors import FrameworkEnvironmentError
from .process import Order, ProcessOutcome, takes_benchmark
from .turns import Member, grant_turns

_PATIENCE = 10.0
"""Seconds that a process gets to end after it was asked to."""
_LAST_LINES = 15
"""Lines shown of the output of a process that crashed."""
_COVERAGE_PREFIXES = ("COV_CORE_", "COVERAGE_PROCESS_")
"""Beginnings of environment variables by which coverage measures processes too."""
_SEPARATE = (
    "Install each checkout in an environment of its own, and name the baseline's: "
    "--dlbench-baseline-python=PATH"
)


class CpuUse(NamedTuple):
    """Seconds so far."""

    clock: float
    all_programs: float
    own: float
    """Of this session and its processes that have ended."""

    @classmethod
    def now(cls) -> CpuUse:
        """Read the clock, and the kernel's counters of the CPUs that this process may use."""
        names = ("user", "nice", "system", "irq", "softirq")
        busy = 0.0
        times_of_cpus = psutil.cpu_times(percpu=True)
        for cpu in _usable_cpus():
            if cpu < len(times_of_cpus):
                busy += sum(getattr(times_of_cpus[cpu], name, 0.0) for name in names)
        return cls(time.monotonic(), busy, sum(os.times()[:4]))

    def of_others_since(self, before: CpuUse) -> float:
        """Return the share of the CPUs that other programs used since an earlier reading."""
        others = self.all_programs - before.all_programs - (self.own - before.own)
        elapsed = max(1e-9, self.clock - before.clock)
        return others / elapsed / len(_usable_cpus())


def _usable_cpus() -> list[int]:
    """Return the CPUs that this process may use; without an affinity mask all of them."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(psutil.cpu_count() or 1))


class PreparedProcess(NamedTuple):
    """A process that has not started."""

    order: Order
    place: Path
    """Folder of its files."""
    command: list[str]
    folder: Path
    """Folder in which it starts."""

    @property
    def file(self) -> Path:
        """Its pytest-benchmark JSON."""
        return self.place / "benchmarks.json"

    @property
    def output(self) -> Path:
        """What it prints."""
        return self.place / "output.txt"


class FinishedProcess(NamedTuple):
    """A process that has ended."""

    order: Order
    file: Path
    """Its pytest-benchmark JSON, where it wrote one."""
    output: Path
    code: int
    """Its exit code, or the negative number of the signal that ended it."""
    others: float
    """Share of the CPUs that other programs used meanwhile."""
    outcome: ProcessOutcome | None
    """None where it crashed."""


class ProfiledPair(NamedTuple):
    """The outcomes of two processes that profiled benchmarks; empty where one crashed."""

    baseline: ProcessOutcome
    candidate: ProcessOutcome


@dataclass(frozen=True)
class Failure:
    """A test that failed in a process, or a process that crashed."""

    process: int
    test: str
    """Empty where the process ran none."""
    reason: str
    output: tuple[str, ...] = ()
    """The last lines of a process that crashed."""
    of_baseline: bool = False


@dataclass(eq=False)  # pytest keeps its plugins in sets
class Processes:
    """The plugin that runs the processes after the session's tests."""

    config: pytest.Config
    count: int
    """0: the session alone."""
    checkout: Path | None = None
    """Folder of the baseline's code; None where only this session's code runs."""
    files: list[Path] = field(default_factory=list)
    """pytest-benchmark JSON of each process that measured something."""
    baseline_files: list[Path] = field(default_factory=list)
    """The same of the baseline's code."""
    disturbed: dict[Path, float] = field(default_factory=dict)
    """Files of disturbed processes, and the share of the CPUs that other programs used."""
    failures: list[Failure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Benchmarks that were skipped in a process, and why."""
    collected: set[str] = field(default_factory=set)
    """Ids of the session's tests; empty under pytest-xdist, whose workers have them."""
    deselected: set[str] = field(default_factory=set)
    stopped: str = ""
    """Why the session ended before all processes had run; else empty."""

    def __post_init__(self) -> None:
        self._passed: dict[str, bool] = {}
        self._environment: dict[str, str] = {}
        for name, value in os.environ.items():
            if not name.startswith(_COVERAGE_PREFIXES):
                self._environment[name] = value

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note the tests that this session leaves out."""
        self.deselected.update(item.nodeid for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests of this session."""
        self.collected.update(item.nodeid for item in session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests pass, in all of their phases."""
        name = without_group(report.nodeid)
        if report.when == "setup":
            self._passed[name] = report.passed  # a test that is run again begins anew
        else:
            self._passed[name] = self._passed.get(name, True) and report.passed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[Any]:
        """Run the tests, then the processes."""
        try:
            result = yield
            if self.count and measures(self.config):
                self._run(session)
        except (KeyboardInterrupt, pytest.exit.Exception):
            self.stopped = "the session was interrupted"
            raise
        except session.Failed:  # -x, or --maxfail
            self.stopped = "the session stopped before its processes began"
            raise
        return result

    def _run(self, session: pytest.Session) -> None:
        # A worker of pytest-xdist has the items, its session has only their reports.
        tests = [name for name, has_passed in self._passed.items() if has_passed]
        if session.items:
            benchmarks = {item.nodeid for item in session.items if takes_benchmark(item)}
            tests = [name for name in tests if name in benchmarks]
        if not tests:
            return
        with self._measuring_alone():
            self._run_all(tests)

    @contextlib.contextmanager
    def _measuring_alone(self) -> Iterator[None]:
        """Keep another dlbench from measuring meanwhile, after waiting for one that does."""
        from ..run.quiet import measuring  # slow to import

        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(measuring(self._say, wait=True))
            except FrameworkEnvironmentError as error:
                self._say(f"dlbench: {error}")
            yield

    def _run_all(self, tests: list[str]) -> None:
        """Run the processes of each side, one after the other."""
        begun = time.monotonic()
        scope = "" if self.checkout is None else " of each side"
        for number in range(1, self.count + 1):
            left = ""
            if number > 1:
                seconds = (time.monotonic() - begun) / (number - 1)
                left = f", about {seconds * (self.count - number + 1):.0f} s left"
            self._say(f"dlbench: process {number} of {self.count}{scope}{left}")
            for checkout in self._sides():
                if not self._run_one(number, tests, checkout):
                    return

    def profile(self, number: int, tests: list[str]) -> ProfiledPair:
        """Profile benchmarks in one process of each side; ``number`` counts such pairs."""
        self._say(f"dlbench: profiling {', '.join(tests)}, pair {number} of processes")
        prepared: dict[Path | None, PreparedProcess] = {}
        with self._measuring_alone(), contextlib.ExitStack() as stack:
            members = []
            for checkout in self._sides():
                own_end, its_end = socket.socketpair()
                stack.enter_context(own_end)
                with its_end:
                    process = self._prepare(
                        f"profile-{number}", tests, checkout, profile=True, turns=its_end.fileno()
                    )
                    started = stack.enter_context(self._running(process, [its_end.fileno()]))
                prepared[checkout] = process
                members.append(Member(started, own_end))
            grant_turns(members)
            for member in members:
                member.process.wait()
        outcomes = {}
        for checkout, process in prepared.items():
            outcomes[checkout] = _read_outcome(Path(process.order.outcome)) or ProcessOutcome()
        return ProfiledPair(outcomes[self.checkout], outcomes[None])

    def _sides(self) -> list[Path | None]:
        """Return the checkout of each side, in random order; None is this session's own."""
        sides = [None] if self.checkout is None else [None, self.checkout]
        # Tests may seed the shared generator.
        return random.Random().sample(sides, len(sides))

    @cached_property
    def _folder(self) -> Path:
        """The folder of the processes' files, until the session's end."""
        folder = Path(tempfile.mkdtemp(prefix="dlbench-pytest-"))
        self.config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        return folder

    def _prepare(
        self,
        name: str,
        tests: list[str],
        checkout: Path | None,
        profile: bool = False,
        turns: int = -1,
    ) -> PreparedProcess:
        """Write the order of a process in a checkout of the baseline, or in this one."""
        side = "candidate" if checkout is None else "baseline"
        place = self._folder / f"{name}-{side}"
        place.mkdir()
        order_file = place / "order.json"
        own_folder = self.config.invocation_params.dir
        python_of_baseline = self.config.getoption("dlbench_baseline_python")
        other = self.checkout if checkout is None else own_folder.resolve()
        order = Order(
            tests,
            os.getpid(),
            str(place / "outcome.json"),
            str(place / "running.txt"),
            other=str(other or ""),
            environment_shared=not python_of_baseline,
            profile=profile,
            turns=turns,
        )
        order_file.write_text(json.dumps(asdict(order)), encoding="utf-8")
        further = [
            f"--dlbench-process={order_file}",
            f"--benchmark-json={place / 'benchmarks.json'}",
            f"--basetemp={place / 'temporary'}",
        ]
        python = sys.executable
        if checkout is not None and python_of_baseline:
            # An absolute path, since the process starts in another folder.
            python = str(Path(own_folder, shutil.which(python_of_baseline) or python_of_baseline))
        command = [*command_of(python), *arguments_of(self.config, further)]
        return PreparedProcess(order, place, command, checkout or own_folder)

    def _launch(self, process: PreparedProcess) -> FinishedProcess:
        """Run a process until it ends."""
        before = CpuUse.now()
        with self._running(process) as started:
            code = started.wait()
        others = CpuUse.now().of_others_since(before)
        shutil.rmtree(process.place / "temporary", ignore_errors=True)
        outcome = _read_outcome(Path(process.order.outcome))
        return FinishedProcess(process.order, process.file, process.output, code, others, outcome)

    def _run_one(self, number: int, tests: list[str], checkout: Path | None) -> bool:
        """Measure in a process, in a checkout of the baseline or in this one.

        Return whether to go on: no other process follows one that reached no test, or did not
        measure the code that it should.
        """
        process = self._launch(self._prepare(str(number), tests, checkout))
        of_baseline = checkout is not None
        if process.outcome is not None:
            return self._take(number, process.outcome, process.file, process.others, of_baseline)
        crash = _crash(number, process)
        if of_baseline and self.config.getoption("dlbench_baseline_python") and not crash.test:
            needed = "Its environment needs pytest, pytest-benchmark and dlbench"
            crash = replace(crash, reason=f"{crash.reason}. {needed}")
        self.failures.append(replace(crash, of_baseline=of_baseline))
        return Path(process.order.running).exists()

    def _take(
        self, number: int, outcome: ProcessOutcome, file: Path, others: float, of_baseline: bool
    ) -> bool:
        """Take note of the outcome of a process and its file; tell whether to go on."""
        if outcome.wrong_code:
            reason = f"it loaded {outcome.wrong_code}, which is not its own code. {_SEPARATE}"
            self.failures.append(Failure(number, "", reason, of_baseline=of_baseline))
            self.files.clear()
            self.baseline_files.clear()
            return False
        for test, reason in outcome.failed.items():
            self.failures.append(Failure(number, test, reason, of_baseline=of_baseline))
        self.skipped.update(outcome.skipped)
        if file.exists() and file.stat().st_size:
            files = self.baseline_files if of_baseline else self.files
            files.append(file)
            from dlbench.reports.results.disturbance import OTHERS_SHARE  # slow to import

            if others > OTHERS_SHARE:
                self.disturbed[file] = others
        return outcome.measured > 0 or of_baseline

    @contextlib.contextmanager
    def _running(
        self, process: PreparedProcess, descriptors: Sequence[int] = ()
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process, which ends if something interrupts this session.

        The process inherits the open ``descriptors``.
        """
        with process.output.open("wb") as stream:
            started = subprocess.Popen(
                process.command,
                cwd=process.folder,
                env={**self._environment, "PWD": str(process.folder)},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
            )
        try:
            yield started
        except BaseException:
            _end(started)
            raise

    def _say(self, text: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            if self.config.get_terminal_writer().width_of_current_line:
                reporter.line("")  # the progress of the tests
            reporter.write_line(text)
            reporter.flush()


def measures(config: pytest.Config) -> bool:
    """Tell whether pytest-benchmark may measure.

    pytest-xdist, which turns it off, is off in the processes.
    """
    option = config.getoption
    skips = option("benchmark_skip") and not option("benchmark_only")
    disabled = option("benchmark_disable") and not option("benchmark_enable")
    return not skips and not disabled


def without_group(test: str) -> str:
    """Return the id of a test without the group that pytest-xdist appends for --dist loadgroup."""
    end = test.rfind("@")
    if end > max(test.rfind("]"), test.rfind("::")):
        return test[:end]
    return test


def command_of(python: str) -> list[str]:
    """Return the command that starts pytest as this session was started, without arguments."""
    flags = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    for name, value in sys._xoptions.items():
        flags += ["-X", name if value is True else f"{name}={value}"]
    for warning in sys.warnoptions:
        flags += ["-W", warning]
    as_module = Path(sys.argv[0]).parts[-2:] == ("pytest", "__main__.py")
    if not as_module:
        flags.append("-P")  # `pytest` has no folder of its own on the path, `python -m pytest` has
    return [python, *flags, "-m", "pytest"]


def arguments_of(config: pytest.Config, further: list[str]) -> list[str]:
    """Return the session's arguments and further ones; the last of an option counts."""
    given = [os.fspath(word) for word in config.invocation_params.args]
    if config.pluginmanager.hasplugin("pytest_cov"):
        further = [*further, "--no-cov"]
    end = given.index("--") if "--" in given else len(given)
    return [*given[:end], *further, *given[end:]]


def _read_outcome(file: Path) -> ProcessOutcome | None:
    try:
        return ProcessOutcome(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _crash(number: int, process: FinishedProcess) -> Failure:
    running = Path(process.order.running)
    test = running.read_text(encoding="utf-8") if running.exists() else ""
    reason = f"ended with exit code {process.code}"
    if process.code < 0:
        reason = f"ended by {_signal_name(-process.code)}"
    lines = process.output.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = tuple(line for line in lines if line.strip())[-_LAST_LINES:]
    return Failure(number, test, f"the process {reason} before it reported", kept)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process.

    Ctrl-C in a terminal has reached it already, so it gets a signal only if it still runs.
    """
    for ask in (None, signal.SIGINT, signal.SIGTERM):
        if ask is not None:
            process.send_signal(ask)
        try:
            process.wait(1.0 if ask is None else _PATIENCE)
            return
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:
            break  # Ctrl-C again: at once
    process.kill()
    process.wait()
