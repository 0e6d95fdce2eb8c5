"""`dlbench bisect`: which release, commit or build made a step slower."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import typer

from dlbench.adapters.protocol import TUNED
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.compare.bisection import REPORT, headline
from dlbench.reports.formats.export import formats_of
from dlbench.reports.results.bisection import Bisection, BisectionOutcome
from dlbench.reports.results.hosts import host_of
from dlbench.reports.results.judged import NAMES, TIME
from dlbench.reports.results.naming import counted
from dlbench.reports.results.operators import StepDifference, step_differences
from dlbench.reports.results.posterior import CONFIDENCE
from dlbench.reports.results.record import BASELINE, BISECTING, CANDIDATE, Run
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import DEFAULT, Rule, Verdict

from ..display.screen import resume_command, say
from ..environments import commits, releases
from ..environments.environment import Source, external_source
from ..errors import (
    GATE_BROKEN,
    GATE_DIFFERENT,
    GATE_FAILED,
    GATE_UNDECIDED,
    FrameworkEnvironmentError,
    UsageError,
    unknown_name,
)
from ..planning import framework as frameworks
from ..planning import own, values
from ..planning.plan import Plan, check_count, heap_line
from ..planning.values import Build
from ..run import profiling, resume, sides
from ..run.bisection import BisectionSchedule, Series
from ..run.groups import of_pairs
from ..run.runner import RunProfile, run_plan
from ..run.sides import Side
from . import options
from .compare import ALLOW_DIFFERENT, report_format, rerun_command, rule_given, show
from .options import Given, flag, option, several, takes
from .plan import plan_of

Item = TypeVar("Item")
BUILD_LIMIT = "30m"
_BISECT: options.Options = {
    "framework": options.argument(
        "FRAMEWORK",
        "The framework whose releases or builds are tested: `jax`, or `torch:compile`.",
        usual="",
    ),
    "good": option(
        "--good", "A fast release, revision or --python name (default with --python: the first)."
    ),
    "bad": option("--bad", "A later, slow one (default with --python: the last)."),
    "faster": flag(
        "--faster",
        "Find the first faster one; good is then the later (default with --python: the last).",
    ),
    "repo": option(
        "--repo", "Test the commits of this git repository; needs --step.", metavar="PATH"
    ),
    "build": option(
        "--build", "Shell command that builds a commit, run in its worktree.", metavar="CMD"
    ),
    "build_limit": option("--build-limit", f"Time limit of each build (default {BUILD_LIMIT})."),
    "pre": options.PRE,
    "suite_name": options.suite_of_network("quick"),
    "confidence": option(
        "--confidence", f"Stop when the answer has this probability (default {CONFIDENCE:.0%})."
    ),
}
_PYTHON = (
    "Builds to test instead of releases, in order: `NAME=PATH,NAME=PATH`. With --repo: the "
    "interpreter; a relative path is inside the worktree (`.venv/bin/python`)."
)
_BUILDS: options.Options = {
    **options.BUILDS,
    "python": several("--python", _PYTHON, "NAME=PATH"),
    # With --repo the file is read from each worktree later.
    "step": several(
        "--step", "Your own training step; with --repo its path in the repository.", "FILE"
    ),
}
_REPORT: options.Options = {
    "no_quiet_gate": options.NO_QUIET_GATE,
    "no_profile": options.NO_PROFILE,
    "order": options.ORDER,
    "threshold": option("--threshold", "Smallest slowdown worth finding (default 2.5%)."),
    "tolerance": option(
        "--tolerance", "Slowdown that must be excluded to say that nothing is slower (default 5%)."
    ),
    "allow_different": ALLOW_DIFFERENT,
    "quantity": option(
        "--quantity",
        f"What to search by: {', '.join(NAMES)}. A share sets the smallest rise: `memory=5%`.",
        str,
        TIME,
        metavar="NAME[=SHARE]",
    ),
    "form": option("--format", f"{', '.join(formats_of(REPORT))}."),
    "write": several(
        "--write", "Write the result to a file too: .md, .json, .csv or .txt. Repeatable.", "FILE"
    ),
    "as_json": options.JSON,
}


@takes(
    _BISECT,
    {key: each for key, each in options.AXES.items() if key != "frameworks"},
    {"steps": options.STEPS, "cell_budget": options.CELL_BUDGET},
    _BUILDS,
    {key: each for key, each in options.SESSION.items() if key != "no_build"},
    _REPORT,
)
def bisect_command(given: Given) -> None:
    """Find the first release, commit or build that made a step slower, or faster, despite noise.

    First, good and bad are compared as in a gate. If bad is slower, each further pair of launches
    compares good with the most informative candidate, until one is the first slower one with a
    probability of 95 %. Candidates are built when needed; those that cannot be built or run are
    left out, and the answer says so. Several changes are reported as such. The first slow candidate
    is profiled beside the last fast one, and the operators that account for the difference are
    named. Commits are built in worktrees: your files are not touched. Releases come from the
    package index.

    Exit codes:

    - 0: bad is not slower than good
    - 1: bad is slower, and the first slower (or faster) one is known
    - 5: bad gave no number where good did
    - 7: bad computes something else than good (your own step; `--allow-different` searches all the
      same)
    - 6: undecided, or several changes

    Examples:

    - `dlbench bisect jax --network lstm32 --threads 1 --good 0.4.20 --bad 0.12.0 --budget 1h`
    - `dlbench bisect jax --network fcn5 --threads 1 --good 0.10.2 --bad 0.9.2 --faster`
    - `dlbench bisect --repo . --build "make" --step train_step.py --threads 1 --good v1.2 --bad
      HEAD`
    - `dlbench bisect torch --network fcn5 --threads 1 --python
      may=/opt/may/bin/python,june=/opt/june/bin/python`
    """
    form = report_format(given, REPORT)
    if given.quantity != TIME and "," in given.quantity:
        raise UsageError(
            f"--quantity {given.quantity}: a bisection searches by one quantity. Name one."
        )
    # A gate judges several quantities, and a bisection searches by one.
    searched = Given(**{**vars(given), "judge": given.quantity})
    seconds, rule = options.seconds_of(given.budget), rule_given(searched, DEFAULT)
    confidence = values.share(given.confidence, "--confidence") if given.confidence else CONFIDENCE
    if confidence <= 0.5:
        raise UsageError(
            f"--confidence {given.confidence} is too low to single out a candidate. Give more than "
            "50%."
        )
    with _series(given) as series:
        found = _measure(given, series, rule, confidence, seconds)
    show(found, form, given.write, REPORT)
    if form != "terminal":
        say(headline(found))
    codes = {
        BisectionOutcome.NO_SLOWDOWN: 0,
        BisectionOutcome.FOUND: GATE_FAILED,
        BisectionOutcome.DIFFERENT: GATE_DIFFERENT,
    }
    broken = found.ends.verdict is Verdict.BROKEN
    raise typer.Exit(GATE_BROKEN if broken else codes.get(found.outcome, GATE_UNDECIDED))


def _measure(
    given: Given, series: Series, rule: Rule, confidence: float, seconds: float | None
) -> Bisection:
    """Measure pairs until the search is decided or the budget spent; raises UsageError."""
    machine = probe()
    one = _plan_of_one_cell(given, machine)
    sources, described = series.by_side(), series.described()
    plan, unfinished = series.plan(one), None
    check_count(plan, given.yes)
    if given.resume:
        with Store.open(delivery.local_or(given.store_file), create=False) as store:
            unfinished = resume.unfinished(store, plan, machine, BISECTING)
        sides.check_same(unfinished, described, rule)
        plan = replace(
            plan, cells=unfinished.plan, protocol=unfinished.protocol, seed=unfinished.seed
        )
    grouping = of_pairs(plan, machine, given.order, ())
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
        quiet_gate=not given.no_quiet_gate,
        lines=lambda: (candidates, *grouping.remarks, heap_line(plan)),
        unfinished=unfinished,
        sources=sources,
        described=described,
    )
    with delivery.opened(
        given.store_file, say, create=not given.resume, unfinished=unfinished
    ) as store:
        run, schedule = run_plan(plan, machine, store, profile, budget_seconds=seconds)
        assert isinstance(schedule, BisectionSchedule)
        found = schedule.result(one.cells[0], rerun_command(sys.argv[1:], run.seed))
        if (
            found.outcome is BisectionOutcome.FOUND
            and not given.no_profile
            and found.ends.quantity == TIME
        ):
            found = replace(found, operators=_profiled(plan, run, machine, store, series, found))
    if schedule.launches_left():
        say(f"The budget is spent. Resume: {resume_command()}")
    else:
        series.done()
    return found


def _profiled(
    plan: Plan, run: Run, machine: Machine, store: Store, series: Series, found: Bisection
) -> StepDifference | None:
    """Profile the first slow candidate beside the last fast one, and return which operators
    differ.
    """
    before, slow = found.beside
    cell = next(cell for cell in plan.cells if cell.framework == slow)
    if not any(record.cell == cell for record in store.profiles(run.id)):
        sources = {BASELINE: {slow: series.source(before)}, CANDIDATE: {slow: series.source(slow)}}
        profiling.profile_cells(
            plan, run, (Side(BASELINE), Side(CANDIDATE)), sources, machine, [cell], store
        )
    return next(
        (each for each in step_differences(store.profiles(run.id)) if each.cell == cell), None
    )


def _plan_of_one_cell(given: Given, machine: Machine) -> Plan:
    """Return the plan of the cell that is measured, in the framework's own row; raises UsageError
    for several.
    """
    chosen = options.choices(Given(**{**vars(given), "python": None})).but(interval=None)
    chosen = (
        chosen if chosen["tuning"] else chosen.but(tuning=TUNED)
    )  # as `dlbench releases` measures
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


def _series(given: Given) -> AbstractContextManager[Series]:
    """Return the candidates that the options select; raises UsageError and
    FrameworkEnvironmentError.
    """
    if given.repo:
        return _of_commits(given)
    if given.build or given.build_limit:
        raise UsageError(
            "--build and --build-limit are for the commits of a repository. Give --repo PATH."
        )
    if not given.framework and not (given.python and given.step):
        raise UsageError(
            "Name the framework, as in dlbench bisect jax; or give --python with --step, or --repo."
        )
    own.register_steps(given.step)
    return nullcontext(_of_builds(given) if given.python else _of_releases(given))


def _reversed_if_faster(found: Sequence[Item], given: Given) -> Sequence[Item]:
    """Convert a sequence from the order good to bad into the order of time, or back."""
    return found[::-1] if given.faster else found


def _between(names: Sequence[str], kind: str, ends: Sequence[str | None]) -> slice:
    """Return the places between two names in order of time, all if no name is given; raises
    UsageError.
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


def _of_builds(given: Given) -> Series:
    name = own.name_of(given.step[0]) if given.step else given.framework.partition(":")[0]
    builds = values.builds(given.python, name)
    ends = _reversed_if_faster((given.good, given.bad), given)
    chosen = _reversed_if_faster(
        builds[_between([each.name for each in builds], "build", ends)], given
    )
    names = tuple(each.name for each in chosen)
    return Series("build", names, lambda place: external_source(chosen[place]), faster=given.faster)


def _of_releases(given: Given) -> Series:
    if not given.good or not given.bad:
        raise UsageError("Name the good and the bad release, as in --good 0.4.20 --bad 0.12.0.")
    found = frameworks.find(given.framework.partition(":")[0])
    step = frameworks.find(own.name_of(given.step[0])) if given.step else None
    # The answer names them as rows: jax-0.4.20.
    ends = _reversed_if_faster(
        [each.removeprefix(f"{found.name}-") for each in (given.good, given.bad)], given
    )
    tried = releases.releases_on_index(found, first=ends[0], last=ends[1], pre=given.pre)
    versions = [each.version for each in tried]
    if strange := [each for each in ends if each not in versions]:
        unknown = unknown_name("release", strange[0], versions)
        raise UsageError(f"{unknown}{releases.elsewhere(found)}")
    _between(versions, "release", ends)
    tried = list(_reversed_if_faster(tried, given))
    names = tuple(releases.row_of(found, each).name for each in tried)
    return Series(
        "release",
        names,
        lambda place: releases.source_of(found, tried[place], step),
        faster=given.faster,
    )


@contextlib.contextmanager
def _of_commits(given: Given) -> Iterator[Series]:
    """Give the first-parent commits of a repository, from good to bad, each built when it is
    needed.
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
    file, python = Path(given.step[0]), (given.python or [sys.executable])[0]
    if file.is_absolute() or ".." in file.parts:
        raise UsageError(
            f"--step {file}: with --repo give the file's path in the repository, as in "
            f"bench/{file.name}."
        )
    if len(given.python or ()) > 1 or "=" in python:
        raise UsageError(
            "With --repo, --python is one path: the interpreter that measures every commit."
        )
    folder = Path(given.repo).expanduser()
    trees = commits.Worktrees(
        folder, given.build or "", values.duration(given.build_limit or BUILD_LIMIT)
    )
    subjects = commits.commits(folder, *_reversed_if_faster((given.good, given.bad), given))
    digests = _reversed_if_faster(list(subjects), given)
    names = tuple(digest[: commits.SHORT] for digest in digests)
    if commits.git(folder, "status", "--porcelain", "--untracked-files=no"):
        say("Uncommitted changes are not measured: commits are built in worktrees.")

    @cache
    def look(interpreter: Path) -> Source:
        return external_source(Build(file.stem, frameworks.find(file.stem), interpreter))

    def prepare(place: int) -> Source:
        tree = trees.built(digests[place])
        if not (tree / file).is_file():
            raise FrameworkEnvironmentError(f"it has no file {file}")
        step = own.read_step(str(tree / file))
        if not place:
            frameworks.add(step)
        inside = "/" in python and not python.startswith(("/", "~"))
        interpreter = values.build(f"{step.name}={tree / python if inside else python}").interpreter
        assert interpreter is not None
        return replace(look(interpreter), build=Build(names[place], step, interpreter))

    with trees.used(keep=given.resume):
        about = {digest[: commits.SHORT]: subject for digest, subject in subjects.items()}
        series = Series("commit", names, prepare, about, trees.remove, given.faster)
        series.end(0)  # whose file is the row of the plan
        yield series
