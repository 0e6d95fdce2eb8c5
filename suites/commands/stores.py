"""`dlbench store`, `export` and `import`: copy and deliver stores, and formats of other tools."""

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from dlbench.reports import frames
from dlbench.reports.pytest_benchmark import imported as pytest_benchmark_files
from dlbench.reports.pytest_benchmark.export import processes_in_one_list, run_to_pytest_benchmark
from dlbench.reports.pytest_benchmark.imported import Imported, runs_of
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import PYTEST_BENCHMARK, Record
from dlbench.reports.results.results import Narrowing, run_named
from dlbench.reports.results.storage import delivery, servers
from dlbench.reports.results.storage.store import Store

from ..display.help import CommandLine
from ..display.screen import StatusLine, err, say
from ..errors import UsageError
from ..planning.axes import listed_or
from ..run import preparation
from . import options
from .options import argument, flag, option, takes

store_app = CommandLine(
    no_args_is_help=True, help="Copy result stores, and deliver records to a server."
)


@dataclass(frozen=True, kw_only=True)
class CopyOptions:
    """The arguments of `dlbench store copy`."""

    source: Annotated[str, argument("FROM", "The store to read: a file, or a database URL.")]
    target: Annotated[str, argument("TO", "The store to write; created if missing.")]


@store_app.command("copy")
@takes(CopyOptions)
def copy_command(given: CopyOptions) -> None:
    """Copy all runs and records of one store into another; each is a file or a server.

    Runs and records that are there already stay as they are, so repeating an interrupted copy
    continues it.

    Examples:

    - `dlbench store copy results.sqlite postgresql+psycopg://me@host/results`
    - `dlbench store copy postgresql+psycopg://me@host/results backup.sqlite`
    """
    with (
        Store.open(given.source, create=False) as read,
        Store.open(given.target) as written,
        StatusLine(err) as status,
    ):
        if read.name == written.name:
            raise UsageError(f"{read.name} is named twice. Name two stores: FROM and TO.")
        runs, records = delivery.copy(
            read, written, lambda done, total: status.draw(f"  {done:,} of {total:,} records")
        )
        copied = f"{counted(runs, 'run')} and {counted(records, 'record')}"
        say(f"copied from {read.name} to {written.name}: {copied} that it lacked")


@dataclass(frozen=True, kw_only=True)
class DeliverOptions:
    """The options of `dlbench store deliver`."""

    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE


@store_app.command("deliver")
@takes(DeliverOptions)
def deliver_command(given: DeliverOptions) -> None:
    """Deliver records that were made while a server could not be reached.

    The next run into its store delivers them too.

    Examples:

    - `dlbench store deliver --store postgresql+psycopg://me@host/results`
    """
    if not servers.is_served(given.store_file):
        name = servers.without_password(given.store_file)
        raise UsageError(f"{name} is not a server store; there is nothing to deliver.")
    with delivery.opened(given.store_file, say, create=False) as store:
        assert isinstance(store, delivery.DeliveringStore)
    if store.behind:
        raise typer.Exit(StoreError.exit_code)
    say(f"{store.name} has everything that was measured on this machine.")


FORMATS = ("pytest-benchmark", "csv", "parquet")


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `dlbench export`."""

    form: Annotated[str, option("--format", f"{listed_or(FORMATS)}.")] = FORMATS[0]
    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE
    run: Annotated[
        str | None,
        option("--run", "The run: latest (default), previous, its id or the start of it."),
    ] = None
    suite: Annotated[str | None, options.OF_SUITE] = None
    machine: Annotated[str | None, options.OF_MACHINE] = None


@takes(ExportOptions)
def export_command(given: ExportOptions) -> None:
    """Write results to standard output for other tools.

    pytest-benchmark: one run with its raw samples. csv and parquet: a table with a row for each
    launch, of each cell's newest run or of one run (`dlbench.launches` in Python documents the
    columns).

    Examples:

    - `dlbench export --format csv > launches.csv`
    - `dlbench export --format pytest-benchmark > run.json`
    """
    form = options.form_of(given.form, False, FORMATS)
    if form == "pytest-benchmark":
        if importlib.util.find_spec("pytest_benchmark") is None:
            raise UsageError(
                "The default format, pytest-benchmark, needs the package of this name. Install it "
                "(`pip install pytest-benchmark`), or choose a format that needs no package: "
                "--format csv."
            )
        _export_run(given)
        return
    run = given.run
    if run:
        with Store.open(given.store_file, create=False) as store:
            run = run_named(run, store.runs())
    launches = frames.launches(given.store_file, run, given.suite, given.machine)
    if form == "csv":
        print(launches.to_csv(index=False), end="")
        return
    if sys.stdout.isatty():
        raise UsageError("Parquet is binary. Write it to a file: `... --format parquet > FILE`.")
    try:
        content = launches.to_parquet(index=False)
    except ImportError as error:
        raise UsageError(
            "--format parquet needs the package pyarrow; install it, or choose --format csv."
        ) from error
    sys.stdout.buffer.write(content)


def _export_run(given: ExportOptions) -> None:
    """Print the newest run that the options choose as JSON of pytest-benchmark."""
    with Store.open(given.store_file, create=False) as store:
        runs = store.runs()
        identifier = run_named(given.run, runs) if given.run else ""
        narrowing = Narrowing(identifier, given.suite or "", given.machine or "")
        matching = [run for run in runs if narrowing.takes(run)]
        if not matching:
            words = options.words_of(given, ("run", "suite", "machine"))
            raise UsageError(
                f"Nothing in {store.name} matches {' '.join(words) or 'any run'}. `dlbench report "
                "runs` lists what is there."
            )
        chosen = matching[-1]
        if len(matching) > 1:
            say(f"run {chosen.id}, the newest of {len(matching)}; --run ID chooses another")
        records = store.records(run=chosen.id)
        if sentence := processes_in_one_list(records):
            say(sentence)
        print(run_to_pytest_benchmark(chosen, records, store.machine(chosen.machine)), end="")


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """The options of `dlbench import`."""

    files: Annotated[list[str], argument("FILE", "JSON files of pytest-benchmark.")]
    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE
    one_run: Annotated[
        bool,
        flag(
            "--one-run", "Treat files of other benchmarks as launches (fresh processes) of one run."
        ),
    ] = False


@takes(ImportOptions)
def import_command(given: ImportOptions) -> None:
    """Read pytest-benchmark files into a store.

    Files that dlbench wrote are restored, others become rows of their own. Nothing is written
    unless every file can be read.

    Examples:

    - `dlbench import run.json --store results.sqlite`
    - `dlbench import --one-run baseline-1.json baseline-2.json baseline-3.json`
    """
    read = [pytest_benchmark_files.read(file) for file in given.files]
    read, left_out = pytest_benchmark_files.without_copies(read)
    for sentence in left_out:
        say(sentence)
    imported = runs_of(read, preparation.version(), given.one_run)
    for file in read:
        if repetition := pytest_benchmark_files.repetition_of(file):
            say(repetition)
    if not imported:
        raise UsageError(
            f"There is no benchmark in {', '.join(given.files)}. Nothing was imported."
        )
    with Store.open(given.store_file) as store:
        new = _new_in(store, imported)
        for described in new:
            # A description probed on the machine itself is not replaced by that in a file.
            if described.machine is not None and store.machine(described.run.machine) is None:
                store.add_machine(described.run.machine, described.machine)
        store.append_runs((stored.run, stored.records) for stored in new)
        for stored in new:
            records = counted(len(stored.records), "record")
            say(f"run {stored.run.id} of {stored.run.suite}: {records} into {store.name}")


def _new_in(store: Store, imported: Iterable[Imported]) -> list[Imported]:
    """Return the runs with measurements that the store lacks, without the others.

    Raises UsageError for a run that the store holds, and if it holds all measurements.
    """
    present = {run.id for run in store.runs()}
    whole_runs = list(imported)
    for whole in whole_runs:
        if whole.run.id in present:
            raise UsageError(
                f"{store.name} holds run {whole.run.id} already. Nothing was imported."
            )
    new_runs = [_without_stored(whole, store) for whole in whole_runs]
    if not any(new.records for new in new_runs):
        raise UsageError(f"{store.name} holds these measurements already. Nothing was imported.")
    for whole, new in zip(whole_runs, new_runs, strict=True):
        missing = len(whole.records) - len(new.records)
        if missing:
            say(
                f"run {whole.run.id}: {counted(missing, 'record')} left out, whose measurements "
                f"{store.name} holds already"
            )
    return [new for new in new_runs if new.records]


def _without_stored(imported: Imported, store: Store) -> Imported:
    """Return a run without the measurements of other programs that the store holds."""
    if imported.run.suite != PYTEST_BENCHMARK:
        return imported
    stored: list[Record] = []
    for run in store.runs():
        if pytest_benchmark_files.may_repeat(imported.run, run):
            stored += store.records(run=run.id)
    return pytest_benchmark_files.without_stored(imported, stored)
