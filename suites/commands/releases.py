"""`dlbench releases`: measure the releases of a framework side by side."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer
from packaging.version import Version

from dlbench.adapters import axes
from dlbench.adapters.protocol import TUNED, Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.catalogue import report
from dlbench.reports.formats.export import FORMATS, to_stdout
from dlbench.reports.formats.pictures import check_picture
from dlbench.reports.ratio.pairs import FASTER, SLOWER
from dlbench.reports.ratio.releases import Point, Releases, largest_undecided, names_of
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.results.naming import counted, listed
from dlbench.reports.results.record import BASELINE, CANDIDATE, RELEASES, Run
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store

from ..display.progress import clock
from ..display.screen import resume_command, say
from ..environments import releases
from ..environments.environment import Source as EnvironmentSource
from ..environments.environment import external_source
from ..environments.releases import EVERY, Release
from ..errors import NOTHING_MEASURED, FrameworkEnvironmentError, UsageError
from ..planning import own, values
from ..planning.framework import Framework, find, modes_meant
from ..planning.plan import Plan, check_count, heap_line, memory_line
from ..planning.suite import words_of_cell
from ..run import groups, profiling
from ..run.runner import RunProfile, run_plan
from ..run.schedules import of_plan
from ..run.sides import Side
from . import options
from .options import Given, option, takes
from .plan import kind_of_protocol, plan_of, size_of
from .report import matrix_so_far
from .run import resumed

_SUITE = "tuning"
_LAUNCHES = "4"
"""Of each release in the usual suite. Launches of ten releases that took turns deviated by 1.4 to
1.8 %, so four of each show a change by 4 %."""
_WHICH: options.Options = {
    "first": option(
        "--from",
        "The oldest release (default: the first that a Python here can run).",
        metavar="VERSION",
    ),
    "last": option("--to", "The newest release (default: the latest).", metavar="VERSION"),
    "every": option(
        "--every",
        "`minor`: the last release of each minor version, and that of --from; `all`.",
        str,
        "minor",
        metavar="WHICH",
    ),
    "pre": options.PRE,
    "suite": options.suite_of_network(_SUITE),
    "no_quiet_gate": options.NO_QUIET_GATE,
    "no_profile": options.NO_PROFILE,
    "order": options.ORDER,
    "plot": option("--plot", "Also draw a picture (.png or .svg).", Path | None, metavar="FILE"),
    "form": option("--format", f"{', '.join(FORMATS)}."),
    "as_json": options.JSON,
}
_PYTHON = (
    "Interpreters to compare instead of releases, in order: "
    "`old=/path/to/python,new=/path/to/python`."
)


@takes(
    {
        "framework": options.argument(
            "FRAMEWORK", "A framework, or a mode of it: `jax`, `torch:compile`."
        )
    },
    _WHICH,
    {"networks": options.AXES["networks"], **options.AXES_OF_A_CELL},
    options.LAUNCHES,
    {**options.BUILDS, "python": options.several("--python", _PYTHON, "NAME=PATH,...")},
    options.SESSION,
)
def releases_command(given: Given) -> None:
    """Measure a framework's releases side by side, and show where it became slower or faster.

    Each release with files for an installed Python gets an environment, with dependencies of its
    time. The command first announces the size of the downloads and the disk space they take. The
    launches of all releases are interleaved, and each must agree with the reference. A slower one
    is profiled beside the one before it, and the operators that account for the difference are
    named. A release that cannot be built, imported or run gets a line with the reason. `dlbench env
    remove FRAMEWORK --releases` removes the environments.

    Examples:

    - `dlbench releases jax --network lstm32 --threads 1 --from 0.4.20`
    - `dlbench releases tensorflow --network fcn5 --threads 1 --every all --from 2.18.0 --budget 2h`
    - `dlbench releases jax --step train_step.py --from 0.6.0 --plot releases.png`
    - `dlbench releases torch --network fcn5 --python
      old=/opt/old/bin/python,new=/opt/new/bin/python`
    """
    seconds, machine = options.seconds_of(given.budget), probe()
    form = options.form_of(given.form, given.as_json, FORMATS)
    if given.plot is not None:
        check_picture(given.plot)
    values.one_of(given.every, "choice for --every", EVERY)
    if len(given.step or ()) > 1:
        raise UsageError("Releases are compared on one training step. Give --step once.")
    name, _, mode = given.framework.partition(":")
    framework, step = find(name), find(own.name_of(given.step[0])) if given.step else None
    modes_meant(step or framework, mode)
    chosen = options.choices(Given(**{**vars(given), "python": None}))
    chosen = (
        chosen if chosen["tuning"] else chosen.but(tuning=TUNED)
    )  # not what the suite would vary
    if given.suite == _SUITE and not (chosen["launches"] or chosen["interval"]):
        chosen = chosen.but(launches=_LAUNCHES)
    if step is None and not chosen["networks"]:
        raise UsageError("Name the network: --network lstm32.")
    if given.python and (given.first or given.last):
        raise UsageError(
            "--from and --to choose from the package index, which --python replaces. Leave them "
            "out."
        )
    wanted = [] if given.python else _wanted(given, framework, machine)
    builds = [releases.row_of(framework, each, None, step) for each in wanted]
    builds = builds or values.builds(given.python, (step or framework).name)
    rows = [f"{build.name}:{mode}" if mode else build.name for build in builds]
    # Check that the cells can be measured before anything is built.
    plan = plan_of(
        given.suite,
        chosen.but(frameworks=",".join(rows), builds=tuple(builds)),
        machine,
        given.seed,
    )
    check_count(plan, given.yes)
    sources = (
        releases.sources(framework, wanted, step, say, not given.no_build)
        if wanted
        else list(map(external_source, builds))
    )
    builds = [each.build for each in sources]
    plan, unfinished = replace(plan, rows=values.rows(rows, builds)), None
    if given.resume:
        chosen = chosen.but(frameworks=",".join(rows), builds=tuple(builds))
        plan, unfinished, _ = resumed(plan, given.store_file, machine, chosen, RELEASES)
    grouping = replace(groups.of_plan(plan, machine, given.order), together=groups.Together.BUILD)
    profile = RunProfile(
        RELEASES,
        partial(of_plan, grouping=grouping),
        ceilings=False,
        quiet_gate=not given.no_quiet_gate,
        lines=lambda: (
            size_of(plan),
            kind_of_protocol(plan),
            heap_line(plan),
            memory_line(plan, machine),
        ),
        unfinished=unfinished,
        sources={"": {each.build.name: each for each in sources}},
    )
    with delivery.opened(
        given.store_file, say, create=not given.resume, unfinished=unfinished
    ) as store:
        matrix = partial(matrix_so_far, store)
        run, schedule = run_plan(
            plan, machine, store, profile, budget_seconds=seconds, matrix=matrix
        )
        if left := schedule.launches_left():
            spent = f"The budget is spent with {counted(left, 'launch', 'launches')} left"
            say(
                f"{spent}, about {clock(schedule.seconds_left())} of measuring. Resume: "
                f"{resume_command()}"
            )
        results = Results.newest([store], run.id)
        made = report(RELEASES)
        source = Source(
            lambda: results,
            lambda: [(run, len(results.records))],
            of_run=lambda each: Results.of([store], each),
        )
        found = made.analyse(source)
        if not given.no_profile and not left and (slower := _slower(found)):
            _profile(plan, run, machine, store, slower, sources)
            found = made.analyse(source)
    if given.plot is not None and made.draw is not None and made.drawable(found):
        say(f"Drawn: {', '.join(map(str, made.draw(found, given.plot, ReportOptions())))}.")
    print(to_stdout(made, found, ReportOptions(), form))
    if wanted:
        for point in found.rows:
            if point.change in (SLOWER, FASTER):
                say(f"Confirm it, and find the release: {_bisection(point, given, step)}")
        for point in largest_undecided(found):
            say(
                f"Decide whether {point.name} differs from {point.before}: "
                f"{_bisection(point, given, step)}"
            )
    if not any(record.outcome.status is Status.OK for record in results.records):
        say("dlbench: no release gave a valid number; the reasons are below the table.")
        raise typer.Exit(NOTHING_MEASURED)


def _slower(found: Releases) -> list[Point]:
    """Return the releases that are slower than the one before, the slowest first, as many as are
    profiled.
    """
    slower = [point for point in found.rows if point.change == SLOWER and point.operators is None]
    return sorted(slower, key=lambda point: -point.size)[: profiling.MOST_CELLS]


def _profile(
    plan: Plan,
    run: Run,
    machine: Machine,
    store: Store,
    slower: Sequence[Point],
    sources: Sequence[EnvironmentSource],
) -> None:
    """Profile each of these releases beside the one before it, and keep the records in the
    store.
    """
    by_row = {source.build.name: source for source in sources}
    names, _ = names_of(list(by_row))
    row_of_name = dict(zip(names, by_row, strict=True))
    for point in slower:
        assert point.before is not None
        cell = next(
            cell for cell in plan.cells if axes.project(cell, axes.NAMES) == point.cell.cell
        )
        both = {BASELINE: {cell.framework: by_row[row_of_name[point.before]]}, CANDIDATE: by_row}
        profiling.profile_cells(
            plan, run, (Side(BASELINE), Side(CANDIDATE)), both, machine, [cell], store
        )


def _bisection(point: Point, given: Given, step: Framework | None) -> str:
    """Return the command that searches between a release that changed, or may have, and the one
    before it.
    """
    slower = point.ratio is not None and point.ratio.value > 1
    good, bad = (point.before, point.name) if slower else (point.name, point.before)
    words = words_of_cell(point.cell.cell, given.suite, step.file if step else None)
    words += map(
        shlex.quote, options.words_of(Given(**{**vars(given), "step": None}), options.BUILDS)
    )
    ends = f"--good {good} --bad {bad}{'' if slower else ' --faster'}"
    return " ".join(
        ["dlbench bisect", given.framework, f"--suite {shlex.quote(given.suite)}", *words, ends]
    )


def _wanted(given: Given, framework: Framework, machine: Machine) -> list[Release]:
    """Return the releases to measure, the oldest first; when resuming, those of the unfinished
    run.
    """
    if given.resume:
        return _of_unfinished(given, framework, machine)
    found = releases.releases_on_index(
        framework, first=given.first, last=given.last, every=given.every, pre=given.pre
    )
    fitting = [each for each in found if each.pythons]
    if unfit := [each for each in found if not each.pythons]:
        names, problem = listed([each.version for each in unfit]), unfit[-1].problem
        say(
            f"{framework.title}: left out, with no files for a Python here: {names} (the last one: "
            f"{problem})."
        )
    if not fitting:
        raise FrameworkEnvironmentError(
            f"No Python here can run any of these releases of {framework.title}. Install another "
            "Python (for example `uv python install 3.11`), or name other releases with --from and "
            "--to."
        )
    return fitting


def _of_unfinished(given: Given, framework: Framework, machine: Machine) -> list[Release]:
    begun, beginning = (RELEASES, machine.fingerprint, None), f"{framework.name}-"
    with Store.open(delivery.local_or(given.store_file), create=False) as store:
        runs = [run for run in store.runs() if (run.purpose, run.machine, run.finished) == begun]
    rows = [list(dict.fromkeys(cell.framework for cell in run.plan)) for run in runs]
    fitting = [names for names in rows if all(name.startswith(beginning) for name in names)]
    if not fitting:
        raise UsageError(
            f"This store has no unfinished run of releases of {framework.title} on this machine. "
            "Leave --resume out to start one."
        )
    known = releases.known_releases(framework)
    versions = [name.removeprefix(beginning) for name in fitting[-1]]
    not_built = "it was not built when the run began"
    return [known.get(Version(each)) or Release(each, problem=not_built) for each in versions]
