"""`dlbench report`: one command for each report, made from its declaration."""

import inspect
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dlbench.adapters.protocol import Cell
from dlbench.reports import catalogue
from dlbench.reports import report as report_module
from dlbench.reports.formats.export import FORMATS, to_stdout
from dlbench.reports.formats.terminal import page_to_terminal
from dlbench.reports.report import Report, ReportOptions, ReportSource
from dlbench.reports.results.published import TABLES
from dlbench.reports.results.record import Run
from dlbench.reports.results.results import Narrowing, Results, run_named
from dlbench.reports.results.storage import servers
from dlbench.reports.results.storage.store import Store

from ..display.help import CommandGroup, CommandLine
from ..display.screen import say
from ..errors import UsageError, unknown_name
from ..planning.axes import listed_or
from ..planning.framework import counterparts_of_2016, release_dates
from . import options
from .options import ShownAxisOptions, flag, option, takes

RENAMED = {"cells": "recurrent", "launches": "phases"}
"""Reports of earlier versions, whose names now mean something else elsewhere."""
PANELS = {
    "Which is fastest": (
        "fastest",
        "matrix",
        "frameworks",
        "machines",
        "figure1",
        "precisions",
        "tuning",
        "latency",
        "serving",
    ),
    "How many threads and workers": ("threads", "containers", "scaling", "feed"),
    "Where the time goes": ("phases", "costs", "noise", "trend", "ceilings"),
    "What changed": ("comparisons", "releases", "progress"),
    "Kinds of networks": ("recurrent", "rnn", "sampling"),
    "Published results": ("claims", "against", "tables"),
    "Stores and pages": ("runs", "fleet", "page", "site"),
}
"""The reports in the help of `dlbench report`, by the reader's question."""
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class _Reports(CommandGroup):
    """The commands of all reports, each imported when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of their panels."""
        reports = [name for name in catalogue.modules() if name not in _WITH_OWN_COMMANDS]
        names = [*reports, *super().list_commands(ctx)]
        ordered = [name for name in PANEL_OF if name in names]
        return [*ordered, *(name for name in names if name not in PANEL_OF)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name."""
        if cmd_name not in catalogue.modules() or cmd_name in _WITH_OWN_COMMANDS:
            return super().get_command(ctx, cmd_name)
        app = CommandLine()
        panel = PANEL_OF.get(cmd_name)
        app.command(cmd_name, rich_help_panel=panel)(command_of(catalogue.report(cmd_name)))
        return typer.main.get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the report that the first word names. Raises UsageError with the nearest name."""
        names = self.list_commands(ctx)
        if args[0] in RENAMED:
            new = RENAMED[args[0]]
            raise UsageError(
                f"There is no report named {args[0]!r} any more. Its new name is {new}: "
                f"`dlbench report {new}`."
            )
        if args[0] in _WITH_OWN_COMMANDS:
            raise UsageError(
                f"`dlbench report` has no {args[0]}: `{_WITH_OWN_COMMANDS[args[0]]}` makes it."
            )
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

_WITH_OWN_COMMANDS = {
    "compare": "dlbench compare",
    "bisect": "dlbench bisect",
    "history": "dlbench history",
    "explain": "dlbench explain",
    "operators": "dlbench explain FRAMEWORK/NETWORK --against RELEASE",
}
"""Reports that commands of their own make."""


@dataclass(frozen=True, kw_only=True)
class _StoreOptions:
    """The stores and the runs to show."""

    store: Annotated[
        list[str] | None,
        option(
            "--store",
            "Result store. Repeat it to compare machines.",
            metavar="FILE",
            rich_help_panel=options.RESULTS,
        ),
    ] = None
    run: Annotated[
        str | None, option("--run", "Only this run: latest, previous, its id or the start of it.")
    ] = None
    suite: Annotated[str | None, options.OF_SUITE] = None
    machine: Annotated[str | None, options.OF_MACHINE] = None


@dataclass(frozen=True, kw_only=True)
class SourceOptions(_StoreOptions, ShownAxisOptions):
    """The options that choose stored cells to show."""


ALL_RUNS = flag("--all-runs", "Pool a cell's launches of all runs, not the newest alone.")
_AGAINST_PAPER = "Compare with a published table: shi2016."


@dataclass(frozen=True, kw_only=True)
class ReportCommandOptions(SourceOptions):
    """The options of all reports; each has those that it declares, with texts of its own."""

    quantity: Annotated[str, option("--quantity", "What the cells show.")] = ""
    all_runs: Annotated[bool, ALL_RUNS] = False
    all_modes: Annotated[
        bool, flag("--all-modes", "Show every mode, not only each framework's fastest.")
    ] = False
    claims: Annotated[
        list[Path] | None,
        option("--claim", "A claim of your own (TOML). Repeatable.", metavar="FILE"),
    ] = None
    fail_on: Annotated[
        str, option("--fail-on", "Exit code 1 if a claim has this verdict: differs, ...")
    ] = ""
    fleet: Annotated[str, option("--fleet", "Only this fleet: its id or the start of it.")] = ""
    top: Annotated[
        int, option("--top", "Number of lines to show. JSON and CSV have all.", metavar="N", min=1)
    ] = ReportOptions.top
    within: Annotated[
        str,
        option(
            "--within", "Longest time of the slowest call in a hundred: `20ms`.", metavar="TIME"
        ),
    ] = ""
    reference: Annotated[
        str, option("--reference", f"A published table, not a store: {', '.join(TABLES)}.")
    ] = ""
    paper: Annotated[str, option("--paper", "Only the claims of this paper.")] = ""
    against: Annotated[str, option("--against", _AGAINST_PAPER)] = ""
    plot: Annotated[
        Path | None,
        option(
            "--plot", "Also draw a picture (.png or .svg), a panel per network.", metavar="FILE"
        ),
    ] = None
    form: Annotated[str | None, option("--format", f"{listed_or(tuple(FORMATS))}.")] = None
    as_json: Annotated[bool, options.JSON] = False


_OPTIONS_OF_SOME_REPORTS = {
    *("quantity", "plot"),
    *(report_module.ALL_RUNS, report_module.ALL_MODES, report_module.CLAIMS),
    *(report_module.FAIL_ON, report_module.FLEET, report_module.TOP, report_module.WITHIN),
    *(report_module.REFERENCE, report_module.PAPER, report_module.AGAINST),
}


def _parameters_of(report: Report[Any]) -> list[inspect.Parameter]:
    """Return the parameters of a report's command: of the options that the report takes."""
    taken = set(report.options)
    if report.quantities:
        taken.add("quantity")
    if report.published:
        taken.add(report_module.AGAINST)
    if report.draw is not None:
        taken.add("plot")
    parameters = []
    for parameter in options.parameters_of(
        ReportCommandOptions, without=_OPTIONS_OF_SOME_REPORTS - taken
    ):
        if parameter.name == "quantity":
            text = f"{listed_or(report.quantities)}."
            parameter = parameter.replace(
                annotation=Annotated[str, option("--quantity", text)], default=report.quantities[0]
            )
        elif parameter.name == report_module.AGAINST and report.published:
            text = f"Compare with a published study: {', '.join(report.published)}."
            parameter = parameter.replace(annotation=Annotated[str, option("--against", text)])
        elif parameter.name == report_module.PAPER:
            from dlbench.reports.claims.claims import PAPERS

            text = f"Only the claims of this paper: {', '.join(PAPERS)}."
            parameter = parameter.replace(annotation=Annotated[str, option("--paper", text)])
        parameters.append(parameter)
    return parameters


def command_of(report: Report[Any]) -> Callable[..., None]:
    """Return the function of a report's command."""

    def command(given: ReportCommandOptions) -> None:
        _show(report, given)

    examples = "\n".join(f"- `{example}`" for example in report.examples)
    command.__doc__ = f"{report.summary}\n\nExamples:\n\n{examples}\n"
    return takes(ReportCommandOptions, _parameters_of(report))(command)


def _show(report: Report[Any], given: ReportCommandOptions) -> None:
    """Print a report, and draw it if that is asked for."""
    form = options.form_of(given.form, given.as_json, FORMATS)
    chosen = _chosen(given)
    plot = given.plot
    report = _checked(report, chosen, plot)
    content = report.analyse(source_of(stores_of(given), given, chosen, report.trainings))
    if plot is not None and report.draw is not None:
        if report.drawable(content):
            say(f"Drawn: {', '.join(map(str, report.draw(content, plot, chosen)))}.")
        else:
            say(f"There is nothing to draw: {plot} was not written.")
    text = to_stdout(report, content, chosen, form)
    # An empty line at the end would be a row of CSV.
    print(text, end="" if form == "csv" else "\n")
    if code := report.exit_code(content, chosen):
        raise typer.Exit(code)


def _chosen(given: ReportCommandOptions) -> ReportOptions:
    """Return the values of a report's own options. Raises UsageError for a claim."""
    words: dict[str, Any] = {}
    for name in ReportOptions.__dataclass_fields__:
        value = getattr(given, name)
        if value:
            words[name] = value
    if given.claims:
        from ..planning.claims import read_claim

        words["claims"] = tuple(read_claim(path) for path in given.claims)
    return ReportOptions(**words)


def _checked(report: Report[Any], chosen: ReportOptions, plot: Path | None) -> Report[Any]:
    """Return the report that these options ask for.

    Raises UsageError and ReportError if they contradict each other.
    """
    report.check(chosen)
    if chosen.reference and chosen.reference not in TABLES:
        raise unknown_name("reference", chosen.reference, TABLES)
    published = report.published or ("shi2016",)
    if chosen.against and chosen.against not in published:
        raise unknown_name("published table", chosen.against, published)
    if plot is not None:
        from dlbench.reports.formats.pictures import check_picture

        check_picture(plot)
    if chosen.all_modes and not chosen.against and report_module.AGAINST in report.options:
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


def stores_of(given: SourceOptions) -> list[str]:
    """Return the stores that the options name, else the default one."""
    return given.store or [os.environ.get("DLBENCH_STORE") or options.DEFAULT_STORE]


def source_of(
    targets: Sequence[str], given: SourceOptions, chosen: ReportOptions, trainings: bool
) -> ReportSource:
    """Return a report's source.

    Raises UsageError, ReportError for an ambiguous run, and StoreError.
    """
    runs = cache(partial(runs_of, targets))
    narrowing = Narrowing()
    if not chosen.reference:
        run = run_named(given.run, [run for run, _ in runs()]) if given.run else ""
        words = options.wanted(given)
        cells = cells_of(targets) if words else ()
        narrowing = Narrowing(run, given.suite or "", given.machine or "", words, cells)
        options.check_names(narrowing, _names_of(targets))

    def sentinels(run: str) -> list[tuple[int, str, dict[str, Any]]]:
        readings = []
        for store in _opened(targets):
            readings += store.sentinels(run)
        return readings

    return ReportSource(
        cache(partial(_results_of, targets, given, narrowing, chosen.all_runs, trainings)),
        runs,
        chosen,
        release_dates,
        counterparts_of_2016,
        partial(Results.read, targets),
        sentinels,
        narrowing,
    )


def _names_of(targets: Sequence[str]) -> str:
    """Return the stores as an error names them, without passwords."""
    return ", ".join(map(servers.without_password, targets))


def _results_of(
    targets: Sequence[str],
    given: SourceOptions,
    narrowing: Narrowing,
    all_runs: bool,
    trainings: bool,
) -> Results:
    """Return the results that the options choose. Raises UsageError if there are none.

    Also raises StoreError.
    """
    results = narrowing.of(
        Results.read(
            targets,
            narrowing.run or None,
            narrowing.suite or None,
            narrowing.machine or None,
            newest=True,
            all_runs=all_runs,
            trainings=trainings,
        )
    )
    words = options.words_of(replace(given, store=None), options.names_of(SourceOptions))
    if words and not results.records:
        stores: list[str] = []
        for target in targets:
            stores += options.words_of_store(target)
        command = shlex.join(["dlbench", "report", "runs", *stores])
        matrix = shlex.join(["dlbench", "report", "matrix", *stores])
        raise UsageError(
            f"Nothing in {_names_of(targets)} matches {' '.join(words)}. `{command}` lists "
            f"the runs, and `{matrix}` shows what was measured."
        )
    return results


def runs_of(targets: Sequence[str]) -> list[tuple[Run, int]]:
    """Return every run of these stores with the number of its records. Raises StoreError."""
    runs = []
    for store in _opened(targets):
        counts = store.record_counts()
        runs += [(run, counts.get(run.id, 0)) for run in store.runs()]
    return runs


def cells_of(targets: Sequence[str]) -> tuple[Cell, ...]:
    """Return every cell that these stores have records of. Raises StoreError."""
    cells: dict[Cell, None] = {}
    for store in _opened(targets):
        cells |= dict.fromkeys(store.cells().values())
    return tuple(cells)


def _opened(targets: Sequence[str]) -> Iterator[Store]:
    for target in targets:
        with Store.open(target, create=False) as store:
            yield store


def matrix_so_far(store: Store, run: str, with_notes: bool = True) -> str:
    """Return the matrix of one run as it stands, for a terminal of 80 columns.

    Its notes explain the marks, and give the reasons of missing numbers.
    """
    report = catalogue.report("matrix")
    content = report.analyse(ReportSource(lambda: Results.newest([store], run)))
    page = report.page(content, ReportOptions())
    if not with_notes:
        page = page._replace(after=())
    return page_to_terminal(page)
