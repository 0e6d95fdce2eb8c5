"""What `compare` and `gate` share: options, measuring two sides, and showing what came of it."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from dlbench.hardware_probe import Machine
from dlbench.reports.comparison.compared import Comparison
from dlbench.reports.comparison.report import REPORT as COMPARED
from dlbench.reports.comparison.verdict import Rule
from dlbench.reports.formats.export import export, formats_of, to_stdout
from dlbench.reports.report import Choices as ToShow
from dlbench.reports.storage.store import Store

from ..display.pair_progress import PairDisplay
from ..display.screen import counted, err, resume_command, say
from ..errors import Interrupted, Terminated, UsageError, unknown_name
from ..measuring import comparison, comparison_sides, preparation
from ..measuring.comparison_sides import Side
from ..measuring.launcher import ProcessLauncher
from ..measuring.pair_runner import PairEnding, PairRunner
from ..measuring.pairs import Next
from ..planning import values
from ..planning.choices import Choices
from ..planning.plan import Plan
from ..quiet.block_gate import open_gate
from ..quiet.machine_lock import measuring
from . import options
from .option_groups import OptionGroup

_FORMATS = formats_of(COMPARED)
FORMAT_OF_SUFFIX = {".md": "markdown", ".json": "json", ".csv": "csv", ".xml": "junit", ".txt": "terminal"}


@dataclass(frozen=True)
class OutputOptions(OptionGroup):
    """Where the report goes, and in what form."""

    form: Annotated[str, typer.Option("--format", help=f"{', '.join(_FORMATS)}.")] = "terminal"
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
        chosen = "json" if self.as_json else self.form
        if chosen not in _FORMATS:
            raise unknown_name("format", chosen, _FORMATS)
        return chosen


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
    same: Annotated[
        bool, typer.Option("--same", help="Compare identical code, to see what this machine's noise does.")
    ] = False

    def pair(self, python: Sequence[str], baseline: Sequence[str] = ()) -> tuple[Side, Side]:
        """Return baseline and candidate; raises UsageError."""
        return comparison_sides.pair(
            python,
            baseline,
            (self.baseline_env or (), self.candidate_env or ()),
            (self.baseline_adapters or "", self.candidate_adapters or ""),
            self.same,
        )


@dataclass(frozen=True)
class RuleOptions(OptionGroup):
    """When a verdict is given."""

    threshold: Annotated[
        str | None, typer.Option("--threshold", help="Smallest slowdown called a regression (2.5%).")
    ] = None
    tolerance: Annotated[
        str | None, typer.Option("--tolerance", help='Slowdown to be excluded before "no regression" is said (5%).')
    ] = None

    @property
    def rule(self) -> Rule:
        """The rule of this comparison; raises UsageError."""
        return comparison.rule_for(share_of(self.threshold, "--threshold"), share_of(self.tolerance, "--tolerance"))


@dataclass(frozen=True)
class LaunchOptions(OptionGroup):
    """How long each launch of a pair lasts."""

    steps: options.Steps = None
    cell_budget: options.CellBudget = None


def choices(
    candidate: Side, axes: options.AxisOptions, launches: LaunchOptions, builds: options.BuildOptions
) -> Choices:
    """Return what the options narrow a suite to; raises UsageError."""
    chosen = Choices(axes.words, steps=launches.steps, builds=candidate.builds, cell_budget=launches.cell_budget)
    # Interpreters or adapters were named: their frameworks are what is to be compared, unless more are asked for.
    given = dict.fromkeys([*(build.name for build in candidate.builds), *builds.joining])
    return chosen if chosen["frameworks"] or not given else chosen.but(frameworks=",".join(given))


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


def measure(asked: Asked, following: Next) -> Comparison:
    """Measure both sides, in interleaved pairs, and return what the records say.

    ``following`` says which pairs are needed.
    """
    plan, machine, session = asked.plan, asked.machine, asked.session
    allowed = session.seconds
    with Store.open(session.store_file, create=not session.resume, upgrade=True, report=say) as store:
        run = preparation.unfinished(store, plan, machine, asked.purpose, asked.bare) if session.resume else None
        store.add_machine(machine.fingerprint, machine.to_dict())
        prepared = comparison.prepare(plan, asked.pair, say, not session.no_build)
        if run is not None:
            comparison.check_same_sides(run, asked.pair, prepared)
            plan = replace(plan, cells=run.plan, protocol=run.protocol, seed=run.seed)
        else:
            run = comparison.begin(plan, asked.pair, prepared, store, machine, asked.purpose)
        say(f"{plan.suite}: {counted(len(plan.cells), 'cell')} on two sides, run {run.id} in {store.name}")
        for name, words in run.sides.items():
            say(f"  {name}: {words}")
        go_on = resume_command()
        with (
            measuring(say, wait=True) if plan.computes else contextlib.nullcontext(),
            preparation.exclusive(run),
            PairDisplay(err) as display,
        ):
            gate = open_gate(store, run, say) if plan.computes else None
            before_repeat = gate.before_repeat if gate else (lambda: True)
            carriers = comparison.carriers(
                plan, run, asked.pair, prepared, ProcessLauncher(), machine, say, before_repeat
            )
            runner = PairRunner(plan, run, store, carriers, following, display, allowed, gate)
            ending = _watched(runner, go_on)
        if ending.pairs_left:
            left = counted(ending.pairs_left, "pair")
            say(f"The budget is spent with at most {left} left. Go on: {go_on}")
        measured = len({(record.cell, record.stage, record.launch) for record in store.records(run=run.id)})
        found = comparison.report_of(store, run, asked.rule)
        counted_in = sum(len(pairs[0]) for cell in found.cells for pairs in cell.pairs.values())
        left_out = measured - counted_in
        say(
            f"{counted(measured, 'pair')} measured{f', {left_out} of them disturbed or incomplete' if left_out else ''}"
        )
        return found


def _watched(runner: PairRunner, go_on: str) -> PairEnding:
    words = f"Every finished launch is stored; go on with: {go_on}"
    try:
        return runner.run()
    except Terminated as error:
        raise Terminated(f"Ended by SIGTERM. {words}") from error
    except KeyboardInterrupt as error:
        raise Interrupted(f"Interrupted. {words}") from error


def share_of(text: str | None, option: str) -> float | None:
    """Return the share that an option gives, None where it is not given; raises UsageError."""
    return None if text is None else values.share(text, option)


def format_of(path: str) -> str:
    """Return the format that a file's name asks for; raises UsageError for a suffix of none."""
    suffix = Path(path).suffix.lower()
    folder = Path(path).absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{path} cannot be written: {folder.name or folder} is not a folder that you may write to.")
    if suffix not in FORMAT_OF_SUFFIX:
        raise UsageError(f"{path}: unknown file type. The name must end in {', '.join(FORMAT_OF_SUFFIX)}.")
    return FORMAT_OF_SUFFIX[suffix]


def show(found: Comparison, form: str, write: Sequence[str] | None) -> None:
    """Print the report, and write it to the files asked for, each whole or not at all; raises UsageError."""
    print(to_stdout(COMPARED, found, ToShow(), form), flush=True)
    for path in write or ():
        text = export(COMPARED, found, ToShow(), format_of(path))
        partial = Path(f"{path}.part")
        try:
            partial.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise UsageError(f"The report {path} cannot be written: {error.strerror}.") from error
