"""`dlbench bisect`: which release, commit or build made a step slower."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from packaging.version import InvalidVersion, Version

from dlbench.adapters.protocol import TUNED
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.compare.bisection import REPORT, conclusion_of, headline
from dlbench.reports.results.bisection import Bisection, BisectionOutcome
from dlbench.reports.results.commits import SHORT
from dlbench.reports.results.hosts import host_of
from dlbench.reports.results.judged import NAMES, TIME
from dlbench.reports.results.naming import counted
from dlbench.reports.results.operators import StepDifference, step_differences
from dlbench.reports.results.posterior import CONFIDENCE
from dlbench.reports.results.record import BASELINE, BISECTING, CANDIDATE, Run
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import DEFAULT, Rule

from ..display.screen import command_words, resume_command, say
from ..environments import commits, releases
from ..environments.environment import BuildSource, external_source
from ..errors import EXIT_CODES, FrameworkEnvironmentError, UsageError, unknown_name
from ..planning import framework as frameworks
from ..planning import own, values
from ..planning.axes import listed_or
from ..planning.plan import Plan, check_count, heap_line
from ..planning.values import Build
from ..run import profiling, resume, sides
from ..run.bisection import BisectionSchedule, CandidateSeries
from ..run.budget import Budget
from ..run.groups import grouping_for_pairs
from ..run.runner import RunProfile, run_plan
from ..run.sides import Side
from . import completion, options
from .compare import (
    ALLOW_DIFFERENT,
    format_option,
    report_format,
    rerun_command,
    rule_given,
    show,
    write_option,
)
from .options import BuildOptions, CellOptions, SessionOptions, argument, flag, option, takes
from .plan import plan_of

Item = TypeVar("Item")
BUILD_LIMIT = "30m"


@dataclass(frozen=True, kw_only=True)
class _CandidateOptions:
    """The candidates among which the first slow one is searched."""

    framework: Annotated[
        str,
        argument(
            "FRAMEWORK",
            "The framework whose releases are tested: `jax`, `torch:compile`.",
            autocompletion=completion.framework,
        ),
    ] = ""
    good: Annotated[
        str | None, option("--good", "A fast release, revision, or name of --python (its first).")
    ] = None
    bad: Annotated[str | None, option("--bad", "A later, slow one (with --python: the last).")] = (
        None
    )
    faster: Annotated[
        bool, flag("--faster", "Find the first faster one. Good is then the later one.")
    ] = False
    repo: Annotated[
        str | None,
        option("--repo", "Test the commits of this git repository; needs --step.", metavar="PATH"),
    ] = None
    build: Annotated[
        str | None,
        option("--build", "Shell command that builds a commit in its worktree.", metavar="CMD"),
    ] = None
    build_limit: Annotated[
        str | None, option("--build-limit", f"Time limit of each build (default {BUILD_LIMIT}).")
    ] = None
    pre: Annotated[bool, options.PRE] = False
    suite_name: Annotated[str, options.SUITE_OF_NETWORK] = "quick"
    confidence: Annotated[
        str | None,
        option(
            "--confidence",
            f"Stop when the answer has this probability (default {CONFIDENCE:.0%}).",
            metavar="SHARE",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BisectOptions(_CandidateOptions, CellOptions, BuildOptions, SessionOptions):
    """The options of `dlbench bisect`."""

    python: Annotated[
        list[str] | None,
        option(
            "--python",
            "Builds to test, in order: `NAME=PATH,...`. With --repo: the interpreter.",
            metavar="NAME=PATH",
        ),
    ] = None
    # With --repo the file is read from each worktree later, so this option has no callback.
    step: Annotated[
        list[str] | None,
        option("--step", "Your own training step. With --repo: its path in there.", metavar="FILE"),
    ] = None
    no_wait_for_quiet: Annotated[bool, options.NO_WAIT_FOR_QUIET] = False
    no_profile: Annotated[bool, options.NO_PROFILE] = False
    order: Annotated[str | None, options.ORDER] = None
    threshold: Annotated[
        str | None,
        option("--threshold", "Smallest slowdown worth finding (default 2.5%).", metavar="SHARE"),
    ] = None
    tolerance: Annotated[
        str | None,
        option(
            "--tolerance", 'Slowdown that "not slower" must exclude (default 5%).', metavar="SHARE"
        ),
    ] = None
    allow_different: Annotated[bool, ALLOW_DIFFERENT] = False
    quantity: Annotated[
        str,
        option(
            "--quantity",
            f"Search by {listed_or(NAMES)} (default {TIME}), as in `memory=5%`.",
            metavar="NAME",
            rich_help_panel="What counts as slower",
        ),
    ] = TIME
    form: Annotated[str | None, format_option(REPORT)] = None
    write: Annotated[list[str] | None, write_option(REPORT)] = None
    as_json: Annotated[bool, options.JSON] = False


# The framework is an argument, and a bisection builds the candidates that it needs.
@takes(BisectOptions, options.parameters_of(BisectOptions, without=("frameworks", "no_build")))
def bisect_command(given: BisectOptions) -> None:
    """Find the first release, commit or build that made a step slower, or faster, despite noise.

    First, good and bad are compared as in a gate. If bad is slower, each further pair of launches
    compares good with the most informative candidate, until one is the first slower one with a
    probability of 95 %. Candidates are built when needed. Those that cannot be built or run are
    left out, and the answer says so. The operators that account for the difference are named.
    Commits are built in worktrees: your files are not touched. Releases come from the package
    index.

    Exit codes:

    - 0: bad is not slower than good
    - 1: bad is slower, and the first slower (or faster) one is known
    - 5: bad gave no number where good did
    - 7: bad computes something else than good (`--allow-different` searches all the same)
    - 6: undecided, or several changes

    Examples:

    - `dlbench bisect jax --network lstm32 --threads 1 --good 0.4.20 --bad 0.12.0`
    - `dlbench bisect --repo . --step bench.py --threads 1 --good v1.2 --bad HEAD`
    """
    form = report_format(given.form, given.as_json, given.write, REPORT)
    if given.quantity != TIME and "," in given.quantity:
        raise UsageError(
            f"--quantity {given.quantity}: a bisection searches by one quantity. Name one."
        )
    budget = Budget(options.seconds_of(given.budget))
    rule = rule_given(
        DEFAULT, given.threshold, given.tolerance, given.allow_different, judge=given.quantity
    )
    confidence = values.share(given.confidence, "--confidence") if given.confidence else CONFIDENCE
    if confidence <= 0.5:
        raise UsageError(
            f"--confidence {given.confidence} is too low to single out a candidate. Give more than "
            "50%."
        )
    with _series(given) as series:
        bisection = _measure(given, series, rule, confidence, budget)
    show(bisection, form, given.write, REPORT)
    if form != "terminal":
        say(headline(bisection))
    raise typer.Exit(EXIT_CODES[BISECTING][conclusion_of(bisection).verdict])


def _measure(
    given: BisectOptions, series: CandidateSeries, rule: Rule, confidence: float, budget: Budget
) -> Bisection:
    """Measure pairs until the search is decided or the budget spent. Raises UsageError."""
    machine = probe()
    plan_of_cell = _plan_of_one_cell(given, machine)
    sources = series.by_side()
    described = series.described()
    plan = series.plan(plan_of_cell)
    unfinished = None
    check_count(plan, given.yes)
    if given.resume:
        with Store.open(delivery.local_or(given.store_file), create=False) as store:
            unfinished = resume.unfinished(store, plan, machine, BISECTING)
        sides.check_same(unfinished, described, rule)
        plan = replace(
            plan, cells=unfinished.plan, protocol=unfinished.protocol, seed=unfinished.seed
        )
    grouping = grouping_for_pairs(plan, machine, given.order, ())
    candidates = (
        f"{counted(len(plan.cells), series.kind)} after {series.names[0]}, up to {series.names[-1]}"
    )
    profile = RunProfile(
        BISECTING,
        lambda plan, records, _: BisectionSchedule(
            plan, records, host_of(machine), rule, confidence, series, grouping
        ),
        (Side(BASELINE), Side(CANDIDATE)),
        rule,
        ceilings=False,
        waits_for_quiet=not given.no_wait_for_quiet,
        lines=lambda: (candidates, *grouping.remarks, heap_line(plan)),
        unfinished=unfinished,
        sources=sources,
        described=described,
    )
    with delivery.opened(
        given.store_file, say, create=not given.resume, unfinished=unfinished
    ) as store:
        run, schedule = run_plan(plan, machine, store, profile, budget=budget)
        assert isinstance(schedule, BisectionSchedule)
        command = rerun_command(command_words(), run.seed)
        bisection = schedule.result(plan_of_cell.cells[0], command)
        found_by_time = (
            bisection.outcome is BisectionOutcome.FOUND and bisection.ends.quantity == TIME
        )
        if found_by_time and not given.no_profile:
            operators = _profile(plan, run, machine, store, series, bisection, budget, given.order)
            bisection = replace(bisection, operators=operators)
    if schedule.launches_left():
        say(f"The budget is spent. Resume: {resume_command()}")
    else:
        series.done()
    return bisection


def _profile(
    plan: Plan,
    run: Run,
    machine: Machine,
    store: Store,
    series: CandidateSeries,
    bisection: Bisection,
    budget: Budget,
    order: str | None,
) -> StepDifference | None:
    """Profile the first slow candidate and the last fast one, and return the operators' changes."""
    before, slow = bisection.beside
    cell = next(cell for cell in plan.cells if cell.framework == slow)
    if not any(record.cell == cell for record in store.profiles(run.id)):
        sources = {BASELINE: {slow: series.source(before)}, CANDIDATE: {slow: series.source(slow)}}
        profiling.profile_cells(
            plan,
            run,
            (Side(BASELINE), Side(CANDIDATE)),
            sources,
            machine,
            [cell],
            store,
            budget,
            order,
        )
    for difference in step_differences(store.profiles(run.id)):
        if difference.cell == cell:
            return difference
    return None


def _plan_of_one_cell(given: BisectOptions, machine: Machine) -> Plan:
    """Return the plan of the cell that is measured, in the framework's own row.

    Raises UsageError if the options select several cells.
    """
    chosen = options.choices(replace(given, python=None))
    if not chosen["tuning"]:
        chosen = chosen.but(tuning=TUNED)  # as `dlbench releases` measures
    if chosen.own is None:
        if not chosen["networks"]:
            raise UsageError(
                "Name the network to measure, as in --network fcn5, or a step of your own: --step "
                "FILE."
            )
        chosen = chosen.but(frameworks=given.framework)
    plan = plan_of(given.suite_name, chosen, machine, given.seed)
    if len(plan.cells) != 1:
        raise UsageError(
            f"These options select {len(plan.cells)} cells, and a bisection takes one. Name one "
            "network, one --threads and one value of each other axis."
        )
    return plan


def _series(given: BisectOptions) -> AbstractContextManager[CandidateSeries]:
    """Return the candidates that the options select.

    Raises UsageError and FrameworkEnvironmentError.
    """
    if given.repo:
        return _series_of_commits(given, given.repo)
    if given.build or given.build_limit:
        raise UsageError(
            "--build and --build-limit are for the commits of a repository. Give --repo PATH."
        )
    if not given.framework and not (given.python and given.step):
        raise UsageError(
            "Name the framework, as in dlbench bisect jax; or give --python with --step, or --repo."
        )
    own.register_steps(given.step)
    if given.python:
        return nullcontext(_series_of_builds(given, given.python))
    return nullcontext(_series_of_releases(given))


def _reverse_if_faster(items: Sequence[Item], given: BisectOptions) -> Sequence[Item]:
    """Convert a sequence from the order good to bad into the order of time, or back."""
    return items[::-1] if given.faster else items


def _between(names: Sequence[str], kind: str, ends: Sequence[str | None]) -> slice:
    """Return the places from the first to the last of two names; a name of None is an end.

    The names are in order of time. Raises UsageError.
    """
    for name in ends:
        if name is not None and name not in names:
            raise unknown_name(kind, name, names)
    first = 0 if ends[0] is None else names.index(ends[0])
    last = len(names) - 1 if ends[1] is None else names.index(ends[1])
    if first == last:
        raise UsageError(f"Good and bad are the same {kind}, {names[first]}. Give two.")
    if first > last:
        raise UsageError(
            f"{ends[0]} is later than {ends[1]}. Swap the two (with --faster, good is the later "
            "one)."
        )
    return slice(first, last + 1)


def _series_of_builds(given: BisectOptions, python: list[str]) -> CandidateSeries:
    """Return the interpreters of --python from good to bad. Raises UsageError."""
    name = own.name_of(given.step[0]) if given.step else given.framework.partition(":")[0]
    builds = values.builds(python, name)
    ends = _reverse_if_faster((given.good, given.bad), given)
    places = _between([build.name for build in builds], "build", ends)
    chosen = _reverse_if_faster(builds[places], given)
    names = tuple(build.name for build in chosen)
    return CandidateSeries(
        "build", names, lambda place: external_source(chosen[place]), faster=given.faster
    )


def _series_of_releases(given: BisectOptions) -> CandidateSeries:
    """Return a framework's releases from good to bad.

    Raises UsageError and FrameworkEnvironmentError.
    """
    if not given.good or not given.bad:
        raise UsageError("Name the good and the bad release, as in --good 0.4.20 --bad 0.12.0.")
    framework = frameworks.find(given.framework.partition(":")[0])
    step = frameworks.find(own.name_of(given.step[0])) if given.step else None
    # The answer of a bisection names releases as rows: jax-0.4.20.
    prefix = f"{framework.name}-"
    first, last = _reverse_if_faster(
        [given.good.removeprefix(prefix), given.bad.removeprefix(prefix)], given
    )
    on_index = releases.releases_on_index(framework, first=first, last=last, pre=given.pre)
    versions = [release.version for release in on_index]
    first, last = (_version_on_index(version, versions) for version in (first, last))
    for version in (first, last):
        if version not in versions:
            error = unknown_name("release", version, versions)
            raise UsageError(f"{error}{releases.elsewhere(framework)}")
    _between(versions, "release", (first, last))
    ordered = _reverse_if_faster(on_index, given)
    return CandidateSeries(
        "release",
        tuple(releases.row_of(framework, release).name for release in ordered),
        lambda place: releases.source_of(framework, ordered[place], step),
        faster=given.faster,
    )


def _version_on_index(given: str, versions: Sequence[str]) -> str:
    """Return the version that the index has for a given one: 1.20.0 for 1.20."""
    with contextlib.suppress(InvalidVersion):
        for version in versions:
            if Version(version) == Version(given):
                return version
    return given


@contextlib.contextmanager
def _series_of_commits(given: BisectOptions, repository: str) -> Iterator[CandidateSeries]:
    """Give the first-parent commits of a repository from good to bad, each built when needed.

    Raises UsageError and FrameworkEnvironmentError.
    """
    good, bad, file, python = _check_options_of_commits(given)
    folder = Path(repository).expanduser()
    build_limit = values.duration(given.build_limit or BUILD_LIMIT)
    trees = commits.Worktrees(folder, given.build or "", build_limit)
    subjects = commits.commits(folder, *_reverse_if_faster((good, bad), given))
    digests = _reverse_if_faster(list(subjects), given)
    names = tuple(digest[:SHORT] for digest in digests)
    if commits.git(folder, "status", "--porcelain", "--untracked-files=no"):
        say("Uncommitted changes are not measured: commits are built in worktrees.")

    @cache
    def look(interpreter: Path) -> BuildSource:
        return external_source(Build(file.stem, frameworks.find(file.stem), interpreter))

    def prepare(place: int) -> BuildSource:
        tree = trees.built(digests[place])
        if not (tree / file).is_file():
            raise FrameworkEnvironmentError(f"it has no file {file}")
        step = own.read_step(str(tree / file))
        if place == 0:
            frameworks.add(step)
        in_tree = "/" in python and not python.startswith(("/", "~"))
        path = str(tree / python) if in_tree else python
        interpreter = values.build(f"{step.name}={path}").interpreter
        assert interpreter is not None
        return replace(look(interpreter), build=Build(names[place], step, interpreter))

    with trees.used(keep=given.resume):
        about = {digest[:SHORT]: subject for digest, subject in subjects.items()}
        series = CandidateSeries("commit", names, prepare, about, trees.remove, given.faster)
        series.end(0)  # prepares the good end, whose file is the row of the plan
        yield series


def _check_options_of_commits(given: BisectOptions) -> tuple[str, str, Path, str]:
    """Return the good and the bad revision, the step's path, and the interpreter.

    Raises UsageError.
    """
    if given.framework:
        raise UsageError(
            "--repo is for a step of your own. Leave the framework out, and give --step FILE."
        )
    if not given.step or len(given.step) > 1:
        raise UsageError(
            "--repo needs one --step FILE, the path of a training step in the repository."
        )
    if not given.good or not given.bad:
        raise UsageError("Name the good and the bad revision, as in --good v1.2 --bad HEAD.")
    file = Path(given.step[0])
    python = given.python or [sys.executable]
    if file.is_absolute() or ".." in file.parts:
        raise UsageError(
            f"--step {file}: with --repo give the file's path in the repository, as in "
            f"bench/{file.name}."
        )
    if len(python) > 1 or "=" in python[0]:
        raise UsageError(
            "With --repo, --python is one path: the interpreter that measures every commit."
        )
    return given.good, given.bad, file, python[0]
