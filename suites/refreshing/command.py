"""`dlbench env refresh`: a framework's lock on the newest releases, once they pass parity."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import filelock
import typer

from dlbench.hardware_probe import probe
from dlbench.reports.comparison.outcome import Outcome, gate_outcome
from dlbench.reports.comparison.verdict import DEFAULT
from dlbench.reports.storage.hosts import host_of

from ..commands import options
from ..commands.options import OptionGroup, SessionOptions, grouped
from ..commands.plan import plan_of
from ..commands.two_sides import Asked, measure, show
from ..display import screen
from ..display.screen import StatusLine, err, print_json, say, table
from ..environments import environment, needs
from ..environments.environment import Environment
from ..environments.folders import write_whole, written
from ..errors import (
    GATE_BROKEN,
    GATE_FAILED,
    GATE_UNDECIDED,
    PARITY_FAILED,
    DlbenchError,
    Interrupted,
    Terminated,
    UsageError,
)
from ..planning import suite
from ..planning.choices import Choices
from ..planning.values import one_of
from ..run import sides
from ..run.schedules import for_gate
from . import check, new_lock, parity
from .row import Row, rows, without_python

_TAKE = ("parity", "gate", "never")


@dataclass(frozen=True)
class RefreshOptions(OptionGroup):
    """What is done with a new lock."""

    only_check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only say what is newer of a row's own packages, and why one stays; build nothing."
        ),
    ] = False
    take: Annotated[
        str,
        typer.Option(
            "--take",
            metavar="|".join(_TAKE),
            help="The new lock replaces the old one where parity passes, only where the gate passes too, or never.",
        ),
    ] = "parity"
    no_gate: Annotated[bool, typer.Option("--no-gate", help="Do not measure the new build against the old.")] = False
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="The networks of the gate: a suite's name, or a .toml file. It measures all modes, on all cores.",
        ),
    ] = "quick"
    store_file: options.StoreFile = options.DEFAULT_STORE
    as_json: Annotated[bool, typer.Option("--json", help="Print what --check found as JSON.")] = False


@grouped
def refresh_command(
    given: RefreshOptions,
    names: Annotated[
        list[str] | None, typer.Argument(help="Frameworks. Without names, all that are not historic.")
    ] = None,
    adapter: options.Adapter = None,
) -> None:
    """Put frameworks on their newest releases: a new lock, its environment, parity, and a gate against the old one.

    pip resolves the newest packages that fit together. Their environment is built beside the old one and launched once
    in each mode, as installed and tuned, on a small network of each family. Where all agree with the reference, and
    nothing is refused that the old build can do, a gate compares the new build with the old one, and the new lock takes
    the old one's place. Whatever fails or is interrupted leaves the old lock. Releases that `held` in framework.toml
    names stay.

    Exit code 0: done, or nothing is newer. 1: the new build failed parity. 3: no environment, or no package index. With
    `--take gate` also the gate's: 1, 5 and 6.

    Examples:

    - `dlbench env refresh --check`
    - `dlbench env refresh onnx`
    - `dlbench env refresh keras --no-gate`
    - `dlbench env refresh jax --take gate --suite nightly.toml`
    """
    take = one_of(given.take, "way to take a new lock", _TAKE)
    if given.no_gate and take == "gate":
        raise UsageError("--take gate needs the gate. Leave --no-gate out.")
    if given.as_json and not given.only_check:
        raise UsageError("--json is for --check. Leave it out.")
    if not (given.only_check or given.no_gate):
        suite.load(given.suite)  # before anything is built
    wanted = rows(names or ())
    for row in (absent := without_python(wanted)):
        say(f"Left out: {row.framework.lock_file.name}. {needs.how_to_get_python(row.framework, bring=False)}")
    wanted = [row for row in wanted if row not in absent]
    code = _check(wanted, given.as_json) if given.only_check else 0
    for row in wanted if not given.only_check else ():
        try:
            with _alone(row):
                found = _refresh(row, given)  # each row, whatever became of those before it
            code = code or found
        except Interrupted as error:
            raise type(error)(
                _left(row, "ended by SIGTERM" if isinstance(error, Terminated) else "interrupted")
            ) from error
        except KeyboardInterrupt as error:
            raise Interrupted(_left(row, "interrupted")) from error
        except DlbenchError as error:
            code = code or error.exit_code
            say(f"dlbench: {error} {_left(row, 'not refreshed')}")
    if code:
        raise typer.Exit(code)


@contextlib.contextmanager
def _alone(row: Row) -> Iterator[None]:
    """Hold a row's folder; raises UsageError where another refresh holds it."""
    lock = filelock.FileLock(row.folder / "refreshing", timeout=0)
    try:
        with written(row.folder):
            lock.acquire()
    except filelock.Timeout as error:
        raise UsageError("Another `dlbench env refresh` is at it. Wait for it, or end it.") from error
    try:
        yield
    finally:
        lock.release()


def _left(row: Row, why: str) -> str:
    return f"{row.framework.title}: {why}; {row.framework.lock_file} is as it was."


def _check(wanted: list[Row], as_json: bool) -> int:
    """Print what is newer; return the exit code of the first row that could not be asked."""
    found: list[check.Found] = []
    code = 0
    with StatusLine(err) as status:
        for row in wanted:
            lines, error = check.check(row, status.draw)
            found += lines
            code = code or (error.exit_code if error is not None else 0)
    if as_json:
        print_json(check.data(found))
        return code
    table("Locked and newest releases", check.COLUMNS, [each.cells for each in found])
    for note in filter(None, (each.note for each in found)):
        screen.show(note)
    return code


def _refresh(row: Row, given: RefreshOptions) -> int:
    """Refresh one row and return its exit code; raises DlbenchError where it cannot be done."""
    title = row.framework.title
    with StatusLine(err) as status:
        status.draw(f"{title}: pip resolves {', '.join(row.requirements)}")
        resolved = row.index.resolve(row.requirements, row.constraints)
        pythons = row.framework.python
        text = new_lock.compose(row.framework, row.old, resolved, lambda unknown: row.index.checksums(unknown, pythons))
    new = row.candidate(text)
    changes = new_lock.changes(row.old, new.old)
    versions = [[name, was or "-", "other files" if now == was else now or "-"] for name, was, now in changes]
    if not versions:
        say(f"{title}: nothing is newer than {row.framework.lock_file.name}, or what is newer is held.")
        return 0
    table(f"{title}: {row.framework.lock_file.name}", ["package", "locked", "new"], versions)
    built = _built(new)
    passed = parity.parity_of(row.name, _interpreter(built), lambda: _interpreter(_built(row)), probe())
    table(f"{title}: parity of the new build", parity.COLUMNS, passed.lines)
    if passed.reason:
        say(f"Parity failed: {passed.reason}. {_left(row, 'the new lock is not taken')}")
        return PARITY_FAILED
    code = 0 if given.no_gate else _gate(row, _of_today(row), built, given)
    return _take(row, text, code, given.take)


def _take(row: Row, text: str, code: int, take: str) -> int:
    """Put the new lock in the old one's place where it may, and return the exit code; ``code`` is the gate's."""
    if take == "gate" and code:
        say(_left(row, "the gate did not pass"))
        return code
    if take == "never":
        say(_left(row, f"the new lock is in {row.folder}"))
        return 0
    lock = row.framework.lock_file
    try:
        write_whole(lock, text)
    except OSError as error:
        raise UsageError(f"{lock} cannot be written: {error.strerror}. The new lock is in {row.folder}.") from error
    say(f"{row.framework.title}: {lock} is new. The older environment stays, beside the new one.")
    return 0


def _built(row: Row) -> Environment:
    """Return the environment of the row's lock, built where it is not yet."""
    if environment.locate(row.framework).state is not environment.State.READY:
        say(environment.announce(row.framework))
    with StatusLine(err) as status:
        return environment.build(row.framework, say, status.draw)


def _of_today(row: Row) -> Environment:
    """Return the old lock's environment, for the gate."""
    try:
        return _built(row)
    except DlbenchError as error:
        raise type(error)(f"{error} The gate needs the old build; --no-gate does without it.") from error


def _interpreter(built: Environment) -> Path:
    assert built.interpreter is not None  # it is ready
    return built.interpreter


def _gate(row: Row, old: Environment, new: Environment, given: RefreshOptions) -> int:
    """Measure the new build against the old one, print the change of every cell, and return a gate's exit code."""
    words = [[f"{row.name}={_interpreter(each)}"] for each in (old, new)]
    pair = sides.pair((words[0], words[1]), ((), ()), ("", ""))
    # Bound to as many CPUs as threads: what MindSpore needs, and the quietest elsewhere.
    chosen = Choices(
        {"frameworks": f"{row.name}:*", "threads": "cores", "affinity": "bound", "devices": "cpu", "tuning": "tuned"},
        builds=pair[1].builds,
    )
    machine = probe()
    plan = plan_of(given.suite, chosen, machine, None)
    session = SessionOptions(store_file=given.store_file, no_build=True)
    asked = Asked(plan, pair, machine, "gate", DEFAULT, session, bare=False)
    found = measure(asked, for_gate(host_of(machine), DEFAULT))
    show(found, "terminal", None)
    outcome = gate_outcome(found).outcome
    if outcome is Outcome.FAILED:
        return GATE_FAILED if found.regressions else GATE_BROKEN
    return GATE_UNDECIDED if outcome is Outcome.UNDECIDED else 0
