"""`dlbench compare`: a candidate against a baseline, stored or measured now."""

import os.path
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import typer

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.compare.report import REPORT as COMPARED
from dlbench.reports.compare.report import gate_outcome
from dlbench.reports.formats.export import export, formats_of, to_stdout
from dlbench.reports.formats.outputs import why_unwritable
from dlbench.reports.report import Report, ReportOptions
from dlbench.reports.results.comparison import Comparison, compare_runs
from dlbench.reports.results.hosts import Host, host_of, read_host
from dlbench.reports.results.judged import JUDGED, NAMES, TIME
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import BASELINE, BISECTING, CANDIDATE, SEARCHING, Record, Run
from dlbench.reports.results.results import run_named
from dlbench.reports.results.storage import delivery
from dlbench.reports.results.storage.database import PACKED
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import DEFAULT, Rule, Verdict, fewest_pairs, rule_of

from ..display.progress import in_words
from ..display.screen import resume_command, say
from ..errors import (
    GATE_BROKEN,
    GATE_DIFFERENT,
    GATE_FAILED,
    GATE_UNDECIDED,
    UsageError,
    unknown_name,
)
from ..planning import values
from ..planning.framework import find
from ..planning.plan import Plan, check_count, check_variables, heap_line
from ..planning.suite import load, shipped
from ..run import profiling, resume, sides
from ..run.groups import of_pairs
from ..run.privacy import private_value
from ..run.runner import RunProfile, run_plan
from ..run.schedules import PairRule, PairSchedule, for_compare
from ..run.sides import Side, report_of
from . import options
from .benchmark_files import files_meant, run_of_files
from .options import Given, flag, option, several, takes
from .plan import plan_of

FEWEST, MOST, INTERVAL = 6, 20, 0.02
_FORMATS = formats_of(COMPARED)
_FORMAT_OF_SUFFIX = {
    ".md": "markdown",
    ".json": "json",
    ".csv": "csv",
    ".xml": "junit",
    ".txt": "terminal",
}

ALLOW_DIFFERENT = flag(
    "--allow-different",
    "Compare the times of your own step even if the first losses of the two sides differ: they "
    "compute different things.",
)
_SIDES: options.Options = {
    "baseline_env": several(
        "--baseline-env", "An environment variable for the baseline's launches only.", "NAME=VALUE"
    ),
    "candidate_env": several(
        "--candidate-env",
        "An environment variable for the candidate's launches only.",
        "NAME=VALUE",
    ),
    **{
        f"{side}_adapters": option(
            f"--{side}-adapters",
            f"Use the adapters at this git revision as {side}.",
            metavar="REVISION",
        )
        for side in ("baseline", "candidate")
    },
    **{
        f"{side}_step": option(
            f"--{side}-step",
            f"This file is the {side}; the file of --step is the {other}.",
            metavar="FILE",
        )
        for side, other in (("baseline", "candidate"), ("candidate", "baseline"))
    },
    "same": flag("--same", "Compare identical code, to measure this machine's noise."),
    "order": options.ORDER,
}
_MEASURING = {
    **options.AXES,
    "steps": options.STEPS,
    "cell_budget": options.CELL_BUDGET,
    **options.BUILDS,
    **_SIDES,
    **options.SESSION,
}
OPTIONS: options.Options = {
    **_MEASURING,
    "threshold": option("--threshold", "Smallest slowdown called a regression (default 2.5%)."),
    "tolerance": option(
        "--tolerance", 'Slowdown that must be excluded for "no regression" (default 5%).'
    ),
    "judge": option(
        "--judge",
        f"What is judged, with commas: {', '.join(NAMES)} (default {TIME}). `memory=5%` sets the "
        "smallest rise called a regression; twice as much must be excluded.",
        metavar="NAME[=SHARE],...",
    ),
    "allow_different": ALLOW_DIFFERENT,
    "no_profile": options.NO_PROFILE,
    "form": option("--format", f"{', '.join(_FORMATS)}."),
    "write": several(
        "--write",
        "Write the report to a file too: .md, .json, .csv, or .xml for JUnit. Repeatable.",
        "FILE",
    ),
    "as_json": options.JSON,
}


def undecided_option(usual: str) -> tuple[Any, Any]:
    """Return --undecided of a command whose default it is to fail, or to pass."""
    text = (
        f"Exit code if a cell is undecided: `fail` is {GATE_UNDECIDED}, `pass` is 0 (default "
        f"{usual})."
    )
    return option("--undecided", text, str, usual, metavar="fail|pass")


_SIDE = (
    "Baseline: a run's id or its start, latest, previous, a store, or files of pytest-benchmark, "
    "each a launch: `a1.json,a2.json`."
)
_COMPARE: options.Options = {
    "first": options.argument("A", _SIDE, usual=""),
    "second": options.argument("B", "Candidate, named in the same way.", usual=""),
    "now": flag("--now", "Measure both sides now, in interleaved pairs of launches."),
    "suite_name": option(
        "--suite", "With --now: the suite whose cells are measured (default quick)."
    ),
    "pairs": option(
        "--pairs",
        f"With --now: minimum and maximum number of pairs per cell (default {FEWEST}-{MOST}).",
    ),
    "interval": option(
        "--interval", "With --now: measure until the 95 % interval is ± this share (default 2%)."
    ),
    "undecided": undecided_option("pass"),
    "exit_zero": flag("--exit-zero", "Exit with 0 whatever the verdicts are."),
}


@takes(_COMPARE, OPTIONS)
def compare_command(given: Given) -> None:
    """Is B slower than A? Stored runs, or two sides measured now: cell by cell, with intervals and
    a verdict.

    Give --python twice for a framework: the baseline first, then the candidate. Given once, it is
    the candidate, and dlbench's own environment is the baseline (your own step has none: one
    interpreter serves both sides). Measured now, the two sides of a cell are launched in pairs,
    which take turns. Slower cells are profiled on both sides at the end, and the operators that
    account for the difference are named (`--no-profile` leaves that out).

    Exit codes (always 0 with `--exit-zero`):

    - 0: no cell is slower, broken or different
    - 1: a regression
    - 5: the candidate gave no number where the baseline did
    - 7: the candidate computes something else than the baseline
    - 6: no cell was measured on both sides; with `--undecided fail` also if a cell has too little
      evidence

    Examples:

    - `dlbench compare previous latest`
    - `dlbench compare 20261119 20261120 --format markdown`
    - `dlbench compare here.sqlite there.sqlite`
    - `dlbench compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json`
    - `dlbench compare --now --python torch=/opt/a/bin/python --python
      torch-next:torch=/opt/b/bin/python`
    - `dlbench compare --now --frameworks mxnet --candidate-env OMP_WAIT_POLICY=passive --networks
      lstm32`
    - `dlbench compare --now --frameworks torch --baseline-adapters HEAD~1`
    - `dlbench compare --now --frameworks torch --threads 1 --candidate-env MKLDNN_VERBOSE=1 --order
      sequential`
    """
    form = report_format(given)
    is_lenient(given)  # a wrong word is refused before anything is measured
    if not given.now:
        measuring = {*_MEASURING, "suite_name", "pairs", "interval", "no_profile"} - {"store_file"}
        if any(getattr(given, name) for name in measuring):
            raise UsageError(
                "Measurement options need --now. Stored runs are compared as they are."
            )
        if not given.first:
            raise UsageError(
                "Name two runs to compare (`dlbench report runs` lists them), or measure now: "
                "--now."
            )
        show_and_exit(_compare_stored(given), form, given)
    if given.first or given.second:
        word = given.first or given.second
        what = (
            f"To measure the cells of this suite, write --suite {word}"
            if _is_suite(word)
            else "Leave it out"
        )
        raise UsageError(
            f"With --now both sides are measured, so {word} cannot be the name of a stored run. "
            f"{what}."
        )
    fewest, most = values.launch_range(given.pairs or f"{FEWEST}-{MOST}", "--pairs")
    width = values.share(given.interval, "--interval") if given.interval else INTERVAL

    def pairs(host: Host, cells: int, rule: Rule) -> PairRule:
        needed = fewest_pairs(cells, rule)
        first, last = max(fewest, needed), max(most, needed)
        span = str(first) if first == last else f"{first} to {last}"
        why = f" (fewer than {needed} cannot show a slowdown)" if needed > fewest else ""
        more = f"up to {int(rule.spare * last)} more replace pairs that other programs disturb"
        say(f"{span} pairs per cell{why}; {more}")
        return for_compare(host, cells, fewest, most, width, rule)

    show_and_exit(measure(given, "compare", given.suite_name or "quick", pairs), form, given)


def show_and_exit(found: Comparison, form: str, given: Given) -> NoReturn:
    """Print a comparison and end the command with its exit code."""
    show(found, form, given.write)
    measured = any(cell.measured for cell in found.cells)
    code = exit_code(found, measured and is_lenient(given))
    raise typer.Exit(0 if given.exit_zero else code)


def is_lenient(given: Given) -> bool:
    """Return whether an undecided comparison passes; raises UsageError."""
    return values.one_of(given.undecided, "choice for --undecided", ("fail", "pass")) == "pass"


_CODES = {
    Verdict.REGRESSION: GATE_FAILED,
    Verdict.BROKEN: GATE_BROKEN,
    Verdict.DIFFERENT: GATE_DIFFERENT,
}


def exit_code(found: Comparison, lenient: bool) -> int:
    """Return the exit code of a comparison: that of its gravest verdict; a ``lenient`` one passes
    where it is open.
    """
    for verdict, code in _CODES.items():
        if found.having(verdict):
            return code
    is_open = gate_outcome(found).outcome == "undecided" or bool(found.having(Verdict.COMPARISON))
    return GATE_UNDECIDED if is_open and not lenient else 0


def _is_suite(word: str) -> bool:
    """Return whether a word that was given as a run is a suite's name or file."""
    return word in shipped() or word.endswith(".toml")


def report_format(given: Given, report: Report[Any] = COMPARED) -> str:
    """Return the name of the output format; raises UsageError for a format or a file that cannot
    be.
    """
    for path in given.write or ():
        if reason := why_unwritable(Path(path)):
            raise UsageError(f"{path} cannot be written: {reason}.")
        known = [suffix for suffix, form in _FORMAT_OF_SUFFIX.items() if form in formats_of(report)]
        if Path(path).suffix.lower() not in known:
            raise UsageError(f"{path}: unknown file type. The name must end in {', '.join(known)}.")
    return options.form_of(given.form, given.as_json, formats_of(report))


def rule_given(given: Given, usual: Rule) -> Rule:
    """Return a rule with the thresholds that are given instead; raises UsageError."""
    chosen: dict[str, Any] = {}
    if given.threshold is not None:
        chosen["magnitude"] = values.share(given.threshold, "--threshold")
    if given.tolerance is not None:
        chosen["tolerance"] = values.share(given.tolerance, "--tolerance")
    if given.allow_different:
        chosen["allow_different"] = True
    if given.judge:
        chosen |= judged_given(given.judge)
    return replace(usual, **chosen)


def judged_given(text: str) -> dict[str, Any]:
    """Return `Rule.judges_time` and `Rule.further` as --judge means them; raises UsageError."""
    further: dict[str, float] = {}
    names = []
    for word in values.words(text):
        name, equals, share = word.partition("=")
        values.one_of(name, "quantity to judge by", NAMES)
        names.append(name)
        if name == TIME:
            if equals:
                raise UsageError(
                    "time takes no share to judge by: its thresholds are --threshold and "
                    "--tolerance."
                )
            continue
        further[name] = (
            values.share(share, f"the threshold of {name}") if equals else JUDGED[name].threshold
        )
    return {"judges_time": TIME in names, "further": tuple(further.items())}


def planned(
    given: Given, suite: str, machine: Machine, baseline: Sequence[str] = ()
) -> tuple[Plan, tuple[Side, Side]]:
    """Return the plan of a suite's cells, and baseline and candidate.

    ``baseline`` are the words of a baseline's interpreters. Raises UsageError.
    """
    chosen = options.choices(given).but(interval=None)  # the option is about pairs
    own, files = chosen.own, (given.baseline_step, given.candidate_step)
    step = find(own.names[0]) if own is not None and len(own.names) == 1 else None
    if any(files) and step is None:
        raise UsageError(
            "--baseline-step and --candidate-step need one --step FILE to compare with."
        )
    pair = sides.pair(
        (baseline, options.interpreters(given)),
        (given.baseline_env or (), given.candidate_env or ()),
        (given.baseline_adapters or "", given.candidate_adapters or ""),
        files,
        step,
        given.same,
    )
    # Where interpreters or adapters are named, their frameworks are compared, unless more are asked
    # for.
    baselines = {build.framework.name: build.framework.name for build in pair[0].builds}
    candidates = {build.framework.name: build.name for build in pair[1].builds}
    named = dict.fromkeys([*(baselines | candidates).values(), *chosen.joining])
    chosen = chosen.but(builds=pair[1].builds, joining=())
    if named and not chosen["frameworks"]:
        rows = load(suite).frameworks
        modes = {name: [row for row in rows if row.partition(":")[0] == name] for name in named}
        chosen = chosen.but(
            frameworks=",".join(row for name, its in modes.items() for row in its or [name])
        )
    plan = plan_of(suite, chosen, machine, given.seed)
    for side in pair:
        check_variables(plan, side.variables, f"--{side.name}-env")
    return plan, pair


def measure(
    given: Given,
    purpose: str,
    suite: str,
    pairs: Callable[[Host, int, Rule], PairRule],
    baseline: Sequence[str] = (),
) -> Comparison:
    """Measure both sides of a suite's cells, in the interleaved pairs that ``pairs`` wants, and
    compare them.

    Raises UsageError.
    """
    seconds, rule = options.seconds_of(given.budget), rule_given(given, DEFAULT)
    machine = probe()
    plan, pair = planned(given, suite, machine, baseline)
    check_count(plan, given.yes)
    grouping = of_pairs(plan, machine, given.order, pair)
    pair_rule = pairs(host_of(machine), len(plan.cells), rule)
    unfinished, sources = None, None
    if given.resume:
        with Store.open(delivery.local_or(given.store_file), create=False) as store:
            unfinished = resume.unfinished(store, plan, machine, purpose)
            records = list(store.records(run=unfinished.id))
        sources = sides.prepare(plan, pair, say, not given.no_build)
        sides.check_same(unfinished, sides.described(pair, sources), rule)
        of_side = {side.name: side for side in pair}
        for record in records:
            source = sources[record.side][record.cell.framework]
            resume.check_same_settings(plan, record, source.build.framework)
            if given_variables := {**plan.variables, **of_side[record.side].variables}:
                resume.check_same_variables(record, source.digest, given_variables)
        plan = replace(
            plan, cells=unfinished.plan, protocol=unfinished.protocol, seed=unfinished.seed
        )
    if unfinished is None and seconds is not None:
        first_pairs = PairSchedule(plan, (), pair_rule, grouping).seconds_left()
        if first_pairs > seconds:
            say(
                f"The budget of {in_words(seconds)} is short: the first look at every cell takes "
                f"roughly {in_words(first_pairs)}, and a cell without it is inconclusive. --resume "
                "continues the run."
            )
    in_turns = ""
    if grouping.cells:
        some = "" if len(grouping.cells) == len(plan.cells) else f"{len(grouping.cells)} of them "
        in_turns = f", {some}in turns"
    profile = RunProfile(
        purpose,
        lambda plan, records, host: PairSchedule(
            plan, records, pair_rule, grouping, host, rule.judged
        ),
        pair,
        rule,
        ceilings=False,
        lines=lambda: (
            f"{counted(len(plan.cells), 'cell')} on two sides{in_turns}",
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
            plan, machine, store, profile, budget_seconds=seconds, build_missing=not given.no_build
        )
        if left := schedule.launches_left():
            say(
                f"The budget is spent with about {counted(left // 2, 'pair')} left. Resume: "
                f"{resume_command()}"
            )
        measured = len({(record.cell, record.launch) for record in store.records(run=run.id)})
        found = report_of(store, run, rule)
        if not given.no_profile and not left and (slower := slower_cells(found)):
            prepared = sources or sides.prepare(plan, pair, say, not given.no_build)
            profiling.profile_cells(plan, run, pair, prepared, machine, slower, store)
            found = report_of(store, run, rule)
        left_out = measured - sum(
            {cell.cell: len(cell.pairs[0]) for cell in reversed(found.cells)}.values()
        )
        more = f", {left_out} of them disturbed or incomplete" if left_out else ""
        say(f"{counted(measured, 'pair')} measured{more}")
        return replace(found, command=rerun_command(sys.argv[1:], run.seed))


def slower_cells(found: Comparison) -> list[Cell]:
    """Return the cells with a regression that were not profiled yet, the slowest first, as many as
    are profiled.
    """
    profiled = {each.cell for each in found.operators}
    slower = [
        cell
        for cell in found.having(Verdict.REGRESSION)
        if cell.quantity == TIME and cell.cell not in profiled
    ]
    ordered = sorted(slower, key=lambda cell: -(cell.judgement.ratio or 1.0))
    return [cell.cell for cell in ordered[: profiling.MOST_CELLS]]


_OF_THE_REPORT = ("--write", "--format", "--json", "--resume", "--store", "--seed")
_WORD = re.compile(r"((?:--[\w-]+=)?)([^=]*=)?(.*)", re.DOTALL)


def rerun_command(words: Sequence[str], seed: int) -> str:
    """Return the command with these words, to measure the same pairs in the same order: no private
    paths or secrets.
    """
    given, found = iter(words), ["dlbench"]
    for word in given:
        if word.partition("=")[0] not in _OF_THE_REPORT:
            parts = _WORD.fullmatch(word)
            assert parts is not None  # it takes any word
            option, name, value = parts.groups(default="")
            found.append(f"{option}{name}{private_value(name, value)}")
        elif "=" not in word and word not in ("--json", "--resume"):
            next(given, "")
    return shlex.join([*found, "--seed", str(seed)])


def show(
    found: Any, form: str, write: Sequence[str] | None, report: Report[Any] = COMPARED
) -> None:
    """Print the report, and write it to the files asked for, each whole or not at all; raises
    UsageError.
    """
    # A blank line at its end is no line of CSV.
    print(
        to_stdout(report, found, ReportOptions(), form),
        end="" if form == "csv" else "\n",
        flush=True,
    )
    for path in write or ():
        text = export(report, found, ReportOptions(), _FORMAT_OF_SUFFIX[Path(path).suffix.lower()])
        options.write_file(Path(path), text if text.endswith("\n") else text + "\n", "The report")


Found = tuple[Run, list[Record], str, dict[str, Host]]
"""A run, its records, the store it lies in ("" for none), and its machine."""


def _compare_stored(given: Given) -> Comparison:
    """Return the comparison of two stored runs or, given one, of the two sides of that run.

    Given thresholds replace the default ones, or those of the run with two sides. Raises UsageError
    for words that name no run and for runs that cannot be compared, and StoreError.
    """
    before = _find(given.first, given.store_file)
    if not given.second:
        if not before[0].sides:
            raise UsageError(
                f"Run {before[0].id} has one side only. Name a second run to compare it with."
            )
        if not before[2]:
            raise UsageError(
                f"{given.first} holds both sides of a comparison. Read it into a store: `dlbench "
                "import`."
            )
        with Store.open(before[2], create=False) as store:
            return report_of(store, before[0], rule_given(given, rule_of(before[0].rule)))
    after = _find(given.second, given.store_file)
    if (before[0].id, before[0].machine) == (after[0].id, after[0].machine):
        raise UsageError(
            f"{given.first} and {given.second} are the same run, {before[0].id}. Name two."
        )
    names = {BASELINE: _name_of(before, given.first), CANDIDATE: _name_of(after, given.second)}
    # Of a run with two sides its candidate is taken.
    first, second = (
        [each for each in found[1] if each.side in ("", CANDIDATE)] for found in (before, after)
    )
    try:
        return compare_runs(
            first, second, {**before[3], **after[3]}, names, rule_given(given, DEFAULT)
        )
    except ValueError as error:
        taken = f"{names[BASELINE]}, and {names[CANDIDATE]}"
        raise UsageError(
            f"{taken}, cannot be compared: {error}.{_others(before, after)}"
        ) from error


def _name_of(found: Found, word: str) -> str:
    run, _, store, _ = found
    name = f"run {run.id} of {run.suite}" if store else word
    return f"{name}, {run.started:%Y-%m-%d %H:%M} UTC"


def _others(before: Found, after: Found) -> str:
    """Return for each of two runs a sentence with the newest runs in the other's store that share a
    cell with it.
    """
    sentences = []
    for one, other in ((before, after), (after, before)):
        if not other[2]:
            continue
        cells = {record.cell for record in one[1]}
        with Store.open(other[2], create=False) as store:
            runs = [
                run
                for run in reversed(store.runs())
                if run.id != one[0].id and cells & set(run.plan)
            ]
        shared = [
            f"{other[2]}:{run.id}" for run in runs if run.purpose not in (SEARCHING, BISECTING)
        ]
        if shared:
            sentences.append(f" Run {one[0].id} shares cells with {' and '.join(shared[:2])}.")
    return "".join(sentences)


def _find(word: str, store_file: str) -> Found:
    """Return the run that a word means, its records, the store it lies in ("" for none), and its
    machine.

    A word is latest, previous, the beginning of an id, a store (its newest run), STORE:ID, or files
    of pytest-benchmark with commas between.
    """
    if files := files_meant(word):
        imported = run_of_files(files)
        fingerprint = imported.run.machine
        return (
            imported.run,
            list(imported.records),
            "",
            {fingerprint: read_host(fingerprint, imported.machine)},
        )
    is_file = os.path.isfile  # False for a word too long for a name, where a Path raises
    place, colon, of_place = word.rpartition(":")
    if (
        colon
        and not is_file(word)
        and (is_file(place) or ("/" in place.partition("://")[2] and "/" not in of_place))
    ):
        return _find(of_place, place)
    if word.endswith((".json", ".sqlite", PACKED)) and not is_file(word):
        missing = [file for file in word.split(",") if not is_file(file)]
        raise UsageError(f"There is no file {missing[0]}.")
    if os.path.isdir(word):  # noqa: PTH112 - as above
        raise UsageError(
            f"{word} is a folder. Name its files with commas between: {word.rstrip('/')}/a.json,..."
        )
    target = word if is_file(word) or "://" in word else store_file
    with Store.open(target, create=False) as store:
        runs = store.runs()
        if not runs:
            raise UsageError(f"{store.name} holds no run yet; fill it with `dlbench run SUITE`.")
        name = run_named("latest" if target == word else word, runs)
        run = next((each for each in runs if each.id == name), None)
        if run is None:
            raise unknown_name("run", word, [each.id for each in runs[-5:]])
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
    return run, records, target, {run.machine: host}
