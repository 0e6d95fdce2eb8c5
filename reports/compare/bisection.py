"""The report of a bisection: the first slower candidate, or why none can be named."""

from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.reports.columns import VALUE, Column, csv_rows, objects, table
from dlbench.reports.compare.operators import difference_data, operator_table
from dlbench.reports.compare.report import ratio_of, sentence_of
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.report import Report
from dlbench.reports.results.bisection import Bisection, BisectionOutcome, Candidate
from dlbench.reports.results.judged import JUDGED, TIME
from dlbench.reports.results.naming import counted, listed, name_of
from dlbench.reports.results.number_text import change_in_words, longer_in_words, percent
from dlbench.reports.results.posterior import Assessment
from dlbench.reports.results.verdict import Verdict


def _percent(share: float) -> str:
    return "over 99 %" if share >= 0.995 else f"{100 * share:.0f} %"


def _columns(kind: str) -> tuple[Column[Candidate], ...]:
    def ratio(each: Candidate) -> str:
        return MISSING if each.ratio is None else ratio_of(each.ratio)

    def slower(each: Candidate) -> str:
        return "" if each.slower is None else f"{100 * each.slower:.0f} %"

    def remark(each: Candidate) -> Entry:
        return Entry(each.problem or each.about, hole=bool(each.problem))

    return (
        Column("name", kind, lambda each: each.name),
        Column("pairs", "pairs", lambda each: each.pairs),
        Column("ratio", "time / good", lambda each: each.ratio, ratio, VALUE),
        Column("slower", "P(slower)", lambda each: each.slower, slower),
        Column("about", None, lambda each: each.about),
        Column("problem", None, lambda each: each.problem),
        Column("", "", remark),
    )


_MOST_OPERATORS = 5
"""Shown; JSON has all."""


class _Phrases(NamedTuple):
    """How a bisection speaks of a rise and a fall of what it searches by."""

    is_more: str
    """As in "0.6.0 {is_more} than 0.5.0"."""
    is_not_more: str
    is_not_less: str
    less: str
    more: str
    rose: str
    """As in "where {rose}"."""
    fell: str
    a_rise: str


_OF_TIME = _Phrases(
    "is slower",
    "is not slower",
    "is not faster",
    "faster",
    "slower",
    "it became slower",
    "it became faster",
    "slowdown",
)


def _phrases(found: Bisection) -> _Phrases:
    if found.ends.quantity == TIME:
        return _OF_TIME
    words = JUDGED[found.ends.quantity].words
    return _Phrases(
        f"has more {words}",
        f"does not have more {words}",
        f"does not have less {words}",
        "less",
        "more",
        f"its {words} rose",
        f"its {words} fell",
        f"rise of {words}",
    )


def _first(found: Bisection) -> str:
    """Return what is searched for: "first slower release", "first release with more peak
    memory".
    """
    if found.ends.quantity == TIME:
        return f"first {'faster' if found.faster else 'slower'} {found.kind}"
    return (
        f"first {found.kind} with {'less' if found.faster else 'more'} "
        f"{JUDGED[found.ends.quantity].words}"
    )


def _other_way(found: Bisection, said: str) -> str:
    """Return that the change has the other direction than the one asked for, and how to search for
    it.
    """
    good, bad, phrases = found.good, found.bad, _phrases(found)
    if found.faster:
        return (
            f"{good} {phrases.is_not_less} than {bad}, but {phrases.more} ({bad} against {good}: "
            f"{said}). To find where {phrases.rose}: --good {bad} --bad {good}, without --faster."
        )
    return (
        f"{bad} {phrases.is_not_more} than {good}, but {phrases.less}: {said}. To find where "
        f"{phrases.fell}: --good {bad} --bad {good} --faster."
    )


def headline(found: Bisection) -> str:
    """Return the result in a sentence."""
    first, suspects = _first(found), found.suspects
    sure = f"with probability {_percent(found.probability)}"
    if found.outcome is BisectionOutcome.FOUND:
        if len(suspects) > 1:
            return (
                f"The {first} is one of {listed(suspects)}, {sure}: all but the last could not be "
                "tested."
            )
        about = next(
            (f" ({each.about})" for each in found.tried if each.name == suspects[0] and each.about),
            "",
        )
        return f"The {first} is {suspects[0]}{about}, {sure}."
    if found.outcome is BisectionOutcome.SEVERAL and found.assessment is not None:
        return (
            "The pairs contradict a single change (probability of several: "
            f"{_percent(found.assessment.several)}): {found.between} is neither like {found.good} "
            f"nor like {found.bad}. Bisect each part separately: --good {found.good} --bad "
            f"{found.between}, and --good {found.between} --bad {found.bad}."
        )
    if found.assessment is not None:
        several = f"one of {counted(len(suspects), found.kind)}, {suspects[0]} to {suspects[-1]}"
        span = several if len(suspects) > 1 else suspects[0]
        return (
            f"Undecided: the {first} is {span}, {sure}; the confidence asked for is "
            f"{percent(found.confidence)}."
        )
    said, nothing = (
        sentence_of(found.ends),
        f"No {_phrases(found).a_rise} to bisect from {found.good} to {found.bad}",
    )
    if found.outcome is BisectionOutcome.NO_NUMBER:
        return f"{found.bad} cannot be compared with {found.good}: {said}."
    if found.ends.verdict is Verdict.IMPROVEMENT:
        return _other_way(found, said)
    if found.outcome is BisectionOutcome.DIFFERENT:
        return (
            f"{found.bad} computes something else than {found.good}, so their times are not "
            f"compared: {said}. If that is intended (other random numbers, say), --allow-different "
            "searches by the times."
        )
    if found.outcome is BisectionOutcome.NO_SLOWDOWN:
        return f"{nothing}: {said}."
    return (
        f"Undecided whether {found.bad} {_phrases(found).is_more} than {found.good} at all: {said}."
    )


def _size(found: Bisection, known: Assessment) -> str:
    """Return how large the change is, in a sentence."""
    if found.ends.quantity == TIME:
        size = longer_in_words(known.size, known.low, known.high)
        return f"Before it, a step took {size}." if found.faster else f"A step takes {size}."
    size = change_in_words(known.size, known.low, known.high, "more", "less")
    return (
        f"{'Before it: ' if found.faster else 'Since then: '}{size} "
        f"{JUDGED[found.ends.quantity].words}."
    )


def _page(found: Bisection) -> Page:
    count = counted(len(found.names), found.kind)
    before = (
        (
            f"{name_of(found.cell)}: where "
            f"{_phrases(found).fell if found.faster else _phrases(found).rose}"
        ),
        f"From {found.good} (good) to {found.bad} (bad): {count}, on {found.host.name}.",
    )
    after: list[str] = []
    if found.outcome is BisectionOutcome.FOUND and (known := found.assessment) is not None:
        after.append(_size(found, known))
        took, much = ("took", "long") if found.ends.quantity == TIME else ("had", "much")
        beside = [
            f"{each.name} {took} {ratio_of(each.ratio)} times as {much} as {found.good} in "
            f"{counted(each.pairs, 'pair')}"
            for each in found.tried
            if each.name in found.beside and each.ratio is not None
        ]
        after += [f"Around the change: {'; '.join(beside)}."] if beside else []
    untestable = sum(bool(each.problem) for each in found.tried)
    lost = f", {found.disturbed} of them disturbed or incomplete" if found.disturbed else ""
    skipped = f"; {counted(untestable, found.kind)} could not be tested" if untestable else ""
    measured = f"of {len(found.tried) - untestable} of {count}{skipped}"
    after.append(f"{counted(found.pairs, 'pair')} of launches{lost}, {measured}.")
    after += [f"Measure it again: `{found.command}`"]
    tables = (
        [table(_columns(found.kind), found.tried, key="tried", words=True)] if found.tried else []
    )
    if found.operators is not None:
        after.append(found.operators.sentence)
        fast, slow = found.beside
        if found.operators.differs:
            title = f"Operators of {slow} (candidate) and {fast} (baseline)"
            tables.append(operator_table(found.operators, _MOST_OPERATORS, title))
    after.append(headline(found))
    return Page(before, tuple(tables), tuple(after))


def _data(found: Bisection) -> dict[str, Any]:
    known = found.assessment
    return {
        "outcome": found.outcome.value,
        "sentence": headline(found),
        "quantity": found.ends.quantity,
        **{name: getattr(found, name) for name in ("kind", "good", "bad", "faster")},
        "candidates": list(found.names),
        "suspects": list(found.suspects),
        "probability": known and found.probability,
        "before": known and found.before,
        "slowdown": known and {"ratio": known.size, "low": known.low, "high": known.high},
        "absent": known and known.absent,
        "several": known and known.several,
        **{name: getattr(found, name) for name in ("between", "confidence", "pairs")},
        "disturbed_pairs": found.disturbed,
        "tried": objects(_columns(found.kind), found.tried),
        "ends": {
            "verdict": found.ends.verdict,
            **{
                name: getattr(found.ends.judgement, name)
                for name in ("ratio", "low", "high", "p", "sentence")
            },
            "pairs": len(found.ends.pairs[0]),
        },
        "rule": {"magnitude": found.rule.magnitude, "tolerance": found.rule.tolerance},
        "cell": axes.values(found.cell),
        "machine": found.host.fingerprint,
        "machine_name": found.host.name,
        "command": found.command,
        "operators": found.operators and difference_data(found.operators),
    }


REPORT = Report(
    name="bisect",
    summary="Which release or commit made a step slower, or faster.",
    examples=("dlbench bisect jax --network lstm32 --threads 1 --good 0.4.20 --bad 0.12.0",),
    page=lambda found, options: _page(found),
    data=_data,
    rows=lambda found: csv_rows(_columns(found.kind), found.tried),
)
