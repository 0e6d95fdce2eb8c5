"""`dlbench explain --against`: the operators behind the difference between two sides of a step."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.columns import Column, csv_rows, objects, table
from dlbench.reports.formats.layout import BEST, MISSING, Entry, Page, Table
from dlbench.reports.report import Report
from dlbench.reports.results.naming import counted, name_of
from dlbench.reports.results.number_text import change_in_words, number
from dlbench.reports.results.operators import (
    EXPLAINED,
    OUTSIDE,
    OperatorDifference,
    StepDifference,
    calls_differ,
    count_of_calls,
)
from dlbench.reports.results.record import BASELINE, CANDIDATE
from dlbench.reports.results.safe_text import one_line

SCHEMA = "dlbench-operators-1"


def _milliseconds(seconds: float) -> str:
    return number(seconds * 1e3) if seconds else MISSING


def _calls_text(operator: OperatorDifference) -> str:
    if operator.name == OUTSIDE:
        return ""
    candidate_calls = count_of_calls(operator.candidate_calls)
    if calls_differ(operator):
        return f"{count_of_calls(operator.baseline_calls)} -> {candidate_calls}"
    return candidate_calls


def _name_entry(operator: OperatorDifference) -> Entry:
    return Entry(one_line(operator.name, 34), best=operator.named)


COLUMNS: tuple[Column[OperatorDifference], ...] = (
    Column("name", "operator", lambda operator: operator.name, _name_entry),
    Column("kind", None, lambda operator: operator.kind),
    Column(
        "baseline",
        "baseline ms",
        lambda operator: operator.baseline,
        lambda operator: _milliseconds(operator.baseline),
    ),
    Column(
        "candidate",
        "candidate ms",
        lambda operator: operator.candidate,
        lambda operator: _milliseconds(operator.candidate),
    ),
    Column(
        "share",
        "of the difference",
        lambda operator: operator.share,
        lambda operator: f"{100 * operator.share:.0f} %",
    ),
    Column("baseline_calls", None, lambda operator: operator.baseline_calls),
    Column("candidate_calls", None, lambda operator: operator.candidate_calls),
    Column("", "calls", lambda operator: operator.candidate_calls, _calls_text),
    Column("errors", None, lambda operator: operator.errors),
    Column("named", None, lambda operator: operator.named),
)


def lines(difference: StepDifference) -> list[str]:
    """Return the time of a step, the operators that differ, and other differences, in sentences."""
    sentences = []
    if difference.timed is not None:
        before, after = difference.timed
        change = change_in_words(after / before, None, None)
        launches = counted(difference.launches, "launch", "launches")
        sentences.append(
            f"A step takes {number(after * 1e3)} ms, and {number(before * 1e3)} ms in the "
            f"baseline: {change} (medians of {launches} each)."
        )
    sentences.append(difference.sentence)
    if difference.differs and difference.explained < EXPLAINED:
        circumstances = " ".join(difference.circumstances)
        if not circumstances:
            circumstances = "Page faults, waiting threads and CPU time do not differ either."
        sentences.append(f"Operators leave most of the difference open. {circumstances}")
    return sentences


def operator_table(difference: StepDifference, top: int, title: str = "") -> Table:
    """Return the table of the operators with the largest differences."""
    shown = difference.operators[:top]
    title = title or "Operators of a profiled step"
    if len(shown) < len(difference.operators):
        title += f", the {len(shown)} that differ most of {len(difference.operators)}"
    return table(COLUMNS, shown, title)


def difference_data(difference: StepDifference) -> dict[str, Any]:
    """Return a cell's difference as a JSON object, with all operators."""
    seconds = None
    if difference.timed is not None:
        before, after = difference.timed
        seconds = {BASELINE: before, CANDIDATE: after}
    return {
        "cell": axes.values(difference.cell),
        "sentence": difference.sentence,
        "profiler": difference.profiler,
        "steps": difference.steps,
        "launches": difference.launches,
        "profiled_seconds": {BASELINE: difference.baseline, CANDIDATE: difference.candidate},
        "seconds": seconds,
        "differs": difference.differs,
        "named": [operator.name for operator in difference.named],
        "explained": difference.explained,
        "operators": objects(COLUMNS, difference.operators),
        "kinds": objects(COLUMNS, difference.kinds),
        "circumstances": list(difference.circumstances),
        "problem": difference.problem,
    }


def _page(difference: StepDifference, top: int) -> Page:
    """Return the operators and their kinds as tables, and the result in sentences."""
    name = name_of(difference.cell)
    after = lines(difference)
    if difference.problem:
        return Page((f"{name}.",), (), tuple(after))
    launches = counted(difference.launches, "launch", "launches")
    steps = counted(difference.steps, "step")
    before = (
        f"{name}, against the baseline.",
        f"Under {difference.profiler} a step takes {number(difference.candidate * 1e3)} ms, and "
        f"{number(difference.baseline * 1e3)} ms in the baseline (means of {launches} each, "
        f"{steps} a launch).",
    )
    tables = (
        table(COLUMNS, difference.kinds, "Kinds of operators of a profiled step"),
        operator_table(difference, top),
    )
    if difference.named:
        legend = f"{BEST} accounts for a part of the difference that repeats over the launches."
        after = [legend, *after]
    return Page(before, tables, tuple(after))


def _data(difference: StepDifference) -> dict[str, Any]:
    return {"schema": SCHEMA, **difference_data(difference)}


REPORT: Report[StepDifference] = Report(
    name="operators",
    summary="Which operators account for the difference of two builds.",
    examples=("dlbench explain jax/lstm32 --against 0.4.20",),
    page=lambda difference, options: _page(difference, options.top),
    data=_data,
    rows=lambda difference: csv_rows(COLUMNS, difference.operators),
)
"""`dlbench explain --against`."""
