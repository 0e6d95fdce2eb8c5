"""Comparisons for people and scripts: terminal, Markdown for a job summary, JUnit, JSON and CSV."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.reports import columns
from dlbench.reports.columns import Column, attributes, csv_rows, objects
from dlbench.reports.compare.operators import difference_data, operator_table
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import HOLES, Entry, Page, Table
from dlbench.reports.formats.markup import escaped, paragraph, pipe_row
from dlbench.reports.report import Report
from dlbench.reports.results.comparison import CellComparison, Comparison
from dlbench.reports.results.conclusion import Conclusion
from dlbench.reports.results.differences import side_differences_line
from dlbench.reports.results.flag_kinds import KINDS, PARITY_UNCHECKED, FlagKind
from dlbench.reports.results.judged import JUDGED, TIME
from dlbench.reports.results.naming import counted, head_of, name_of, rest_of, row_name, work_name
from dlbench.reports.results.number_text import percent
from dlbench.reports.results.record import BASELINE, CANDIDATE
from dlbench.reports.results.safe_text import one_line, table_field, visible_lines
from dlbench.reports.results.statistics import NO_INTERVAL, POWER, Estimate
from dlbench.reports.results.verdict import Rule, Verdict


class Words(NamedTuple):
    """The texts of a verdict."""

    word: str
    legend: str
    clause: str = ""
    """Describes its cells in the reason why a gate does not pass; empty if they let it pass."""
    junit: str = ""
    """The element of its test case; empty if it passed."""


_SLOWER = "slower by more than {threshold}, significant at p <= {p}; fails a build"
_FASTER = "faster by more than {threshold}, significant at p <= {p}"
_BROKEN = "the candidate fails where the baseline does not; fails a build"
_DIFFERENT = (
    "the candidate computes something else: losses or outputs of the first steps differ from the "
    "baseline's by more than --loss-tolerance; fails a build. If that is intended (other random "
    "numbers, say), --allow-different compares the times"
)
_OPEN = "not shown to be slower, but a slowdown of {tolerance} is not excluded either"
_DISTURBED = "other programs interfered with at least half of its launches"
_IN_PAIRS = "disturbed by other programs in at least half of the pairs"
_NO_NUMBER = "a side was not measured, or the baseline fails too"
WORDS = {
    Verdict.REGRESSION: Words("REGRESSION", _SLOWER, "slower than the baseline", "failure"),
    Verdict.BROKEN: Words(
        "broken", _BROKEN, "without a number though the baseline has one", "error"
    ),
    Verdict.DIFFERENT: Words("DIFFERENT", _DIFFERENT, "other work than the baseline", "failure"),
    Verdict.IMPROVEMENT: Words("improvement", _FASTER),
    Verdict.INCONCLUSIVE: Words("inconclusive", _OPEN, "inconclusive", "skipped"),
    Verdict.CONTENDED: Words("contended", _DISTURBED, _IN_PAIRS, "skipped"),
    Verdict.COMPARISON: Words(
        "compared",
        "different machines, or launches on different numbers of CPUs: a ratio, not a verdict on "
        "a change",
    ),
    Verdict.NO_REGRESSION: Words(
        "no regression", "the interval excludes a slowdown of {tolerance}"
    ),
    Verdict.HOLE: Words(
        "no number", _NO_NUMBER, "without a number on a side or not measured", "skipped"
    ),
}
GRAVE = (Verdict.REGRESSION, Verdict.BROKEN, Verdict.DIFFERENT)
"""Verdicts that fail a build."""
_PLURALS = {Verdict.REGRESSION: "REGRESSIONS", Verdict.IMPROVEMENT: "improvements"}
_QUIET = (Verdict.NO_REGRESSION, Verdict.COMPARISON)


def by_verdict(comparison: Comparison) -> dict[Verdict, tuple[CellComparison, ...]]:
    """Return the cells by their verdicts, the gravest first."""
    cells_by_verdict = {}
    for verdict in Verdict:
        cells = comparison.having(verdict)
        if cells:
            cells_by_verdict[verdict] = cells
    return cells_by_verdict


def headline(comparison: Comparison) -> str:
    """Return the counts, the gravest first.

    For example "24 cells: 1 REGRESSION, 2 inconclusive, 21 no regression".
    """
    counts = []
    for verdict, cells in by_verdict(comparison).items():
        word = WORDS[verdict].word
        if len(cells) > 1:
            word = _PLURALS.get(verdict, word)
        counts.append(f"{len(cells)} {word}")
    total = counted(len(comparison.cells), "cell")
    if comparison.rule.further:
        different_cells = len({cell.cell for cell in comparison.cells})
        judgements = counted(len(comparison.cells), "judgement")
        total = f"{counted(different_cells, 'cell')}, {judgements}"
    if not any(cell.measured for cell in comparison.cells):
        total += ", none with launches that count on both sides"
    line = f"{total}: {', '.join(counts)}"
    if comparison.only_baseline:
        line += f"; {len(comparison.only_baseline)} only in the baseline"
    if comparison.only_candidate:
        line += f"; {len(comparison.only_candidate)} only in the candidate"
    return line


def heading(comparison: Comparison) -> str:
    """Return the title: the two sides."""
    return f"{comparison.candidate} against {comparison.baseline}"


def ratio_of(ratio: Estimate) -> str:
    """Return a ratio and its interval to a tenth of a per cent: "1.032 (1.021-1.043)"."""
    text = _three_decimals(ratio.value)
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} ({_three_decimals(ratio.low)}-{_three_decimals(ratio.high)})"


def _three_decimals(value: float) -> str:
    return f"{value:.3f}" if 0.001 <= value < 1000 else f"{value:.2e}"


def ratio_of_cell(cell: CellComparison) -> str:
    """Return a cell's ratio and interval, or the reason for having none."""
    judgement = cell.judgement
    if judgement.ratio is not None:
        return ratio_of(judgement.ratio)
    baseline = _status_word(cell.baseline.status)
    candidate = _status_word(cell.candidate.status)
    if baseline != candidate:
        return f"{baseline} / {candidate}"
    return "" if baseline == "ok" else baseline


def _status_word(status: Status) -> str:
    return "ok" if status is Status.OK else HOLES[status]


def launches_of(cell: CellComparison) -> str:
    """Return how many launches the verdict rests on: "20+20", baseline and candidate."""
    return f"{cell.judgement.baseline_launches}+{cell.judgement.candidate_launches}"


def flags_of(cell: CellComparison) -> list[FlagKind]:
    """Return the kinds of flags that either side carries and that bear on a comparison."""
    raised = {flag.kind for flag in (*cell.baseline.flags, *cell.candidate.flags)}
    raised.discard(PARITY_UNCHECKED)
    return [kind for kind in KINDS if kind in raised]


def marks_of(cell: CellComparison) -> str:
    """Return the symbols of its flags after a space, or nothing."""
    symbols = [kind.symbol for kind in flags_of(cell)]
    if not symbols:
        return ""
    return f" {''.join(symbols)}"


def _row_text(cell: CellComparison) -> str:
    name = row_name(cell.cell)
    if cell.quantity == TIME:
        return name
    return f"{name}: {cell.quantity}"


def _ratio_entry(cell: CellComparison) -> Entry:
    return Entry(ratio_of_cell(cell), marks=marks_of(cell))


def _finding_entry(cell: CellComparison) -> Entry:
    return Entry(WORDS[cell.verdict].word, hole=cell.verdict in GRAVE)


def _verdict_of_numbers(cell: CellComparison) -> Verdict:
    """Return the verdict, inconclusive where there is no number."""
    if cell.verdict in (Verdict.BROKEN, Verdict.HOLE):
        return Verdict.INCONCLUSIVE
    return cell.verdict


def _launches_used(cell: CellComparison) -> dict[str, int]:
    return {
        BASELINE: cell.judgement.baseline_launches,
        CANDIDATE: cell.judgement.candidate_launches,
    }


def _pairs_data(cell: CellComparison) -> dict[str, Any]:
    return dict(zip((BASELINE, CANDIDATE), cell.pairs, strict=True))


def _tail_data(cell: CellComparison) -> dict[str, float | None] | None:
    tail = cell.tail
    if tail is None:
        return None
    return {"ratio": tail.value, "low": tail.low, "high": tail.high}


def _ratio_value(cell: CellComparison) -> float | None:
    ratio = cell.judgement.ratio
    return None if ratio is None else ratio.value


def _method_of(cell: CellComparison) -> str:
    ratio = cell.judgement.ratio
    return NO_INTERVAL if ratio is None else ratio.method


_JUDGEMENT = ("p", "adjusted_p", "smallest_effect", "standard_error")
_SIDE = ("status", "launches", "disturbed_launches", "environment")
_CELL: tuple[Column[CellComparison], ...] = (
    Column("", "", _row_text),
    Column("", "threads", lambda cell: head_of(cell.cell)),
    Column("", "candidate / baseline", _ratio_entry),
    Column("cell", None, lambda cell: cell.cell, fields=axes.NAMES),
    Column("quantity", None, lambda cell: cell.quantity),
    Column("finding", "verdict", lambda cell: cell.verdict, _finding_entry),
    Column("", "launches", launches_of),
    Column("verdict", None, _verdict_of_numbers),
    Column("ratio", None, _ratio_value),
    *attributes(lambda cell: cell.judgement.ratio, "low", "high"),
    *attributes(lambda cell: cell.judgement, *_JUDGEMENT, standard_error=None),
    Column("method", None, _method_of),
    Column("sentence", None, lambda cell: cell.judgement.sentence),
    Column("launches_used", None, _launches_used, fields=None),
    Column("pairs", None, _pairs_data, fields=None),
    Column("tail", None, _tail_data, fields=None),
    Column("loss_difference", None, lambda cell: cell.loss_difference, fields=None),
    *attributes(
        lambda cell: cell, BASELINE, CANDIDATE, **dict.fromkeys((BASELINE, CANDIDATE), _SIDE)
    ),
)


def table(cells: Sequence[CellComparison], title: str = "") -> Table:
    """Return a row for each cell and quantity judged, under the headings of their networks."""
    return columns.table(_CELL, cells, title, section=lambda cell: work_name(cell.cell))


def comparison_rows(comparison: Comparison) -> Rows:
    """Return a line for each cell; flags are those of both sides."""

    def flags(cell: CellComparison) -> list[Any]:
        by_kind = {flag.kind: flag for flag in (*cell.baseline.flags, *cell.candidate.flags)}
        return list(by_kind.values())

    return csv_rows((*_CELL, Column("flags", None, flags)), comparison.cells)


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return a JSON object: the sides, the rule, the counts, and an object for each cell."""
    machines = []
    for host in comparison.hosts:
        machines.append({"machine": host.fingerprint, "machine_name": host.name})
    gate = None
    if comparison.purpose == "gate":
        gate = plain(gate_outcome(comparison))
    counts = {verdict.name: len(cells) for verdict, cells in by_verdict(comparison).items()}
    only_baseline = [axes.values(cell) for cell in comparison.only_baseline]
    only_candidate = [axes.values(cell) for cell in comparison.only_candidate]
    rule = dict(plain(comparison.rule))
    rule.pop("words", None)
    return {
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "purpose": comparison.purpose,
        "same_session": comparison.same_session,
        "machines": machines,
        "headline": headline(comparison),
        "gate": gate,
        "counts": counts,
        "geometric_mean": plain(comparison.geometric_mean),
        "rule": rule,
        "notes": list(comparison.notes),
        "differences": plain(comparison.differences),
        "only_in": {BASELINE: only_baseline, CANDIDATE: only_candidate},
        "cells": objects(_CELL, comparison.cells),
        "operators": [difference_data(difference) for difference in comparison.operators],
    }


def _reasons(comparison: Comparison) -> list[str]:
    """Return a sentence for each notable cell, the gravest first.

    Of the cells whose verdict fails nothing it gives a few.
    """
    lines = []
    for verdict, cells in by_verdict(comparison).items():
        if verdict in _QUIET:
            continue
        shown = cells if verdict in GRAVE else cells[:_MOST_REASONS]
        lines += [f"{cell.name}: {sentence_of(cell)}" for cell in shown]
        more = len(cells) - len(shown)
        if more:
            lines.append(f"... and {more} more of {WORDS[verdict].word}; --json shows all")
    return lines


def sentence_of(cell: CellComparison) -> str:
    """Return why a cell has its verdict, adjusted p-value included."""
    judgement = cell.judgement
    name = "p"
    p_value = judgement.p
    if judgement.adjusted_p is not None:
        name = "adjusted p"
        p_value = judgement.adjusted_p
    if judgement.tail is not None:
        p_value = judgement.tail.slower_p
    if p_value is None or cell.verdict not in (Verdict.REGRESSION, Verdict.IMPROVEMENT):
        return judgement.sentence
    return f"{judgement.sentence}; {name} {p_value:.2g}"


def closing(comparison: Comparison) -> list[str]:
    """Return the geometric mean, the smallest effect and the remarks."""
    return [*figures(comparison), *remarks(comparison), *operator_lines(comparison)]


def operator_lines(comparison: Comparison) -> list[str]:
    """Return a line for each profiled cell: which operators account for its difference."""
    lines = []
    for difference in comparison.operators:
        lines.append(f"{name_of(difference.cell)}: {difference.sentence}")
    return lines


def figures(comparison: Comparison) -> list[str]:
    """Return the geometric mean and the smallest effect."""
    lines = []
    mean = comparison.geometric_mean
    if mean is not None:
        lines.append(f"Candidate / baseline, {mean.method}: {ratio_of(mean)}; above 1 is slower.")
    effects = []
    for cell in comparison.cells:
        if cell.verdict in (Verdict.COMPARISON, Verdict.DIFFERENT) or cell.quantity != TIME:
            continue
        if cell.judgement.smallest_effect is not None:
            effects.append(cell.judgement.smallest_effect)
    if effects:
        effects.sort()
        span = percent(effects[len(effects) // 2])
        if len(effects) > 1:
            span += f" (median of the cells; {percent(effects[-1])} worst)"
        lines.append(
            f"Smallest slowdown that would have been called a regression {percent(POWER)} of the "
            f"time: {span}."
        )
    return lines


def remarks(comparison: Comparison) -> list[str]:
    """Return the notes.

    First come the cells of one side alone, and the differences besides the code.
    """
    lines = [
        *_one_sided("only in the baseline", comparison.only_baseline),
        *_one_sided("only in the candidate", comparison.only_candidate),
    ]
    differences = side_differences_line(comparison.differences, len(comparison.cells))
    if differences:
        lines.append(differences)
    return [*lines, *_slower_tails(comparison), *comparison.notes]


_TAIL_P = 0.0005
"""A slower tail is remarked on only where identical code shows one as rarely as a gate calls it
slower."""


def _slower_tails(comparison: Comparison) -> list[str]:
    """Return a line for each cell with clearly slower slowest steps but no slower step."""
    lines = []
    for cell in comparison.cells:
        tail = cell.tail
        if tail is None or cell.verdict in GRAVE or tail.slower_p > _TAIL_P:
            continue
        if tail.value > 1 + comparison.rule.threshold:
            ends = f"{tail.low:.3f} to {tail.high:.3f}"
            lines.append(
                f"{name_of(cell.cell)}: one step in ten is slower: nine in ten take up to "
                f"{tail.value:.3f} times as long as the baseline's ({ends}, p {tail.slower_p:.2g})."
            )
    return lines


_MOST_NAMES = 10


def _one_sided(side: str, cells: Sequence[Cell]) -> list[str]:
    """Return a line for each of the first cells that one side lacks, and the number of others."""
    lines = [f"{side[:1].upper()}{side[1:]}: {name_of(cell)}." for cell in cells[:_MOST_NAMES]]
    more = len(cells) - len(lines)
    if more:
        lines.append(f"... and {more} more {side}; --json shows all.")
    return lines


def meanings(comparison: Comparison) -> dict[Verdict, str]:
    """Return the meanings of the verdicts in use."""
    rule = comparison.rule
    p_value = rule.false_alarms if comparison.purpose == "gate" else rule.p_value
    values = {
        "threshold": _thresholds(rule, percent(rule.threshold), 1),
        "tolerance": _thresholds(rule, percent(rule.tolerance), 2),
        "p": f"{p_value:.2g}",
    }
    return {verdict: WORDS[verdict].legend.format(**values) for verdict in by_verdict(comparison)}


def _thresholds(rule: Rule, threshold_of_time: str, times: int) -> str:
    """Return the thresholds of all quantities that are judged: "2.5 % (peak memory 5 %)"."""
    thresholds = []
    for name, share in rule.further:
        thresholds.append(f"{JUDGED[name].words} {percent(times * share)}")
    further = ", ".join(thresholds)
    if not rule.judges_time:
        return further
    if not further:
        return threshold_of_time
    return f"{threshold_of_time} ({further})"


def legend(comparison: Comparison) -> list[str]:
    """Return the meanings of the verdicts and marks in use."""
    lines = []
    for verdict, meaning in meanings(comparison).items():
        lines.append(f"{WORDS[verdict].word}: {meaning}")
    lines += axes.legends(cell.cell for cell in comparison.cells)
    raised: set[FlagKind] = set()
    for cell in comparison.cells:
        raised.update(flags_of(cell))
    for kind in KINDS:
        if kind in raised:
            lines.append(f"{kind.symbol} {kind.legend}")
    return lines


def details_of(cells: Iterable[CellComparison]) -> list[str]:
    """Return the facts behind the marks, each once."""
    cells_by_fact: dict[str, list[Cell]] = {}
    for cell in cells:
        for name, side in ((BASELINE, cell.baseline), (CANDIDATE, cell.candidate)):
            for flag in side.flags:
                if flag.kind is not PARITY_UNCHECKED:
                    fact = f"{name}: {flag.kind.symbol} {flag.sentence}"
                    cells_by_fact.setdefault(fact, []).append(cell.cell)
    lines = []
    for fact, (first, *others) in cells_by_fact.items():
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{name_of(first)}{more}, {fact}")
    return lines


def machines(comparison: Comparison) -> str:
    """Return the machines, and whether both sides were measured in one session."""
    names = [host.name for host in comparison.hosts]
    if len(names) > 1:
        return f"Baseline on {names[0]}; candidate on {names[1]}."
    sessions = "the two sides in different sessions"
    if comparison.same_session:
        sessions = "both sides in one session"
    return f"On {names[0]}, {sessions}."


class GateOutcome(NamedTuple):
    """The outcome of a gate and the reason for it.

    Passed: each cell that both sides can measure, one at least, is shown not to be slower. Failed:
    a regression is confirmed, or the candidate gives no number though the baseline does, or
    computes something else. Else undecided: a cell inconclusive, disturbed or not measured. A cell
    beyond both sides (unsupported, out of memory) does not count.
    """

    outcome: Literal["passed", "failed", "undecided"]
    why: str

    @property
    def line(self) -> str:
        """The last line of a gate."""
        return f"gate {self.outcome}: {self.why}"


_BEYOND = (Status.UNSUPPORTED, Status.OUT_OF_MEMORY)


def is_beyond_both(cell: CellComparison) -> bool:
    """Tell whether neither side can measure a cell."""
    return cell.baseline.status in _BEYOND and cell.candidate.status in _BEYOND


def gate_outcome(comparison: Comparison) -> GateOutcome:
    """Return the outcome of a gate."""
    counts = {verdict: len(cells) for verdict, cells in by_verdict(comparison).items()}
    holes = comparison.having(Verdict.HOLE)
    beyond = sum(is_beyond_both(cell) for cell in holes)
    counts[Verdict.HOLE] = len(holes) - beyond + comparison.unmeasured
    if comparison.rule.further:
        return outcome_of(counts, "judgement", of_time=False)
    return outcome_of(counts, "cell")


def outcome_of(counts: Mapping[Verdict, int], noun: str, of_time: bool = True) -> GateOutcome:
    """Return the outcome by the number of cells (or ``noun``) of each verdict.

    ``of_time`` tells whether the verdicts are on times alone.
    """
    total = sum(counts.values())
    judged = counted(total, noun)
    failing = [verdict for verdict in GRAVE if counts.get(verdict)]
    if failing:
        return GateOutcome("failed", _counts_text(counts, failing, judged, of_time))
    if total == counts.get(Verdict.HOLE, 0):
        return GateOutcome("undecided", f"no {noun} was measured on both sides")
    undecided = []
    for verdict in Verdict:
        if verdict not in GRAVE and counts.get(verdict) and WORDS[verdict].clause:
            undecided.append(verdict)
    if undecided:
        return GateOutcome("undecided", _counts_text(counts, undecided, judged, of_time))
    change = "slowdown" if of_time else "regression"
    return GateOutcome("passed", f"no {change} in {judged}")


def _counts_text(
    counts: Mapping[Verdict, int], verdicts: Iterable[Verdict], judged: str, of_time: bool
) -> str:
    """Return how many of the cells have these verdicts.

    For example "2 of 5 cells are slower than the baseline, 1 is broken".
    """
    clauses: list[str] = []
    for verdict in verdicts:
        count = counts[verdict]
        total = "" if clauses else f" of {judged}"
        verb = "is" if count == 1 else "are"
        clause = WORDS[verdict].clause
        if verdict is Verdict.REGRESSION and not of_time:
            clause = "worse than the baseline"
        clauses.append(f"{count}{total} {verb} {clause}")
    return ", ".join(clauses)


_ANSWERS = {
    Verdict.REGRESSION: "regression",
    Verdict.BROKEN: "broken",
    Verdict.DIFFERENT: "different",
}


def conclusion_of(comparison: Comparison) -> Conclusion:
    """Return the gravest verdict on the cells in a word, and the reason.

    Cells of two machines get no verdict, so that they leave a comparison undecided.
    """
    outcome = gate_outcome(comparison)
    reason = outcome.why if comparison.purpose == "gate" else headline(comparison)
    for verdict, word in _ANSWERS.items():
        if comparison.having(verdict):
            return Conclusion(word, reason)
    if outcome.outcome == "undecided" or comparison.having(Verdict.COMPARISON):
        return Conclusion("undecided", reason)
    return Conclusion("passed", reason)


_CHANGES = (Verdict.REGRESSION, Verdict.BROKEN, Verdict.DIFFERENT, Verdict.IMPROVEMENT)
MOST_CHARACTERS = 65_536
"""Of the Markdown: GitHub rejects longer comments."""


def comparison_to_markdown(comparison: Comparison) -> str:
    """Return a comment for a pull request: outcome, changes and open questions.

    The rest stands within ``<details>``. The first line is invisible: a job uses it to find and
    update the comment. If the text would be too long, the least striking cells and the last facts
    are left out.
    """
    if comparison.purpose == "gate":
        outcome = gate_outcome(comparison).line
    else:
        outcome = headline(comparison)
    before = f"<!-- dlbench {comparison.purpose} -->\n### {escaped(outcome)}\n"
    about = paragraph(f"{heading(comparison)}. {machines(comparison)}") + "\n"
    notes = _bullets(_open_questions(comparison))
    command = ""
    if comparison.command:
        # Nothing in an indented line has a meaning to Markdown.
        command = f"Measure it again:\n\n    {one_line(comparison.command)}\n"
    meaning = _bullets([*figures(comparison), *legend(comparison)])
    fixed_texts = (before, about, notes, command, meaning)
    room = MOST_CHARACTERS - sum(len(text) for text in fixed_texts) - 300
    changed = [(*_fields(cell), _finding(cell)) for cell in _changed(comparison)]
    changes = _table(changed, room // 3)
    facts = _bullets(details_of(comparison.cells), room // 3)
    rows = []
    for cells in by_verdict(comparison).values():
        for cell in cells:
            word = WORDS[cell.verdict].word
            rows.append((*_fields(cell), word, launches_of(cell), sentence_of(cell)))
    all_cells = _table(rows, room - len(changes) - len(facts), "launches", "why")
    folded = f"<details><summary>All cells</summary>\n\n{all_cells}\n{meaning}{facts}\n</details>\n"
    return "\n".join(filter(None, (before, about, changes, notes, command, folded)))


def _open_questions(comparison: Comparison) -> list[str]:
    """Return the counts of the unclear verdicts, the operators and the remarks."""
    meaning_of = meanings(comparison)
    lines = []
    for verdict, cells in by_verdict(comparison).items():
        if verdict not in (*_CHANGES, Verdict.NO_REGRESSION):
            lines.append(f"{len(cells)} {WORDS[verdict].word}: {meaning_of[verdict]}")
    return [*lines, *operator_lines(comparison), *remarks(comparison)]


def _changed(comparison: Comparison) -> list[CellComparison]:
    """Return the changed cells, the gravest verdicts and the largest changes first."""
    cells_by_verdict = by_verdict(comparison)
    changed = []
    for verdict in _CHANGES:
        changed += sorted(cells_by_verdict.get(verdict, ()), key=_size_of_change, reverse=True)
    return changed


def _size_of_change(cell: CellComparison) -> float:
    return abs(math.log(_ratio_value(cell) or 1.0))


def _fields(cell: CellComparison) -> tuple[str, str]:
    return cell.name, ratio_of_cell(cell) + marks_of(cell)


def _finding(cell: CellComparison) -> str:
    """Return the verdict in one word, with the reason where no ratio gives it."""
    word = WORDS[cell.verdict].word
    if cell.verdict in (Verdict.BROKEN, Verdict.DIFFERENT):
        return f"{word}: {sentence_of(cell)}"
    return word


def _table(rows: Sequence[Sequence[str]], room: int, *further: str) -> str:
    """Return a Markdown table of cells, cut to this many characters; empty without cells."""
    if not rows:
        return ""
    head = ("cell", "candidate / baseline", "verdict", *further)
    rule = [":--", "--:", *[":--"] * (len(head) - 2)]
    lines = []
    for row in rows:
        lines.append(pipe_row(escaped(table_field(text)) for text in row))
    more = pipe_row(("... and {} more", *[""] * (len(head) - 1)))
    shown = (pipe_row(head), pipe_row(rule), *_fit(lines, room, more))
    return "".join(f"{line}\n" for line in shown)


def _bullets(lines: Sequence[str], room: int = MOST_CHARACTERS) -> str:
    bullets = [f"- {paragraph(line)}" for line in lines]
    return "".join(f"{line}\n" for line in _fit(bullets, room, "- ... and {} more"))


def _fit(lines: Sequence[str], room: int, more: str) -> list[str]:
    """Return as many of the lines as have room, and the number of the others."""
    ends = accumulate(len(line) + 1 for line in lines)
    fitting = sum(end <= room for end in ends)
    left = len(lines) - fitting
    if not left:
        return list(lines)
    return [*lines[:fitting], more.format(left)]


def comparison_to_junit(comparison: Comparison) -> str:
    """Return the XML document.

    Attributes are those of the schema that Jenkins, GitLab and GitHub's actions read: tests,
    failures, errors, skipped, time; classname and name. The time of a case is the candidate's
    median seconds of one step.
    """
    counts = Counter(WORDS[cell.verdict].junit for cell in comparison.cells)
    seconds = sum(_candidate_seconds(cell) for cell in comparison.cells)
    totals = {
        "name": "dlbench",
        "tests": str(len(comparison.cells)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{seconds:.6f}",
    }
    root = ElementTree.Element("testsuites", totals)
    suite = ElementTree.SubElement(root, "testsuite", totals)
    properties = ElementTree.SubElement(suite, "properties")
    facts = {
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "machines": machines(comparison),
        "headline": headline(comparison),
        "summary": " ".join(closing(comparison)),
    }
    if comparison.purpose == "gate":
        facts["gate"] = gate_outcome(comparison).line
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=one_line(value))
    for cell in comparison.cells:
        suite.append(_case(cell))
    ElementTree.indent(root)
    document = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{document}\n'


def _candidate_seconds(cell: CellComparison) -> float:
    if cell.quantity != TIME or not cell.candidate.launch_medians:
        return 0.0
    return median(cell.candidate.launch_medians)


def _case(cell: CellComparison) -> ElementTree.Element:
    # A dot separates packages for those that show test results as a tree.
    work = work_name(cell.cell).replace(".", "_")
    name = rest_of(cell.cell)
    if cell.quantity != TIME:
        name += f", {JUDGED[cell.quantity].words}"
    names = {"classname": one_line(f"dlbench.{work}"), "name": one_line(name)}
    case = ElementTree.Element("testcase", names, time=f"{_candidate_seconds(cell):.6f}")
    words = WORDS[cell.verdict]
    body = [sentence_of(cell)]
    if cell.judgement.ratio is not None:
        body.append(f"candidate / baseline {ratio_of_cell(cell)}")
    body += [f"{launches_of(cell)} launches, {_method_of(cell)}", *details_of([cell]), ""]
    outcome = ElementTree.SubElement(case, words.junit or "system-out")
    if words.junit:
        outcome.set("message", f"{words.word}: {one_line(sentence_of(cell))}")
    if cell.verdict is not Verdict.HOLE:
        if words.junit:
            outcome.set("type", cell.verdict.name)
        outcome.text = visible_lines("\n".join(body))
    return case


_MOST_REASONS = 8
MOST_OPERATORS = 5
"""Shown of each profiled cell; JSON has all."""


def comparison_page(comparison: Comparison) -> Page:
    """Return the comparison as a table and sentences.

    The table has each cell's ratio and verdict, and the sentences more on the striking ones. The
    counts stand at the end, where a terminal leaves the reader.
    """
    facts = [*_reasons(comparison), *details_of(comparison.cells)]
    end = [*closing(comparison), headline(comparison) + "."]
    if comparison.purpose == "gate":
        end.append(gate_outcome(comparison).line)
    after: list[str] = []
    for block in (facts, legend(comparison), end):
        if after and block:
            after.append("")
        after += block
    tables = [table(comparison.cells)]
    for difference in comparison.operators:
        if difference.differs:
            title = f"Operators of {name_of(difference.cell)}"
            tables.append(operator_table(difference, MOST_OPERATORS, title))
    return Page((heading(comparison), machines(comparison)), tuple(tables), tuple(after))


def _comparison_to_github(comparison: Comparison) -> str:
    """Return the annotations of a workflow, whose texts are those of this module."""
    from dlbench.reports.compare.annotations import comparison_to_github

    return comparison_to_github(comparison)


REPORT = Report(
    name="compare",
    summary="A candidate against a baseline, cell by cell, with a verdict.",
    examples=("dlbench compare previous latest",),
    page=lambda comparison, options: comparison_page(comparison),
    conclusion=conclusion_of,
    data=comparison_data,
    rows=comparison_rows,
    own_formats={
        "markdown": comparison_to_markdown,
        "junit": comparison_to_junit,
        "github": _comparison_to_github,
    },
)
