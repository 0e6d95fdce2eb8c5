"""What `compare` and `gate` share: options, measuring two sides, and showing what came of it."""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dlbench.hardware_probe import Machine
from dlbench.reports.comparison.analysis import Comparison
from dlbench.reports.comparison.data import comparison_to_csv, comparison_to_json
from dlbench.reports.comparison.junit import comparison_to_junit
from dlbench.reports.comparison.markdown import comparison_to_markdown
from dlbench.reports.comparison.terminal import comparison_to_terminal
from dlbench.reports.comparison.verdict import Rule
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.store import Store

from ..display.pair_progress import PairDisplay
from ..display.screen import counted, err, program, say
from ..errors import Interrupted, Terminated, UsageError, unknown_name
from ..measuring import comparison, comparison_sides, preparation
from ..measuring.launcher import ProcessLauncher
from ..measuring.pair_runner import PairEnding, PairRunner
from ..measuring.pairs import Next
from ..planning import suite
from ..planning import values as axes
from ..planning.plan import Choices, Plan, expand
from ..quiet.block_gate import open_gate
from ..quiet.machine_lock import measuring
from . import options

EXPORTERS: dict[str, Callable[[Comparison], str]] = {
    "terminal": lambda found: comparison_to_terminal(found, colour=os.isatty(1) and "NO_COLOR" not in os.environ),
    "markdown": comparison_to_markdown,
    "json": comparison_to_json,
    "csv": comparison_to_csv,
    "junit": comparison_to_junit,
}
FORMAT_OF_SUFFIX = {".md": "markdown", ".json": "json", ".csv": "csv", ".xml": "junit", ".txt": "terminal"}

Format = Annotated[str, typer.Option("--format", help=f"{', '.join(EXPORTERS)}.")]
Write = Annotated[
    list[str] | None,
    typer.Option(
        "--write",
        metavar="FILE",
        help="Write the report to a file too: .md, .json, .csv, or .xml for JUnit. Repeatable.",
    ),
]
BaselineEnv = Annotated[
    list[str] | None,
    typer.Option("--baseline-env", metavar="NAME=VALUE", help="A variable of the baseline's launches."),
]
CandidateEnv = Annotated[
    list[str] | None,
    typer.Option("--candidate-env", metavar="NAME=VALUE", help="A variable of the candidate's launches."),
]
BaselineAdapters = Annotated[
    str, typer.Option("--baseline-adapters", metavar="REVISION", help="The adapters at this git revision as baseline.")
]
CandidateAdapters = Annotated[
    str,
    typer.Option("--candidate-adapters", metavar="REVISION", help="The adapters at this git revision as candidate."),
]
Same = Annotated[bool, typer.Option("--same", help="Compare identical code, to see what this machine's noise does.")]
Threshold = Annotated[
    str, typer.Option("--threshold", help="Smallest slowdown called a regression (2.5%).", show_default=False)
]
Tolerance = Annotated[
    str, typer.Option("--tolerance", help='Slowdown to be excluded before "no regression" is said (5%).')
]


def choices(
    candidate: comparison_sides.Side,
    networks: str,
    frameworks: str,
    threads: str,
    batch_sizes: str,
    steps: int | None,
    adapter: list[str] | None,
    devices: str = "",
    precisions: str = "",
    placements: str = "",
    world_sizes: str = "",
) -> Choices:
    """Return what the options narrow a suite to."""
    # Interpreters or adapters were named: their frameworks are what is to be compared, unless more are asked for.
    given = [*(build.name for build in candidate.builds), *(text.partition("=")[0] for text in adapter or [])]
    named = frameworks or ",".join(dict.fromkeys(given))
    return Choices(
        networks=networks,
        frameworks=named,
        threads=threads,
        batch_sizes=batch_sizes,
        devices=devices,
        steps=steps,
        builds=candidate.builds,
        precisions=precisions,
        placements=placements,
        world_sizes=world_sizes,
    )


def plan_of(name: str, chosen: Choices, machine: Machine, seed: int | None) -> Plan:
    """Return the plan of a suite on this machine; raises UsageError."""
    return expand(
        suite.load(name), chosen, preparation.capacity(machine), preparation.new_seed() if seed is None else seed
    )


def measure(
    plan: Plan,
    pair: tuple[comparison_sides.Side, comparison_sides.Side],
    machine: Machine,
    store_file: str,
    purpose: str,
    following: Next,
    rule: Rule,
    budget: str,
    resume: bool,
    build_missing: bool,
) -> Comparison:
    """Measure both sides, in interleaved pairs, and return what the records say.

    ``following`` says which pairs are needed.
    """
    allowed = options.Budget.parse(budget)
    with Store.open(store_file, create=not resume) as store:
        run = _unfinished(store, plan, machine, purpose) if resume else None
        store.add_machine(machine.fingerprint, machine.to_dict())
        prepared = comparison.prepare(plan, pair, say, build_missing)
        if run is not None:
            comparison.check_same_sides(run, pair, prepared)
            plan = replace(plan, cells=run.plan, protocol=run.protocol, seed=run.seed)
        else:
            run = comparison.begin(plan, pair, prepared, store, machine, purpose)
        say(f"{plan.suite}: {counted(len(plan.cells), 'cell')} on two sides, run {run.id} in {store.name}")
        for name, words in run.sides.items():
            say(f"  {name}: {words}")
        go_on = shlex.join([program(), *(word for word in sys.argv[1:] if word != "--resume"), "--resume"])
        with (
            measuring(say, wait=True) if plan.computes else contextlib.nullcontext(),
            preparation.exclusive(run),
            PairDisplay(err) as display,
        ):
            gate = open_gate(store, run, say) if plan.computes else None
            before_repeat = gate.before_repeat if gate else (lambda: True)
            carriers = comparison.carriers(plan, run, pair, prepared, ProcessLauncher(), machine, say, before_repeat)
            runner = PairRunner(plan, run, store, carriers, following, display, allowed.seconds, gate)
            ending = _watched(runner, go_on)
        if ending.pairs_left:
            left = counted(ending.pairs_left, "pair")
            say(f"The budget is spent with at most {left} left. Go on: {go_on}")
        return comparison.report_of(store, run, rule)


def _unfinished(store: Store, plan: Plan, machine: Machine, purpose: str) -> Run:
    run = preparation.unfinished(store, plan.suite, machine, purpose)
    if run is None:
        raise UsageError(
            f"This store has no unfinished {purpose} of {plan.suite} on this machine. Leave --resume out to start one."
        )
    return run


def _watched(runner: PairRunner, go_on: str) -> PairEnding:
    words = f"Every finished launch is stored; go on with: {go_on}"
    try:
        return runner.run()
    except Terminated as error:
        raise Terminated(f"Ended by SIGTERM. {words}") from error
    except KeyboardInterrupt as error:
        raise Interrupted(f"Interrupted. {words}") from error


def share_of(text: str, option: str) -> float | None:
    """Return the share that an option gives, None where it is not given; raises UsageError."""
    return axes.share(text, option) if text else None


def format_named(name: str, as_json: bool) -> str:
    """Return the name of the output format; raises UsageError for one that does not exist."""
    chosen = "json" if as_json else name
    if chosen not in EXPORTERS:
        raise unknown_name("format", chosen, EXPORTERS)
    return chosen


def format_of(path: str) -> str:
    """Return the format that a file's name asks for; raises UsageError for a suffix of none."""
    suffix = Path(path).suffix.lower()
    folder = Path(path).absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{path} cannot be written: {folder.name or folder} is no folder that you may write to.")
    if suffix not in FORMAT_OF_SUFFIX:
        raise UsageError(f"{path}: write what kind of file? The name must end in {', '.join(FORMAT_OF_SUFFIX)}.")
    return FORMAT_OF_SUFFIX[suffix]


def show(found: Comparison, form: str, write: list[str] | None) -> None:
    """Print the report, and write it to the files asked for, each whole or not at all; raises UsageError."""
    print(EXPORTERS[form](found), flush=True)
    for path in write or ():
        text = EXPORTERS[format_of(path)](found)
        partial = Path(f"{path}.part")
        try:
            partial.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise UsageError(f"The report {path} cannot be written: {error.strerror}.") from error
