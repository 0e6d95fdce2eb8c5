"""`dlbench explain`: the operators of one cell's step, alone or against those of another build."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.compare.operators import REPORT as DIFFERENCE
from dlbench.reports.explained import REPORT, explain
from dlbench.reports.formats.export import to_stdout
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.hosts import host_of
from dlbench.reports.results.naming import name_of
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record

from ..display.screen import StatusLine, err, say
from ..environments import environment, folders, releases
from ..environments.environment import Source
from ..errors import NOTHING_MEASURED, FrameworkEnvironmentError, UsageError
from ..planning import networks, own, values
from ..planning.axes import SuiteOverrides
from ..planning.framework import Framework, find, offered
from ..planning.plan import Plan, PlannedLaunch, expand
from ..planning.suite import ProtocolSection, Suite, load
from ..planning.values import Build
from ..run import preparation, profiling
from ..run.outcomes import read_phase
from ..run.quiet import measuring
from ..run.runner import left_behind_of
from ..run.sides import ONE_SIDE, Side
from . import options
from .options import Given, option, takes

_FORM = "Write ROW/NETWORK, for example torch/resnet50 or torch:compile/fcn5"
_PROTOCOL = ProtocolSection(
    warmup_steps=3, steps=10, minimum_steps=3, seconds=5.0, cell_seconds=900.0
)
_MOST_STEPS = 1000  # a profiler keeps every call of every operator until its end


_HOW: options.Options = {
    "suite_name": options.suite_of_network(""),
    "against": option(
        "--against",
        "Show which operators differ from this baseline: a release (`0.6.0`; of your own step "
        "`jax==0.6.0`), an interpreter, or another file of your step.",
        metavar="RELEASE|PYTHON|FILE",
    ),
    "profiled": option(
        "--steps",
        "Steps to profile (default 5; with --against as many as take a second).",
        int | None,
        None,
        min=1,
        max=_MOST_STEPS,
    ),
    "top": option("--top", "Operators to show; --json has all.", int, ReportOptions.top, min=1),
    "no_build": options.NO_BUILD,
    "as_json": options.JSON,
}


@takes(
    {"cell": options.argument("CELL", "Row and network: `torch/resnet50`, `torch:compile/fcn5`.")},
    *(options.AXES_OF_A_CELL, options.BUILDS, _HOW),
)
def explain_command(given: Given) -> None:
    """Show where one cell's step spends its time: its operators, from the framework's own profiler.

    Makes one launch: some steps without the profiler, then some with it. With `--against` both
    sides are launched two to four times, in turns, and operators whose difference repeats are
    named. Stores nothing.

    Examples:

    - `dlbench explain torch/resnet50`
    - `dlbench explain torch:compile/fcn5 --threads 2 --batch-sizes 128 --top 30`
    - `dlbench explain mxnet/lstm32 --devices cuda:0 --json`
    - `dlbench explain torch/small --suite mine.toml`
    - `dlbench explain train_step --step train_step.py --python ~/venv/bin/python`
    - `dlbench explain jax/lstm32 --threads 1 --against 0.4.20`  (which operators became slower
      since that release?)
    - `dlbench explain train_step --step train_step.py --against before/train_step.py`
    """
    chosen = options.choices(given)
    machine = probe()
    plan = _plan(given, chosen, machine)
    preparation.check_interpreters(chosen.builds)
    folders.make_folder(folders.home())
    if given.against:
        _explain_against(given, plan, machine)
        return
    record = _launch(
        plan, machine, given.profiled or profiling.FEWEST_STEPS, build_missing=not given.no_build
    )
    outcome = record.outcome
    if not outcome.samples_ns:
        say(
            f"dlbench: no step was timed, {outcome.status.value.replace('_', ' ')}: "
            f"{outcome.reason}"
        )
        raise typer.Exit(NOTHING_MEASURED)
    if outcome.profile is None:
        title = plan.row_of(record.cell).build.framework.title
        if failed := outcome.software.get("profile_failed"):
            raise ReportError(f"{title} ran, but its profiler failed: {failed}")
        others = [name for name, each in offered().items() if _profiles(each)]
        raise ReportError(
            f"{title}'s adapter has no profiler for this cell. Explain a row of another framework "
            f"({', '.join(others)}), or give the adapter a method `profile` (adapters/base.py)."
        )
    found = explain(record.cell, outcome, family_of_record(record))
    print(
        to_stdout(
            REPORT, found, ReportOptions(top=given.top), "json" if given.as_json else "terminal"
        ),
        end="",
    )
    _remark_on([record], machine)


def _remark_on(records: Sequence[Record], machine: Machine) -> None:
    """Say what is wrong with the launches, each thing once."""
    remarks = []
    for record in records:
        if record.outcome.status is Status.PARITY_FAILED:
            remarks.append(
                f"This cell does not compute what the reference does: {record.outcome.reason}"
            )
        if record.outcome.status is Status.IMPLAUSIBLE:
            remarks.append(f"These times are implausible: {record.outcome.reason}")
        if disturbed(record, host_of(machine)):
            remarks.append(
                "Other programs used the CPUs, so these times are too long. Run it again on a "
                "quiet machine."
            )
    for remark in dict.fromkeys(remarks):
        say(remark)


def _plan(given: Given, chosen: SuiteOverrides, machine: Machine) -> Plan:
    """Return the plan of one cell, with the networks, mini-batches and settings of the suite named.

    Raises UsageError where the words mean none, or several.
    """
    row, _, network = (part.strip() for part in given.cell.partition("/"))
    if chosen.own is not None:
        network = network or row
    if not (row and network):
        raise UsageError(f"{given.cell[:60]!r} is not a cell. {_FORM}.")
    one = partial(
        Suite,
        name="explain",
        summary="one cell",
        frameworks=(row,),
        threads="cores",
        protocol=_PROTOCOL,
    )
    if chosen.own is not None:
        if given.suite_name:
            raise UsageError(
                "--suite and --step exclude each other: both define the network. Leave one out."
            )
        if row not in chosen.own.names or network != find(row).work:
            raise UsageError(
                f"{given.cell[:60]!r} is not a step of --step. Write {chosen.own.names[0]}."
            )
        suite = chosen.own.instead_of(one())
    else:
        of = load(given.suite_name) if given.suite_name else None
        meant = networks.chosen([network], (), of.known if of else networks.shipped())
        if len(meant) > 1:
            raise UsageError(
                f"One cell can be explained at a time; {network} fits {len(meant)} networks. "
                f"{_FORM}."
            )
        kept = ("network", "grid", "batch_sizes", "cpu_batch_sizes", "settings") if of else ()
        suite = one(networks=meant, **{key: getattr(of, key) for key in kept})
    place = preparation.capacity(machine)
    plan = expand(suite, chosen.but(frameworks=row), place, preparation.new_seed())
    if len(plan.cells) > 1:
        first, second = (name_of(cell) for cell in plan.cells[:2])
        raise UsageError(
            f"Only one cell can be explained at a time, and these are {len(plan.cells)}: {first}; "
            f"{second}{'; ...' if len(plan.cells) > 2 else ''}. Give one value to each option, and "
            f"one row. {_FORM}."
        )
    return plan


def _profiles(framework: Framework) -> bool:
    """Tell whether a framework's adapter has a profiler, by the text of its modules: the host
    cannot import them.
    """
    texts = (path.read_text(encoding="utf-8") for path in framework.directory.glob("*.py"))
    return any(re.search(r"^    (def profile\(|profile = )", text, re.MULTILINE) for text in texts)


def _source_of(plan: Plan, build_missing: bool) -> Source:
    """Return the source of the plan's one row; raises FrameworkEnvironmentError if it has no
    interpreter.
    """
    source = environment.prepare_sources(plan.builds, say, build_missing)[plan.cells[0].framework]
    if source.interpreter is None:
        raise FrameworkEnvironmentError(source.reason)
    return source


def _launch(plan: Plan, machine: Machine, steps: int, build_missing: bool) -> Record:
    """Run the launch; raises FrameworkEnvironmentError if there is no interpreter for it."""
    planned = PlannedLaunch(plan.cells[0], 0, profiled_steps=steps)
    sources = {"": {planned.cell.framework: _source_of(plan, build_missing)}}
    if left := left_behind_of(plan):
        say(left)
    run = preparation.new_run(plan, machine, "explain")
    (runner,) = profiling.runners(plan, run, ONE_SIDE, sources, machine).values()
    with measuring(say, wait=True, computes=plan.computes), StatusLine(err) as status:
        say(f"launching {name_of(planned.cell)}")

        def tick(directory: Path) -> None:
            status.draw(f"  {read_phase(directory)[0] or 'starting'}")

        return runner.attempt(planned, plan.protocol, tick=tick)


def _explain_against(given: Given, plan: Plan, machine: Machine) -> None:
    """Profile both sides and print which operators differ; raises UsageError and
    FrameworkEnvironmentError.
    """
    cell, build_missing = plan.cells[0], not given.no_build
    candidate = _source_of(plan, build_missing)
    baseline = _baseline(given.against, candidate.build, build_missing)
    if (
        baseline.digest == candidate.digest
        and baseline.build.framework == candidate.build.framework
    ):
        say("Both sides are the same build, so nothing should differ.")
    sources = {BASELINE: {cell.framework: baseline}, CANDIDATE: {cell.framework: candidate}}
    if left := left_behind_of(plan):
        say(left)
    run = preparation.new_run(plan, machine, "explain")
    runners = profiling.runners(plan, run, (Side(BASELINE), Side(CANDIDATE)), sources, machine)
    records: list[Record] = []
    with measuring(say, wait=True, computes=plan.computes):
        say(f"profiling {name_of(cell)} against {given.against}")
        found = profiling.profile_sides(runners, cell, records.append, given.profiled)
    print(
        to_stdout(
            DIFFERENCE, found, ReportOptions(top=given.top), "json" if given.as_json else "terminal"
        ),
        end="",
    )
    _remark_on(records, machine)
    if found.problem:
        raise typer.Exit(NOTHING_MEASURED)


_RELEASE = re.compile(
    r"(?:(?P<framework>[a-z][a-z0-9_]*)(?:==|-))?(?P<version>[0-9]+(?:\.[0-9]\w*)+)"
)


def _baseline(word: str, candidate: Build, build_missing: bool) -> Source:
    """Return the source that --against means: a file of the step, a release, or an interpreter."""
    step = candidate.framework if candidate.framework.file is not None else None
    if word.endswith(".py"):
        if step is None:
            raise UsageError(
                f"--against {word}: {candidate.name} is not a step of your own. Name a release "
                "instead."
            )
        return _prepared(
            replace(candidate, framework=own.read_step(word, "--against")), build_missing
        )
    match = _RELEASE.fullmatch(word)
    if match is None:
        interpreter = values.build(f"{candidate.framework.name}={word}", "--against").interpreter
        return _prepared(replace(candidate, interpreter=interpreter), build_missing)
    named = match["framework"]
    if step is not None and not named:
        raise UsageError(
            f"--against {word}: name the framework whose release is meant, as in jax=={word}."
        )
    framework = find(named) if named else candidate.framework
    (release,) = releases.releases_on_index(
        framework, first=match["version"], last=match["version"]
    )
    (source,) = releases.sources(framework, [release], step, say, build_missing)
    return source


def _prepared(build: Build, build_missing: bool) -> Source:
    source = environment.prepare_sources([build], say, build_missing)[build.name]
    if source.interpreter is None:
        raise FrameworkEnvironmentError(source.reason)
    return source
