"""`dlbench report`: one command for each report, made from its declaration."""

import os
import shlex
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dlbench.reports import catalogue
from dlbench.reports import report as of_reports
from dlbench.reports.formats.export import FORMATS, export, to_stdout
from dlbench.reports.report import Report, ReportOptions, Source
from dlbench.reports.storage import servers
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.results import Narrowing, Results, run_named
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning.axes import AXIS_OPTIONS, narrowing_help
from . import options


class _Reports(TyperGroup):
    """The commands of all reports, each imported when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those that are no report last."""
        found = [name for name in catalogue.modules() if name not in _OF_THEIR_OWN]
        return [*found, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name."""
        if cmd_name not in catalogue.modules() or cmd_name in _OF_THEIR_OWN:
            return super().get_command(ctx, cmd_name)
        app = typer.Typer(rich_markup_mode=self.rich_markup_mode)
        app.command(cmd_name)(command_of(catalogue.report(cmd_name)))
        return typer.main.get_command(app)


report_app = typer.Typer(cls=_Reports, no_args_is_help=True, help="Show what was measured, and what it means.")

_OF_THEIR_OWN = ("compare", "history", "explain")
"""Reports with commands elsewhere."""
ALL_RUNS = typer.Option("--all-runs", help="Pool a cell's launches of all runs, not only of its newest.")
_ALL_MODES = typer.Option("--all-modes", help="Every execution mode, not only the fastest of each framework.")
_AGAINST = "Beside a published table, with speed-ups: shi2016 (the paper's Table 4)."
_CLAIM = typer.Option("--claim", metavar="FILE", help="A claim of your own (TOML). Repeat the option for several.")
_FAIL_ON = typer.Option("--fail-on", help="Exit code 1 where a claim has this verdict here: differs, ...")
_FLEET = typer.Option("--fleet", help="Only this fleet: its id or the beginning of it.")
_TOP = typer.Option("--top", min=1, help="Of many lines, how many are shown; JSON and CSV have all.")
_PLOT = typer.Option("--plot", metavar="FILE", help="Draw a picture too (.png or .svg), with a panel for each network.")
_STORES = typer.Option("--store", metavar="FILE", help="Result store. Repeat the option to compare machines.")
_RUN = typer.Option("--run", help="Only this run: latest, previous, its id or the beginning of it.")
_OPTIONS: dict[str, tuple[Any, Any]] = {
    of_reports.ALL_RUNS: (Annotated[bool, ALL_RUNS], False),
    of_reports.ALL_MODES: (Annotated[bool, _ALL_MODES], False),
    of_reports.CLAIMS: (Annotated[list[Path] | None, _CLAIM], None),
    of_reports.FAIL_ON: (Annotated[str, _FAIL_ON], ""),
    of_reports.FLEET: (Annotated[str, _FLEET], ""),
    of_reports.TOP: (Annotated[int, _TOP], ReportOptions.top),
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
    """Return the options of a report's command by parameter: annotation and default."""
    found = {**SOURCES, **NARROWING}
    if report.quantities:
        help_text = f"What the cells show: {', '.join(report.quantities)}."
        found["quantity"] = Annotated[str, typer.Option("--quantity", help=help_text)], report.quantities[0]
    found |= {name: each for name, each in _OPTIONS.items() if name in report.options}
    if of_reports.REFERENCE in report.options:
        found[of_reports.REFERENCE] = _word(
            "--reference", f"A published table instead of a store: {_names(_tables())}."
        )
    if of_reports.PAPER in report.options:
        found[of_reports.PAPER] = _word("--paper", f"Only the claims of this paper: {_names(_papers())}.")
    if report.published or of_reports.AGAINST in report.options:
        beside = f"Beside a published study: {_names(report.published)}." if report.published else _AGAINST
        found[of_reports.AGAINST] = _word("--against", beside)
    if report.draw is not None:
        found["plot"] = Annotated[Path | None, _PLOT], None
    found["form"] = Annotated[str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}.")], None
    found["as_json"] = options.Json, False
    return found


def _word(option: str, help_text: str) -> tuple[Any, str]:
    return Annotated[str, typer.Option(option, help=help_text)], ""


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _tables() -> list[str]:
    from dlbench.reports.published import TABLES

    return list(TABLES)


def _papers() -> list[str]:
    from dlbench.reports.claims.claims import PAPERS

    return list(PAPERS)


def command_of(report: Report[Any]) -> Callable[..., None]:
    """Return the function of a report's command."""

    def command(**given: Any) -> None:
        _show(report, given)

    examples = "\n".join(f"- `{example}`" for example in report.examples)
    command.__doc__ = f"{report.summary}\n\nExamples:\n\n{examples}\n"
    return options.takes(command, _options_of(report))


def _show(report: Report[Any], given: dict[str, Any]) -> None:
    """Analyse, draw, print."""
    form = options.form_of(given["form"], given["as_json"], FORMATS)
    if given.get(of_reports.CLAIMS):
        from ..planning.claims import read_claim

        given[of_reports.CLAIMS] = tuple(map(read_claim, given[of_reports.CLAIMS]))
    chosen = ReportOptions(**{name: given[name] for name in ReportOptions.__dataclass_fields__ if given.get(name)})
    plot = given.get("plot")
    report = _checked(report, chosen, plot)
    targets = given["store"] or [os.environ.get("DLBENCH_STORE") or options.DEFAULT_STORE]
    found = report.analyse(_source(targets, given, report.trainings, chosen))
    if plot is not None and report.draw is not None:
        if report.drawable(found):
            say(f"Drawn: {', '.join(map(str, report.draw(found, plot, chosen)))}.")
        else:
            say(f"There is nothing to draw: {plot} was not written.")
    print(to_stdout(report, found, chosen, form))
    if code := report.exit_code(found, chosen):
        raise typer.Exit(code)


def _checked(report: Report[Any], chosen: ReportOptions, plot: Path | None) -> Report[Any]:
    """Return the report that these options ask for; raises UsageError and ReportError where they contradict."""
    report.check(chosen)
    if chosen.reference and chosen.reference not in _tables():
        raise unknown_name("reference", chosen.reference, _tables())
    if chosen.against and chosen.against not in (beside := report.published or ("shi2016",)):
        raise unknown_name("published table", chosen.against, beside)
    if plot is not None:
        from dlbench.reports.formats.pictures import check_picture

        check_picture(plot)
    if chosen.all_modes and not chosen.against and of_reports.AGAINST in report.options:
        raise UsageError("--all-modes goes with --against; the matrix shows every mode anyway.")
    if not chosen.against or report.published:
        return report
    if chosen.reference or chosen.quantity != report.quantities[0]:
        other = "--reference" if chosen.reference else "--quantity"
        raise UsageError(f"--against has a table of its own and does not go with {other}; leave one of the two out.")
    if plot is not None:
        raise UsageError("--against has a table alone: leave --plot out.")
    return catalogue.report("against")


def _source(targets: Sequence[str], given: dict[str, Any], trainings: bool, chosen: ReportOptions) -> Source:
    from ..planning.framework import counterparts_of_2016, release_dates

    return Source(
        cache(partial(results_of, targets, given, trainings)),
        partial(runs_of, targets),
        chosen,
        release_dates,
        counterparts_of_2016,
        partial(Results.read, targets),
        partial(sentinels_of, targets),
        Narrowing() if chosen.reference else narrowing_of(targets, given),
    )


def results_of(targets: Sequence[str], given: dict[str, Any], trainings: bool) -> Results:
    """Return the results that the options choose; raises UsageError if there are none, and StoreError."""
    asked_for = narrowing_of(targets, given)
    run, suite, machine = (word or None for word in (asked_for.run, asked_for.suite, asked_for.machine))
    all_runs = bool(given.get("all_runs"))
    results = asked_for.of(
        Results.read(targets, run, suite, machine, newest=True, all_runs=all_runs, trainings=trainings)
    )
    asked = {"--run": run, "--suite": suite, "--machine": machine}
    asked |= {each.option: given[each.key] for each in AXIS_OPTIONS}
    if not results.records and any(asked.values()):
        words = " ".join(f"{option} {value}" for option, value in asked.items() if value)
        stores = "".join(f" {word}" for each in targets for word in map(shlex.quote, options.words_of_store(each)))
        where = ", ".join(map(servers.without_password, targets))
        raise UsageError(
            f"Nothing in {where} matches {words}. `dlbench report runs{stores}` lists the runs, and `dlbench report "
            f"matrix{stores}` shows what was measured."
        )
    return results


def narrowing_of(targets: Sequence[str], given: dict[str, Any]) -> Narrowing:
    """Return the filter that the options ask for; raises ReportError for an ambiguous run, and StoreError."""
    run = run_named(given["run"], [each for each, _ in runs_of(targets)]) if given["run"] else ""
    axes = {each.axis: given[each.key] for each in AXIS_OPTIONS if given[each.key]}
    return Narrowing(run, given["suite"] or "", given["machine"] or "", axes)


def sentinels_of(targets: Sequence[str], run: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Return the sentinel readings of a run; raises StoreError."""
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
    report = catalogue.report("matrix")
    found = report.analyse(Source(lambda: Results.newest([store], run)))
    return export(report, found, ReportOptions(), "json" if as_json else "terminal")
