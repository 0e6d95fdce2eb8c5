"""The words for axis values on the command line and in suite files.

For example "1,2,4-8", "2*cores", "10m", "torch=/path".
"""

import itertools
import math
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dlbench.adapters import tuning
from dlbench.adapters.axes import DEFAULT, NO_QUOTA
from dlbench.adapters.protocol import ASYNC, EVERY_STEP, LOCAL
from dlbench.hardware_probe import Gpus

from ..errors import UsageError
from .axes import AxisOption
from .framework import Framework, catalogue, find, fits, modes_meant, offered, unknown_framework

# So many digits and no more: Python refuses to read thousands of them.
_NUMBER = re.compile(r"[0-9]{1,18}")
_COUNT = re.compile(r"(?:([0-9]{1,18})\*)?(cores|cpus|quota)")
_QUOTA = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(%)?")
_ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_LOCAL_STEPS = re.compile(rf"{LOCAL}:([1-9][0-9]{{0,5}})")
Number = TypeVar("Number", int, float)
MOST_THREADS = 4096
LEAST_QUOTA = 0.01
"""CPUs: the kernel gives a group at least 1 ms in each period of 100 ms."""
MOST_LAUNCHES = 1_000_000
NO_GPUS = Gpus((), None, None, "not looked for")


@dataclass(frozen=True)
class Capacity:
    """Physical cores and logical CPUs that this process may use, and this machine's GPUs."""

    cores: int
    cpus: int
    gpus: Gpus = NO_GPUS
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES as the command got it; None where it is not set."""
    mask: int = 0
    """Logical CPUs that this process may use, whatever its quota; 0: as many as ``cpus``."""
    quota: float = 0.0
    """Of the cells whose threads are meant; 0: none."""


@dataclass(frozen=True)
class Build:
    """A framework and, with --python, the interpreter that has a build of it."""

    name: str
    framework: Framework
    interpreter: Path | None = None
    released: date | None = None
    """Of a release of the package index: when it was uploaded there."""


@dataclass(frozen=True)
class Row:
    """One row of the matrix: a build in one execution mode."""

    build: Build
    mode: str

    def fits(self, device: str, family: str) -> bool:
        """Tell whether the mode is for this device and this family of networks; "" is any."""
        mode = self.build.framework.modes.get(self.mode)
        return mode is None or fits(mode, device, family)


def words(text: str) -> list[str]:
    """Split a comma-separated list, dropping blanks around words; raises UsageError if empty."""
    stripped = [word.strip() for word in text.split(",")]
    named = [word for word in stripped if word]
    if not named:
        raise UsageError(f"{text!r} is empty. Give one value, or several separated by commas.")
    return named


def count(word: str, capacity: Capacity, what: str = "thread count") -> int:
    """Return the number meant by "8", "cores", "cpus", "quota" or "2*cores"."""
    named = _COUNT.fullmatch(word)
    if named:
        unit = capacity.cpus
        if named[2] == "cores":
            unit = capacity.cores
        elif named[2] == "quota" and capacity.quota:
            unit = min(capacity.cpus, math.ceil(capacity.quota))
        number = int(named[1] or 1) * unit
    else:
        number = int(word) if _NUMBER.fullmatch(word) else 0
    if number < 1:
        shown = word if len(word) < 60 else word[:50] + "..."
        raise UsageError(
            f"{shown!r} is not a {what}. Give a whole number from 1, or cores, cpus, 2*cores, "
            "4*cpus."
        )
    return number


def parse_threads(
    text: str, capacity: Capacity, none: str = DEFAULT, what: str = "thread count"
) -> tuple[int, ...]:
    """Return the thread counts that a list means, as `parse_counts` does.

    The word ``none``, which sets no count, means 0.
    """
    named = words(text)
    counted = [word for word in named if word != none]
    counts: tuple[int, ...] = ()
    if counted:
        counts = parse_counts(",".join(counted), capacity, what)
    if none in named:
        counts = (0, *counts)
    return counts


def parse_quotas(text: str, capacity: Capacity) -> tuple[float, ...]:
    """Return the distinct CPU quotas, rising, meant by "none,0.5,1" or "0.5..cpus"; `none` is 0."""
    quotas: set[float] = set()
    for word in words(text):
        if word == NO_QUOTA:
            quotas.add(0.0)
            continue
        low, high = _ends(word, "..", "0.5..2", partial(_quota, capacity=capacity))
        quotas |= {low, high}
        if ".." in word:
            halves = _ladder(math.ceil(2 * low), math.floor(2 * high))
            quotas.update(half / 2 for half in halves if low <= half / 2 <= high)
    return tuple(sorted(quotas))


def _quota(word: str, capacity: Capacity) -> float:
    if word == "cpus":
        return float(capacity.cpus)
    quota = float(word) if _QUOTA.fullmatch(word) else -1.0
    if quota < 0:
        raise UsageError(
            f"{word[:40]!r} is not a CPU quota. Give CPUs such as 0.5 or 2, a range such as "
            f"0.5..cpus, or {NO_QUOTA}."
        )
    if quota < LEAST_QUOTA:
        least = f"Give at least {LEAST_QUOTA}, or {NO_QUOTA}."
        raise UsageError(
            f"A CPU quota of {word} is less than the kernel can give, 1 ms in each 100 ms. {least}"
        )
    return quota


def parse_counts(
    text: str, capacity: Capacity, what: str = "thread count", most: int = MOST_THREADS
) -> tuple[int, ...]:
    """Return the distinct numbers, rising, meant by "1,2,4-8,2*cores" or "1..4*cpus"."""
    counts: set[int] = set()
    for word in words(text):
        sign = ".." if ".." in word else "-"
        if sign == "-" and word.startswith("-"):
            return (count(word, capacity, what),)  # which refuses it: a number below 0
        read = partial(count, capacity=capacity, what=what)
        low, high = _ends(word, sign, f"4{sign}8", read)
        if high > most:
            raise UsageError(f"{high} is more than the largest {what} allowed, {most}.")
        if sign == "..":
            counts.update(_ladder(low, high))
        else:
            counts.update(range(low, high + 1))
    return tuple(sorted(counts))


def _ends(
    word: str, sign: str, example: str, read: Callable[[str], Number]
) -> tuple[Number, Number]:
    """Return the ends of a range; for a single number, that number twice. Raises UsageError."""
    first, dash, last = (part.strip() for part in word.partition(sign))
    if dash and not (first and last):
        raise UsageError(f"The range {word!r} lacks an end. Write both ends, as in {example}.")
    low = read(first)
    high = read(last) if dash else low
    if high < low:
        raise UsageError(f"The range {word!r} runs backwards. Write {last}{sign}{first}.")
    return low, high


def one_count(text: str, capacity: Capacity) -> int:
    """Return the one thread count meant, such as "cores"; raises UsageError where several are."""
    counts = parse_counts(text, capacity)
    if len(counts) > 1:
        raise UsageError(
            f"{text[:40]!r} are {len(counts)} thread counts. Give one: cells on a GPU take a "
            "single count."
        )
    return counts[0]


def _ladder(low: int, high: int) -> set[int]:
    """Return both ends, and those of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that are between them.

    Each is larger than the one before by a half or a third.
    """
    rungs = {low, high}
    for shift in range(high.bit_length()):
        for number in (1 << shift, 3 << shift):
            if low < number < high:
                rungs.add(number)
    return rungs


def duration(text: str) -> float:
    """Return the seconds meant by "90s", "10m" or "1.5h"; raises UsageError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a duration. Write for example 90s, 10m or 1.5h.")
    if match[2] is None:
        raise UsageError(
            f"{text!r} needs a unit: {text.strip()}s, {text.strip()}m or {text.strip()}h."
        )
    if float(match[1]) <= 0:
        raise UsageError(f"{text!r} is out of range: give more than 0.")
    return float(match[1]) * _SECONDS[match[2]]


def share(text: str, option: str, otherwise: str = "") -> float:
    """Return the number meant by "2%", "2.5 %" or "0.02"; raises UsageError unless 0 < it < 1.

    ``otherwise`` is a word that the option takes, too.
    """
    match = _SHARE.fullmatch(text.strip())
    if not match:
        further = f", or {otherwise}" if otherwise else ""
        raise UsageError(
            f"{option} {text[:40]!r} cannot be read. Write a percentage such as 2% or "
            f"2.5%{further}."
        )
    value = float(match[1])
    if match[2]:
        value /= 100
    if not 0 < value < 1:
        raise UsageError(
            f"{option} {text[:40]} is out of range: give more than 0% and less than 100%, such as "
            "2.5%."
        )
    return value


def launch_range(text: str, option: str) -> tuple[int, int]:
    """Return (fewest, most) meant by "5-20", or (n, n) by "5"; raises UsageError."""
    ends = [part.strip() for part in text.split("-", 1)]
    if not all(map(_NUMBER.fullmatch, ends)):
        raise UsageError(
            f"{option} {text[:40]!r} cannot be read. Write a number, or a range such as 5-20."
        )
    fewest, most = int(ends[0]), int(ends[-1])
    if not 1 <= fewest <= most <= MOST_LAUNCHES:
        raise UsageError(
            f"{option} {text.strip()[:40]} is out of range. Give numbers from 1 to "
            f"{MOST_LAUNCHES}, the smaller first."
        )
    return fewest, most


def one_of(word: str, what: str, known: tuple[str, ...]) -> str:
    """Return the word where it is known; raises UsageError with the known ones otherwise."""
    if word not in known:
        raise UsageError(f"{word[:40]!r} is not a known {what}. Known: {', '.join(known)}.")
    return word


def build(text: str, option: str = "--python") -> Build:
    """Return the build meant by "torch=/path/to/python" or "nightly:torch=/path/to/python"."""
    name, equals, path = text.partition("=")
    row, colon, framework = name.partition(":")
    if not colon:
        framework = row
    if not equals or not path or not _ROW_NAME.fullmatch(row):
        raise UsageError(
            f"{option} {text!r} cannot be read. Write FRAMEWORK=PATH or NAME:FRAMEWORK=PATH, "
            "for example torch-nightly:torch=/opt/nightly/bin/python."
        )
    if colon and row in catalogue() and row != framework:
        raise UsageError(
            f"{option} {text!r}: {row} is the name of another framework. Choose another row name."
        )
    if framework not in offered():
        raise unknown_framework(framework, offered())
    return Build(row, find(framework), _absolute(path, option))


def builds(texts: Iterable[str], framework: str) -> list[Build]:
    """Return the builds of one framework that "old=/path,new=/path" mean, in their order.

    Raises UsageError.
    """
    named_builds = []
    for word in itertools.chain.from_iterable(words(text) for text in texts):
        name, equals, path = word.partition("=")
        if equals:
            word = f"{name}:{framework}={path}"
        named_builds.append(build(word))
    names = {named.name for named in named_builds}
    if len(names) < len(named_builds):
        raise UsageError(
            "Two interpreters in --python have the same name. Name each: --python "
            "old=PATH,new=PATH."
        )
    return named_builds


def _absolute(path: str, option: str) -> Path:
    """Return the absolute path of an interpreter: launches start in folders of their own.

    Links stay: virtual environments need them.
    """
    try:
        # Without a slash it is a command, as the shell would take it.
        command = None if "/" in path else shutil.which(path)
        return Path(command or path).expanduser().absolute()
    except (RuntimeError, ValueError) as error:  # ~name of a user who does not exist
        raise UsageError(
            f"{option}: {path} is not in a known home folder. Give its full path."
        ) from error


def rows(wanted: list[str], builds: list[Build]) -> tuple[Row, ...]:
    """Return the rows that names such as "torch", "torch:compile", "torch:*" or a build's mean."""
    own = {build.name: build for build in builds}
    rows_by_key: dict[tuple[str, str], Row] = {}
    for word in wanted:
        name, _, mode_word = word.partition(":")
        if name not in own and name not in offered():
            raise unknown_framework(name, [*offered(), *own])
        build = own.get(name) or Build(name, find(name))
        for mode in modes_meant(build.framework, mode_word):
            rows_by_key[build.name, mode] = Row(build, mode)
    return tuple(rows_by_key.values())


def parse_plain(option: AxisOption, text: str, capacity: Capacity) -> tuple[Any, ...]:
    """Return the distinct values that these words of an axis mean, in the order of measuring.

    Raises UsageError.
    """
    what = option.axis.replace("_", " ")
    if option.axis in _PARSERS:
        return _PARSERS[option.axis](text, capacity)
    if option.known:
        return tuple(dict.fromkeys(one_of(word, what, option.known) for word in words(text)))
    return parse_counts(text, capacity, what, option.most)


def _tunings(text: str, capacity: Capacity) -> tuple[str, ...]:
    choices = tuple(dict.fromkeys(words(text)))
    try:
        for choice in choices:
            if choice not in tuning.SWEEPS:
                tuning.named(choice)
    except ValueError as error:
        raise UsageError(f"{error}, {', '.join(tuning.SWEEPS)}.") from error
    return choices


def _syncs(text: str, capacity: Capacity) -> tuple[str, ...]:
    syncs = tuple(dict.fromkeys(words(text)))
    for word in syncs:
        if word not in (EVERY_STEP, ASYNC) and not _LOCAL_STEPS.fullmatch(word):
            raise UsageError(
                f"{word[:40]!r} is not a known sync. Give {EVERY_STEP} (workers exchange gradients "
                f"at every step), {LOCAL}:4 (parameters after every 4 steps; a whole number from 1 "
                f"to 999999) or {ASYNC} (without waiting)."
            )
    return syncs


_PARSERS: Mapping[str, Callable[[str, Capacity], tuple[Any, ...]]] = {
    "tuning": _tunings,
    "cpu_quota": parse_quotas,
    "loader_workers": partial(parse_threads, none="0", what="number of loader workers"),
    "sync": _syncs,
}
"""Of axes whose words are neither names of a list nor plain counts."""
