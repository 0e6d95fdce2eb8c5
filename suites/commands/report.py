"""`dlbench report`: one command for each report, made from its declaration."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import typer

from dlbench.adapters.protocol import Cell
from dlbench.reports import catalogue
from dlbench.reports import report as of_reports
from dlbench.reports.formats.export import FORMATS, export, to_stdout
from dlbench.reports.report import Report, ReportOptions, Source
from dlbench.reports.results.published import TABLES
from dlbench.reports.results.record import Run
from dlbench.reports.results.results import Narrowing, Results, run_named
from dlbench.reports.results.storage import servers
from dlbench.reports.results.storage.store import Store

from ..display.help import CommandLine, Group
from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning.framework import counterparts_of_2016, release_dates
from . import options
from .options import Given, flag, option, several, takes


class _Reports(Group):
    """The commands of all reports, each imported when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, the reports first."""
        found = [name for name in catalogue.modules() if name not in _OF_THEIR_OWN]
        return [*found, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name."""
        if cmd_name not in catalogue.modules() or cmd_name in _OF_THEIR_OWN:
            return super().get_command(ctx, cmd_name)
        app = CommandLine()
        app.command(cmd_name)(command_of(catalogue.report(cmd_name)))
        return typer.main.get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the report that the first word names; raises UsageError with the nearest name for
        an unknown one.
        """
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise unknown_name("report", args[0], names)
        return super().resolve_command(ctx, args)


report_app = CommandLine(
    cls=_Reports,
    no_args_is_help=True,
    help=(
        "Show what was measured, and what it means. Each report has examples: `dlbench report "
        "fastest --help`."
    ),
)

_OF_THEIR_OWN = ("compare", "bisect", "history", "explain")  # reports with commands elsewhere
_STORES = "Result store. Repeat the option to compare machines."
SOURCES: options.Options = {
    "store": several("--store", _STORES, "FILE", rich_help_panel=options.RESULTS),
    "run": option("--run", "Only this run: latest, previous, its id or the start of it."),
    "suite": options.OF_SUITE,
    "machine": options.OF_MACHINE,
    **options.AXES_TO_SHOW,
}
ALL_RUNS = flag("--all-runs", "Pool a cell's launches from all runs, not only from its newest.")
_PLOT = "Also draw a picture (.png or .svg), with a panel for each network."


def _options_of(report: Report[Any]) -> options.Options:
    papers = ""
    if of_reports.PAPER in report.options:
        from dlbench.reports.claims.claims import PAPERS

        papers = ", ".join(PAPERS)
    against = "Compare with a published table: shi2016 (the paper's Table 4)."
    if report.published:
        against = f"Compare with a published study: {', '.join(report.published)}."
    quantities = f"What the cells show: {', '.join(report.quantities)}."
    known: options.Options = {
        "quantity": option("--quantity", quantities, str, next(iter(report.quantities), "")),
        of_reports.ALL_RUNS: ALL_RUNS,
        of_reports.ALL_MODES: flag(
            "--all-modes", "Show every execution mode, not only the fastest of each framework."
        ),
        of_reports.CLAIMS: option(
            "--claim",
            "A claim of your own (TOML). Repeat the option for several.",
            list[Path] | None,
            metavar="FILE",
        ),
        of_reports.FAIL_ON: option(
            "--fail-on", "Exit code 1 if a claim has this verdict here: differs, ...", str, ""
        ),
        of_reports.FLEET: option("--fleet", "Only this fleet: its id or the start of it.", str, ""),
        of_reports.TOP: option(
            "--top",
            "Number of lines to show; JSON and CSV have all.",
            int,
            ReportOptions.top,
            min=1,
        ),
        of_reports.WITHIN: option(
            "--within",
            "Time of the slowest call in a hundred, at most, such as `20ms`.",
            str,
            "",
            metavar="TIME",
        ),
        of_reports.REFERENCE: option(
            "--reference", f"A published table instead of a store: {', '.join(TABLES)}.", str, ""
        ),
        of_reports.PAPER: option("--paper", f"Only the claims of this paper: {papers}.", str, ""),
        of_reports.AGAINST: option("--against", against, str, ""),
        "plot": option("--plot", _PLOT, Path | None, metavar="FILE"),
    }
    has = {
        *report.options,
        *(("quantity",) if report.quantities else ()),
        *((of_reports.AGAINST,) if report.published else ()),
        *(("plot",) if report.draw is not None else ()),
    }
    of_report = {name: each for name, each in known.items() if name in has}
    return {
        **SOURCES,
        **of_report,
        "form": option("--format", f"{', '.join(FORMATS)}."),
        "as_json": options.JSON,
    }


def command_of(report: Report[Any]) -> Callable[..., None]:
    """Return the function of a report's command."""

    def command(given: Given) -> None:
        _show(report, given)

    examples = "\n".join(f"- `{example}`" for example in report.examples)
    command.__doc__ = f"{report.summary}\n\nExamples:\n\n{examples}\n"
    return takes(_options_of(report))(command)


def _show(report: Report[Any], given: Given) -> None:
    form = options.form_of(given.form, given.as_json, FORMATS)
    words = {
        name: word
        for name, word in vars(given).items()
        if word and name in ReportOptions.__dataclass_fields__
    }
    if words.get(of_reports.CLAIMS):
        from ..planning.claims import read_claim

        words[of_reports.CLAIMS] = tuple(map(read_claim, words[of_reports.CLAIMS]))
    chosen, plot = ReportOptions(**words), vars(given).get("plot")
    report = _checked(report, chosen, plot)
    found = report.analyse(source_of(stores_of(given), given, chosen, report.trainings))
    if plot is not None and report.draw is not None:
        if report.drawable(found):
            say(f"Drawn: {', '.join(map(str, report.draw(found, plot, chosen)))}.")
        else:
            say(f"There is nothing to draw: {plot} was not written.")
    text = to_stdout(report, found, chosen, form)
    # A blank line at its end is no line of CSV.
    print(text, end="" if form == "csv" else "\n")
    if code := report.exit_code(found, chosen):
        raise typer.Exit(code)


def _checked(report: Report[Any], chosen: ReportOptions, plot: Path | None) -> Report[Any]:
    """Return the report that these options ask for; raises UsageError and ReportError where they
    contradict.
    """
    report.check(chosen)
    if chosen.reference and chosen.reference not in TABLES:
        raise unknown_name("reference", chosen.reference, TABLES)
    if chosen.against and chosen.against not in (beside := report.published or ("shi2016",)):
        raise unknown_name("published table", chosen.against, beside)
    if plot is not None:
        from dlbench.reports.formats.pictures import check_picture

        check_picture(plot)
    if chosen.all_modes and not chosen.against and of_reports.AGAINST in report.options:
        raise UsageError("--all-modes needs --against; the matrix shows every mode anyway.")
    if not chosen.against or report.published:
        return report
    if chosen.reference or chosen.quantity != report.quantities[0]:
        other = "--reference" if chosen.reference else "--quantity"
        raise UsageError(
            f"--against shows its own table and excludes {other}. Leave one of the two out."
        )
    if plot is not None:
        raise UsageError("--against draws no plot. Leave --plot out.")
    return catalogue.report("against")


def stores_of(given: Given) -> list[str]:
    """Return the stores that the options name, else the usual one."""
    return given.store or [os.environ.get("DLBENCH_STORE") or options.DEFAULT_STORE]


def source_of(
    targets: Sequence[str], given: Given, chosen: ReportOptions, trainings: bool
) -> Source:
    """Return a report's source; raises UsageError, ReportError for an ambiguous run, and
    StoreError.
    """
    runs = cache(partial(runs_of, targets))
    asked = Narrowing()
    if not chosen.reference:
        run = run_named(given.run, [each for each, _ in runs()]) if given.run else ""
        wanted = options.wanted(given)
        cells = cells_of(targets) if wanted else ()
        asked = Narrowing(run, given.suite or "", given.machine or "", wanted, cells)
        options.check_names(asked, ", ".join(map(servers.without_password, targets)))
    return Source(
        cache(partial(_results_of, targets, given, asked, trainings)),
        runs,
        chosen,
        release_dates,
        counterparts_of_2016,
        partial(Results.read, targets),
        lambda run: [each for store in _opened(targets) for each in store.sentinels(run)],
        asked,
    )


def _results_of(targets: Sequence[str], given: Given, asked: Narrowing, trainings: bool) -> Results:
    """Return the results that the options choose; raises UsageError if there are none, and
    StoreError.
    """
    all_runs = bool(vars(given).get("all_runs"))
    run, suite, machine = (word or None for word in (asked.run, asked.suite, asked.machine))
    results = asked.of(
        Results.read(
            targets, run, suite, machine, newest=True, all_runs=all_runs, trainings=trainings
        )
    )
    if not results.records and (
        words := options.words_of(Given(**{**vars(given), "store": None}), SOURCES)
    ):
        stores = "".join(
            f" {word}"
            for each in targets
            for word in map(shlex.quote, options.words_of_store(each))
        )
        where = ", ".join(map(servers.without_password, targets))
        raise UsageError(
            f"Nothing in {where} matches {' '.join(words)}. `dlbench report runs{stores}` lists "
            f"the runs, and `dlbench report matrix{stores}` shows what was measured."
        )
    return results


def runs_of(targets: Sequence[str]) -> list[tuple[Run, int]]:
    """Return every run of these stores with the number of its records; raises StoreError."""
    found = []
    for store in _opened(targets):
        counts = store.record_counts()
        found += [(run, counts.get(run.id, 0)) for run in store.runs()]
    return found


def cells_of(targets: Sequence[str]) -> tuple[Cell, ...]:
    """Return every cell that these stores have records of; raises StoreError."""
    return tuple(
        dict.fromkeys(cell for store in _opened(targets) for cell in store.cells().values())
    )


def _opened(targets: Sequence[str]) -> Iterator[Store]:
    for target in targets:
        with Store.open(target, create=False) as store:
            yield store


def matrix_so_far(store: Store, run: str, as_json: bool = False) -> str:
    """Return the matrix of one run as it stands, for a terminal of 80 columns or as JSON."""
    report = catalogue.report("matrix")
    found = report.analyse(Source(lambda: Results.newest([store], run)))
    return export(report, found, ReportOptions(), "json" if as_json else "terminal")
