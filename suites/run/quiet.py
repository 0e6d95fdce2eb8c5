"""One measurement at a time on this machine, and only while it is quiet.

The lock is the kernel's (flock) on a file in a folder that all users share, and containers that see
the same folder. Without such a folder it is in this user's folder for temporary files. It ends with
its process, however that ends. The file is opened read-only, and without O_CREAT once it exists:
kernels that protect folders such as /tmp (fs.protected_regular) refuse that flag for a file of
another user.

`QuietWait` waits for a quiet machine before each block of launches, and looks again after it. A
reading of the sentinel is judged by the kernel's counts while it was taken, and by its speed
against earlier readings of this machine. Patience is limited, so that a run on a busy machine still
ends: its disturbed launches are marked. After several waits in vain it only looks, until a reading
is quiet again.
"""

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

import numpy as np
import psutil

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Gpus, ProbeError
from dlbench.hardware_probe.gpu import computing
from dlbench.hardware_probe.sentinel import Reading, take, unquiet_reasons
from dlbench.reports.results.storage.store import Store

from ..display.numbers import in_words
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning.devices import present

_SHARED = ("/run/lock", "/tmp", "/var/tmp")  # the same for all users, whatever TMPDIR says
_NAME = "dlbench-measuring.lock"
_SAY_SECONDS = 60.0  # between lines that say how long it has waited
_POLL_SECONDS = 1.0  # each look wakes a CPU that the other process may be measuring
_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


def shared_folder() -> Path | None:
    """Return the folder that all users share, or None.

    It is DLBENCH_LOCK_FOLDER, or else one to which all may write.
    """
    given = os.environ.get("DLBENCH_LOCK_FOLDER")
    if not given:
        for name in _SHARED:
            if os.path.isdir(name) and Path(name).stat().st_mode & stat.S_IWOTH:  # noqa: PTH112
                return Path(name)
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"DLBENCH_LOCK_FOLDER names {given}, which is not a folder, so no lock can be there. "
            "Name an existing one, or unset it."
        )
    return folder


def why_narrow(in_container: bool) -> str:
    """Return a sentence why the lock does not cover all users of this machine, or nothing."""
    if shared_folder() is None:
        return (
            "No folder is shared by all users, so only this user's runs take turns. Set "
            "DLBENCH_LOCK_FOLDER."
        )
    if in_container and not os.environ.get("DLBENCH_LOCK_FOLDER"):
        return (
            "This is a container, which cannot see dlbench outside of it: mount a folder of the "
            "host, and name it in DLBENCH_LOCK_FOLDER."
        )
    return ""


@contextlib.contextmanager
def measuring(
    report: Callable[[str], None], wait: bool = False, computes: bool = True
) -> Iterator[None]:
    """Hold this machine for measuring. A run that computes nothing takes no lock.

    Where another dlbench holds it, raises UsageError that names its process, or with ``wait``
    reports that in one line and takes its turn. Raises FrameworkEnvironmentError where the lock
    cannot be written.
    """
    if not computes:
        yield
        return
    descriptor = _open_lock()
    try:
        if not _take_lock(descriptor):
            other = _holder(descriptor)
            if not wait:
                raise UsageError(
                    f"{other} is measuring on this machine, and each would slow the other down. "
                    "Wait for it to end."
                )
            report(f"{other} is measuring on this machine; waiting for it to end")
            begun = said = time.monotonic()
            while not _take_lock(descriptor):
                time.sleep(_POLL_SECONDS)
                now = time.monotonic()
                if now - said >= _SAY_SECONDS:
                    report(f"{_holder(descriptor)} is still measuring ({in_words(now - begun)})")
                    said = now
        yield
    finally:
        os.close(descriptor)


def other_dlbench() -> str:
    """Return "dlbench (process 123)" for another one on this machine, by any user, or nothing."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        is_script = any(Path(word).name == "dlbench" for word in words[:2])
        is_dlbench = is_script or words[1:3] == ["-m", "dlbench.suites"]
        if is_dlbench and process.pid not in (os.getpid(), os.getppid()):
            return f"dlbench (process {process.pid})"
    return ""


def _holder(descriptor: int) -> str:
    """Name the process that holds the lock, by the kernel's table of locks."""
    inode = os.fstat(descriptor).st_ino
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if (
                len(fields) > 5
                and fields[1] == "FLOCK"
                and fields[5].endswith(f":{inode}")
                and int(fields[4]) > 0
            ):
                return f"Another dlbench (process {fields[4]})"
    return other_dlbench() or "A dlbench of another user or container"


def _open_lock() -> int:
    """Return the descriptor of the lock's file, which is made if it does not exist."""
    own = Path(tempfile.gettempdir(), f"dlbench-{os.getuid()}")
    for folder in filter(None, (shared_folder(), own)):
        with contextlib.suppress(OSError):
            if folder == own:
                own.mkdir(mode=0o700, exist_ok=True)
        for creation in (0, os.O_CREAT | os.O_EXCL, 0):  # another process may make it meanwhile
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | creation
            with contextlib.suppress(OSError):
                descriptor = os.open(folder / _NAME, flags, 0o644)
                if creation:
                    os.fchmod(descriptor, 0o644)  # whatever the umask
                return descriptor
    raise FrameworkEnvironmentError(
        f"The lock {own / _NAME} cannot be written. It keeps two runs from measuring at the same "
        "time; set TMPDIR to a folder that you may write to."
    )


def _take_lock(descriptor: int) -> bool:
    """Take the lock, and return whether no other process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD  # a file system without such locks makes no process wait
    return True


# How far a rate may fall short of the machine's record. It is more where the record itself spreads
# more, but a record that spreads by more than the last of these says nothing.
GEMM_SHORTFALL, BANDWIDTH_SHORTFALL, LARGEST_SHORTFALL = 0.03, 0.10, 0.30
_RATES = (
    ("matrix products ran", attrgetter("gemm_flops_per_second"), GEMM_SHORTFALL),
    ("memory was read and written", attrgetter("bandwidth_bytes_per_second"), BANDWIDTH_SHORTFALL),
)
# Calm readings before rates are judged at all, and how many of the newest make the record: a
# machine that has moved to another host, or whose firmware has changed, forgets its old rates in
# time.
ENOUGH_READINGS = 8
RECORD_LENGTH = 40
_RUNS_LOOKED_AT = 20
# Of a normal distribution, in standard deviations: the upper quartile's distance from the median,
# and how far below the median a reading lies once in 700.
_QUARTILE, _RARE = 0.674, 3.0

PATIENCE_SECONDS = 15.0
"""Patience before a block, and before a disturbed launch is repeated."""
GIVE_UPS = 3
"""Vain waits in a row after which there is no further wait."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 16.0  # seconds
_WORTH_SAYING = 2.0  # seconds


def judge_reading(reading: Reading, record: Sequence[Reading] = ()) -> tuple[str, ...]:
    """Return why the machine is not quiet, by a reading and by a record of earlier ones in order.

    Rates are judged once the record holds enough calm readings by the same method. They are
    compared with the upper quartile, because disturbance only ever slows down. A shortfall counts
    only beyond the sentinel's own spread on this machine.
    """
    reasons = [*unquiet_reasons(reading)]
    calm = []
    for earlier in record:
        if earlier.method == reading.method and not unquiet_reasons(earlier):
            calm.append(earlier)
    calm = calm[-RECORD_LENGTH:]
    if len(calm) < ENOUGH_READINGS:
        return tuple(reasons)
    for activity, rate_of, least in _RATES:
        # Median and upper quartile: occasional slow readings do not widen the spread.
        middle, upper = np.quantile([rate_of(earlier) for earlier in calm], [0.5, 0.75])
        spread = (_RARE + _QUARTILE) * (upper - middle) / _QUARTILE / upper
        allowed = min(LARGEST_SHORTFALL, max(least, spread))
        if rate_of(reading) < (1 - allowed) * upper:
            share = f"{rate_of(reading) / upper:.0%} of this machine's usual rate"
            reasons.append(f"{activity} at {share} (limit {1 - allowed:.0%})")
    return tuple(reasons)


def earlier_readings(store: Store, machine: str) -> list[Reading]:
    """Return the newest sentinel readings that a store has of a machine, oldest first.

    The machine is given by its fingerprint.
    """
    newest: list[Reading] = []
    runs = [run for run in store.runs() if run.machine == machine]
    for run in reversed(runs[-_RUNS_LOOKED_AT:]):
        readings = []
        for _, _, content in store.sentinels(run.id):
            with contextlib.suppress(ValueError):  # of another version
                readings.append(Reading.from_dict(content))
        newest = readings + newest
        if len(newest) >= RECORD_LENGTH:
            break
    return newest[-RECORD_LENGTH:]


JudgedReading = tuple[Reading, tuple[str, ...]]
"""A reading, and why the machine was not quiet."""


@dataclass
class QuietWait:
    """The wait for a quiet machine before each block of a run. It stores its readings.

    Each vain wait halves its patience, and after some it no longer waits. A quiet machine restores
    it. On a machine that is never quiet, a run waits little more than twice the patience.
    """

    store: Store
    run: str
    report: Callable[[str], None]
    record: list[Reading] = field(default_factory=list)
    """Earlier readings of this machine, oldest first."""
    take: Callable[[], Reading] = take
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _vain: int = 0
    """Waits in vain, in a row."""
    _broken: bool = False
    _just_seen: JudgedReading | None = None

    def before(self, block: int, seconds_left: float | None = None) -> None:
        """Wait until the machine is quiet or patience ends, never longer than ``seconds_left``."""
        if self._just_seen is not None and not self._just_seen[1]:
            # It was taken after the last block, a moment ago.
            self._keep(block, "before", [self._just_seen])
            return
        began = self.clock()
        readings = self._wait(seconds_left)
        if not readings:
            return
        self._keep(block, "before", readings)
        waited = self.clock() - began
        _, reasons = readings[-1]
        if reasons:
            cause = reasons[0]
            other = other_dlbench()
            if other:
                cause += f", among them another {other}"
            after = ""
            if waited >= _WORTH_SAYING:
                after = f", waited {waited:.0f} s"
            self.report(
                f"block {block + 1}: other programs are busy ({cause}){after}, measuring anyway: "
                "disturbed launches will be marked"
            )
        elif waited >= _WORTH_SAYING:
            self.report(f"block {block + 1}: waited {waited:.0f} s until other programs were quiet")

    def after(self, block: int) -> None:
        """Take a reading without waiting."""
        readings = self._take_until_quiet(0.0)
        self._just_seen = None
        if readings:
            self._just_seen = readings[-1]
        self._keep(block, "after", readings)

    def before_repeat(self) -> bool:
        """Wait before a disturbed launch is repeated. Return whether the machine is quiet now."""
        readings = self._wait(None)
        return bool(readings) and not readings[-1][1]

    def _wait(self, seconds_left: float | None) -> list[JudgedReading]:
        patience = 0.0
        if self._vain < GIVE_UPS:
            patience = PATIENCE_SECONDS * 0.5**self._vain
        if seconds_left is not None:
            patience = max(0.0, min(patience, seconds_left))
        readings = self._take_until_quiet(patience)
        if readings and readings[-1][1]:
            self._vain += 1
        else:
            self._vain = 0
        return readings

    def _take_until_quiet(self, patience: float) -> list[JudgedReading]:
        """Take readings until one is quiet or patience ends, with growing pauses.

        Without a sentinel there are none.
        """
        began = self.clock()
        pause = _FIRST_PAUSE
        readings: list[JudgedReading] = []
        while not self._broken:
            try:
                reading = self.take()
            except ProbeError as error:
                self._broken = True
                self.report(f"cannot see whether the machine is quiet: {error}")
                break
            readings.append((reading, judge_reading(reading, self.record)))
            self.record.append(reading)
            left = patience - (self.clock() - began)
            if not readings[-1][1] or left <= 0:
                break
            self.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return readings

    def _keep(self, block: int, moment: str, readings: list[JudgedReading]) -> None:
        for reading, reasons in readings:
            content = {**reading.to_dict(), "quiet": not reasons, "reasons": list(reasons)}
            self.store.add_sentinel(self.run, block, moment, content)


def busy_gpus(cells: Iterable[Cell], gpus: Gpus, nvml: object = None) -> list[str]:
    """Return a line for each device of these cells on which other processes compute.

    A further line says so if that is every device. Several workers may get any GPU, so all are
    checked then. Launches on a GPU in use are measured anyway, and marked: the other process may
    use any part of it at any time.
    """
    used = set()
    several = False
    for cell in cells:
        if not cell.on_cpu:
            used.add(cell.device)
            several = several or cell.world_size > 1
    wanted = [device for device in present(gpus) if device.name in used or several]
    if not wanted:
        return []
    counts = computing(nvml)
    lines = []
    for device in wanted:
        count = 0
        if device.uuid is not None:
            count = counts.get(device.uuid, 0)
        if not count:
            continue
        others = "1 other process computes"
        if count > 1:
            others = f"{count} other processes compute"
        lines.append(f"{device.words}: {others} on it now; launches that share it are marked (~)")
    if len(lines) == len(wanted):
        lines.append(
            "every GPU of this run is in use: end those processes, or name other GPUs with "
            "--devices"
        )
    return lines
