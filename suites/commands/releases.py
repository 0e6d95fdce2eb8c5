"""`dlbench releases`: measure the releases of a framework side by side."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from packaging.version import Version

from dlbench.adapters import axes
from dlbench.adapters.protocol import TUNED, Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.catalogue import report
from dlbench.reports.formats.export import FORMATS, to_stdout
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.ratio.releases import ReleasePoint, Releases, largest_undecided, names_of
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.naming import counted, listed
from dlbench.reports.results.record import BASELINE, CANDIDATE, RELEASES, Run
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import RatioVerdict
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store

from ..display.numbers import clock
from ..display.screen import resume_command, say
from ..environments import releases
from ..environments.environment import BuildSource, external_source
from ..environments.releases import EVERY, Release
from ..errors import NOTHING_MEASURED, FrameworkEnvironmentError, UsageError
from ..planning import own, values
from ..planning.axes import SuiteOverrides, listed_or
from ..planning.framework import Framework, find, modes_meant
from ..planning.plan import Plan, check_count, heap_line, memory_line
from ..planning.suite import words_of_cell
from ..run import groups, profiling
from ..run.budget import Budget
from ..run.runner import RunProfile, run_plan
from ..run.schedules import schedule_for
from ..run.sides import Side
from . import completion, options
from .options import (
    AxisOptions,
    BuildOptions,
    LaunchOptions,
    SessionOptions,
    argument,
    option,
    takes,
)
from .plan import kind_of_protocol, plan_of, size_of
from .report import matrix_so_far
from .run import resumed

_SUITE = "tuning"
_LAUNCHES = "4"
"""The launches of each release in the default suite.

Launches of ten releases that took turns deviated by 1.4 to 1.8 %, so four of each show a change by
4 %.
"""


@dataclass(frozen=True, kw_only=True)
class _ReleaseOptions:
    """The releases to measure, and how to show them."""

    framework: Annotated[
        str,
        argument(
            "FRAMEWORK",
            "A framework, or a mode of it: `jax`, `torch:compile`.",
            autocompletion=completion.framework,
        ),
    ]
    first: Annotated[
        str | None,
        option(
            "--from",
            "The oldest release (default: the first that a Python can run).",
            metavar="VERSION",
        ),
    ] = None
    last: Annotated[
        str | None, option("--to", "The newest release (default: the latest).", metavar="VERSION")
    ] = None
    every: Annotated[
        str,
        option(
            "--every",
            "`all`, or `minor`: the last of each minor version (default).",
            metavar="WHICH",
        ),
    ] = "minor"
    pre: Annotated[bool, options.PRE] = False
    suite: Annotated[str, options.SUITE_OF_NETWORK] = _SUITE
    no_wait_for_quiet: Annotated[bool, options.NO_WAIT_FOR_QUIET] = False
    no_profile: Annotated[bool, options.NO_PROFILE] = False
    order: Annotated[str | None, options.ORDER] = None
    plot: Annotated[
        Path | None, option("--plot", "Also draw a picture (.png or .svg).", metavar="FILE")
    ] = None
    form: Annotated[str | None, option("--format", f"{listed_or(tuple(FORMATS))}.")] = None
    as_json: Annotated[bool, options.JSON] = False


@dataclass(frozen=True, kw_only=True)
class ReleasesOptions(_ReleaseOptions, AxisOptions, LaunchOptions, BuildOptions, SessionOptions):
    """The options of `dlbench releases`."""

    python: Annotated[
        list[str] | None,
        option(
            "--python",
            "Interpreters instead of releases, in order: `old=PATH,new=PATH`.",
            metavar="NAME=PATH",
        ),
    ] = None


# The framework is an argument, and all releases are compared at one thread count.
@takes(
    ReleasesOptions, options.parameters_of(ReleasesOptions, without=("frameworks", "threads_limit"))
)
def releases_command(given: ReleasesOptions) -> None:
    """Measure a framework's releases side by side, and show where it became slower or faster.

    Each release with files for an installed Python gets an environment, with dependencies of its
    time. The command first says what it will download. The launches of all releases take turns, and
    each must agree with the reference. A slower one is profiled beside the one before it, and the
    operators that account for the difference are named. A release that cannot be built or run gets
    a line with the reason. `dlbench env remove FRAMEWORK --releases` removes the environments.

    Exit code 1: no release gave a number.

    Examples:

    - `dlbench releases jax --network lstm32 --threads 1 --from 0.4.20`
    - `dlbench releases jax --step train_step.py --from 0.6.0 --every all`
    """
    budget = Budget(options.seconds_of(given.budget))
    machine = probe()
    form = options.form_of(given.form, given.as_json, FORMATS)
    framework, step, mode = _check_options(given)
    plan, chosen, sources = _plan_and_sources(given, framework, step, mode, machine)
    unfinished = None
    if given.resume:
        plan, unfinished, _ = resumed(plan, given.store_file, machine, chosen, RELEASES)
    grouping = replace(
        groups.grouping_for_plan(plan, machine, given.order), together=groups.Together.BUILD
    )
    profile = RunProfile(
        RELEASES,
        partial(schedule_for, grouping=grouping),
        ceilings=False,
        waits_for_quiet=not given.no_wait_for_quiet,
        lines=lambda: (
            size_of(plan),
            kind_of_protocol(plan),
            heap_line(plan),
            memory_line(plan, machine),
        ),
        unfinished=unfinished,
        sources={"": {source.build.name: source for source in sources}},
    )
    report_of_releases = report(RELEASES)
    with delivery.opened(
        given.store_file, say, create=not given.resume, unfinished=unfinished
    ) as store:
        matrix = partial(matrix_so_far, store)
        run, schedule = run_plan(plan, machine, store, profile, budget=budget, matrix=matrix)
        left = schedule.launches_left()
        if left:
            launches = counted(left, "launch", "launches")
            say(
                f"The budget ran out with {launches} left, about "
                f"{clock(schedule.seconds_left())} of measuring. Resume: {resume_command()}"
            )
        results = Results.newest([store], run.id)
        source = ReportSource(
            lambda: results,
            lambda: [(run, len(results.records))],
            of_run=lambda identifier: Results.of([store], identifier),
        )
        content = report_of_releases.analyse(source)
        slower = _slower_releases(content)
        if slower and not left and not given.no_profile:
            _profile(plan, run, machine, store, slower, sources, budget, given.order)
            content = report_of_releases.analyse(source)
    draw = report_of_releases.draw
    if given.plot is not None and draw is not None and report_of_releases.drawable(content):
        files = draw(content, given.plot, ReportOptions())
        say(f"Drawn: {', '.join(map(str, files))}.")
    print(to_stdout(report_of_releases, content, ReportOptions(), form))
    if not given.python:
        _suggest_bisections(content, given, step)
    if not any(record.outcome.status is Status.OK for record in results.records):
        say("dlbench: no release gave a valid number; the reasons are below the table.")
        raise typer.Exit(NOTHING_MEASURED)


def _check_options(given: ReleasesOptions) -> tuple[Framework, Framework | None, str]:
    """Return the framework, the user's own step, if any, and the mode. Raises UsageError."""
    if given.plot is not None:
        check_picture(given.plot)
    values.one_of(given.every, "choice for --every", EVERY)
    if len(given.step or ()) > 1:
        raise UsageError("Releases are compared on one training step. Give --step once.")
    name, _, mode = given.framework.partition(":")
    framework = find(name)
    step = find(own.name_of(given.step[0])) if given.step else None
    modes_meant(step or framework, mode)
    return framework, step, mode


def _plan_and_sources(
    given: ReleasesOptions,
    framework: Framework,
    step: Framework | None,
    mode: str,
    machine: Machine,
) -> tuple[Plan, SuiteOverrides, list[BuildSource]]:
    """Return the plan, the overrides that led to it, and the sources of its rows, which are built.

    Raises UsageError and FrameworkEnvironmentError.
    """
    chosen = _overrides(given, step)
    wanted: list[Release] = []
    if given.python:
        builds = values.builds(given.python, (step or framework).name)
    else:
        wanted = _wanted(given, framework, machine)
        builds = [releases.row_of(framework, release, None, step) for release in wanted]
    rows = [f"{build.name}:{mode}" if mode else build.name for build in builds]
    chosen = chosen.but(frameworks=",".join(rows), builds=tuple(builds))
    # Check that the cells can be measured before anything is built.
    plan = plan_of(given.suite, chosen, machine, given.seed)
    check_count(plan, given.yes)
    if given.python:
        sources = [external_source(build) for build in builds]
    else:
        sources = releases.sources(framework, wanted, step, say, not given.no_build)
    builds = [source.build for source in sources]
    plan = replace(plan, rows=values.rows(rows, builds))
    return plan, chosen.but(builds=tuple(builds)), sources


def _overrides(given: ReleasesOptions, step: Framework | None) -> SuiteOverrides:
    """Return the suite overrides that the options give. Raises UsageError."""
    chosen = options.choices(replace(given, python=None))
    if not chosen["tuning"]:
        chosen = chosen.but(tuning=TUNED)  # and not what the suite would vary
    if given.suite == _SUITE and not chosen["launches"] and not chosen["interval"]:
        chosen = chosen.but(launches=_LAUNCHES)
    if step is None and not chosen["networks"]:
        raise UsageError("Name the network: --network lstm32.")
    if given.python and (given.first or given.last):
        raise UsageError(
            "--from and --to choose from the package index, which --python replaces. Leave them "
            "out."
        )
    return chosen


def _suggest_bisections(content: Releases, given: ReleasesOptions, step: Framework | None) -> None:
    """Print the commands that confirm each change of speed, and that settle undecided ones."""
    for point in content.rows:
        if point.change in (RatioVerdict.SLOWER, RatioVerdict.FASTER):
            say(f"Confirm it, and find the release: {_bisection(point, given, step)}")
    for point in largest_undecided(content):
        say(
            f"Decide whether {point.name} differs from {point.before}: "
            f"{_bisection(point, given, step)}"
        )


def _slower_releases(content: Releases) -> list[ReleasePoint]:
    """Return the releases to profile: slower than the one before, the slowest first."""
    slower = []
    for point in content.rows:
        if point.change == RatioVerdict.SLOWER and point.operators is None:
            slower.append(point)
    return sorted(slower, key=lambda point: -point.size)[: profiling.MOST_CELLS]


def _profile(
    plan: Plan,
    run: Run,
    machine: Machine,
    store: Store,
    slower: Sequence[ReleasePoint],
    sources: Sequence[BuildSource],
    budget: Budget,
    order: str | None,
) -> None:
    """Profile each of these releases and the one before it, and store the records."""
    source_by_row = {source.build.name: source for source in sources}
    names, _ = names_of(list(source_by_row))
    row_by_name = dict(zip(names, source_by_row, strict=True))
    for point in slower:
        assert point.before is not None
        before = source_by_row[row_by_name[point.before]]
        cell = next(cell for cell in plan.cells if axes.without(cell) == point.cell.cell)
        both = {BASELINE: {cell.framework: before}, CANDIDATE: source_by_row}
        profiling.profile_cells(
            plan,
            run,
            (Side(BASELINE), Side(CANDIDATE)),
            both,
            machine,
            [cell],
            store,
            budget,
            order,
        )


def _bisection(point: ReleasePoint, given: ReleasesOptions, step: Framework | None) -> str:
    """Return the command that searches between a release and the one before it."""
    slower = point.ratio is not None and point.ratio.value > 1
    words = ["dlbench bisect", given.framework, f"--suite {shlex.quote(given.suite)}"]
    words += words_of_cell(point.cell.cell, given.suite, step.file if step else None)
    builds = options.words_of(replace(given, step=None), options.names_of(BuildOptions))
    words += [shlex.quote(word) for word in builds]
    if slower:
        words.append(f"--good {point.before} --bad {point.name}")
    else:
        words.append(f"--good {point.name} --bad {point.before} --faster")
    return " ".join(words)


def _wanted(given: ReleasesOptions, framework: Framework, machine: Machine) -> list[Release]:
    """Return the releases to measure, the oldest first; with --resume those of the unfinished run.

    Raises UsageError and FrameworkEnvironmentError.
    """
    if given.resume:
        return _releases_of_unfinished_run(given, framework, machine)
    on_index = releases.releases_on_index(
        framework, first=given.first, last=given.last, every=given.every, pre=given.pre
    )
    fitting = [release for release in on_index if release.pythons]
    unfit = [release for release in on_index if not release.pythons]
    if unfit:
        names = listed([release.version for release in unfit])
        say(
            f"{framework.title}: left out, with no files for a Python of this machine: {names} "
            f"(the last one: {unfit[-1].problem})."
        )
    if not fitting:
        raise FrameworkEnvironmentError(
            f"No Python of this machine can run any of these releases of {framework.title}. "
            "Install another Python (for example `uv python install 3.11`), or name other "
            "releases with --from and --to."
        )
    return fitting


def _releases_of_unfinished_run(
    given: ReleasesOptions, framework: Framework, machine: Machine
) -> list[Release]:
    """Return the releases of the newest unfinished run of a framework. Raises UsageError."""
    prefix = f"{framework.name}-"
    names: list[str] = []
    with Store.open(delivery.local_or(given.store_file), create=False) as store:
        for run in store.runs():
            if run.purpose != RELEASES or run.machine != machine.fingerprint or run.finished:
                continue
            rows = list(dict.fromkeys(cell.framework for cell in run.plan))
            if all(row.startswith(prefix) for row in rows):
                names = rows
    if not names:
        raise UsageError(
            f"This store has no unfinished run of releases of {framework.title} on this machine. "
            "Leave --resume out to start one."
        )
    known = releases.known_releases(framework)
    not_built = "it was not built when the run began"
    unfinished = []
    for name in names:
        version = name.removeprefix(prefix)
        release = known.get(Version(version)) or Release(version, problem=not_built)
        unfinished.append(release)
    return unfinished
