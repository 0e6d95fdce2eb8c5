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
from dlbench.reports.results.differences import side_differences_line
from dlbench.reports.results.flags import KINDS, PARITY_UNCHECKED, FlagKind
from dlbench.reports.results.judged import JUDGED, TIME
from dlbench.reports.results.naming import counted, group_name, head_of, name_of, rest_of, row_name
from dlbench.reports.results.number_text import percent
from dlbench.reports.results.record import BASELINE, CANDIDATE
from dlbench.reports.results.safe_text import one_line, table_field, visible_lines
from dlbench.reports.results.statistics import Ratio
from dlbench.reports.results.verdict import POWER, PairedEstimate, Rule, Verdict


class Words(NamedTuple):
    """The texts of a verdict."""

    word: str
    legend: str
    said: str = ""
    """Describes its cells in the reason why a gate does not pass; empty if they let it pass."""
    junit: str = ""
    """The element of its test case; empty: it passed."""


_SLOWER = "slower by more than {magnitude}, significant at p <= {p}; fails a build"
_FASTER = "faster by more than {magnitude}, significant at p <= {p}"
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
    return {each: cells for each in Verdict if (cells := comparison.having(each))}


def headline(comparison: Comparison) -> str:
    """Return the counts, the gravest first: "24 cells: 1 REGRESSION, 2 inconclusive, 21 no
    regression".
    """
    counts = ", ".join(
        f"{len(found)} "
        f"{_PLURALS.get(each, WORDS[each].word) if len(found) > 1 else WORDS[each].word}"
        for each, found in by_verdict(comparison).items()
    )
    none = (
        ""
        if any(cell.measured for cell in comparison.cells)
        else ", none with launches that count on both sides"
    )
    only_baseline, only_candidate = len(comparison.only_baseline), len(comparison.only_candidate)
    one_sided = f"; {only_baseline} only in the baseline" if only_baseline else ""
    one_sided += f"; {only_candidate} only in the candidate" if only_candidate else ""
    judged = counted(len(comparison.cells), "cell")
    if comparison.rule.further:
        cells = counted(len({cell.cell for cell in comparison.cells}), "cell")
        judged = f"{cells}, {counted(len(comparison.cells), 'judgement')}"
    return f"{judged}{none}: {counts}{one_sided}"


def heading(comparison: Comparison) -> str:
    """Return the title: which sides, in words."""
    return f"{comparison.candidate} against {comparison.baseline}"


def ratio_of(found: Ratio) -> str:
    """Return a ratio and its interval to a tenth of a per cent: "1.032 (1.021-1.043)"."""

    def written(value: float) -> str:
        return f"{value:.3f}" if 0.001 <= value < 1000 else f"{value:.2e}"

    ends = (
        ""
        if found.low is None or found.high is None
        else f" ({written(found.low)}-{written(found.high)})"
    )
    return f"{written(found.value)}{ends}"


def ratio_of_cell(cell: CellComparison) -> str:
    """Return a cell's ratio and interval, or the reason for having none."""
    judged = cell.judgement
    if judged.ratio is not None:
        return ratio_of(Ratio(judged.ratio, judged.low, judged.high, ""))
    words = [
        HOLES[side.status] if side.status is not Status.OK else "ok"
        for side in (cell.baseline, cell.candidate)
    ]
    return "" if words == ["ok", "ok"] else " / ".join(words) if words[0] != words[1] else words[0]


def launches_of(cell: CellComparison) -> str:
    """Return how many launches the verdict rests on: "20+20", baseline and candidate."""
    return f"{cell.judgement.baseline_launches}+{cell.judgement.candidate_launches}"


def flags_of(cell: CellComparison) -> list[FlagKind]:
    """Return the kinds of flags that either side carries and that bear on a comparison."""
    raised = {flag.kind for side in (cell.baseline, cell.candidate) for flag in side.flags}
    return [kind for kind in KINDS if kind in raised and kind is not PARITY_UNCHECKED]


def marks_of(cell: CellComparison) -> str:
    """Return the symbols of its flags after a space, or nothing."""
    symbols = "".join(kind.symbol for kind in flags_of(cell))
    return f" {symbols}" if symbols else ""


def _row(cell: CellComparison) -> str:
    name = row_name(cell.cell)
    return name if cell.quantity == TIME else f"{name}: {cell.quantity}"


_OF_A_SIDE = ("status", "launches", "contended", "environment")
_CELL: tuple[Column[CellComparison], ...] = (
    Column("", "", _row),
    Column("", "threads", lambda each: head_of(each.cell)),
    Column(
        "", "candidate / baseline", lambda each: Entry(ratio_of_cell(each), marks=marks_of(each))
    ),
    Column("cell", None, lambda each: each.cell, fields=axes.NAMES),
    Column("quantity", None, lambda each: each.quantity),
    Column(
        "finding",
        "verdict",
        lambda each: each.verdict,
        lambda each: Entry(WORDS[each.verdict].word, hole=each.verdict in GRAVE),
    ),
    Column("", "launches", launches_of),
    Column(
        "verdict",
        None,
        lambda each: (
            Verdict.INCONCLUSIVE if each.verdict in (Verdict.BROKEN, Verdict.HOLE) else each.verdict
        ),
    ),
    *attributes(
        lambda each: each.judgement,
        *(
            "ratio",
            "low",
            "high",
            "p",
            "adjusted_p",
            "smallest_effect",
            "standard_error",
            "method",
            "sentence",
        ),
        standard_error=None,
    ),
    Column(
        "launches_used",
        None,
        lambda each: {
            BASELINE: each.judgement.baseline_launches,
            CANDIDATE: each.judgement.candidate_launches,
        },
        fields=None,
    ),
    Column(
        "pairs",
        None,
        lambda each: dict(zip((BASELINE, CANDIDATE), each.pairs, strict=True)),
        fields=None,
    ),
    Column("tail", None, lambda each: _of_tail(each.tail), fields=None),
    Column("loss_difference", None, lambda each: each.loss_difference, fields=None),
    *attributes(
        lambda each: each, BASELINE, CANDIDATE, **dict.fromkeys((BASELINE, CANDIDATE), _OF_A_SIDE)
    ),
)


def _of_tail(found: PairedEstimate | None) -> dict[str, float] | None:
    return None if found is None else {"ratio": found.ratio, "low": found.low, "high": found.high}


def table(cells: Sequence[CellComparison], title: str = "") -> Table:
    """Return a row for each cell, and for each quantity judged, under the headings of their
    networks.
    """
    return columns.table(_CELL, cells, title, group=lambda each: group_name(each.cell))


def comparison_rows(comparison: Comparison) -> Rows:
    """Return a line for each cell; flags are those of both sides."""

    def flags(each: CellComparison) -> list[Any]:
        return list(
            {flag.kind: flag for flag in (*each.baseline.flags, *each.candidate.flags)}.values()
        )

    return csv_rows((*_CELL, Column("flags", None, flags)), comparison.cells)


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return a JSON object: the sides, the rule, the counts, and an object for each cell."""
    return {
        **{
            name: getattr(comparison, name)
            for name in (BASELINE, CANDIDATE, "purpose", "same_session")
        },
        "machines": [
            {"machine": host.fingerprint, "machine_name": host.name} for host in comparison.hosts
        ],
        "headline": headline(comparison),
        "gate": plain(gate_outcome(comparison)) if comparison.purpose == "gate" else None,
        "counts": {each.name: len(cells) for each, cells in by_verdict(comparison).items()},
        "geometric_mean": plain(comparison.geometric_mean),
        "rule": {key: value for key, value in plain(comparison.rule).items() if key != "words"},
        "notes": list(comparison.notes),
        "differences": plain(comparison.differences),
        "only_in": {
            BASELINE: [axes.values(cell) for cell in comparison.only_baseline],
            CANDIDATE: [axes.values(cell) for cell in comparison.only_candidate],
        },
        "cells": objects(_CELL, comparison.cells),
        "operators": list(map(difference_data, comparison.operators)),
    }


def _reasons(comparison: Comparison) -> list[str]:
    """Return a sentence for each notable cell, the gravest first; verdicts that fail nothing are
    cut to a few.
    """
    lines = []
    for found, cells in by_verdict(comparison).items():
        if found not in _QUIET:
            shown = cells if found in GRAVE else cells[:_MOST_REASONS]
            lines += [f"{each.name}: {sentence_of(each)}" for each in shown]
            if len(shown) < len(cells):
                lines.append(
                    f"... and {len(cells) - len(shown)} more of {WORDS[found].word}; --json shows "
                    "all"
                )
    return lines


def sentence_of(cell: CellComparison) -> str:
    """Return why a cell has its verdict, adjusted p-value included."""
    judged = cell.judgement
    name, p = ("p", judged.p) if judged.adjusted_p is None else ("adjusted p", judged.adjusted_p)
    if judged.tail is not None:
        p = judged.tail.slower_p
    shown = p is not None and cell.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT)
    return f"{judged.sentence}; {name} {p:.2g}" if shown else judged.sentence


def closing(comparison: Comparison) -> list[str]:
    """Return the geometric mean, the smallest effect and the remarks."""
    return [*figures(comparison), *remarks(comparison), *operators_in_words(comparison)]


def operators_in_words(comparison: Comparison) -> list[str]:
    """Return a line for each profiled cell: which operators account for its difference."""
    return [f"{name_of(each.cell)}: {each.sentence}" for each in comparison.operators]


def figures(comparison: Comparison) -> list[str]:
    """Return the geometric mean and the smallest effect."""
    lines = []
    if comparison.geometric_mean is not None:
        mean = comparison.geometric_mean
        lines.append(f"Candidate / baseline, {mean.method}: {ratio_of(mean)}; above 1 is slower.")
    unjudged = (Verdict.COMPARISON, Verdict.DIFFERENT)
    judged = [
        each.judgement
        for each in comparison.cells
        if each.verdict not in unjudged and each.quantity == TIME
    ]
    effects = sorted(each.smallest_effect for each in judged if each.smallest_effect is not None)
    if effects:
        middle = effects[len(effects) // 2]
        span = percent(middle)
        if len(effects) > 1:
            span += f" (median of the cells; {percent(effects[-1])} worst)"
        often = percent(POWER)
        lines.append(
            f"Smallest slowdown that would have been called a regression {often} of the time: "
            f"{span}."
        )
    return lines


def remarks(comparison: Comparison) -> list[str]:
    """Return the notes, cells of one side alone and what differs besides the code first."""
    lines = [
        *_one_sided("only in the baseline", comparison.only_baseline),
        *_one_sided("only in the candidate", comparison.only_candidate),
    ]
    differing = side_differences_line(comparison.differences, len(comparison.cells))
    return [
        *lines,
        *([differing] if differing else []),
        *_slower_tails(comparison),
        *comparison.notes,
    ]


_TAIL_P = 0.0005
"""A slower tail is remarked on only where identical code shows one as rarely as a gate calls it
slower."""


def _slower_tails(comparison: Comparison) -> list[str]:
    """Return a line for each cell whose slowest steps are clearly slower though the step itself is
    not.
    """
    lines = []
    for cell in comparison.cells:
        tail = cell.tail
        if tail is None or cell.verdict in GRAVE or tail.slower_p > _TAIL_P:
            continue
        if tail.ratio > 1 + comparison.rule.magnitude:
            ends = f"{tail.low:.3f} to {tail.high:.3f}"
            lines.append(
                f"{name_of(cell.cell)}: one step in ten is slower: nine in ten take up to "
                f"{tail.ratio:.3f} times as long as the baseline's ({ends}, p {tail.slower_p:.2g})."
            )
    return lines


_MOST_NAMES = 10


def _one_sided(where: str, cells: Sequence[Cell]) -> list[str]:
    """Return a line for each of the first cells that one side lacks, and the number of the
    others.
    """
    lines = [f"{where[:1].upper()}{where[1:]}: {name_of(cell)}." for cell in cells[:_MOST_NAMES]]
    more = len(cells) - len(lines)
    return [*lines, f"... and {more} more {where}; --json shows all."] if more else lines


def meanings(comparison: Comparison) -> dict[Verdict, str]:
    """Return the meanings of the verdicts in use."""
    rule, gate = comparison.rule, comparison.purpose == "gate"
    words = {
        "magnitude": _thresholds(rule, percent(rule.magnitude), 1),
        "tolerance": _thresholds(rule, percent(rule.tolerance), 2),
        "p": f"{rule.false_alarms if gate else rule.p_value:.2g}",
    }
    return {each: WORDS[each].legend.format(**words) for each in by_verdict(comparison)}


def _thresholds(rule: Rule, of_time: str, times: int) -> str:
    """Return the thresholds of all quantities that are judged: "2.5 % (peak memory 5 %)"."""
    further = ", ".join(
        f"{JUDGED[name].words} {percent(times * share)}" for name, share in rule.further
    )
    if not rule.judges_time:
        return further
    return f"{of_time} ({further})" if further else of_time


def legend(comparison: Comparison) -> list[str]:
    """Return the meanings of the verdicts and marks in use."""
    lines = [f"{WORDS[each].word}: {meaning}" for each, meaning in meanings(comparison).items()]
    lines += axes.legends(each.cell for each in comparison.cells)
    raised = {kind for each in comparison.cells for kind in flags_of(each)}
    return lines + [f"{kind.symbol} {kind.legend}" for kind in KINDS if kind in raised]


def details_of(cells: Iterable[CellComparison]) -> list[str]:
    """Return the facts behind the marks, each once."""
    facts: dict[str, list[Cell]] = {}
    for each in cells:
        for name, side in ((BASELINE, each.baseline), (CANDIDATE, each.candidate)):
            for flag in side.flags:
                if flag.kind is not PARITY_UNCHECKED:
                    facts.setdefault(f"{name}: {flag.kind.symbol} {flag.sentence}", []).append(
                        each.cell
                    )
    return [
        f"{name_of(first)}{f' and {len(others)} more' if others else ''}, {fact}"
        for fact, (first, *others) in facts.items()
    ]


def machines(comparison: Comparison) -> str:
    """Return the machines, and whether both sides were measured in one session."""
    names = [host.name for host in comparison.hosts]
    if len(names) > 1:
        return f"Baseline on {names[0]}; candidate on {names[1]}."
    how = (
        "both sides in one session"
        if comparison.same_session
        else "the two sides in different sessions"
    )
    return f"On {names[0]}, {how}."


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
        """The line a gate ends with."""
        return f"gate {self.outcome}: {self.why}"


_BEYOND = (Status.UNSUPPORTED, Status.OUT_OF_MEMORY)


def gate_outcome(comparison: Comparison) -> GateOutcome:
    """Return the outcome of a gate."""
    counts = {found: len(cells) for found, cells in by_verdict(comparison).items()}
    holes = comparison.having(Verdict.HOLE)
    beyond = sum(
        cell.baseline.status in _BEYOND and cell.candidate.status in _BEYOND for cell in holes
    )
    counts[Verdict.HOLE] = len(holes) - beyond + comparison.unmeasured
    if comparison.rule.further:
        return outcome_of(counts, "judgement", of_time=False)
    return outcome_of(counts, "cell")


def outcome_of(counts: Mapping[Verdict, int], noun: str, of_time: bool = True) -> GateOutcome:
    """Return the outcome by the number of cells (or ``noun``) of each verdict, which are on times
    alone or not.
    """
    judged = counted(sum(counts.values()), noun)
    failing = [verdict for verdict in GRAVE if counts.get(verdict)]
    if failing:
        return GateOutcome("failed", _how_many(counts, failing, judged, of_time))
    if sum(counts.values()) == counts.get(Verdict.HOLE, 0):
        return GateOutcome("undecided", f"no {noun} was measured on both sides")
    undecided = [
        verdict
        for verdict in Verdict
        if verdict not in GRAVE and counts.get(verdict) and WORDS[verdict].said
    ]
    if undecided:
        return GateOutcome("undecided", _how_many(counts, undecided, judged, of_time))
    return GateOutcome("passed", f"no {'slowdown' if of_time else 'regression'} in {judged}")


def _how_many(
    counts: Mapping[Verdict, int], verdicts: Iterable[Verdict], judged: str, of_time: bool
) -> str:
    """Return how many of the cells have these verdicts: "2 of 5 cells are slower than the baseline,
    1 is broken".
    """
    words: list[str] = []
    for verdict in verdicts:
        count = counts[verdict]
        of = "" if words else f" of {judged}"
        said = (
            WORDS[verdict].said
            if of_time or verdict is not Verdict.REGRESSION
            else "worse than the baseline"
        )
        words.append(f"{count}{of} {'is' if count == 1 else 'are'} {said}")
    return ", ".join(words)


_CHANGES = (Verdict.REGRESSION, Verdict.BROKEN, Verdict.DIFFERENT, Verdict.IMPROVEMENT)
MOST_CHARACTERS = 65_536
"""Of the Markdown: GitHub rejects longer comments."""


def comparison_to_markdown(comparison: Comparison) -> str:
    """Return a comment for a pull request: the outcome, the changes and what is open; the rest
    within ``<details>``.

    Its first line is invisible: a job uses it to find and update the comment. If the text would be
    too long, the least striking cells and the last facts are left out.
    """
    outcome = (
        gate_outcome(comparison).line if comparison.purpose == "gate" else headline(comparison)
    )
    cells, meant = by_verdict(comparison), meanings(comparison)
    unclear = [each for each in cells if each not in (*_CHANGES, Verdict.NO_REGRESSION)]
    notes = [f"{len(cells[each])} {WORDS[each].word}: {meant[each]}" for each in unclear]
    notes += [*operators_in_words(comparison), *remarks(comparison)]
    # Nothing in an indented line has a meaning to Markdown.
    command = (
        f"Measure it again:\n\n    {one_line(comparison.command)}\n" if comparison.command else ""
    )
    words = [*figures(comparison), *legend(comparison)]
    before = f"<!-- dlbench {comparison.purpose} -->\n### {escaped(outcome)}\n"
    about = paragraph(f"{heading(comparison)}. {machines(comparison)}") + "\n"
    rest = _bullets(notes), command, _bullets(words)
    room = MOST_CHARACTERS - sum(map(len, (before, about, *rest))) - 300
    changed = [
        each
        for kind in _CHANGES
        for each in sorted(
            cells.get(kind, ()), key=lambda cell: -abs(math.log(cell.judgement.ratio or 1.0))
        )
    ]
    changes = _table([(*_fields(each), _finding(each)) for each in changed], room // 3)
    facts = _bullets(details_of(comparison.cells), room // 3)
    rows = [
        (*_fields(each), WORDS[each.verdict].word, launches_of(each), sentence_of(each))
        for of_kind in cells.values()
        for each in of_kind
    ]
    every = _table(rows, room - len(changes) - len(facts), "launches", "why")
    folded = f"<details><summary>All cells</summary>\n\n{every}\n{rest[2]}{facts}\n</details>\n"
    return "\n".join(filter(None, (before, about, changes, *rest[:2], folded)))


def _fields(cell: CellComparison) -> tuple[str, str]:
    return cell.name, ratio_of_cell(cell) + marks_of(cell)


def _finding(cell: CellComparison) -> str:
    """Return the verdict in one word, with the reason where there is no ratio that says it."""
    word = WORDS[cell.verdict].word
    return (
        f"{word}: {sentence_of(cell)}"
        if cell.verdict in (Verdict.BROKEN, Verdict.DIFFERENT)
        else word
    )


def _table(rows: Sequence[Sequence[str]], room: int, *further: str) -> str:
    """Return a Markdown table of cells, cut to this many characters; empty without cells."""
    if not rows:
        return ""
    head = ("cell", "candidate / baseline", "verdict", *further)
    lines = [pipe_row(escaped(table_field(text)) for text in row) for row in rows]
    shown = _within(lines, room, pipe_row(("... and {} more", *[""] * (len(head) - 1))))
    return "".join(
        f"{line}\n"
        for line in (pipe_row(head), pipe_row([":--", "--:", *[":--"] * (len(head) - 2)]), *shown)
    )


def _bullets(lines: Sequence[str], room: int = MOST_CHARACTERS) -> str:
    shown = _within([f"- {paragraph(line)}" for line in lines], room, "- ... and {} more")
    return "".join(f"{line}\n" for line in shown)


def _within(lines: Sequence[str], room: int, more: str) -> list[str]:
    """Return as many of the lines as have room, and of the others how many there are."""
    fitting = sum(end <= room for end in accumulate(len(line) + 1 for line in lines))
    return [
        *lines[:fitting],
        *([more.format(len(lines) - fitting)] if fitting < len(lines) else []),
    ]


def comparison_to_junit(comparison: Comparison) -> str:
    """Return the XML document.

    Attributes are those of the schema that Jenkins, GitLab and GitHub's actions read: tests,
    failures, errors, skipped, time; classname and name. The time of a case is the candidate's
    median seconds of one step.
    """
    ends = Counter(WORDS[cell.verdict].junit for cell in comparison.cells)
    totals = {
        "name": "dlbench",
        "tests": str(len(comparison.cells)),
        "failures": str(ends["failure"]),
        "errors": str(ends["error"]),
        "skipped": str(ends["skipped"]),
        "time": f"{sum(map(_candidate_seconds, comparison.cells)):.6f}",
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
    for key, value in facts.items():
        ElementTree.SubElement(properties, "property", name=key, value=one_line(value))
    suite.extend(map(_case, comparison.cells))
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _candidate_seconds(cell: CellComparison) -> float:
    return median(cell.candidate.launch_medians or (0.0,)) if cell.quantity == TIME else 0.0


def _case(cell: CellComparison) -> ElementTree.Element:
    # A dot separates packages for those that show test results as a tree.
    group = group_name(cell.cell).replace(".", "_")
    rest = rest_of(cell.cell)
    name = rest if cell.quantity == TIME else f"{rest}, {JUDGED[cell.quantity].words}"
    names = {"classname": one_line(f"dlbench.{group}"), "name": one_line(name)}
    case = ElementTree.Element("testcase", names, time=f"{_candidate_seconds(cell):.6f}")
    words = WORDS[cell.verdict]
    body = [sentence_of(cell)]
    if cell.judgement.ratio is not None:
        body.append(f"candidate / baseline {ratio_of_cell(cell)}")
    body += [f"{launches_of(cell)} launches, {cell.judgement.method}", *details_of([cell]), ""]
    outcome = ElementTree.SubElement(case, words.junit or "system-out")
    if words.junit:
        outcome.set("message", f"{words.word}: {one_line(sentence_of(cell))}")
    if cell.verdict is not Verdict.HOLE:
        if words.junit:
            outcome.set("type", cell.verdict.name)
        outcome.text = visible_lines("\n".join(body))
    return case


_MOST_REASONS = 8
_MOST_OPERATORS = 5
"""Shown of each profiled cell; JSON has all."""


def comparison_page(comparison: Comparison) -> Page:
    """Return the comparison as words and a table: each cell's ratio and verdict, then more of the
    striking ones.

    The counts stand at the end, where a terminal leaves the reader.
    """
    facts = [*_reasons(comparison), *details_of(comparison.cells)]
    end = [*closing(comparison), headline(comparison) + "."]
    if comparison.purpose == "gate":
        end.append(gate_outcome(comparison).line)
    after = [line for block in (facts, legend(comparison), end) if block for line in ("", *block)]
    tables = [table(comparison.cells)]
    for difference in comparison.operators:
        if difference.differs:
            tables.append(
                operator_table(
                    difference, _MOST_OPERATORS, f"Operators of {name_of(difference.cell)}"
                )
            )
    return Page((heading(comparison), machines(comparison)), tuple(tables), tuple(after[1:]))


REPORT = Report(
    name="compare",
    summary="A candidate against a baseline, cell by cell, with a verdict.",
    examples=("dlbench compare previous latest",),
    page=lambda found, options: comparison_page(found),
    data=comparison_data,
    rows=comparison_rows,
    own_formats={"markdown": comparison_to_markdown, "junit": comparison_to_junit},
)
