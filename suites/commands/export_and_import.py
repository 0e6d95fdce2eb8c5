"""`dlbench export` and `dlbench import`: stored runs in the forms of other tools."""

import os
from typing import Annotated

import typer

from dlbench.reports.pytest_benchmark import files as pytest_benchmark_files
from dlbench.reports.pytest_benchmark.export import run_to_pytest_benchmark
from dlbench.reports.pytest_benchmark.runs import runs_of
from dlbench.reports.storage.servers import urls
from dlbench.reports.storage.store import Store

from ..display.screen import counted, say
from ..errors import UsageError, unknown_name
from ..measuring import preparation
from . import options

FORMATS = ("pytest-benchmark",)

Format = Annotated[str, typer.Option("--format", help=f"The form of the file: {', '.join(FORMATS)}.")]


def export_command(
    form: Format = FORMATS[0],
    store_file: options.StoreFile = options.DEFAULT_STORE,
    run: Annotated[str | None, typer.Option("--run", help="The run with this id. Without it, the newest.")] = None,
    suite: options.OfSuite = None,
    machine: options.OfMachine = None,
) -> None:
    """Write one run, raw samples and all, to standard output in the form of another tool.

    Examples:

    - `dlbench export --format pytest-benchmark > run.json`
    - `dlbench export --suite quick --run 20261120T120000-abc123 > run.json`
    """
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    with Store.open(store_file, create=False) as store:
        narrowed = {"--run": run, "--suite": suite, "--machine": machine}
        found = [
            each
            for each in store.runs()
            if run in (None, each.id) and suite in (None, each.suite) and machine in (None, each.machine)
        ]
        if not found:
            wanted = " ".join(f"{option} {value}" for option, value in narrowed.items() if value) or "any run"
            raise UsageError(f"Nothing in {store.name} matches {wanted}. `dlbench report runs` lists what is there.")
        chosen = found[-1]
        if len(found) > 1:
            say(f"run {chosen.id}, the newest of {len(found)}; --run ID chooses another")
        print(run_to_pytest_benchmark(chosen, store.records(run=chosen.id), store.machine(chosen.machine)), end="")


def import_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="JSON files of pytest-benchmark.")],
    store_file: options.StoreFile = options.DEFAULT_STORE,
    one_run: Annotated[
        bool,
        typer.Option(
            "--one-run", help="Files of other benchmarks: each is one launch (a fresh process) of the same run."
        ),
    ] = False,
) -> None:
    """Read files of pytest-benchmark into a store: dlbench's own as they were, anybody's as rows of their own.

    Nothing is written unless every file can be read.

    Examples:

    - `dlbench import run.json --store results.sqlite`
    - `dlbench import --one-run baseline-1.json baseline-2.json baseline-3.json`
    """
    read = [pytest_benchmark_files.read(file) for file in files]
    imported = runs_of(read, preparation.version(), one_run)
    if not imported:
        raise UsageError(f"There is no benchmark in {', '.join(files)}. Nothing was imported.")
    existed = urls.is_url(store_file) or os.path.exists(store_file)  # noqa: PTH110 - a URL is no path
    with Store.open(store_file, report=say) as store:
        present = {run.id for run in store.runs()} if existed else set()
        for each in imported:
            if each.run.id in present:
                raise UsageError(f"{store.name} holds run {each.run.id} already. Nothing was imported.")
        for each in imported:
            # What was probed on the machine itself is not replaced by what a file says of it.
            if each.machine is not None and store.machine(each.run.machine) is None:
                store.add_machine(each.run.machine, each.machine)
        store.append_runs((each.run, each.records) for each in imported)
        for each in imported:
            records = counted(len(each.records), "record")
            say(f"run {each.run.id} of {each.run.suite}: {records} into {store.name}")
