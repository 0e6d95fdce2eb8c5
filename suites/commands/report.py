"""`dlbench report`: one command for each report that there is, made of what the report says of itself."""

import os
import shlex
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dlbench.reports import report as of_reports
from dlbench.reports.against import shi2016
from dlbench.reports.against.published_tables import TABLES
from dlbench.reports.catalogue import reports
from dlbench.reports.claims.list_of_claims import PAPERS
from dlbench.reports.formats.export import FORMATS, export, to_stdout
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.report import Choices, Report, Source
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.results import Narrowing, Results, run_named
from dlbench.reports.storage.servers import urls
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning.axes import AXIS_OPTIONS, narrowing_help
from ..planning.claims import read_claim
from ..planning.lineage import release_dates, stands_for_2016
from . import options

report_app = typer.Typer(no_args_is_help=True, help="Show what was measured, and what it means.")

_REFERENCE = typer.Option("--reference", help=f"A published table instead of a store: {', '.join(TABLES)}.")
_AGAINST = typer.Option("--against", help="Beside a published table, with speed-ups: shi2016 (the paper's Table 4).")
ALL_RUNS = typer.Option("--all-runs", help="Pool a cell's launches of all runs, not only of its newest.")
_ALL_MODES = typer.Option("--all-modes", help="Every execution mode, not only the fastest of each framework.")
_PAPER = typer.Option("--paper", help=f"Only the claims of this paper: {', '.join(PAPERS)}.")
_CLAIM = typer.Option("--claim", metavar="FILE", help="A claim of your own (TOML). Repeat the option for several.")
_FAIL_ON = typer.Option("--fail-on", help="Exit code 1 where a claim has this verdict here: differs, ...")
_FLEET = typer.Option("--fleet", help="Only this fleet: its id or the beginning of it.")
_TOP = typer.Option("--top", min=1, help="Of many lines, how many are shown; JSON and CSV have all.")
_PLOT = typer.Option("--plot", metavar="FILE", help="Draw a picture too (.png or .svg), with a panel for each network.")
_STORES = typer.Option("--store", metavar="FILE", help="Result store. Repeat the option to compare machines.")
_RUN = typer.Option("--run", help="Only this run: latest, previous, its id or the beginning of it.")
_OFFERED: dict[str, tuple[Any, Any]] = {
    of_reports.REFERENCE: (Annotated[str, _REFERENCE], ""),
    of_reports.AGAINST: (Annotated[str, _AGAINST], ""),
    of_reports.ALL_RUNS: (Annotated[bool, ALL_RUNS], False),
    of_reports.ALL_MODES: (Annotated[bool, _ALL_MODES], False),
    of_reports.PAPER: (Annotated[str, _PAPER], ""),
    of_reports.CLAIMS: (Annotated[list[Path] | None, _CLAIM], None),
    of_reports.FAIL_ON: (Annotated[str, _FAIL_ON], ""),
    of_reports.FLEET: (Annotated[str, _FLEET], ""),
    of_reports.TOP: (Annotated[int, _TOP], Choices.top),
}
SOURCES: dict[str, tuple[Any, Any]] = {
    "store": (Annotated[list[str] | None, _STORES], None),
    "run": (Annotated[str | None, _RUN], None),
    "suite": (options.OfSuite, None),
    "machine": (options.OfMachine, None),
}
NARROWING: dict[str, tuple[Any, Any]] = {
    each.key: (Annotated[str, typer.Option(each.option, metavar=each.metavar, help=narrowing_help(each))], "")
    for each in AXIS_OPTIONS
}


def _options_of(report: Report[Any]) -> dict[str, tuple[Any, Any]]:
    """Return the options of a report's command: by parameter, its annotation and what it is without."""
    found = {**SOURCES, **NARROWING}
    if report.quantities:
        help_text = f"What the cells show: {', '.join(report.quantities)}."
        found["quantity"] = Annotated[str, typer.Option("--quantity", help=help_text)], report.quantities[0]
    found |= {name: each for name, each in _OFFERED.items() if name in report.offers}
    if report.beside:
        help_text = f"Beside a published study: {', '.join(report.beside)}."
        found[of_reports.AGAINST] = Annotated[str, typer.Option("--against", help=help_text)], ""
    if report.draw is not None:
        found["plot"] = Annotated[Path | None, _PLOT], None
    found["form"] = Annotated[str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}.")], None
    found["as_json"] = options.Json, False
    return found


def command_of(report: Report[Any]) -> Callable[..., None]:
    """Return the function of a report's command."""

    def command(**given: Any) -> None:
        _carry_out(report, given)

    examples = "\n".join(f"- `{example}`" for example in report.examples)
    command.__doc__ = f"{report.summary}\n\nExamples:\n\n{examples}\n"
    return options.takes(command, _options_of(report))


def _carry_out(report: Report[Any], given: dict[str, Any]) -> None:
    """Analyse, draw, print."""
    form = options.form_of(given["form"], given["as_json"], FORMATS)
    if of_reports.CLAIMS in given:
        given[of_reports.CLAIMS] = tuple(map(read_claim, given[of_reports.CLAIMS] or ()))
    choices = Choices(**{name: value for name, value in given.items() if name in Choices.__dataclass_fields__})
    report.check(choices)
    beside = report.beside or (shi2016.NAME,)
    published = (("reference", choices.reference, TABLES), ("published table", choices.against, beside))
    for what, name, known in published:
        if name and name not in known:
            raise unknown_name(what, name, known)
    if choices.against and not report.beside:
        if choices.reference or choices.quantity != report.quantities[0]:
            other = "--reference" if choices.reference else "--quantity"
            raise UsageError(
                f"--against has a table of its own and does not go with {other}; leave one of the two out."
            )
        if given.get("plot") is not None:
            raise UsageError("--against has a table alone: leave --plot out.")
        report = reports()["against"]
    elif choices.all_modes and of_reports.AGAINST in report.offers:
        raise UsageError("--all-modes goes with --against; the matrix shows every mode anyway.")
    if (plot := given.get("plot")) is not None:
        check_picture(plot)
    targets = given["store"] or [os.environ.get("DLBENCH_STORE") or options.DEFAULT_STORE]
    source = Source(
        cache(partial(results_of, targets, given, report.trainings)),
        partial(runs_of, targets),
        choices,
        release_dates(),
        stands_for_2016(),
        partial(Results.read, targets),
        partial(sentinels_of, targets),
        Narrowing() if choices.reference else narrowing_of(targets, given),
    )
    found = report.analyse(source)
    if plot is not None and report.draw is not None:
        if report.drawable(found):
            say(f"Drawn: {', '.join(map(str, report.draw(found, plot, choices)))}.")
        else:
            say(f"There is nothing to draw: {plot} was not written.")
    print(to_stdout(report, found, choices, form))
    if code := report.code(found, choices):
        raise typer.Exit(code)


def results_of(targets: Sequence[str], given: dict[str, Any], trainings: bool) -> Results:
    """Return what the options of a report choose; raises UsageError where that is nothing, and StoreError."""
    asked_for = narrowing_of(targets, given)
    run, suite, machine = (word or None for word in (asked_for.run, asked_for.suite, asked_for.machine))
    # Of a store of many nights only what a report shows is read.
    newest = not given.get("all_runs")
    results = asked_for.of(Results.read(targets, run, suite, machine, newest=newest, trainings=trainings))
    asked = {"--run": run, "--suite": suite, "--machine": machine}
    asked |= {each.option: given[each.key] for each in AXIS_OPTIONS}
    if not results.records and any(asked.values()):
        words = " ".join(f"{option} {value}" for option, value in asked.items() if value)
        stores = "".join(f" {word}" for each in targets for word in map(shlex.quote, options.words_of_store(each)))
        where = ", ".join(map(urls.without_password, targets))
        raise UsageError(
            f"Nothing in {where} matches {words}. `dlbench report runs{stores}` lists the runs, and `dlbench report "
            f"matrix{stores}` shows what was measured."
        )
    return results


def narrowing_of(targets: Sequence[str], given: dict[str, Any]) -> Narrowing:
    """Return what the options of a report ask for; raises ReportError for a run that cannot be told, and StoreError."""
    run = run_named(given["run"], [each for each, _ in runs_of(targets)]) if given["run"] else ""
    axes = {each.axis: given[each.key] for each in AXIS_OPTIONS if given[each.key]}
    return Narrowing(run, given["suite"] or "", given["machine"] or "", axes)


def sentinels_of(targets: Sequence[str], run: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Return what the sentinel showed in a run, of the stores that have it; raises StoreError."""
    found = []
    for target in targets:
        with Store.open(target, create=False) as opened:
            found += opened.sentinels(run)
    return found


def runs_of(targets: Sequence[str]) -> list[tuple[Run, int]]:
    """Return every run of these stores with the number of its records; raises StoreError."""
    found = []
    for target in targets:
        with Store.open(target, create=False) as opened:
            counts = opened.record_counts()
            found += [(run, counts.get(run.id, 0)) for run in opened.runs()]
    return found


def matrix_so_far(store: Store, run: str, as_json: bool = False) -> str:
    """Return the matrix of one run as it stands, for a terminal of 80 columns or as JSON."""
    report, choices = reports()["matrix"], Choices()
    found = report.analyse(Source(lambda: Results.of([store], run)))
    return export(report, found, choices, "json" if as_json else "terminal")


for _report in filter(lambda each: each.of_stores, reports().values()):
    report_app.command(_report.name)(command_of(_report))
