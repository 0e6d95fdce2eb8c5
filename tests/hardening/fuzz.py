"""Gives dlbench damaged inputs, a hundred thousand of them: each must end in a documented exit code and a few words.

    python3 suites/bootstrap.py fuzz --count 100000                about an hour on one CPU; --workers 2 shares them
    python3 suites/bootstrap.py fuzz --kinds store,import
    python3 suites/bootstrap.py fuzz --seed 7 --input 1234         one input again, with what was said

Kinds: suites, their networks, result stores, files of pytest-benchmark, an adapter's framework.toml, and the words of
command lines. A defect is a traceback, an undocumented exit code, a long message or one with control characters, or a
command that does not end. It ends with exit code 1 where one is found, and says how to repeat each.
"""

import argparse
import contextlib
import faulthandler
import io
import itertools
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any, NamedTuple

from fuzz_inputs import Input, Inputs

SECONDS = 30
"""A command that takes longer does not end."""
MOST_LINES, MOST_CHARACTERS = 15, 6000
CODES = range(7)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def variables(base: Path) -> dict[str, str]:
    """Return the environment of every command: nothing of this machine's."""
    fake = next(Path(__file__).parents[1].rglob("fake_nvml.py"))
    (base / "no_gpu.py").write_text(
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('fake_nvml', {str(fake)!r})\n"
        "fake = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(fake)\nnvml = fake.FakeNvml()\n"
    )
    home = base / "home"
    home.mkdir(exist_ok=True)
    return {
        **({"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}),
        **{"PATH": str(base / "no_programs"), "HOME": str(home), "DLBENCH_HOME": str(home / "dlbench")},
        **{"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
        **{"MPLCONFIGDIR": str(home), "DLBENCH_NVML": str(base / "no_gpu.py"), "PYTHONDONTWRITEBYTECODE": "1"},
    }


def command(words: Sequence[str]) -> tuple[int, str, str]:
    """Run one command line in this process: exit code, standard output, standard error."""
    from dlbench.suites.__main__ import main

    sys.argv = ["dlbench", *words]
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()


class Hangs(BaseException):
    """The command takes too long."""


class Found(NamedTuple):
    """A defect."""

    number: int
    kind: str
    words: list[str]
    what: str

    def key(self) -> tuple[str, str]:
        """Return what defects of one cause share: the kind and the place, or the words without their numbers."""
        return self.kind, re.sub(r"\d+", "0", self.what.strip().splitlines()[-1])[:160] + _place(self.what)


def _place(what: str) -> str:
    places = re.findall(r'File "[^"]*/(?:suites|reports|adapters|hardware_probe)/([^"]+)", line (\d+)', what)
    return " at " + ":".join(places[-1]) if places else ""


def complaint(code: int, out: str, err: str) -> str:
    """Return what is wrong with how a command ended; empty where nothing is."""
    lines = err.splitlines()
    if code not in CODES:
        return f"exit code {code}: {err[:500]}"
    if "Traceback" in err:
        return err[-3000:]
    helped = "Usage: " in out  # of a command without any word
    if code in (2, 3, 4) and not (helped or (lines and lines[-1].startswith("dlbench: "))):
        return f"exit code {code} without a word: {err[:500]}"
    if len(lines) > MOST_LINES or len(err) > MOST_CHARACTERS:
        return f"{len(lines)} lines, {len(err)} characters are said: {err[:300]}"
    if _CONTROLS.search(err):
        return f"control characters are said: {err[:500]!r}"
    return f"a warning of Python: {err[:500]}" if "Warning: " in err else ""


def give(given: Input, folder: Path) -> tuple[int, str]:
    """Carry out a command in a folder in this process; return its exit code and what is wrong, if anything."""
    os.chdir(folder)
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        code, out, err = command(given.words)
    except Hangs:
        return -1, "it does not end\n" + traceback.format_exc()[-1500:]
    except BaseException:
        return -1, "\n".join(line[:300] for line in traceback.format_exc().splitlines())[-3000:]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir("/")
    return code, complaint(code, out, err)


def _too_long(number: int, frame: object) -> None:
    raise Hangs


def _forget() -> None:
    """Forget what a command leaves in its process."""
    from dlbench.suites.planning import framework, own

    framework._added.clear()
    own._warned.clear()


def prepare() -> None:
    """Load the command, and keep what each call of it would make anew."""
    import functools
    import importlib.metadata

    import matplotlib as mpl
    import matplotlib.font_manager  # looks for the fonts of this machine once
    import typer.main

    from dlbench.suites import cli  # noqa: F401
    from dlbench.suites.commands import plan

    mpl.use("agg")
    for module, name in ((typer.main, "get_command"), (importlib.metadata, "entry_points"), (plan, "probe")):
        setattr(module, name, functools.cache(getattr(module, name)))
    warnings.simplefilter("always")
    gigabytes = 6 << 30
    resource.setrlimit(resource.RLIMIT_AS, (gigabytes, gigabytes))
    faulthandler.enable()


def one(inputs: Inputs, base: Path, seed: int, kind: str, number: int) -> tuple[Input, int, str]:
    """Make an input and give it; return it, the exit code and what is wrong."""
    folder = base / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _forget()
    given = inputs.kinds[kind](folder, Random(f"{seed}:{number}"))
    code, wrong = give(given, folder)
    return given, code, wrong


@contextlib.contextmanager
def room() -> Iterator[tuple[Inputs, Path]]:
    """Give the inputs and a folder, in this process's environment only what every command gets."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as made:
        base = Path(made).resolve()
        before = dict(os.environ)
        told = variables(base)
        os.environ.update(told)
        for name in set(os.environ) - set(told):
            del os.environ[name]
        os.environ["PATH"] = before.get("PATH", "")
        try:
            yield Inputs(base), base
        finally:
            os.chdir("/")
            os.environ.clear()
            os.environ.update(before)


def work(numbers: range, seed: int, kinds: list[str], answers: Connection) -> None:
    """Give inputs of these numbers one after the other and tell of each; in a process of its own."""
    prepare()
    with contextlib.suppress(BrokenPipeError), room() as (inputs, base):  # where nobody waits for the rest
        for number in numbers:
            kind = kinds[number % len(kinds)]
            answers.send((number, kind, None))
            faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
            given, code, wrong = one(inputs, base, seed, kind, number)
            faulthandler.cancel_dump_traceback_later()
            found = Found(number, kind, given.words, wrong) if wrong else None
            answers.send((number, kind, (code, found)))


def worker(numbers: range, seed: int, kinds: list[str]) -> Iterator[tuple[str, int, Found | None]]:
    """Give inputs in another process; one that ends it is a defect, and the next process goes on after it."""
    fresh = multiprocessing.get_context("spawn")
    while numbers:
        ours, theirs = fresh.Pipe(duplex=False)
        process = fresh.Process(target=work, args=(numbers, seed, kinds, theirs), daemon=True)
        process.start()
        theirs.close()
        number, kind = numbers[0], kinds[numbers[0] % len(kinds)]
        with contextlib.suppress(EOFError):
            while True:
                number, kind, answer = ours.recv()
                if answer is not None:
                    numbers = numbers[1:]
                    yield kind, *answer
        process.join()
        if numbers:
            yield kind, -1, Found(number, kind, [], f"the process ended, exit code {process.exitcode}")
            numbers = numbers[1:]


def fuzz(numbers: range, seed: int, kinds: list[str], shares: int = 1) -> Iterator[tuple[str, int, Found | None]]:
    """Give the inputs of these numbers, by several processes; yield the kind, exit code and defect of each."""
    done: SimpleQueue[Any] = SimpleQueue()

    def share(first: int) -> None:
        try:
            for answer in worker(numbers[first::shares], seed, kinds):
                done.put(answer)
        finally:
            done.put(None)

    for first in range(shares):
        threading.Thread(target=share, args=(first,), daemon=True).start()
    left = shares
    while left:
        answer = done.get()
        left -= answer is None
        if answer is not None:
            yield answer


def until(deadline: float, answers: Iterator[Any]) -> Iterator[Any]:
    """Give what comes until then, by the monotonic clock."""
    return itertools.takewhile(lambda _: time.monotonic() < deadline, answers)


def tell(answers: Iterable[tuple[str, int, Found | None]], seed: int) -> int:
    """Print each defect of another cause as it is found, and the counts at the end; return the exit code."""
    counts: Counter[tuple[str, int]] = Counter()
    causes: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    for kind, code, found in answers:
        counts[kind, code] += 1
        if found is not None:
            causes[found.key()] += 1
            if causes[found.key()] == 1:
                print(f"--- {found.kind} {found.number}: {' '.join(found.words)[:300]}\n{found.what}", flush=True)
                print(f"again: python3 suites/bootstrap.py fuzz --seed {seed} --input {found.number}", flush=True)
        if counts.total() % 5000 == 0:
            print(f"{counts.total()} inputs, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for kind in sorted({kind for kind, _ in counts}):
        ends = {code: number for (of, code), number in sorted(counts.items()) if of == kind}
        codes = ", ".join(f"{code}: {number}" for code, number in ends.items())
        print(f"{kind}: {sum(ends.values())} inputs, by exit code {codes}")
    print(f"{counts.total()} inputs, {causes.total()} defects of {len(causes)} causes")
    for (kind, what), number in causes.most_common():
        print(f"  {number} x {kind}: {what}")
    return int(bool(causes))


def main() -> int:
    """Do what the command line asks for."""
    every = ["suite", "network", "store", "import", "framework", "words"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(every), help="of: " + ", ".join(every))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so long")
    parser.add_argument("--input", type=int, help="give this input alone, and show what is said")
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    if given.input is None:
        answers = fuzz(range(given.first, given.first + given.count), given.seed, kinds, given.workers)
        try:
            return tell(until(time.monotonic() + 60 * given.minutes, answers), given.seed)
        finally:
            for each in multiprocessing.active_children():
                each.kill()  # a command takes SIGTERM for its own
    prepare()
    with room() as (inputs, base):
        made, code, wrong = one(inputs, base, given.seed, kinds[given.input % len(kinds)], given.input)
        print(made.words, f"exit code {code}", wrong or "nothing is wrong", sep="\n")
        shutil.copytree(base / "folder", Path(tempfile.mkdtemp(prefix="fuzz-input-")) / "folder", symlinks=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
