"""The report of a bisection: the first slower candidate, or why none can be named."""

from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.reports.columns import VALUE, Column, csv_rows, objects, table
from dlbench.reports.compare.operators import difference_data, operator_table
from dlbench.reports.compare.report import MOST_OPERATORS, ratio_of, sentence_of
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.report import Report
from dlbench.reports.results.bisection import Bisection, BisectionOutcome, TriedCandidate
from dlbench.reports.results.conclusion import Conclusion
from dlbench.reports.results.judged import JUDGED, TIME
from dlbench.reports.results.naming import counted, listed, name_of
from dlbench.reports.results.number_text import change_in_words, longer_in_words, percent
from dlbench.reports.results.posterior import Assessment
from dlbench.reports.results.verdict import Verdict


def _percent(share: float) -> str:
    return "over 99 %" if share >= 0.995 else f"{100 * share:.0f} %"


def _columns(kind: str) -> tuple[Column[TriedCandidate], ...]:
    return (
        Column("name", kind, lambda candidate: candidate.name),
        Column("pairs", "pairs", lambda candidate: candidate.pairs),
        Column("ratio", "time / good", lambda candidate: candidate.ratio, _ratio_text, VALUE),
        Column("slower", "P(slower)", lambda candidate: candidate.slower, _slower_text),
        Column("about", None, lambda candidate: candidate.about),
        Column("problem", None, lambda candidate: candidate.problem),
        Column("", "", _remark),
    )


def _ratio_text(candidate: TriedCandidate) -> str:
    return MISSING if candidate.ratio is None else ratio_of(candidate.ratio)


def _slower_text(candidate: TriedCandidate) -> str:
    return "" if candidate.slower is None else f"{100 * candidate.slower:.0f} %"


def _remark(candidate: TriedCandidate) -> Entry:
    return Entry(candidate.problem or candidate.about, hole=bool(candidate.problem))


class _Phrases(NamedTuple):
    """The words for a rise and a fall of the quantity that a bisection searches by."""

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


def _phrases(bisection: Bisection) -> _Phrases:
    if bisection.ends.quantity == TIME:
        return _OF_TIME
    quantity = JUDGED[bisection.ends.quantity].words
    return _Phrases(
        f"has more {quantity}",
        f"does not have more {quantity}",
        f"does not have less {quantity}",
        "less",
        "more",
        f"its {quantity} rose",
        f"its {quantity} fell",
        f"rise of {quantity}",
    )


def _target(bisection: Bisection) -> str:
    """Name the candidate that is searched for: "first slower release".

    For another quantity: "first release with more peak memory".
    """
    if bisection.ends.quantity == TIME:
        pace = "faster" if bisection.faster else "slower"
        return f"first {pace} {bisection.kind}"
    more = "less" if bisection.faster else "more"
    return f"first {bisection.kind} with {more} {JUDGED[bisection.ends.quantity].words}"


def _other_direction(bisection: Bisection, sentence: str) -> str:
    """Return that the change has the other direction, and how to search for it."""
    good = bisection.good
    bad = bisection.bad
    phrases = _phrases(bisection)
    if bisection.faster:
        return (
            f"{good} {phrases.is_not_less} than {bad}, but {phrases.more} ({bad} against {good}: "
            f"{sentence}). To find where {phrases.rose}: --good {bad} --bad {good}, without "
            "--faster."
        )
    return (
        f"{bad} {phrases.is_not_more} than {good}, but {phrases.less}: {sentence}. To find where "
        f"{phrases.fell}: --good {bad} --bad {good} --faster."
    )


def headline(bisection: Bisection) -> str:
    """Return the result in a sentence."""
    target = _target(bisection)
    suspects = bisection.suspects
    sure = f"with probability {_percent(bisection.probability)}"
    if bisection.outcome is BisectionOutcome.FOUND:
        if len(suspects) > 1:
            return (
                f"The {target} is one of {listed(suspects)}, {sure}: all but the last could not be "
                "tested."
            )
        about = ""
        for candidate in bisection.tried:
            if candidate.name == suspects[0] and candidate.about:
                about = f" ({candidate.about})"
                break
        return f"The {target} is {suspects[0]}{about}, {sure}."
    if bisection.assessment is None:
        return _headline_of_ends(bisection)
    if bisection.outcome is BisectionOutcome.SEVERAL:
        good, between, bad = bisection.good, bisection.between, bisection.bad
        return (
            "The pairs contradict a single change (probability of several: "
            f"{_percent(bisection.assessment.several)}): {between} is neither like {good} nor like "
            f"{bad}. Bisect each part separately: --good {good} --bad {between}, and --good "
            f"{between} --bad {bad}."
        )
    span = suspects[0]
    if len(suspects) > 1:
        count = counted(len(suspects), bisection.kind)
        span = f"one of {count}, {suspects[0]} to {suspects[-1]}"
    return (
        f"Undecided: the {target} is {span}, {sure}; the confidence asked for is "
        f"{percent(bisection.confidence)}."
    )


def _headline_of_ends(bisection: Bisection) -> str:
    """Return why there is nothing to bisect between the two ends, in a sentence."""
    good = bisection.good
    bad = bisection.bad
    phrases = _phrases(bisection)
    sentence = sentence_of(bisection.ends)
    if bisection.outcome is BisectionOutcome.NO_NUMBER:
        return f"{bad} cannot be compared with {good}: {sentence}."
    if bisection.ends.verdict is Verdict.IMPROVEMENT:
        return _other_direction(bisection, sentence)
    if bisection.outcome is BisectionOutcome.DIFFERENT:
        return (
            f"{bad} computes something else than {good}, so their times are not compared: "
            f"{sentence}. If that is intended (other random numbers, say), --allow-different "
            "searches by the times."
        )
    if bisection.outcome is BisectionOutcome.NO_SLOWDOWN:
        return f"No {phrases.a_rise} to bisect from {good} to {bad}: {sentence}."
    return f"Undecided whether {bad} {phrases.is_more} than {good} at all: {sentence}."


def _size_sentence(bisection: Bisection, assessment: Assessment) -> str:
    """Return how large the change is, in a sentence."""
    if bisection.ends.quantity == TIME:
        size = longer_in_words(assessment.size, assessment.low, assessment.high)
        if bisection.faster:
            return f"Before it, a step took {size}."
        return f"A step takes {size}."
    size = change_in_words(assessment.size, assessment.low, assessment.high, "more", "less")
    when = "Before it" if bisection.faster else "Since then"
    return f"{when}: {size} {JUDGED[bisection.ends.quantity].words}."


def _page(bisection: Bisection) -> Page:
    phrases = _phrases(bisection)
    count = counted(len(bisection.names), bisection.kind)
    change = phrases.fell if bisection.faster else phrases.rose
    before = (
        f"{name_of(bisection.cell)}: where {change}",
        f"From {bisection.good} (good) to {bisection.bad} (bad): {count}, on "
        f"{bisection.host.name}.",
    )
    after: list[str] = []
    if bisection.outcome is BisectionOutcome.FOUND and bisection.assessment is not None:
        after.append(_size_sentence(bisection, bisection.assessment))
        after += _neighbours(bisection)
    after.append(_effort_sentence(bisection, count))
    after.append(f"Measure it again: `{bisection.command}`")
    tables = []
    if bisection.tried:
        columns = _columns(bisection.kind)
        tables.append(table(columns, bisection.tried, key="tried", words=True))
    if bisection.operators is not None:
        after.append(bisection.operators.sentence)
        fast, slow = bisection.beside
        if bisection.operators.differs:
            title = f"Operators of {slow} (candidate) and {fast} (baseline)"
            tables.append(operator_table(bisection.operators, MOST_OPERATORS, title))
    after.append(headline(bisection))
    return Page(before, tuple(tables), tuple(after))


def _neighbours(bisection: Bisection) -> list[str]:
    """Return a sentence on the candidates around the change, where they have ratios."""
    if bisection.ends.quantity == TIME:
        verb, amount = "took", "long"
    else:
        verb, amount = "had", "much"
    clauses = []
    for candidate in bisection.tried:
        if candidate.name in bisection.beside and candidate.ratio is not None:
            clauses.append(
                f"{candidate.name} {verb} {ratio_of(candidate.ratio)} times as {amount} as "
                f"{bisection.good} in {counted(candidate.pairs, 'pair')}"
            )
    if not clauses:
        return []
    return [f"Around the change: {'; '.join(clauses)}."]


def _effort_sentence(bisection: Bisection, count: str) -> str:
    """Return how many pairs were measured, of how many candidates."""
    untestable = sum(bool(candidate.problem) for candidate in bisection.tried)
    lost = ""
    if bisection.disturbed:
        lost = f", {bisection.disturbed} of them disturbed or incomplete"
    skipped = ""
    if untestable:
        skipped = f"; {counted(untestable, bisection.kind)} could not be tested"
    measured = f"of {len(bisection.tried) - untestable} of {count}{skipped}"
    return f"{counted(bisection.pairs, 'pair')} of launches{lost}, {measured}."


def _data(bisection: Bisection) -> dict[str, Any]:
    ends = bisection.ends
    judgement = ends.judgement
    assessment = bisection.assessment
    slowdown = None
    if assessment is not None:
        slowdown = {"ratio": assessment.size, "low": assessment.low, "high": assessment.high}
    return {
        "outcome": bisection.outcome.value,
        "sentence": headline(bisection),
        "quantity": ends.quantity,
        "kind": bisection.kind,
        "good": bisection.good,
        "bad": bisection.bad,
        "faster": bisection.faster,
        "candidates": list(bisection.names),
        "suspects": list(bisection.suspects),
        "probability": assessment and bisection.probability,
        "before": assessment and bisection.before,
        "slowdown": slowdown,
        "absent": assessment and assessment.absent,
        "several": assessment and assessment.several,
        "between": bisection.between,
        "confidence": bisection.confidence,
        "pairs": bisection.pairs,
        "disturbed_pairs": bisection.disturbed,
        "tried": objects(_columns(bisection.kind), bisection.tried),
        "ends": {
            "verdict": ends.verdict,
            "ratio": judgement.ratio and judgement.ratio.value,
            "low": judgement.ratio and judgement.ratio.low,
            "high": judgement.ratio and judgement.ratio.high,
            "p": judgement.p,
            "sentence": judgement.sentence,
            "pairs": len(ends.pairs[0]),
        },
        "rule": {"threshold": bisection.rule.threshold, "tolerance": bisection.rule.tolerance},
        "cell": axes.values(bisection.cell),
        "machine": bisection.host.fingerprint,
        "machine_name": bisection.host.name,
        "command": bisection.command,
        "operators": bisection.operators and difference_data(bisection.operators),
    }


def conclusion_of(bisection: Bisection) -> Conclusion:
    """Return how a bisection ended in a word, and the result in a sentence."""
    is_broken = bisection.ends.verdict is Verdict.BROKEN
    word = "broken" if is_broken else bisection.outcome.value
    return Conclusion(word, headline(bisection))


REPORT = Report(
    name="bisect",
    summary="Which release or commit made a step slower, or faster.",
    examples=("dlbench bisect jax --network lstm32 --threads 1 --good 0.4.20 --bad 0.12.0",),
    page=lambda bisection, options: _page(bisection),
    conclusion=conclusion_of,
    data=_data,
    rows=lambda bisection: csv_rows(_columns(bisection.kind), bisection.tried),
)
