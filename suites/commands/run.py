"""`dlbench run` and `dlbench tune`: measure a suite; find the fastest way to run a network."""

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dlbench.adapters import axes as axes_of_cells
from dlbench.adapters import tuning
from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.results.naming import counted

from ..display.numbers import clock
from ..display.screen import print_json, program, resume_command, say, show
from ..environments import folders
from ..errors import NOTHING_MEASURED, UsageError, interruptible
from ..planning import values
from ..planning.axes import SuiteOverrides
from ..planning.devices import CPU
from ..planning.plan import Plan, check_count, heap_line, memory_line
from ..planning.settings import not_possible
from ..planning.suite import load, rerun_command
from ..run.budget import Budget
from . import options
from .options import AxisOptions, BuildOptions, LaunchOptions, SessionOptions, flag, option, takes

if TYPE_CHECKING:
    from dlbench.reports.results.record import Record, Run
    from dlbench.reports.results.results import Results
    from dlbench.reports.results.storage.store import Store

    from ..run.runner import RunProfile
    from ..run.schedules import Schedule
    from ..run.search import HalvingSchedule, SearchResult
    from ..run.texts import Text

# Functions import the runner, the store and the reports themselves: --help needs none of them, and
# importing them takes a second.


@dataclass(frozen=True, kw_only=True)
class ConditionOptions:
    """The conditions of a run, which a fleet passes on to its jobs."""

    no_ceilings: Annotated[bool, flag("--no-ceilings", "Do not measure ceilings first.")] = False
    no_wait_for_quiet: Annotated[bool, options.NO_WAIT_FOR_QUIET] = False
    order: Annotated[str | None, options.ORDER] = None
    corpus: Annotated[
        Path | None,
        option(
            "--corpus",
            "Train on this text instead of a generated one (suite `char`).",
            metavar="FILE",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(AxisOptions, LaunchOptions, BuildOptions, SessionOptions, ConditionOptions):
    """The options of `dlbench run`."""

    name: Annotated[str, options.SUITE_OR_CLAIMS]
    trend: Annotated[
        str | None,
        option(
            "--trend",
            "One long launch per cell: does it get slower (`report trend`)?",
            metavar="TIME",
        ),
    ] = None
    node_name: Annotated[
        str | None,
        option(
            "--node",
            "For a fleet's jobs: the node that records name. Resumes its run.",
            metavar="FLEET/NODE",
        ),
    ] = None
    as_json: Annotated[bool, flag("--json", "Print the matrix as JSON when the run ends.")] = False


@takes(RunOptions)
def run_command(given: RunOptions) -> None:
    """Measure a suite on this machine and show its matrix.

    Builds missing environments, after saying what it will download. `quick` shows a matrix of the
    first two frameworks before it builds the others. Each launch is stored when it ends: after
    Ctrl-C, --resume continues. The suite `claims` measures what `dlbench report claims` still
    needs. `dlbench list --axes` explains the values of every option.

    Examples:

    - `dlbench run quick`
    - `dlbench run table4 --networks fcn5 --threads 1,2 --budget 10m`
    - `dlbench run threads --step train_step.py --python ~/venv/bin/python`
    """
    measured = measure_suite(given)
    if measured is not None:
        _show(measured, given.as_json)


class MeasuredSuite(NamedTuple):
    """A run of a suite that has ended, or whose budget is spent."""

    plan: Plan
    run: "Run"
    schedule: "Schedule"
    records: "list[Record]"
    """All of the run."""
    results: "Results"
    """Those that count."""
    store: str
    """Its name, without a password."""
    resume_command: str


def measure_suite(given: RunOptions) -> MeasuredSuite | None:
    """Measure the cells of a suite, and return the run.

    None if the job of this node in a fleet has finished already. Raises UsageError,
    FrameworkEnvironmentError and StoreError.
    """
    from dlbench.reports.results.results import Results
    from dlbench.reports.results.storage import delivery

    from ..fleet.node import fleet_node
    from ..run import groups, preparation, resume
    from ..run.runner import run_plan
    from .plan import planned
    from .report import matrix_so_far

    budget = Budget(options.seconds_of(given.budget))
    chosen = options.choices(given)
    machine = probe()
    plan = planned(given.name, chosen, machine, given.seed, given.store_file)
    order = given.order
    if given.trend:
        plan = followed(plan, given, given.trend)
        order = groups.SEQUENTIAL
    check_count(plan, given.yes)
    preparation.check_interpreters(chosen.builds)
    text = preparation.text_of(plan, given.corpus)
    folders.make_folder(folders.home())  # fails before anything is built or measured
    node = fleet_node(given.node_name, machine, say)
    earlier = node.newest_run(given.store_file, plan.suite) if node is not None else None
    if earlier is not None and earlier.finished is not None:
        with delivery.opened(given.store_file, say, create=False):
            say(f"The job of this node has already finished: run {earlier.id}.")
        return None
    unfinished = None
    if given.resume or earlier is not None:
        run_of_fleet = earlier.id if earlier is not None else None
        plan, unfinished, records = resumed(
            plan, given.store_file, machine, chosen, of_fleet=run_of_fleet
        )
        resume.check_same_text(text, records)
    profile = _profile(given, plan, machine, order, text)
    profile = replace(profile, unfinished=unfinished)
    if node is not None:
        profile = replace(profile, node=node.now, resume_command=node.resume_command(plan.suite))
    # Resuming needs an existing store, and must not create an empty one.
    create = unfinished is None
    with delivery.opened(given.store_file, say, create=create, unfinished=unfinished) as store:
        if create and node is None and budget.seconds is None and not given.no_build:
            profile = _after_first_part(plan, machine, store, profile)
        run, schedule = run_plan(
            plan,
            machine,
            store,
            profile,
            budget=budget,
            build_missing=not given.no_build,
            matrix=partial(matrix_so_far, store),
        )
        records = list(store.records(run=run.id))
        results = Results.newest([store], run.id)
        return MeasuredSuite(
            plan, run, schedule, records, results, store.name, profile.resume_command
        )


def _profile(
    given: RunOptions, plan: Plan, machine: Machine, order: str | None, text: "Text | None"
) -> "RunProfile":
    """Return how a new run of this plan is measured and announced."""
    from ..run import groups
    from ..run.runner import RunProfile
    from ..run.schedules import schedule_for
    from .plan import kind_of_protocol, size_of, training_lines

    grouping = replace(
        groups.grouping_for_plan(plan, machine, order), together=groups.Together.COLUMN
    )
    return RunProfile(
        schedule=partial(schedule_for, grouping=grouping),
        ceilings=not given.no_ceilings,
        waits_for_quiet=not given.no_wait_for_quiet,
        text=text,
        lines=lambda: (
            size_of(plan),
            kind_of_protocol(plan),
            *training_lines(plan, text),
            heap_line(plan),
            memory_line(plan, machine),
            *grouping.remarks,
        ),
    )


def _after_first_part(
    plan: Plan, machine: Machine, store: "Store", profile: "RunProfile"
) -> "RunProfile":
    """Measure the first part of a new run, if it has one, and return the profile of the rest.

    All environments are built then, those of the first part before it is measured.
    """
    from ..environments.announcements import announcement
    from ..environments.environment import prepare_sources
    from ..run import first_part
    from ..run.runner import begin, run_plan
    from .plan import size_of
    from .report import matrix_so_far

    to_build = first_part.to_build(plan)
    first = first_part.first_part(plan, to_build)
    if first is None:
        return profile
    for line in announcement(to_build):
        say(line)
    titles = [build.framework.title for build in first.builds]
    say(f"First {' and '.join(titles)}, and a matrix of one launch of each of their cells.")
    sources = prepare_sources(first.builds, say, announced=True)
    run = None
    if any(source.interpreter for source in sources.values()):
        run = begin(plan, store, machine, profile, {})
        size = f"{len(first.cells)} of {counted(len(plan.cells), 'cell')}, one launch of each"
        _, *further = profile.lines()
        of_first = replace(
            profile,
            sources={"": sources},
            unfinished=run,
            ends_run=False,
            lines=lambda: (size, *further),
        )
        run_plan(first, machine, store, of_first, matrix=partial(matrix_so_far, store))
        for line in matrix_so_far(store, run.id).splitlines():
            say(line)
        later = [build.framework.title for build in plan.builds if build.name not in sources]
        say(f"Now {' and '.join(later)}. Ctrl-C ends the run with this matrix.")
    with interruptible(profile.resume_command):
        later_builds = [build for build in plan.builds if build.name not in sources]
        sources |= prepare_sources(later_builds, say, announced=True)
    lines = profile.lines if run is None else lambda: (size_of(plan),)
    return replace(profile, sources={"": sources}, unfinished=run, lines=lines)


_FOLLOWED_SAMPLE_SECONDS = 0.02
"""The shortest sample of a launch that is followed: shorter steps are timed several at a time."""
_MOST_FOLLOWED = 100_000
"""Samples of such a launch."""


def followed(plan: Plan, given: RunOptions, duration: str) -> Plan:
    """Return the plan with one launch of each cell, which lasts this long. Raises UsageError."""
    seconds = values.duration(duration)
    excluded = {"--launches": given.launches, "--interval": given.interval, "--order": given.order}
    for name, word in excluded.items():
        if word:
            raise UsageError(f"--trend follows one launch at a time. Leave {name} out.")
    protocol = plan.protocol._replace(
        seconds=seconds,
        steps=_MOST_FOLLOWED,
        sample_seconds=max(plan.protocol.sample_seconds, _FOLLOWED_SAMPLE_SECONDS),
        maximum_warmup_steps=0,  # the search for a steady state would leave out what is asked for
        trend=True,
    )
    return replace(
        plan,
        protocol=protocol,
        launches=1,
        launches_most=None,
        interval=None,
        cell_seconds=plan.cell_seconds + seconds,
    )


def resumed(
    plan: Plan,
    store_file: str,
    machine: Machine,
    chosen: SuiteOverrides,
    purpose: str = "suite",
    of_fleet: str | None = None,
) -> "tuple[Plan, Run, list[Record]]":
    """Return the plan of the run that --resume continues, the run and its records.

    The store notes that a run gets more launches. Raises UsageError (see `resume`) and StoreError.
    """
    from dlbench.reports.results.storage import delivery
    from dlbench.reports.results.storage.store import Store

    from ..run import resume

    with Store.open(delivery.local_or(store_file), create=False) as store:
        plan, unfinished = resume.resume(plan, store, machine, chosen, purpose, of_fleet)
        records = list(store.records(run=unfinished.id))
        resume.check_same_builds(plan, records)
        if any(run.id == unfinished.id and run != unfinished for run in store.runs()):
            store.extend_run(unfinished)
    return plan, unfinished, records


def _show(measured: MeasuredSuite, as_json: bool) -> None:
    """Print the matrix, the fastest cells, and reports to look at next."""
    from dlbench.reports.catalogue import report, suggested
    from dlbench.reports.formats.export import export
    from dlbench.reports.report import ReportOptions
    from dlbench.reports.results.leaders import fastest, leads
    from dlbench.reports.results.matrix import build_matrix

    from ..display.progress import precision_lines

    schedule = measured.schedule
    matrix = build_matrix(measured.results)
    for line in precision_lines(measured.plan, schedule):
        say(line)
    print(export(report("matrix"), matrix, ReportOptions(), "json" if as_json else "terminal"))
    if left := schedule.launches_left():
        launches = counted(left, "launch", "launches")
        say(
            f"The budget ran out with {launches} left, about {clock(schedule.seconds_left())} of "
            f"measuring. Resume: {measured.resume_command}"
        )
    if not as_json:
        leading = leads(fastest(matrix))
        if leading:
            show("Fastest, and how many times as long the others take (95 % intervals):")
            for line in leading:
                show(f"  {line}")
            show("")
        # Reports that these records can fill.
        suggestions = {
            f"report {report.name}": report.suggestion for report in suggested(measured.records)
        }
        suggestions["report matrix --json"] = "everything, for a script (also csv, markdown, latex)"
        store = shlex.quote(measured.store)
        show(f"Next ({shlex.quote(program())} ... --store {store}):", whole=True)
        for words, suggestion in suggestions.items():
            show(f"  {words:<22}  {suggestion}", whole=True)
    if not any(record.outcome.status is Status.OK for record in measured.records):
        say("dlbench: no cell gave a valid number; the reasons are below the matrix.")
        raise typer.Exit(NOTHING_MEASURED)


_AXES_OF_SAME_WORK = [
    *(axis.name for axis in axes_of_cells.with_role(axes_of_cells.WORK)),
    "device",
    "cpu_quota",
    "loader_workers",
]
_EVERY_TUNING = "installed,tuned,each,launch"
_EVERY_THREADS = "1..cpus"


@dataclass(frozen=True, kw_only=True)
class TuneOptions(AxisOptions, BuildOptions, SessionOptions):
    """The options of `dlbench tune`."""

    suite: Annotated[str, options.SUITE_OF_NETWORK] = "tuning"
    cell_budget: Annotated[str | None, options.CELL_BUDGET] = None
    no_wait_for_quiet: Annotated[bool, options.NO_WAIT_FOR_QUIET] = False
    order: Annotated[str | None, options.ORDER] = None
    write: Annotated[
        Path | None,
        option(
            "--write",
            "Write the fastest way to FILE.sh, FILE.env, FILE.yaml or Dockerfile.",
            metavar="FILE",
        ),
    ] = None
    as_json: Annotated[bool, options.JSON] = False


@takes(TuneOptions)
def tune_command(given: TuneOptions) -> None:
    """Find the fastest threads, mode and settings of a network, their gain, and how to set them.

    Successive halving: every configuration gets one launch, the faster half another, and so on. The
    last two and the default (as installed, as many threads as cores) then take turns, and the gain
    comes from these launches alone.

    Without --threads it tries 1 to the number of CPUs, without a mode every mode. It tries each
    setting alone and left out, and other allocators, OpenMP wait policies, thread binding and huge
    pages where this machine allows them (`dlbench list --settings`). A short budget tries fewer
    configurations. Launches are stored, but reports show a search only with --run.

    Exit code 1: no pair of launches was measured.

    Examples:

    - `dlbench tune --network fcn5 --framework torch --budget 20m`
    - `dlbench tune --step train_step.py --threads 1..cpus`
    - `dlbench tune --network fcn5 --framework torch --write Dockerfile`
    """
    from dlbench.reports.results.record import SEARCH, SEARCHING
    from dlbench.reports.results.storage import delivery

    from ..run import deployment, groups, preparation, search
    from ..run.runner import RunProfile, run_plan
    from ..run.search import HalvingSchedule
    from ..run.sides import Side

    budget = Budget(options.seconds_of(given.budget))
    machine = probe()
    if given.write is not None:
        deployment.check_file(given.write)
    chosen, plan = _configurations(given, machine)
    check_count(plan, given.yes)
    preparation.check_interpreters(chosen.builds)
    unfinished = None
    if given.resume:
        plan, unfinished, _ = resumed(plan, given.store_file, machine, chosen, SEARCHING)
    starts = search.search_starts(plan, preparation.capacity(machine).cores)
    profile = RunProfile(
        SEARCHING,
        partial(
            HalvingSchedule, starts, grouping=groups.grouping_for_plan(plan, machine, given.order)
        ),
        (Side(SEARCH),),
        ceilings=False,
        waits_for_quiet=not given.no_wait_for_quiet,
        lines=lambda: (
            *_search_lines(len(plan.cells)),
            memory_line(plan, machine),
            _not_tried(plan, chosen),
        ),
        unfinished=unfinished,
    )
    with delivery.opened(
        given.store_file, say, create=not given.resume, unfinished=unfinished
    ) as store:
        _, schedule = run_plan(
            plan, machine, store, profile, budget=budget, build_missing=not given.no_build
        )
    assert isinstance(schedule, HalvingSchedule)
    result = search.search_result(schedule)
    if result is None:
        for line in search.reasons(schedule.without_number()):
            say(line)
        reason = _why_no_result(schedule)
        say(f"dlbench: {reason}")
        if given.as_json:
            print_json(search.data_without_result(schedule, reason))
        raise typer.Exit(NOTHING_MEASURED)
    _show_result(result, _command(plan, result.best, given), given)
    if schedule.launches_left():
        say(
            "The budget ran out before all pairs were run. More pairs make the gain more certain: "
            f"{resume_command()}"
        )


def _show_result(result: "SearchResult", command: str | None, given: TuneOptions) -> None:
    """Print the result of a search, and write its configuration if that is asked for."""
    from ..run import deployment, search

    if given.as_json:
        print_json(search.data(result, command))
    else:
        for line in search.lines(result, command):
            show(line, whole=True)
    if given.write is not None:
        text = deployment.deployment(given.write, result, command)
        options.write_file(given.write, text, "--write")
        say(f"Written to {given.write}.")


def _search_lines(configurations: int) -> list[str]:
    """Return sentences on the launches of a search among so many configurations."""
    from ..run.search import PAIRS, SPARE, halving_sizes

    rounds = halving_sizes(configurations)[:-SPARE]
    launches = sum(min(size + 1, configurations) for size in rounds)
    return [
        f"{counted(configurations, 'configuration')}, about {launches} launches",
        f"Search: one launch of each, another of the faster half, and so on; then {PAIRS} pairs of "
        "the fastest.",
    ]


def _why_no_result(schedule: "HalvingSchedule") -> str:
    """Return in a sentence why a search has no result."""
    if schedule.launches_left():
        return (
            "the budget was too short for a pair; what was measured is stored. Resume: "
            f"{resume_command()}"
        )
    disturbed = len(schedule.pairs(fit=False))
    if disturbed:
        return (
            f"other programs disturbed all {counted(disturbed, 'pair')}. Search again on a quieter "
            "machine."
        )
    tried = counted(schedule.tried(), "configuration")
    return f"none of the {tried} tried completed all its launches."


def _not_tried(plan: Plan, chosen: SuiteOverrides) -> str:
    """Return a sentence with the wanted launch settings that are not possible on this machine."""
    if tuning.LAUNCH not in values.words(chosen["tuning"]):
        return ""
    wanted: set[str] = set()
    for cell in plan.cells:
        framework = plan.row_of(cell).build.framework
        if framework.computes:
            wanted |= set(framework.launchable(cell.mode, cell.device))
    reasons = not_possible(wanted)
    return f"Launch settings that are not possible on this machine: {reasons}." if reasons else ""


def _command(plan: Plan, cell: Cell, given: TuneOptions) -> str | None:
    """Return the command that measures a cell again.

    None for a suite that trains, which a search does not.
    """
    from ..run.search import PAIRS

    if load(given.suite).protocol.curve_steps:
        return None
    # Another row's interpreter would add a row.
    python = []
    for word in given.python or ():
        if word.partition("=")[0].partition(":")[0] in (cell.framework, word):
            python.append(word)
    further = options.words_of(
        replace(given, step=None, python=python), [*options.names_of(BuildOptions), "cell_budget"]
    )
    further += options.words_of_store(given.store_file)
    step = plan.row_of(cell).build.framework.file
    words = rerun_command(cell, given.suite, step, tuning=cell.tuning, launches=PAIRS)
    return " ".join([words, *map(shlex.quote, further)])


def _configurations(given: TuneOptions, machine: Machine) -> tuple[SuiteOverrides, Plan]:
    """Return the overrides and the plan of the search.

    Raises UsageError if its times would not be comparable.
    """
    from ..run import search
    from .plan import plan_of

    chosen = options.choices(given)
    if chosen.own is None:
        if not chosen["networks"]:
            raise UsageError("Name the network to tune: --network fcn5.")
        if not chosen["frameworks"]:
            raise UsageError(
                "Name the frameworks to try: --framework torch, or --frameworks torch,jax."
            )
        chosen = chosen.but(frameworks=",".join(_rows_to_try(chosen)))
    devices = values.words(chosen["devices"]) if chosen["devices"] else load(given.suite).devices
    tried = {"tuning": _EVERY_TUNING}
    if CPU in devices:
        tried["threads"] = _EVERY_THREADS
    chosen = chosen.but(**{**tried, **chosen.words})
    plan = plan_of(given.suite, chosen, machine, given.seed)
    if len(plan.cells) == 1:
        raise UsageError(
            "There is only one configuration to try. Vary --threads, --frameworks, modes or "
            "--tuning."
        )
    if len({axes_of_cells.project(cell, _AXES_OF_SAME_WORK) for cell in plan.cells}) > 1:
        raise UsageError(
            "Times of different work are not comparable. Name one network, mini-batch, device, CPU "
            "quota and precision."
        )
    return chosen, search.halving_plan(plan)


def _rows_to_try(chosen: SuiteOverrides) -> list[str]:
    """Return the rows named, and those of further interpreters: in every mode if none is named."""
    names = values.words(chosen["frameworks"])
    named = {name.partition(":")[0] for name in names}
    for build in chosen.builds:
        if build.name not in named and build.name != build.framework.name:
            names.append(build.name)
    return [name if ":" in name else f"{name}:*" for name in dict.fromkeys(names)]
