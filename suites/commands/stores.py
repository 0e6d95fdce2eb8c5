"""`dlbench store`, `dlbench export` and `dlbench import`: copy and deliver stores; formats of other
tools.
"""

import importlib.util
import sys

import typer

from dlbench.reports import frames
from dlbench.reports.pytest_benchmark import imported as pytest_benchmark_files
from dlbench.reports.pytest_benchmark.export import processes_in_one_list, run_to_pytest_benchmark
from dlbench.reports.pytest_benchmark.imported import Imported, runs_of
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import PYTEST_BENCHMARK
from dlbench.reports.results.results import Narrowing, run_named
from dlbench.reports.results.storage import delivery, servers
from dlbench.reports.results.storage.store import Store

from ..display.help import CommandLine
from ..display.screen import StatusLine, err, say
from ..errors import UsageError
from ..run import preparation
from . import options
from .options import Given, flag, option, takes

store_app = CommandLine(
    no_args_is_help=True, help="Copy result stores, and deliver records to a server."
)


@store_app.command("copy")
@takes(
    {
        "source": options.argument("FROM", "The store to read: a file, or a database URL."),
        "target": options.argument("TO", "The store to write; created if missing."),
    }
)
def copy_command(given: Given) -> None:
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
            read, written, lambda done, of: status.draw(f"  {done:,} of {of:,} records")
        )
        copied = f"{counted(runs, 'run')} and {counted(records, 'record')}"
        say(f"copied from {read.name} to {written.name}: {copied} that it lacked")


@store_app.command("deliver")
@takes({"store_file": options.STORE})
def deliver_command(given: Given) -> None:
    """Deliver records made while a server could not be reached; the next run into its store does so
    too.

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
    say(f"{store.name} has everything that was measured here.")


FORMATS = ("pytest-benchmark", "csv", "parquet")


@takes(
    {
        "form": option("--format", f"Output format: {', '.join(FORMATS)}.", str, FORMATS[0]),
        "store_file": options.STORE,
        "run": option(
            "--run", "The run: latest, previous, its id or the start of it. Without it, the newest."
        ),
        "suite": options.OF_SUITE,
        "machine": options.OF_MACHINE,
    }
)
def export_command(given: Given) -> None:
    """Write results to standard output for other tools.

    pytest-benchmark: one run with its raw samples. csv and parquet: a table with a row for each
    launch, of each cell's newest run or of one run (`dlbench.launches` in Python documents the
    columns).

    Examples:

    - `dlbench export --format pytest-benchmark > run.json`
    - `dlbench export --suite quick --run 20261120T120000-abc123 > run.json`
    - `dlbench export --format csv > launches.csv`
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
    found = frames.launches(given.store_file, run, given.suite, given.machine)
    if form == "csv":
        print(found.to_csv(index=False), end="")
        return
    if sys.stdout.isatty():
        raise UsageError("Parquet is binary. Write it to a file: `... --format parquet > FILE`.")
    try:
        content = found.to_parquet(index=False)
    except ImportError as error:
        raise UsageError(
            "--format parquet needs the package pyarrow; install it, or choose --format csv."
        ) from error
    sys.stdout.buffer.write(content)


def _export_run(given: Given) -> None:
    with Store.open(given.store_file, create=False) as store:
        runs = store.runs()
        wanted = run_named(given.run, runs) if given.run else ""
        asked = Narrowing(wanted, given.suite or "", given.machine or "")
        found = [run for run in runs if asked.takes(run)]
        if not found:
            named = {"run": given.run, "suite": given.suite, "machine": given.machine}
            words = (
                " ".join(f"--{name} {value}" for name, value in named.items() if value) or "any run"
            )
            raise UsageError(
                f"Nothing in {store.name} matches {words}. `dlbench report runs` lists what is "
                "there."
            )
        chosen = found[-1]
        if len(found) > 1:
            say(f"run {chosen.id}, the newest of {len(found)}; --run ID chooses another")
        records = store.records(run=chosen.id)
        if sentence := processes_in_one_list(records):
            say(sentence)
        print(run_to_pytest_benchmark(chosen, records, store.machine(chosen.machine)), end="")


_ONE_RUN = "Treat files of other benchmarks as launches (fresh processes) of one run."


@takes(
    {
        "files": options.argument("FILE", "JSON files of pytest-benchmark.", list[str]),
        "store_file": options.STORE,
        "one_run": flag("--one-run", _ONE_RUN),
    }
)
def import_command(given: Given) -> None:
    """Read pytest-benchmark files into a store: dlbench's own are restored, others become separate
    rows.

    Nothing is written unless every file can be read.

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
        present = {run.id for run in store.runs()}
        for each in imported:
            if each.run.id in present:
                raise UsageError(
                    f"{store.name} holds run {each.run.id} already. Nothing was imported."
                )
        new = [_without_stored(each, store) for each in imported]
        if not any(each.records for each in new):
            raise UsageError(
                f"{store.name} holds these measurements already. Nothing was imported."
            )
        for whole, rest in zip(imported, new, strict=True):
            if missing := len(whole.records) - len(rest.records):
                records = counted(missing, "record")
                say(
                    f"run {whole.run.id}: {records} left out, whose measurements {store.name} "
                    "holds already"
                )
        imported = [each for each in new if each.records]
        for each in imported:
            # A description probed on the machine itself is not replaced by that in a file.
            if each.machine is not None and store.machine(each.run.machine) is None:
                store.add_machine(each.run.machine, each.machine)
        store.append_runs((each.run, each.records) for each in imported)
        for each in imported:
            records = counted(len(each.records), "record")
            say(f"run {each.run.id} of {each.run.suite}: {records} into {store.name}")


def _without_stored(imported: Imported, store: Store) -> Imported:
    """Return a run without measurements of other programs' benchmarks that the store holds
    already.
    """
    if imported.run.suite != PYTEST_BENCHMARK:
        return imported
    near = [run for run in store.runs() if pytest_benchmark_files.may_repeat(imported.run, run)]
    stored = [record for run in near for record in store.records(run=run.id)]
    return pytest_benchmark_files.without_stored(imported, stored)
