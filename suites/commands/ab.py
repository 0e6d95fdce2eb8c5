"""A/B comparisons: the options that `compare` and `gate` share, measuring both sides, and showing the result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from dlbench.hardware_probe import Machine, probe
from dlbench.reports.compare.comparison import Comparison
from dlbench.reports.compare.report import REPORT as COMPARED
from dlbench.reports.compare.verdict import DEFAULT, Rule
from dlbench.reports.formats.export import export, formats_of, to_stdout
from dlbench.reports.formats.outputs import why_not
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage import delivery
from dlbench.reports.storage.store import Store

from ..display.screen import counted, resume_command, say
from ..environments.folders import write_whole
from ..errors import UsageError
from ..planning import values
from ..planning.axes import SuiteOverrides
from ..planning.framework import find
from ..planning.own import OwnSteps
from ..planning.plan import Plan, check_count
from ..planning.suite import load
from ..run import resume, sides
from ..run.runner import RunProfile, run_plan
from ..run.schedules import PairRule, PairSchedule
from ..run.sides import Side
from . import options
from .options import OptionGroup
from .plan import plan_of

_FORMATS = formats_of(COMPARED)
FORMAT_OF_SUFFIX = {".md": "markdown", ".json": "json", ".csv": "csv", ".xml": "junit", ".txt": "terminal"}


@dataclass(frozen=True)
class OutputOptions(OptionGroup):
    """Where the report goes, and in what form."""

    form: Annotated[str | None, typer.Option("--format", help=f"{', '.join(_FORMATS)}.")] = None
    write: Annotated[
        list[str] | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the report to a file too: .md, .json, .csv, or .xml for JUnit. Repeatable.",
        ),
    ] = None
    as_json: options.Json = False

    def check(self) -> str:
        """Return the name of the output format; raises UsageError for a format or a file that cannot be."""
        for path in self.write or ():
            format_of(path)
        return options.form_of(self.form, self.as_json, _FORMATS)


@dataclass(frozen=True)
class SideOptions(OptionGroup):
    """What the two sides differ in, beside their interpreters."""

    baseline_env: Annotated[
        list[str] | None,
        typer.Option("--baseline-env", metavar="NAME=VALUE", help="A variable of the baseline's launches."),
    ] = None
    candidate_env: Annotated[
        list[str] | None,
        typer.Option("--candidate-env", metavar="NAME=VALUE", help="A variable of the candidate's launches."),
    ] = None
    baseline_adapters: Annotated[
        str | None,
        typer.Option("--baseline-adapters", metavar="REVISION", help="The adapters at this git revision as baseline."),
    ] = None
    candidate_adapters: Annotated[
        str | None,
        typer.Option(
            "--candidate-adapters", metavar="REVISION", help="The adapters at this git revision as candidate."
        ),
    ] = None
    baseline_step: Annotated[
        str | None,
        typer.Option(
            "--baseline-step", metavar="FILE", help="This file is the baseline; the file of --step is the candidate."
        ),
    ] = None
    candidate_step: Annotated[
        str | None,
        typer.Option(
            "--candidate-step", metavar="FILE", help="This file is the candidate; the file of --step is the baseline."
        ),
    ] = None
    same: Annotated[
        bool, typer.Option("--same", help="Compare identical code, to see what this machine's noise does.")
    ] = False

    def pair(
        self, python: Sequence[str], baseline: Sequence[str] = (), own: OwnSteps | None = None
    ) -> tuple[Side, Side]:
        """Return baseline and candidate; raises UsageError."""
        files = (self.baseline_step, self.candidate_step)
        if any(files) and (own is None or len(own.names) != 1):
            raise UsageError("--baseline-step and --candidate-step need one --step FILE, whose other side they are.")
        return sides.pair(
            (baseline, python),
            (self.baseline_env or (), self.candidate_env or ()),
            (self.baseline_adapters or "", self.candidate_adapters or ""),
            files,
            find(own.names[0]) if own is not None and len(own.names) == 1 else None,
            self.same,
        )


@dataclass(frozen=True)
class RuleOptions(OptionGroup):
    """When a verdict is given."""

    threshold: Annotated[
        str | None, typer.Option("--threshold", help="Smallest slowdown called a regression (2.5%).")
    ] = None
    tolerance: Annotated[
        str | None, typer.Option("--tolerance", help='Largest slowdown still compatible with "no regression" (5%).')
    ] = None

    def over(self, usual: Rule) -> Rule:
        """Return a rule with these values instead; raises UsageError."""
        threshold, tolerance = share_of(self.threshold, "--threshold"), share_of(self.tolerance, "--tolerance")
        rule = usual if threshold is None else replace(usual, magnitude=threshold, screen_magnitude=threshold)
        return rule if tolerance is None else replace(rule, tolerance=tolerance)


@dataclass(frozen=True)
class LaunchOptions(OptionGroup):
    """How long each launch of a pair lasts."""

    steps: options.Steps = None
    cell_budget: options.CellBudget = None


@dataclass(frozen=True)
class Asked:
    """A comparison to be measured: which cells, which sides, by which rule, and where it is kept."""

    plan: Plan
    pair: tuple[Side, Side]
    machine: Machine
    purpose: str
    rule: Rule
    session: options.SessionOptions
    bare: bool
    """Whether nothing was chosen of the suite."""


@dataclass(frozen=True)
class ComparisonOptions(options.GroupOfGroups):
    """What `compare` and `gate` both take."""

    axes: options.AxisOptions
    launches: LaunchOptions
    builds: options.RowOptions
    sides: SideOptions
    rules: RuleOptions
    session: options.SessionOptions
    output: OutputOptions

    def asked(self, purpose: str, suite: str, baseline: Sequence[str] = ()) -> Asked:
        """Return what these options ask of a suite's cells; raises UsageError.

        ``baseline`` are the words of a baseline's interpreters.
        """
        rule = self.rules.over(DEFAULT)
        options.check_own(self.axes, self.builds)
        rows = load(suite).frameworks
        pair = self.sides.pair(self.builds.interpreters, baseline, self.builds.own)
        machine = probe()
        steps, budget = self.launches.steps, self.launches.cell_budget
        own = self.builds.own
        chosen = SuiteOverrides(self.axes.words, steps=steps, builds=pair[1].builds, own=own, cell_budget=budget)
        # Where interpreters or adapters are named, their frameworks are compared, unless more are asked for.
        candidates = {build.framework.name: build.name for build in pair[1].builds}
        baselines = {build.framework.name: build.framework.name for build in pair[0].builds}
        given = dict.fromkeys([*(baselines | candidates).values(), *self.builds.joining])
        if given and not chosen["frameworks"]:
            modes = {name: [row for row in rows if row.partition(":")[0] == name] for name in given}
            chosen = chosen.but(frameworks=",".join(row for name, its in modes.items() for row in its or [name]))
        plan = plan_of(suite, chosen, machine, self.session.seed)
        check_count(plan, self.session.yes)
        return Asked(plan, pair, machine, purpose, rule, self.session, bare=not chosen.narrows)


def measure(asked: Asked, rule: PairRule) -> Comparison:
    """Measure both sides, in the interleaved pairs that a rule needs, and return the comparison."""
    plan, machine, session = asked.plan, asked.machine, asked.session
    unfinished, sources = None, None
    if session.resume:
        with Store.open(delivery.local_or(session.store_file), create=False) as store:
            unfinished = resume.unfinished(store, plan, machine, asked.purpose, asked.bare)
            records = list(store.records(run=unfinished.id))
        sources = sides.prepare(plan, asked.pair, say, not session.no_build)
        sides.check_same(unfinished, asked.pair, sources, asked.rule)
        for record in records:
            resume.check_same_settings(plan, record, sources[record.side][record.cell.framework].build.framework)
        plan = replace(plan, cells=unfinished.plan, protocol=unfinished.protocol, seed=unfinished.seed)
    profile = RunProfile(
        asked.purpose,
        lambda plan, records, _: PairSchedule(plan, records, rule),
        asked.pair,
        asked.rule,
        ceilings=False,
        lines=lambda: (f"{counted(len(plan.cells), 'cell')} on two sides",),
        unfinished=unfinished,
        sources=sources,
    )
    with delivery.opened(session.store_file, say, create=not session.resume, unfinished=unfinished) as store:
        run, schedule = run_plan(
            plan, machine, store, profile, budget_seconds=session.seconds, build_missing=not session.no_build
        )
        if left := schedule.launches_left():
            say(f"The budget is spent with about {counted(left // 2, 'pair')} left. Resume: {resume_command()}")
        measured = len({(record.cell, record.stage, record.launch) for record in store.records(run=run.id)})
        found = sides.report_of(store, run, asked.rule)
        left_out = measured - sum(len(pairs[0]) for cell in found.cells for pairs in cell.pairs.values())
        more = f", {left_out} of them disturbed or incomplete" if left_out else ""
        say(f"{counted(measured, 'pair')} measured{more}")
        return found


def share_of(text: str | None, option: str) -> float | None:
    """Return the share that an option gives, None where it is not given; raises UsageError."""
    return None if text is None else values.share(text, option)


def format_of(path: str) -> str:
    """Return the format that a file's name asks for; raises UsageError for a suffix of none."""
    suffix = Path(path).suffix.lower()
    if reason := why_not(Path(path)):
        raise UsageError(f"{path} cannot be written: {reason}.")
    if suffix not in FORMAT_OF_SUFFIX:
        raise UsageError(f"{path}: unknown file type. The name must end in {', '.join(FORMAT_OF_SUFFIX)}.")
    return FORMAT_OF_SUFFIX[suffix]


def show(found: Comparison, form: str, write: Sequence[str] | None) -> None:
    """Print the report, and write it to the files asked for, each whole or not at all; raises UsageError."""
    print(to_stdout(COMPARED, found, ReportOptions(), form), flush=True)
    for path in write or ():
        text = export(COMPARED, found, ReportOptions(), format_of(path))
        try:
            write_whole(Path(path), text if text.endswith("\n") else text + "\n")
        except OSError as error:
            raise UsageError(f"The report {path} cannot be written: {error.strerror}.") from error
