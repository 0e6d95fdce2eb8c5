"""`dlbench compare`: a candidate against a baseline, stored or measured now."""

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.compare.annotations import annotation
from dlbench.reports.compare.report import REPORT as COMPARED
from dlbench.reports.compare.report import conclusion_of
from dlbench.reports.formats.export import (
    export,
    format_of_file,
    formats_of,
    suffixes_of,
    to_stdout,
)
from dlbench.reports.formats.outputs import why_unwritable
from dlbench.reports.report import Report, ReportOptions
from dlbench.reports.results.comparison import CellComparison, Comparison, compare_runs
from dlbench.reports.results.hosts import Host, host_of, read_host
from dlbench.reports.results.judged import NAMES, TIME
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import BASELINE, BISECTING, CANDIDATE, SEARCHING, Record, Run
from dlbench.reports.results.results import run_named
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.database import PACKED
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import DEFAULT, Rule, Verdict, fewest_pairs, rule_of

from ..display.numbers import in_words
from ..display.screen import command_words, resume_command, say
from ..errors import EXIT_CODES, GATE_UNDECIDED, DlbenchError, UsageError, unknown_name
from ..planning import values
from ..planning.axes import listed_or
from ..planning.framework import find
from ..planning.judged import judged_given
from ..planning.plan import Plan, check_count, check_variables, heap_line
from ..planning.suite import load, shipped
from ..run import profiling, resume, sides
from ..run.budget import Budget
from ..run.groups import Grouping, grouping_for_pairs
from ..run.privacy import private_value
from ..run.runner import RunProfile, run_plan
from ..run.schedules import PairRule, PairSchedule, comparison_rule
from ..run.sides import Side, Sources, report_of
from . import completion, options
from .benchmark_files import files_meant, run_of_files
from .options import (
    BuildOptions,
    CellOptions,
    SessionOptions,
    argument,
    flag,
    names_of,
    option,
    takes,
)
from .plan import plan_of

FEWEST = 6
MOST = 20
INTERVAL = 0.02
ALLOW_DIFFERENT = flag(
    "--allow-different", "Judge times even if the losses of the two sides differ."
)


def format_option(report: Report[Any]) -> Any:
    """Return --format of a command with this report."""
    return option("--format", f"{listed_or(formats_of(report))}.")


def write_option(report: Report[Any]) -> Any:
    """Return --write of a command with this report."""
    return option(
        "--write",
        f"Write a file too: {listed_or(tuple(suffixes_of(report)))}. Repeatable.",
        metavar="FILE",
    )


def _adapters_option(side: str) -> Any:
    return option(
        f"--{side}-adapters",
        f"The adapters of this git revision are the {side}.",
        metavar="REVISION",
    )


def _step_option(side: str, other: str) -> Any:
    return option(
        f"--{side}-step",
        f"This file is the {side}; the file of --step is the {other}.",
        metavar="FILE",
    )


def undecided_option(usual: str) -> Any:
    """Return --undecided of a command whose default it is to fail, or to pass."""
    return option(
        "--undecided",
        f"Undecided cells `fail` (exit code {GATE_UNDECIDED}) or `pass` (default {usual}).",
        metavar="WORD",
    )


@dataclass(frozen=True, kw_only=True)
class _SideOptions:
    """How the two sides differ."""

    baseline_env: Annotated[
        list[str] | None,
        option(
            "--baseline-env", "An environment variable of the baseline only.", metavar="NAME=VALUE"
        ),
    ] = None
    candidate_env: Annotated[
        list[str] | None,
        option(
            "--candidate-env",
            "An environment variable of the candidate only.",
            metavar="NAME=VALUE",
        ),
    ] = None
    baseline_adapters: Annotated[str | None, _adapters_option("baseline")] = None
    candidate_adapters: Annotated[str | None, _adapters_option("candidate")] = None
    baseline_step: Annotated[str | None, _step_option("baseline", "candidate")] = None
    candidate_step: Annotated[str | None, _step_option("candidate", "baseline")] = None
    same: Annotated[bool, flag("--same", "Compare identical code, to measure noise.")] = False
    order: Annotated[str | None, options.ORDER] = None


@dataclass(frozen=True, kw_only=True)
class _MeasuringOptions(CellOptions, BuildOptions, _SideOptions, SessionOptions):
    """Options of a comparison that is measured now."""


@dataclass(frozen=True, kw_only=True)
class TwoSidesOptions(_MeasuringOptions):
    """The options that `dlbench compare` and `dlbench gate` share."""

    threshold: Annotated[
        str | None,
        option(
            "--threshold", "Smallest slowdown that is a regression (default 2.5%).", metavar="SHARE"
        ),
    ] = None
    tolerance: Annotated[
        str | None,
        option("--tolerance", "Slowdown that a pass must exclude (default 5%).", metavar="SHARE"),
    ] = None
    judge: Annotated[
        str | None,
        option(
            "--judge",
            f"{listed_or(NAMES)} (default {TIME}), as in `time,memory=5%`.",
            metavar="NAMES",
        ),
    ] = None
    allow_different: Annotated[bool, ALLOW_DIFFERENT] = False
    no_profile: Annotated[bool, options.NO_PROFILE] = False
    form: Annotated[str | None, format_option(COMPARED)] = None
    write: Annotated[list[str] | None, write_option(COMPARED)] = None
    as_json: Annotated[bool, options.JSON] = False


class MeasuredSides(NamedTuple):
    """Two sides that were measured now."""

    run: Run
    comparison: Comparison
    pairs_left: int
    """About how many pairs the budget left out."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions(TwoSidesOptions):
    """The options of `dlbench compare`."""

    first: Annotated[
        str,
        argument(
            "A", "Baseline: a run (its id, latest, previous), a store, or pytest-benchmark's files."
        ),
    ] = ""
    second: Annotated[str, argument("B", "Candidate, named in the same way.")] = ""
    now: Annotated[bool, flag("--now", "Measure both sides now, in pairs of launches.")] = False
    suite_name: Annotated[
        str | None,
        option(
            "--suite",
            "With --now: the suite to measure (default quick).",
            autocompletion=completion.suites,
        ),
    ] = None
    pairs: Annotated[
        str | None,
        option("--pairs", f"With --now: pairs of launches per cell (default {FEWEST}-{MOST})."),
    ] = None
    interval: Annotated[
        str | None,
        option("--interval", "With --now: until the interval is ± this share (default 2%)."),
    ] = None
    undecided: Annotated[str, undecided_option("pass")] = "pass"
    exit_zero: Annotated[bool, flag("--exit-zero", "Exit with 0 whatever the verdicts are.")] = (
        False
    )


@takes(CompareOptions)
def compare_command(given: CompareOptions) -> None:
    """Is B slower than A? Compare stored runs, or two sides measured now, cell by cell.

    Each cell gets an interval and a verdict. Give --python twice for a framework: the baseline
    first, then the candidate. Given once, it is the candidate, and dlbench's own environment is the
    baseline. Slower cells that are measured now are profiled, and the operators that account for
    the difference are named.

    Exit codes (always 0 with `--exit-zero`):

    - 0: no cell is slower, broken or different
    - 1: a regression
    - 5: the candidate gave no number where the baseline did
    - 7: the candidate computes something else than the baseline
    - 6: no cell was measured on both sides, or with `--undecided fail` a cell is undecided

    Examples:

    - `dlbench compare previous latest`
    - `dlbench compare old.json new.json`
    - `dlbench compare --now --python torch=new/bin/python --networks fcn5`
    """
    form = report_format(given.form, given.as_json, given.write)
    is_lenient(given.undecided)  # a wrong word is refused before anything is measured
    with annotating_errors(form):
        comparison = measure_comparison(given).comparison if given.now else compare_stored(given)
    show_and_exit(comparison, form, given)


def measure_comparison(given: CompareOptions) -> MeasuredSides:
    """Measure both sides now, and return their comparison. Raises UsageError."""
    word = given.first or given.second
    if word:
        advice = "Leave it out"
        if word in shipped() or word.endswith(".toml"):
            advice = f"To measure the cells of this suite, write --suite {word}"
        raise UsageError(
            f"With --now both sides are measured, so {word} cannot be the name of a stored run. "
            f"{advice}."
        )
    fewest, most = values.launch_range(given.pairs or f"{FEWEST}-{MOST}", "--pairs")
    width = values.share(given.interval, "--interval") if given.interval else INTERVAL

    def pairs(host: Host, cells: int, rule: Rule) -> PairRule:
        needed = fewest_pairs(cells, rule)
        first = max(fewest, needed)
        last = max(most, needed)
        span = str(first) if first == last else f"{first} to {last}"
        why = f" (fewer than {needed} cannot show a slowdown)" if needed > fewest else ""
        more = f"up to {int(rule.spare * last)} more replace pairs that other programs disturb"
        say(f"{span} pairs per cell{why}; {more}")
        return comparison_rule(host, cells, fewest, most, width, rule)

    return measure(given, "compare", given.suite_name or "quick", pairs)


def _check_stored(given: CompareOptions) -> None:
    """Raise UsageError for options that stored runs do not take, and if no run is named."""
    of_measuring = {
        *names_of(_MeasuringOptions),
        *("suite_name", "pairs", "interval", "no_profile"),
    }
    if any(getattr(given, name) for name in of_measuring - {"store_file"}):
        raise UsageError("Measurement options need --now. Stored runs are compared as they are.")
    if not given.first:
        raise UsageError(
            "Name two runs to compare (`dlbench report runs` lists them), or measure now: --now."
        )


def show_and_exit(comparison: Comparison, form: str, given: CompareOptions) -> NoReturn:
    """Print a comparison and end the command with its exit code."""
    show(comparison, form, given.write)
    measured = any(cell.measured for cell in comparison.cells)
    code = exit_code(comparison, measured and is_lenient(given.undecided))
    raise typer.Exit(0 if given.exit_zero else code)


def is_lenient(undecided: str) -> bool:
    """Tell whether an undecided comparison passes, by the word of --undecided.

    Raises UsageError for an unknown word.
    """
    return values.one_of(undecided, "choice for --undecided", ("fail", "pass")) == "pass"


def exit_code(comparison: Comparison, lenient: bool) -> int:
    """Return the exit code of a comparison: that of its gravest verdict.

    A ``lenient`` one passes if it is undecided.
    """
    verdict = conclusion_of(comparison).verdict
    if verdict == "undecided" and lenient:
        return 0
    return EXIT_CODES[comparison.purpose][verdict]


def report_format(
    form: str | None, as_json: bool, write: Sequence[str] | None, report: Report[Any] = COMPARED
) -> str:
    """Return the name of the output format, from the words of --format, --json and --write.

    Raises UsageError for an unknown format, and for a file that cannot be written.
    """
    for path in write or ():
        if reason := why_unwritable(Path(path)):
            raise UsageError(f"{path} cannot be written: {reason}.")
        if not format_of_file(report, Path(path)):
            known = listed_or(tuple(suffixes_of(report)))
            raise UsageError(f"{path}: unknown file type. The name must end in {known}.")
    return options.form_of(form, as_json, formats_of(report))


def rule_given(
    usual: Rule,
    threshold: str | None,
    tolerance: str | None,
    allow_different: bool,
    judge: str | None,
) -> Rule:
    """Return a rule with the thresholds and quantities that are given. Raises UsageError."""
    changes: dict[str, Any] = {}
    if threshold is not None:
        changes["threshold"] = values.share(threshold, "--threshold")
    if tolerance is not None:
        changes["tolerance"] = values.share(tolerance, "--tolerance")
    if allow_different:
        changes["allow_different"] = True
    if judge:
        changes |= judged_given(judge)
    return replace(usual, **changes)


def rule_of_two_sides(given: TwoSidesOptions, usual: Rule = DEFAULT) -> Rule:
    """Return the rule of a comparison or a gate. Raises UsageError."""
    return rule_given(usual, given.threshold, given.tolerance, given.allow_different, given.judge)


def planned(
    given: TwoSidesOptions, suite: str, machine: Machine, baseline: Sequence[str] = ()
) -> tuple[Plan, tuple[Side, Side]]:
    """Return the plan of a suite's cells, and baseline and candidate.

    ``baseline`` are the words of a baseline's interpreters. Raises UsageError.
    """
    chosen = options.choices(given).but(interval=None)  # the option is about pairs
    own = chosen.own
    files = (given.baseline_step, given.candidate_step)
    step = find(own.names[0]) if own is not None and len(own.names) == 1 else None
    if any(files) and step is None:
        raise UsageError(
            "--baseline-step and --candidate-step need one --step FILE to compare with: "
            "--baseline-step OLD --step NEW."
        )
    pair = sides.pair(
        (baseline, options.interpreters(given)),
        (given.baseline_env or (), given.candidate_env or ()),
        (given.baseline_adapters or "", given.candidate_adapters or ""),
        files,
        step,
    )
    # Where interpreters or adapters are named, their frameworks are compared, unless more are asked
    # for.
    row_by_framework = {build.framework.name: build.framework.name for build in pair[0].builds}
    row_by_framework |= {build.framework.name: build.name for build in pair[1].builds}
    named = dict.fromkeys([*row_by_framework.values(), *chosen.joining])
    chosen = chosen.but(builds=pair[1].builds, joining=())
    if named and not chosen["frameworks"]:
        rows_of_suite = load(suite).frameworks
        rows: list[str] = []
        for name in named:
            rows += [row for row in rows_of_suite if row.partition(":")[0] == name] or [name]
        chosen = chosen.but(frameworks=",".join(rows))
    plan = plan_of(suite, chosen, machine, given.seed)
    if not given.same:
        sides.check_sides_differ(pair, step)
    for side in pair:
        check_variables(plan, side.variables, f"--{side.name}-env")
    return plan, pair


def measure(
    given: TwoSidesOptions,
    purpose: str,
    suite: str,
    pairs: Callable[[Host, int, Rule], PairRule],
    baseline: Sequence[str] = (),
) -> MeasuredSides:
    """Measure both sides of a suite's cells, and return their comparison.

    ``pairs`` returns the rule by which interleaved pairs are launched. Raises UsageError.
    """
    budget = Budget(options.seconds_of(given.budget))
    rule = rule_of_two_sides(given)
    machine = probe()
    plan, pair = planned(given, suite, machine, baseline)
    check_count(plan, given.yes)
    grouping = grouping_for_pairs(plan, machine, given.order, pair)
    pair_rule = pairs(host_of(machine), len(plan.cells), rule)
    unfinished = None
    sources = None
    if given.resume:
        unfinished, sources = _resumed(given, plan, machine, purpose, pair, rule)
        plan = replace(
            plan, cells=unfinished.plan, protocol=unfinished.protocol, seed=unfinished.seed
        )
    elif budget.seconds is not None:
        first_pairs = PairSchedule(plan, (), pair_rule, grouping).seconds_left()
        if first_pairs > budget.seconds:
            say(
                f"The budget of {in_words(budget.seconds)} is short: the first look at every cell "
                f"takes roughly {in_words(first_pairs)}, and a cell without it is inconclusive. "
                "--resume continues the run."
            )
    profile = RunProfile(
        purpose,
        lambda plan, records, host: PairSchedule(
            plan, records, pair_rule, grouping, host, rule.judged
        ),
        pair,
        rule,
        ceilings=False,
        lines=lambda: (
            f"{counted(len(plan.cells), 'cell')} on two sides{_cells_in_turns(plan, grouping)}",
            *grouping.remarks,
            heap_line(plan),
        ),
        unfinished=unfinished,
        sources=sources,
    )
    with delivery.opened(
        given.store_file, say, create=not given.resume, unfinished=unfinished
    ) as store:
        run, schedule = run_plan(
            plan, machine, store, profile, budget=budget, build_missing=not given.no_build
        )
        left = schedule.launches_left()
        if left:
            say(
                f"The budget ran out with about {counted(left // 2, 'pair')} left. Resume: "
                f"{resume_command()}"
            )
        comparison = report_of(store, run, rule)
        slower = slower_cells(comparison)
        if slower and not left and not given.no_profile:
            prepared = sources or sides.prepare(plan, pair, say, not given.no_build)
            profiling.profile_cells(
                plan, run, pair, prepared, machine, slower, store, budget, given.order
            )
            comparison = report_of(store, run, rule)
        say(_pairs_line(store, run, comparison))
    comparison = replace(
        comparison,
        command=rerun_command(command_words(), run.seed),
        files=_files_in_repository(plan, pair[1]),
    )
    return MeasuredSides(run, comparison, left // 2)


def _files_in_repository(plan: Plan, candidate: Side) -> dict[str, str]:
    """Return the candidate's file of each own step, as its path in the repository of a CI job."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    files = {}
    for row in plan.rows:
        framework = row.build.framework
        if framework.file is None:
            continue
        file = (candidate.step or framework).file or framework.file
        path = file.resolve()
        if path.is_relative_to(root):
            files[row.build.name] = path.relative_to(root).as_posix()
    return files


GITHUB = "github"


@contextlib.contextmanager
def annotating_errors(form: str) -> Iterator[None]:
    """Annotate an error that ends the command, where the format is that of GitHub's workflows."""
    try:
        yield
    except DlbenchError as error:
        if form == GITHUB:
            print(annotation("error", "dlbench", str(error)), flush=True)
        raise


def _cells_in_turns(plan: Plan, grouping: Grouping) -> str:
    """Return how many of a plan's cells take turns, for the end of a sentence."""
    if not grouping.cells:
        return ""
    if len(grouping.cells) == len(plan.cells):
        return ", in turns"
    return f", {len(grouping.cells)} of them in turns"


def _resumed(
    given: TwoSidesOptions,
    plan: Plan,
    machine: Machine,
    purpose: str,
    pair: tuple[Side, Side],
    rule: Rule,
) -> tuple[Run, Sources]:
    """Return the run to continue, and the sources of both sides.

    Raises UsageError if the run was measured with other settings.
    """
    with Store.open(delivery.local_or(given.store_file), create=False) as store:
        unfinished = resume.unfinished(store, plan, machine, purpose)
        records = list(store.records(run=unfinished.id))
    sources = sides.prepare(plan, pair, say, not given.no_build)
    sides.check_same(unfinished, sides.describe_sides(pair, sources), rule)
    side_by_name = {side.name: side for side in pair}
    for record in records:
        source = sources[record.side][record.cell.framework]
        resume.check_same_settings(plan, record, source.build.framework)
        variables = {**plan.variables, **side_by_name[record.side].variables}
        if variables:
            resume.check_same_variables(record, source.digest, variables)
    return unfinished, sources


def _pairs_line(store: Store, run: Run, comparison: Comparison) -> str:
    """Return how many pairs of a run were measured, and how many of them count for nothing."""
    measured = len({(record.cell, record.launch) for record in store.records(run=run.id)})
    # A cell is in the comparison once for each quantity: its first entry, of the times, counts.
    pairs_by_cell = {cell.cell: len(cell.pairs[0]) for cell in reversed(comparison.cells)}
    left_out = measured - sum(pairs_by_cell.values())
    more = f", {left_out} of them disturbed or incomplete" if left_out else ""
    return f"{counted(measured, 'pair')} measured{more}"


def _ratio_of_cell(cell: CellComparison) -> float:
    ratio = cell.judgement.ratio
    return 1.0 if ratio is None else ratio.value


def slower_cells(comparison: Comparison) -> list[Cell]:
    """Return the cells to profile: with a regression and not profiled yet, the slowest first."""
    profiled = {difference.cell for difference in comparison.operators}
    slower = []
    for cell in comparison.having(Verdict.REGRESSION):
        if cell.quantity == TIME and cell.cell not in profiled:
            slower.append(cell)
    ordered = sorted(slower, key=_ratio_of_cell, reverse=True)
    return [cell.cell for cell in ordered[: profiling.MOST_CELLS]]


_NOT_REPEATED = ("--write", "--format", "--json", "--resume", "--store", "--seed")
"""Options that do not change the measurement, and --seed, which is given anew."""
_WORD = re.compile(r"((?:--[\w-]+=)?)([^=]*=)?(.*)", re.DOTALL)


def rerun_command(words: Sequence[str], seed: int) -> str:
    """Return the command with these words, to measure the same pairs in the same order.

    It has no private paths or secrets.
    """
    remaining = iter(words)
    kept = ["dlbench"]
    for word in remaining:
        if word.partition("=")[0] not in _NOT_REPEATED:
            parts = _WORD.fullmatch(word)
            assert parts is not None  # it takes any word
            option, name, value = parts.groups(default="")
            kept.append(f"{option}{name}{private_value(name, value)}")
        elif "=" not in word and word not in ("--json", "--resume"):
            next(remaining, "")  # the option's value
    return shlex.join([*kept, "--seed", str(seed)])


def show(
    content: Any, form: str, write: Sequence[str] | None, report: Report[Any] = COMPARED
) -> None:
    """Print the report, and write it to the files asked for, each whole or not at all.

    Raises UsageError.
    """
    # An empty line at the end would be a row of CSV.
    end = "" if form == "csv" else "\n"
    print(to_stdout(report, content, ReportOptions(), form), end=end, flush=True)
    for name in write or ():
        path = Path(name)
        text = export(report, content, ReportOptions(), format_of_file(report, path))
        if not text.endswith("\n"):
            text += "\n"
        options.write_file(path, text, "The report")


class _StoredRun(NamedTuple):
    """A stored run to compare."""

    run: Run
    records: list[Record]
    store: str
    """The store that holds the run; empty for files of pytest-benchmark."""
    hosts: dict[str, Host]

    def candidate(self) -> list[Record]:
        """Return the records of the run or, if it has two sides, of its candidate."""
        return [record for record in self.records if record.side in ("", CANDIDATE)]

    def name(self, word: str) -> str:
        """Return the name of a run that was chosen with this word."""
        name = f"run {self.run.id} of {self.run.suite}" if self.store else word
        return f"{name}, {self.run.started:%Y-%m-%d %H:%M} UTC"


def compare_stored(given: CompareOptions) -> Comparison:
    """Return the comparison of two stored runs or, given one, of the two sides of that run.

    Given thresholds replace the default ones, or those of the run with two sides. Raises UsageError
    for words that name no run and for runs that cannot be compared, and StoreError.
    """
    _check_stored(given)
    before = _find(given.first, given.store_file)
    if not given.second:
        return _compare_sides_of(before, given)
    after = _find(given.second, given.store_file)
    if (before.run.id, before.run.machine) == (after.run.id, after.run.machine):
        raise UsageError(
            f"{given.first} and {given.second} are the same run, {before.run.id}. Name two."
        )
    names = {BASELINE: before.name(given.first), CANDIDATE: after.name(given.second)}
    try:
        return compare_runs(
            before.candidate(),
            after.candidate(),
            {**before.hosts, **after.hosts},
            names,
            rule_of_two_sides(given),
        )
    except ValueError as error:
        both = f"{names[BASELINE]}, and {names[CANDIDATE]}"
        others = _comparable_runs(before, after) + _comparable_runs(after, before)
        raise UsageError(f"{both}, cannot be compared: {error}.{others}") from error


def _compare_sides_of(stored: _StoredRun, given: CompareOptions) -> Comparison:
    """Return the comparison of the two sides of a run. Raises UsageError if it has one side."""
    if not stored.run.sides:
        raise UsageError(
            f"Run {stored.run.id} has one side only. Name a second run to compare it with."
        )
    if not stored.store:
        raise UsageError(
            f"{given.first} holds both sides of a comparison. Read it into a store: `dlbench "
            "import`."
        )
    rule = rule_of_two_sides(given, usual=rule_of(stored.run.rule))
    with Store.open(stored.store, create=False) as store:
        return report_of(store, stored.run, rule)


def _comparable_runs(stored: _StoredRun, other: _StoredRun) -> str:
    """Return a sentence with the newest runs in the other's store that share a cell with a run."""
    if not other.store:
        return ""
    cells = {record.cell for record in stored.records}
    names = []
    with Store.open(other.store, create=False) as store:
        for run in reversed(store.runs()):
            shares_a_cell = run.id != stored.run.id and bool(cells & set(run.plan))
            if shares_a_cell and run.purpose not in (SEARCHING, BISECTING):
                names.append(f"{other.store}:{run.id}")
    if not names:
        return ""
    return f" Run {stored.run.id} shares cells with {' and '.join(names[:2])}."


def _find(word: str, store_file: str) -> _StoredRun:
    """Return the run that a word means. Raises UsageError and StoreError.

    A word is latest, previous, the beginning of an id, a store (its newest run), STORE:ID, or files
    of pytest-benchmark with commas between.
    """
    if files := files_meant(word):
        imported = run_of_files(files)
        fingerprint = imported.run.machine
        host = read_host(fingerprint, imported.machine)
        return _StoredRun(imported.run, list(imported.records), "", {fingerprint: host})
    is_file = os.path.isfile  # False for a word too long for a name, where a Path raises
    place, colon, run_in_place = word.rpartition(":")
    if colon and not is_file(word):
        is_server = "/" in place.partition("://")[2] and "/" not in run_in_place
        if is_file(place) or is_server:
            return _find(run_in_place, place)
    if word.endswith((".json", ".sqlite", PACKED)) and not is_file(word):
        missing = [file for file in word.split(",") if not is_file(file)]
        raise UsageError(f"There is no file {missing[0]}.")
    if os.path.isdir(word):  # noqa: PTH112 - as above
        raise UsageError(
            f"{word} is a folder. Name its files with commas between: {word.rstrip('/')}/a.json,..."
        )
    target = word if is_file(word) or "://" in word else store_file
    with Store.open(target, create=False) as store:
        run = _run_named("latest" if target == word else word, word, store)
        records = store.records(run=run.id)
        host = read_host(run.machine, store.machine(run.machine))
    if not records:
        raise UsageError(f"Run {run.id} has no record: it ended before its first launch.")
    if run.purpose == SEARCHING:
        raise UsageError(
            f"Run {run.id} is a search, which launched fast cells more often. Name another run."
        )
    if run.purpose == BISECTING:
        raise UsageError(
            f"Run {run.id} is a bisection, whose pairs were chosen by their results. Name another "
            "run."
        )
    return _StoredRun(run, records, target, {run.machine: host})


def _run_named(name: str, word: str, store: Store) -> Run:
    """Return the run of this name in a store. Raises UsageError, about ``word`` that was typed."""
    runs = store.runs()
    if not runs:
        raise UsageError(f"{store.name} holds no run yet; fill it with `dlbench run SUITE`.")
    identifier = run_named(name, runs)
    for run in runs:
        if run.id == identifier:
            return run
    raise unknown_name("run", word, [run.id for run in runs[-5:]])
