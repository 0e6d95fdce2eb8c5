"""`dlbench report`: from stored records to the matrix, the threads analysis and the tables, in every format."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dlbench.reports.against import shi2016
from dlbench.reports.against.analysis import against
from dlbench.reports.ceilings.words import ceilings_tables, ceilings_to_json
from dlbench.reports.figure1.analysis import figure1
from dlbench.reports.figure1.tables import check_quantity
from dlbench.reports.matrix.analysis import Matrix, build_matrix
from dlbench.reports.progress.analysis import progress
from dlbench.reports.storage.builds import Builds
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store
from dlbench.reports.tables.analysis import tables
from dlbench.reports.threads.analysis import curves, left_out
from dlbench.reports.workers.analysis import workers

from ..display.screen import print_json, say, table
from ..errors import UsageError, unknown_name
from ..planning.lineage import release_dates, stands_for_2016
from . import options
from .exporters import EXPORTERS, exporter_named

report_app = typer.Typer(no_args_is_help=True, help="Show what was measured, and what it means.")

Stores = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="FILE", help="Result store. Repeat the option to compare machines."),
]
Run = Annotated[str | None, typer.Option("--run", help="Only the run with this id.")]
SuiteName = Annotated[str | None, typer.Option("--suite", help="Only runs of this suite.")]
MachineName = Annotated[str | None, typer.Option("--machine", help="Only the machine with this fingerprint.")]
Format = Annotated[str, typer.Option("--format", help="terminal, markdown, csv, latex or json.")]
AllRuns = Annotated[bool, typer.Option("--all-runs", help="Pool a cell's launches of all runs, not of its newest.")]
Reference = Annotated[
    str, typer.Option("--reference", help="A published table instead of a store: shi2016 (the paper's Table 4).")
]
AllModes = Annotated[
    bool, typer.Option("--all-modes", help="Every execution mode, not only the fastest of each framework.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw it too: a .png or .svg, a panel for each network.")
]


def _check_plot(plot: Path | None) -> None:
    """Raise ReportError before anything is read where this cannot be a picture."""
    if plot is not None:
        from dlbench.reports.history.plot import check_picture

        check_picture(plot)


def _results(
    stores: list[str] | None, run: str | None, suite: str | None, machine: str | None, all_runs: bool = False
) -> Results:
    targets = stores or [os.environ.get("DLBENCH_STORE") or options.DEFAULT_STORE]
    # Of a store of many nights only what a report shows is read.
    read = Results.read if all_runs else Results.read_newest
    results = read(targets, run, suite, machine)
    narrowed = {"--run": run, "--suite": suite, "--machine": machine}
    if not results.records and any(narrowed.values()):
        wanted = " ".join(f"{option} {value}" for option, value in narrowed.items() if value)
        raise UsageError(
            f"Nothing in {', '.join(targets)} matches {wanted}. `dlbench report runs` lists what is there."
        )
    return results


def _matrix(reference: str, results: Callable[[], Results], all_runs: bool) -> Matrix:
    if not _published_name(reference, "reference"):
        return build_matrix(results(), all_runs)
    return shi2016.table4()


def _published_name(name: str, option: str) -> str:
    if name and name != shi2016.NAME:
        raise unknown_name(option, name, [shi2016.NAME])
    return name


def matrix_so_far(store: Store, run: str, as_json: bool = False) -> str:
    """Return the matrix of one run as it stands, for a terminal of 80 columns or as JSON."""
    return EXPORTERS["json" if as_json else "terminal"].matrix(build_matrix(Results.of([store], run)), "seconds")


@report_app.command("matrix")
def matrix_command(
    store: Stores = None,
    run: Run = None,
    suite: SuiteName = None,
    machine: MachineName = None,
    quantity: Annotated[
        str,
        typer.Option(
            "--quantity",
            help="seconds (per mini-batch), items (per second), gflops, ceiling (%); of GPUs joules and busy (%).",
        ),
    ] = "seconds",
    reference: Reference = "",
    beside: Annotated[
        str, typer.Option("--against", help="Beside a published table, with speed-ups: shi2016 (the paper's Table 4).")
    ] = "",
    all_modes: AllModes = False,
    all_runs: AllRuns = False,
    form: Format = "terminal",
    as_json: options.Json = False,
) -> None:
    """Networks and frameworks down, threads and devices across, machines side by side.

    With `--against shi2016` it is another table: for each framework of the 2016 paper, on as many threads, the seconds
    of then, the speed-up since (hardware and software together), and how much is left when both are divided by the
    cores' peak rates.

    Examples:

    - `dlbench report matrix`
    - `dlbench report matrix --format latex --quantity items`
    - `dlbench report matrix --store here.sqlite --store there.sqlite`
    - `dlbench report matrix --against shi2016`
    """
    exporter = exporter_named(form, as_json)
    if _published_name(beside, "published table"):
        if reference or quantity != "seconds":
            other = "--reference" if reference else "--quantity"
            raise UsageError(f"--against shows a table of its own, without {other}; leave one of the two out.")
        results = _results(store, run, suite, machine, all_runs)
        builds = Builds(results.records, release_dates())
        mine = build_matrix(results, all_runs)
        print(exporter.against(against(mine, shi2016.publication(), stands_for_2016(), builds, all_modes)))
        return
    if all_modes:
        raise UsageError("--all-modes goes with --against; the matrix shows every mode anyway.")
    matrix = _matrix(reference, lambda: _results(store, run, suite, machine, all_runs), all_runs)
    print(exporter.matrix(matrix, quantity))


@report_app.command("threads")
def threads_command(
    store: Stores = None,
    run: Run = None,
    suite: SuiteName = None,
    machine: MachineName = None,
    reference: Reference = "",
    all_runs: AllRuns = False,
    form: Format = "terminal",
    as_json: options.Json = False,
) -> None:
    """How many threads to give each framework, and what more of them cost, with the evidence why.

    Examples:

    - `dlbench report threads`
    - `dlbench report threads --reference shi2016`
    """
    exporter = exporter_named(form, as_json)
    matrix = _matrix(reference, lambda: _results(store, run, suite, machine, all_runs), all_runs)
    print(exporter.threads(curves(matrix), left_out(matrix)))


@report_app.command("scaling")
def scaling_command(
    store: Stores = None,
    run: Run = None,
    suite: SuiteName = None,
    machine: MachineName = None,
    all_runs: AllRuns = False,
    plot: Plot = None,
    form: Format = "terminal",
    as_json: options.Json = False,
) -> None:
    """What several workers (GPUs, or processes on the CPU) that share a mini-batch gain over one.

    Strong scaling holds them against one worker on the same mini-batch, weak scaling against one on a mini-batch as
    large as each worker's part: measure both sizes for it. On the CPU they are also held against one process with as
    many threads as they have together, where that was measured.

    Examples:

    - `dlbench run quick --frameworks torch --threads 1,2 --world-sizes 1,2 --batch-sizes 32,64`
    - `dlbench report scaling`
    - `dlbench report scaling --plot scaling.png --format markdown`
    """
    exporter = exporter_named(form, as_json)
    _check_plot(plot)
    found = workers(build_matrix(_results(store, run, suite, machine, all_runs), all_runs))
    if plot is not None:
        from dlbench.reports.workers.plot import workers_to_picture

        say(f"Drawn: {', '.join(map(str, workers_to_picture(found, plot)))}.")
    print(exporter.workers(found))


@report_app.command("progress")
def progress_command(
    store: Stores = None,
    run: Run = None,
    suite: SuiteName = None,
    machine: MachineName = None,
    all_modes: AllModes = False,
    all_runs: AllRuns = False,
    plot: Plot = None,
    form: Format = "terminal",
    as_json: options.Json = False,
) -> None:
    """The frameworks from oldest to newest, by release date: what became faster on one machine.

    Examples:

    - `dlbench report progress`
    - `dlbench report progress --all-modes --plot progress.png`
    """
    exporter = exporter_named(form, as_json)
    _check_plot(plot)
    results = _results(store, run, suite, machine, all_runs)
    found = progress(build_matrix(results, all_runs), Builds(results.records, release_dates()), all_modes)
    if plot is not None:
        from dlbench.reports.progress.plot import progress_to_picture

        say(f"Drawn: {', '.join(map(str, progress_to_picture(found, plot)))}.")
    print(exporter.progress(found))


@report_app.command("figure1")
def figure1_command(
    store: Stores = None,
    run: Run = None,
    suite: SuiteName = None,
    machine: MachineName = None,
    quantity: Annotated[
        str, typer.Option("--quantity", help="seconds (per mini-batch) or items (per second), in tables and picture.")
    ] = "seconds",
    all_runs: AllRuns = False,
    plot: Plot = None,
    form: Format = "terminal",
    as_json: options.Json = False,
) -> None:
    """Time against mini-batch size, as in the paper's Figure 1: the best size, and where larger ones stop paying.

    Examples:

    - `dlbench report figure1 --plot figure1.png`
    - `dlbench report figure1 --quantity items --suite figure1`
    """
    exporter = exporter_named(form, as_json)
    check_quantity(quantity)
    _check_plot(plot)
    found = figure1(build_matrix(_results(store, run, suite, machine, all_runs), all_runs))
    if plot is not None:
        from dlbench.reports.figure1.plot import figure1_to_picture

        say(f"Drawn: {', '.join(map(str, figure1_to_picture(found, plot, quantity)))}.")
    print(exporter.figure1(found, quantity))


@report_app.command("tables")
def tables_command(
    store: Stores = None,
    run: Run = None,
    suite: SuiteName = None,
    machine: MachineName = None,
    form: Format = "terminal",
    as_json: options.Json = False,
) -> None:
    """Software, networks and hardware behind the numbers (Tables 1 to 3 of the paper).

    Examples:

    - `dlbench report tables --format markdown`
    """
    exporter = exporter_named(form, as_json)
    print(exporter.tables(tables(_results(store, run, suite, machine))))


@report_app.command("ceilings")
def ceilings_command(
    store: Stores = None,
    run: Run = None,
    suite: SuiteName = None,
    machine: MachineName = None,
    all_runs: AllRuns = False,
    form: Format = "terminal",
    as_json: options.Json = False,
) -> None:
    """What CPUs and GPUs can do at best: matrix products, bandwidths, and what an operator costs to start.

    Examples:

    - `dlbench report ceilings`
    - `dlbench report ceilings --all-runs --json`
    """
    exporter = exporter_named(form, as_json)
    results = _results(store, run, suite, machine, all_runs)
    in_json = exporter is EXPORTERS["json"]
    print(ceilings_to_json(results) if in_json else exporter.tables(ceilings_tables(results)))


@report_app.command("runs")
def runs_command(store: Stores = None, as_json: options.Json = False) -> None:
    """List the runs of a store: id, suite, machine, start, end, records.

    Examples:

    - `dlbench report runs --store results.sqlite`
    """
    rows = []
    for target in store or [os.environ.get("DLBENCH_STORE") or options.DEFAULT_STORE]:
        with Store.open(target, create=False) as opened:
            counts = opened.record_counts()
            for run in opened.runs():
                rows.append(
                    {
                        "id": run.id,
                        "suite": run.suite,
                        "machine": run.machine,
                        "started": f"{run.started:%Y-%m-%d %H:%M}",
                        "finished": f"{run.finished:%Y-%m-%d %H:%M}" if run.finished else "unfinished",
                        "cells": len(run.plan),
                        "records": counts.get(run.id, 0),
                    }
                )
    if as_json:
        print_json(rows)
        return
    heads = ["id", "suite", "finished", "cells", "records"]
    table("Runs", heads, [[str(row[head]) for head in heads] for row in rows], whole=("id",))
