"""`dlbench.run`, `dlbench.measure`, `dlbench.compare` and `dlbench.gate`: measure from Python.

For example:

    import dlbench

    gate = dlbench.gate("train_step.py", "new_step.py", threads=1)
    print(gate.sentence)
    gate.table[["ratio", "low", "high", "verdict"]]

Each is the command of its name. Its keyword arguments are the command's options with underscores: a
list stands for values with commas between them, True for a flag. Every launch is a fresh process of
another interpreter, and nothing in this process is measured.
"""

import contextlib
import os
import signal
import threading
import time
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from dlbench.reports.frames import cells_of
from dlbench.reports.from_python import CompareResult, GateResult, MeasureResult
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.storage import servers

from .commands.compare import CompareOptions, compare_stored, measure_comparison
from .commands.gate import GateOptions, measure_gate
from .commands.options import DEFAULT_STORE, BuildOptions, words_of, words_of_store
from .commands.run import MeasuredSuite, RunOptions, measure_suite
from .display.screen import equivalent_to, progress_shown
from .errors import Interrupted, Terminated, UsageError, unknown_name
from .planning import own
from .planning.step_files import Step, file_of, is_step
from .planning.variables import LAUNCH_MARK

if TYPE_CHECKING:
    import pandas as pd

PathLike = str | os.PathLike[str]
Words = str | Iterable[str]
Counts = int | str | Iterable[int | str]
Variables = Mapping[str, str] | Iterable[str]
Given = TypeVar("Given", bound=BuildOptions)
_INTERVAL = "2%"
"""Of a measurement for which neither launches nor an interval are given."""


class AxisKeywords(TypedDict, total=False):
    """The axes of the cells to measure, but for the number of threads."""

    batch_sizes: Counts
    devices: Words
    precisions: Words
    placements: Words
    tuning: Words
    affinity: Words
    world_sizes: Counts
    instances: Counts
    cpu_quota: float | str | Iterable[float | str]
    loader_workers: Counts
    storage: Words
    sync: Words
    task: Words
    threads_limit: int | str
    device_threads: Counts


class SessionKeywords(TypedDict, total=False):
    """How a session measures."""

    steps: int
    cell_budget: str
    loss_tolerance: float | str
    resume: bool
    no_build: bool
    seed: int
    yes: bool
    order: str


class MeasureKeywords(AxisKeywords, SessionKeywords, total=False):
    """Further options of `dlbench run` with a step."""

    no_ceilings: bool
    no_wait_for_quiet: bool


class RunKeywords(MeasureKeywords, total=False):
    """Further options of `dlbench run`."""

    networks: Words
    frameworks: Words
    threads: Counts
    trend: str
    launches: int | str
    interval: float | str
    adapter: Words
    python: PathLike | Iterable[PathLike]
    step: PathLike | Iterable[PathLike]
    env: Variables
    budget: str
    corpus: PathLike


class SidesKeywords(AxisKeywords, SessionKeywords, total=False):
    """Further options of `dlbench gate`, and of `dlbench compare --now`."""

    baseline_env: Variables
    candidate_env: Variables
    threshold: float | str
    tolerance: float | str
    judge: Words
    allow_different: bool
    no_profile: bool
    same: bool


class CompareKeywords(SidesKeywords, total=False):
    """Further options of `dlbench compare`."""

    pairs: int | str
    interval: float | str


def run(
    suite: PathLike = "quick",
    store: PathLike | None = None,
    progress: bool = True,
    **options: Unpack[RunKeywords],
) -> "pd.DataFrame":
    """Measure a suite on this machine as the command `dlbench run` does, and return its cells.

    Args:
        suite: A suite's name, or a file ending in .toml.
        store: The store that takes the launches: a file or a URL; by default ``$DLBENCH_STORE``, or
            dlbench.sqlite in the working folder.
        progress: Whether progress is printed to ``sys.stderr``, in a notebook into an output.
        **options: Options of the command: ``batch_sizes=[16, 64]``, ``budget="10m"``,
            ``env={"OMP_WAIT_POLICY": "passive"}``, ``resume=True``.

    Returns:
        The rows of `dlbench.cells` for this run. A cell without a number has the reason.

    Raises:
        DlbenchError: Whatever the command would refuse, with the same line.
        KeyboardInterrupt: Ctrl-C. Every finished launch is stored, and nothing is left running.

    Example:
        >>> cells = dlbench.run("quick", networks="fcn5", frameworks="torch", threads=[1, 2])
        >>> cells.pivot_table("seconds", ["framework", "mode"], "threads")
    """
    given = _given(RunOptions, {**options, "name": suite, "store": store})
    measured = _measure_suite(given, progress)
    return cells_of(build_matrix(measured.results))


def measure(
    step: Step,
    *,
    threads: Counts = "cores",
    suite: PathLike = "quick",
    launches: int | str | None = None,
    interval: float | str | None = None,
    budget: str | None = None,
    python: PathLike | None = None,
    env: Variables | None = None,
    store: PathLike | None = None,
    progress: bool = True,
    **options: Unpack[MeasureKeywords],
) -> MeasureResult:
    """Measure a training step, or an inference call, of your own.

    As `dlbench run quick --step FILE --interval 2%` does: each cell gets 3 to 20 launches, which
    are fresh processes, until its 95 % interval is ±2 %.

    Args:
        step: A file that defines ``prepare(cell)`` (`dlbench new step FILE` writes one), the name
            ``"module:prepare"``, or that function, imported from its file. A function of a notebook
            or a closure cannot be measured: a launch is a fresh process, which imports a file.
        threads: One thread count or several: ``4``, ``[1, 2]``, ``"1..cpus"``. By default as many
            as cores.
        suite: The suite whose protocol is used (warm-up, number of steps, launches).
        launches: Launches of each cell: ``5``, or a range such as ``"3-10"`` that ends when
            ``interval`` is reached.
        interval: The wanted half-width of the 95 % interval, as ``0.02`` or ``"2%"``; 2 % where
            ``launches`` is not given either.
        budget: The most time for all launches, such as ``"90s"`` or ``"10m"``.
        python: The interpreter that has the step's framework; by default this one.
        env: Environment variables of the launches. They get no others of this process but PATH,
            HOME and the like.
        store: The store that takes the launches: a file or a URL; by default ``$DLBENCH_STORE``, or
            dlbench.sqlite in the working folder.
        progress: Whether progress is printed to ``sys.stderr``, in a notebook into an output.
        **options: Further options of the command with underscores, such as ``batch_sizes=[8, 64]``,
            ``task="inference"`` or ``resume=True``.

    Returns:
        The cells: ``table`` has a row for each, with ``seconds``, ``low`` and ``high`` in seconds
        per step; ``launches`` has a row for each launch. A step that fails has a ``status`` and a
        ``reason``, and no seconds.

    Raises:
        UsageError: An unknown option or value, or a step that cannot be measured.
        FrameworkEnvironmentError: An interpreter that is missing or cannot be started.
        StoreError: A store that cannot be read or written.
        KeyboardInterrupt: Ctrl-C. Every finished launch is stored, and nothing is left running.

    Example:
        >>> result = dlbench.measure("train_step.py", threads=[1, 2], budget="2m")
        >>> print(result.sentence)
        >>> result.table[["threads", "seconds", "low", "high"]]
        >>> result.plot()
    """
    if launches is None and interval is None:
        interval = _INTERVAL
    words = {
        **options,
        **{"name": suite, "step": [file_of(step)], "threads": threads, "launches": launches},
        **{"interval": interval, "budget": budget, "python": python, "env": env, "store": store},
    }
    measured = _measure_suite(_given(RunOptions, words, MeasureKeywords), progress)
    return MeasureResult(measured.results, measured.run.id, measured.store)


def gate(
    baseline: Step,
    candidate: Step | None = None,
    *,
    threads: Counts = "cores",
    suite: PathLike = "quick",
    budget: str | None = None,
    python: PathLike | Sequence[PathLike] | None = None,
    env: Variables | None = None,
    store: PathLike | None = None,
    progress: bool = True,
    **options: Unpack[SidesKeywords],
) -> GateResult:
    """Judge a candidate against a baseline, both measured now: passed, failed or undecided.

    As `dlbench gate quick --step BASELINE --candidate-step CANDIDATE` does: both sides take turns
    on the same CPUs, a cell gets pairs of launches until it has a verdict, and at most 0.05 % of
    cells of identical code are called slower.

    Args:
        baseline: The step of the baseline; see `dlbench.measure`.
        candidate: The step of the candidate. Without it both sides run ``baseline``, and differ in
            ``python`` or ``candidate_env``, or not at all with ``same=True``.
        threads: One thread count or several: ``4``, ``[1, 2]``. By default as many as cores.
        suite: The suite whose protocol is used.
        budget: The most time for all launches, such as ``"90s"`` or ``"10m"``.
        python: The interpreter of both sides, or two: the baseline's and the candidate's.
        env: Environment variables of all launches.
        store: The store that takes the launches, as for `dlbench.measure`.
        progress: Whether progress is printed to ``sys.stderr``, in a notebook into an output.
        **options: Further options of the command with underscores, such as ``tolerance="5%"``,
            ``judge="time,memory"`` or ``candidate_env={"OMP_WAIT_POLICY": "passive"}``.

    Returns:
        The judgement. ``verdict`` is "passed" (a slowdown of ``tolerance``, 5 % by default, is
        excluded in every cell), "failed" or "undecided"; ``table`` has ``ratio``, ``low`` and
        ``high`` of candidate / baseline for each cell, above 1 slower.

    Raises:
        UsageError: An unknown option or value, or two sides that do not differ.
        FrameworkEnvironmentError: An interpreter that is missing or cannot be started.
        StoreError: A store that cannot be read or written.
        KeyboardInterrupt: Ctrl-C. Every finished pair is stored, and nothing is left running.

    Example:
        >>> result = dlbench.gate("train_step.py", "new_step.py", threads=1)
        >>> print(result.sentence)
        >>> assert result.passed
    """
    words = {
        **options,
        **_two_steps(baseline, candidate),
        **{"name": suite, "threads": threads, "budget": budget, "python": python},
        **{"env": env, "store": store},
    }
    given = _given(GateOptions, words, SidesKeywords)
    with _measuring(["gate", given.name], given, progress):
        measured = measure_gate(given)
    return GateResult(
        measured.comparison, servers.without_password(given.store_file), measured.run.id
    )


def compare(
    baseline: Step,
    candidate: Step | None = None,
    *,
    threads: Counts | None = None,
    suite: PathLike | None = None,
    budget: str | None = None,
    python: PathLike | Sequence[PathLike] | None = None,
    env: Variables | None = None,
    store: PathLike | None = None,
    progress: bool = True,
    **options: Unpack[CompareKeywords],
) -> CompareResult:
    """Compare two stored runs, or two steps that are measured now, cell by cell.

    As `dlbench compare A B` does for stored runs, and `dlbench compare --now` for steps, which get
    6 to 20 pairs of launches each, until the 95 % interval of the ratio is ±2 %.

    Args:
        baseline: A stored run: the start of its id, "latest", "previous", a store, or files that
            pytest-benchmark saved. Or a step to measure: see `dlbench.measure`.
        candidate: The other run or step. Without it the two sides of the stored run ``baseline``
            are compared, or both sides run the step ``baseline``; see `dlbench.gate`.
        threads: Of steps: one thread count or several. By default as many as cores.
        suite: Of steps: the suite whose protocol is used, by default quick.
        budget: Of steps: the most time for all launches, such as ``"10m"``.
        python: Of steps: the interpreter of both sides, or two: the baseline's and the candidate's.
        env: Of steps: environment variables of all launches.
        store: The store with the runs, or the one that takes the launches, as for
            `dlbench.measure`.
        progress: Whether progress is printed to ``sys.stderr``, in a notebook into an output.
        **options: Further options of the command with underscores, such as ``threshold="5%"`` or
            ``pairs="6-40"``.

    Returns:
        The comparison. ``verdict`` is the gravest of any cell; ``table`` has ``ratio``, ``low`` and
        ``high`` of candidate / baseline for each cell, above 1 slower.

    Raises:
        UsageError: An unknown run, option or value, or runs that share no cell.
        FrameworkEnvironmentError: An interpreter that is missing or cannot be started.
        StoreError: A store that cannot be read or written.
        KeyboardInterrupt: Ctrl-C. Every finished pair is stored, and nothing is left running.

    Example:
        >>> result = dlbench.compare("previous", "latest", store="dlbench.sqlite")
        >>> result.table[["network", "threads", "ratio", "low", "high", "verdict"]]
    """
    measured_words = {"threads": threads, "budget": budget, "python": python, "env": env}
    words: dict[str, Any] = {**options, "suite_name": suite, "store": store}
    if not is_step(baseline):
        words |= {**measured_words, "first": baseline, "second": candidate}
        given = _given(CompareOptions, words, CompareKeywords)
        with _measuring(["compare"], given, progress):
            comparison = compare_stored(given)
        return CompareResult(comparison, servers.without_password(given.store_file))
    if candidate is not None and not is_step(candidate):
        raise UsageError(
            f"{baseline} is a step and {candidate} is not. Give two steps, or two stored runs."
        )
    measured_words["threads"] = "cores" if threads is None else threads
    words |= {**measured_words, **_two_steps(baseline, candidate), "now": True}
    given = _given(CompareOptions, words, CompareKeywords)
    with _measuring(["compare"], given, progress):
        measured = measure_comparison(given)
    return CompareResult(
        measured.comparison, servers.without_password(given.store_file), measured.run.id
    )


def _two_steps(baseline: Step, candidate: Step | None) -> dict[str, Any]:
    """Return the words that name the steps of the two sides."""
    other = None if candidate is None else file_of(candidate)
    return {"step": [file_of(baseline)], "candidate_step": other}


def _measure_suite(given: RunOptions, progress: bool) -> MeasuredSuite:
    """Measure a suite. Raises UsageError if the budget allowed no launch."""
    with _measuring(["run", given.name], given, progress):
        measured = measure_suite(given)
    if measured is None or not measured.records:
        raise UsageError("No launch was measured. Give the run a larger budget.")
    return measured


# From Python's values to the options of a command.

_FIELDS = {"store": "store_file"}
"""Options whose field has another name."""
_NOT_FROM_PYTHON = {"as_json", "form", "write", "node_name", "qualify", "undecided", "exit_zero"}
"""Fields of what a command prints, and of what it is not from Python."""


def _given(kind: type[Given], words: Mapping[str, Any], typed: Any = RunKeywords) -> Given:
    """Return the options of a command from keyword arguments. None stands for none.

    Raises UsageError for an unknown one, by the names that ``typed`` has, and for a value that no
    option can have.
    """
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in words.items():
        field = _FIELDS.get(name, name)
        if field not in hints or field in _NOT_FROM_PYTHON:
            raise unknown_name("option", name, typing.get_type_hints(typed))
        if value is not None:
            values[field] = _value(name, value, hints[field])
    values.setdefault("store_file", os.environ.get("DLBENCH_STORE") or DEFAULT_STORE)
    return kind(**values)


def _value(name: str, value: Any, hint: Any) -> Any:
    """Return an option's value as its field has it: text as the command line gives it, mostly."""
    kinds = {hint, *typing.get_args(hint)}
    if bool in kinds or int in kinds:
        wanted = bool if bool in kinds else int
        if type(value) is not wanted:
            noun = "True or False" if wanted is bool else "a whole number"
            raise UsageError(f"{name}={value!r} cannot be used. Give {noun}.")
        return value
    texts = _texts(value)
    if not texts or not all(text.strip() for text in texts):
        raise UsageError(f"{name} has an empty value. Give one, or leave it out.")
    if list[str] in kinds:
        return texts
    text = ",".join(texts)
    return Path(text) if Path in kinds else text


def _texts(value: Any) -> list[str]:
    """Return the texts of a value or of several; of variables NAME=VALUE."""
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    if isinstance(value, os.PathLike):
        return [os.fspath(value)]
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [text for item in value for text in _texts(item)]
    return [str(value)]


# Around a measurement.

_PATIENCE_SECONDS = 10.0
"""A second Ctrl-C does nothing for this long: launches are being ended."""


@contextlib.contextmanager
def _measuring(first: Sequence[str], given: BuildOptions, progress: bool) -> Iterator[None]:
    """Prepare the process for a command's function, and translate how it may end.

    ``first`` are the command's first words. Raises UsageError in a launch: a step whose file calls
    dlbench would measure itself.
    """
    if LAUNCH_MARK in os.environ:
        raise UsageError(
            "This file is being imported by a launch of dlbench, and calls dlbench itself. Put the "
            'call under `if __name__ == "__main__":`, or into another file.'
        )
    own.register_adapters(given.adapter)
    own.register_steps(given.step)
    with equivalent_to([*first, *_command_line(given)]), progress_shown(progress), _one_ctrl_c():
        try:
            yield
        except Terminated:
            raise
        except Interrupted:
            raise KeyboardInterrupt(
                "Every finished launch is stored. The same call with resume=True continues."
            ) from None


def _command_line(given: BuildOptions) -> list[str]:
    """Return the options of the equivalent command, for its hints."""
    left_out = {"store_file", "name", "first", "second"}
    names = []
    for field in fields(given):
        if field.name not in left_out and getattr(given, field.name) != field.default:
            names.append(field.name)
    store: str = vars(given)["store_file"]
    stored = [vars(given).get(name, "") for name in ("first", "second")]
    return [*filter(None, stored), *words_of(given, names), *words_of_store(store)]


@contextlib.contextmanager
def _one_ctrl_c() -> Iterator[None]:
    """Ignore further Ctrl-C for some seconds after the first: nothing may be left running.

    In another thread than the main one, or under a handler that the program set, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    first: list[float] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not first or now - first[0] > _PATIENCE_SECONDS:
            first[:] = [now]
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
