"""`dlbench explain`: the operators of one cell's step, alone or against those of another build."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.hosts import host_of
from dlbench.reports.results.naming import name_of

from ..display.screen import StatusLine, err, say
from ..environments import environment, folders, releases
from ..environments.environment import BuildSource
from ..errors import NOTHING_MEASURED, FrameworkEnvironmentError, UsageError
from ..planning import networks, own, values
from ..planning.axes import SuiteOverrides
from ..planning.framework import Framework, find, offered
from ..planning.plan import Plan, PlannedLaunch, expand
from ..planning.suite import ProtocolSection, Suite, load
from ..planning.values import Build
from . import options
from .options import AxisOptions, BuildOptions, argument, option, takes

if TYPE_CHECKING:
    from dlbench.reports.report import Report
    from dlbench.reports.results.record import Record

# Functions import the runner and the reports themselves: --help needs neither, and importing them
# takes a second.

_FORM = "Write ROW/NETWORK, for example torch/resnet50 or torch:compile/fcn5"
_PROTOCOL = ProtocolSection(
    warmup_steps=3, steps=10, minimum_steps=3, seconds=5.0, cell_seconds=900.0
)
_MOST_STEPS = 1000  # a profiler keeps every call of every operator until its end
_SHOWN = 12
"""Operators to show unless the user asks for more."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(AxisOptions, BuildOptions):
    """The options of `dlbench explain`."""

    cell: Annotated[
        str, argument("CELL", "Row and network: `torch/resnet50`, `torch:compile/fcn5`.")
    ]
    suite_name: Annotated[str, options.SUITE_OF_NETWORK] = ""
    against: Annotated[
        str | None,
        option(
            "--against",
            "A baseline: a release (`0.6.0`, `jax==0.6.0`), interpreter or file.",
            metavar="BASELINE",
        ),
    ] = None
    profiled: Annotated[
        int | None,
        option(
            "--steps",
            "Steps to profile (default 5; with --against a second of them).",
            metavar="N",
            min=1,
            max=_MOST_STEPS,
        ),
    ] = None
    top: Annotated[
        int, option("--top", "Operators to show; --json has all.", metavar="N", min=1)
    ] = _SHOWN
    no_build: Annotated[bool, options.NO_BUILD] = False
    as_json: Annotated[bool, options.JSON] = False


# The argument names network and framework, and a cell has one thread count.
@takes(
    ExplainOptions,
    options.parameters_of(ExplainOptions, without=("networks", "frameworks", "threads_limit")),
)
def explain_command(given: ExplainOptions) -> None:
    """Show where one cell's step spends its time: its operators, from the framework's own profiler.

    Makes one launch: some steps without the profiler, then some with it. With `--against` both
    sides are launched two to four times, in turns, and operators whose difference repeats are
    named. Stores nothing. Exit code 1: no step was timed.

    Examples:

    - `dlbench explain torch/resnet50`
    - `dlbench explain jax/lstm32 --threads 1 --against 0.4.20`
    - `dlbench explain train_step --step train_step.py --python ~/venv/bin/python`
    """
    from dlbench.reports.explained import REPORT, explain
    from dlbench.reports.results.networks import family_of_record

    from ..run import preparation, profiling

    chosen = options.choices(given)
    machine = probe()
    plan = _plan(given, chosen, machine)
    preparation.check_interpreters(chosen.builds)
    folders.make_folder(folders.home())
    if given.against:
        _explain_against(given, given.against, plan, machine)
        return
    steps = given.profiled or profiling.FEWEST_STEPS
    record = _launch(plan, machine, steps, build_missing=not given.no_build)
    outcome = record.outcome
    if not outcome.samples_ns:
        status = outcome.status.value.replace("_", " ")
        say(f"dlbench: no step was timed, {status}: {outcome.reason}")
        raise typer.Exit(NOTHING_MEASURED)
    if outcome.profile is None:
        title = plan.row_of(record.cell).build.framework.title
        problem = outcome.software.get("profile_failed")
        if problem:
            raise ReportError(f"{title} ran, but its profiler failed: {problem}")
        others = [name for name, framework in offered().items() if _has_profiler(framework)]
        raise ReportError(
            f"{title}'s adapter has no profiler for this cell. Explain a row of another framework "
            f"({', '.join(others)}), or give the adapter a method `profile` (adapters/base.py)."
        )
    _print(REPORT, explain(record.cell, outcome, family_of_record(record)), given)
    _remark_on([record], machine)


def _print(report: "Report[Any]", content: Any, given: ExplainOptions) -> None:
    """Print a report's content in the format asked for."""
    from dlbench.reports.formats.export import to_stdout
    from dlbench.reports.report import ReportOptions

    form = "json" if given.as_json else "terminal"
    print(to_stdout(report, content, ReportOptions(top=given.top), form), end="")


def _remark_on(records: "Sequence[Record]", machine: Machine) -> None:
    """Print each problem of the launches once."""
    from dlbench.reports.results.disturbance import disturbed

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
                "Other programs disturbed this launch, so its times are too long. Run it again "
                "on a quiet machine."
            )
    for remark in dict.fromkeys(remarks):
        say(remark)


def _plan(given: ExplainOptions, chosen: SuiteOverrides, machine: Machine) -> Plan:
    """Return the plan of one cell, with the networks, mini-batches and settings of the suite named.

    Raises UsageError if the words mean no cell, or several.
    """
    from ..run import preparation

    row, _, network = (part.strip() for part in given.cell.partition("/"))
    if chosen.own is not None:
        network = network or row
    if not (row and network):
        raise UsageError(f"{given.cell[:60]!r} is not a cell. {_FORM}.")
    suite = _suite_of_cell(given, chosen, row, network)
    place = preparation.capacity(machine)
    plan = expand(suite, chosen.but(frameworks=row), place, preparation.new_seed())
    if len(plan.cells) > 1:
        first, second = (name_of(cell) for cell in plan.cells[:2])
        more = "; ..." if len(plan.cells) > 2 else ""
        raise UsageError(
            f"Only one cell can be explained at a time, and these are {len(plan.cells)}: {first}; "
            f"{second}{more}. Give one value to each option, and one row. {_FORM}."
        )
    return plan


def _suite_of_cell(given: ExplainOptions, chosen: SuiteOverrides, row: str, network: str) -> Suite:
    """Return a suite of a row and a network. Raises UsageError if the words mean no cell."""
    fields: dict[str, Any] = {
        "name": "explain",
        "summary": "one cell",
        "frameworks": (row,),
        "threads": "cores",
        "protocol": _PROTOCOL,
    }
    if chosen.own is not None:
        if given.suite_name:
            raise UsageError(
                "--suite and --step exclude each other: both define the network. Leave one out."
            )
        if row not in chosen.own.names or network != find(row).work:
            raise UsageError(
                f"{given.cell[:60]!r} is not a step of --step. Write {chosen.own.names[0]}."
            )
        return chosen.own.instead_of(Suite(**fields))
    known_networks = networks.shipped()
    if given.suite_name:
        named = load(given.suite_name)
        known_networks = named.known
        for key in ("network", "grid", "batch_sizes", "cpu_batch_sizes", "settings"):
            fields[key] = getattr(named, key)
    meant = networks.select([network], (), known_networks)
    if len(meant) > 1:
        raise UsageError(
            f"One cell can be explained at a time; {network} fits {len(meant)} networks. {_FORM}."
        )
    return Suite(**fields, networks=meant)


def _has_profiler(framework: Framework) -> bool:
    """Tell whether a framework's adapter has a profiler.

    The text of its modules says so, since the host cannot import them.
    """
    texts = (path.read_text(encoding="utf-8") for path in framework.directory.glob("*.py"))
    return any(re.search(r"^    (def profile\(|profile = )", text, re.MULTILINE) for text in texts)


def _source_of(plan: Plan, build_missing: bool) -> BuildSource:
    """Return the source of the plan's one row. Raises FrameworkEnvironmentError."""
    sources = environment.prepare_sources(plan.builds, say, build_missing)
    return _with_interpreter(sources[plan.cells[0].framework])


def _with_interpreter(source: BuildSource) -> BuildSource:
    """Return the source as it is. Raises FrameworkEnvironmentError if it has no interpreter."""
    if source.interpreter is None:
        raise FrameworkEnvironmentError(source.reason)
    return source


def _launch(plan: Plan, machine: Machine, steps: int, build_missing: bool) -> "Record":
    """Run the launch. Raises FrameworkEnvironmentError if there is no interpreter for it."""
    from ..run import preparation, profiling
    from ..run.answers import read_phase
    from ..run.quiet import measuring
    from ..run.runner import left_behind_sentence
    from ..run.sides import ONE_SIDE

    planned = PlannedLaunch(plan.cells[0], 0, profiled_steps=steps)
    sources = {"": {planned.cell.framework: _source_of(plan, build_missing)}}
    if left := left_behind_sentence(plan):
        say(left)
    run = preparation.new_run(plan, machine, "explain")
    (runner,) = profiling.runners(plan, run, ONE_SIDE, sources, machine).values()
    with measuring(say, wait=True, computes=plan.computes), StatusLine(err) as status:
        say(f"launching {name_of(planned.cell)}")

        def tick(directory: Path) -> None:
            status.draw(f"  {read_phase(directory)[0] or 'starting'}")

        return runner.attempt(planned, plan.protocol, tick=tick)


def _explain_against(given: ExplainOptions, against: str, plan: Plan, machine: Machine) -> None:
    """Profile both sides and print which operators differ.

    Raises UsageError and FrameworkEnvironmentError.
    """
    from dlbench.reports.compare.operators import REPORT
    from dlbench.reports.results.record import BASELINE, CANDIDATE

    from ..run import preparation, profiling
    from ..run.groups import grouping_for_pairs
    from ..run.quiet import measuring
    from ..run.runner import left_behind_sentence
    from ..run.sides import Side

    cell = plan.cells[0]
    build_missing = not given.no_build
    candidate = _source_of(plan, build_missing)
    baseline = _baseline(against, candidate.build, build_missing)
    if (
        baseline.digest == candidate.digest
        and baseline.build.framework == candidate.build.framework
    ):
        say("Both sides are the same build, so nothing should differ.")
    sources = {BASELINE: {cell.framework: baseline}, CANDIDATE: {cell.framework: candidate}}
    if left := left_behind_sentence(plan):
        say(left)
    run = preparation.new_run(plan, machine, "explain")
    runners = profiling.runners(plan, run, (Side(BASELINE), Side(CANDIDATE)), sources, machine)
    records: list[Record] = []
    with measuring(say, wait=True, computes=plan.computes):
        say(f"profiling {name_of(cell)} against {against}")
        in_turns = cell in grouping_for_pairs(plan, machine, None, ()).cells
        difference = profiling.profile_sides(
            runners, cell, records.append, in_turns, given.profiled
        )
    _print(REPORT, difference, given)
    _remark_on(records, machine)
    if difference.problem:
        raise typer.Exit(NOTHING_MEASURED)


_RELEASE = re.compile(
    r"(?:(?P<framework>[a-z][a-z0-9_]*)(?:==|-))?(?P<version>[0-9]+(?:\.[0-9]\w*)+)"
)


def _baseline(word: str, candidate: Build, build_missing: bool) -> BuildSource:
    """Return the source that --against means: a file of the step, a release, or an interpreter."""
    step = candidate.framework if candidate.framework.file is not None else None
    if word.endswith(".py"):
        if step is None:
            raise UsageError(
                f"--against {word}: {candidate.name} is not a step of your own. Name a release "
                "instead."
            )
        file = own.read_step(word, "--against")
        return _prepare(replace(candidate, framework=file), build_missing)
    match = _RELEASE.fullmatch(word)
    if match is None:
        interpreter = values.build(f"{candidate.framework.name}={word}", "--against").interpreter
        return _prepare(replace(candidate, interpreter=interpreter), build_missing)
    named = match["framework"]
    if step is not None and not named:
        raise UsageError(
            f"--against {word}: name the framework whose release is meant, as in jax=={word}."
        )
    framework = find(named) if named else candidate.framework
    version = match["version"]
    (release,) = releases.releases_on_index(framework, first=version, last=version)
    (source,) = releases.sources(framework, [release], step, say, build_missing)
    return source


def _prepare(build: Build, build_missing: bool) -> BuildSource:
    """Return the source of a build. Raises FrameworkEnvironmentError if it has no interpreter."""
    return _with_interpreter(environment.prepare_sources([build], say, build_missing)[build.name])
