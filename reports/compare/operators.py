"""`dlbench explain --against`: which operators account for the difference between two sides of a
step.
"""

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


def _calls(each: OperatorDifference) -> str:
    if each.name == OUTSIDE:
        return ""
    if calls_differ(each):
        return f"{count_of_calls(each.baseline_calls)} -> {count_of_calls(each.candidate_calls)}"
    return count_of_calls(each.candidate_calls)


COLUMNS: tuple[Column[OperatorDifference], ...] = (
    Column(
        "name",
        "operator",
        lambda each: each.name,
        lambda each: Entry(one_line(each.name, 34), best=each.named),
    ),
    Column("kind", None, lambda each: each.kind),
    Column(
        "baseline",
        "baseline ms",
        lambda each: each.baseline,
        lambda each: _milliseconds(each.baseline),
    ),
    Column(
        "candidate",
        "candidate ms",
        lambda each: each.candidate,
        lambda each: _milliseconds(each.candidate),
    ),
    Column(
        "share",
        "of the difference",
        lambda each: each.share,
        lambda each: f"{100 * each.share:.0f} %",
    ),
    Column("baseline_calls", None, lambda each: each.baseline_calls),
    Column("candidate_calls", None, lambda each: each.candidate_calls),
    Column("", "calls", lambda each: each.candidate_calls, _calls),
    Column("errors", None, lambda each: each.errors),
    Column("named", None, lambda each: each.named),
)


def lines(found: StepDifference) -> list[str]:
    """Return the result in words: how long a step takes, which operators differ, and what else
    does.
    """
    words = []
    if found.timed is not None:
        before, after = found.timed
        change = change_in_words(after / before, None, None)
        words.append(
            f"A step takes {number(after * 1e3)} ms, and {number(before * 1e3)} ms in the "
            f"baseline: {change} (medians of {counted(found.launches, 'launch', 'launches')} each)."
        )
    words.append(found.sentence)
    if found.differs and found.explained < EXPLAINED:
        beside = (
            " ".join(found.circumstances)
            or "Page faults, waiting threads and CPU time do not differ either."
        )
        words.append(f"Operators leave most of the difference open. {beside}")
    return words


def operator_table(found: StepDifference, top: int, title: str = "") -> Table:
    """Return the operators with the largest differences, and after them those of all kinds."""
    shown = found.operators[:top]
    left = len(found.operators) - len(shown)
    more = f", the {len(shown)} that differ most of {len(found.operators)}" if left else ""
    return table(COLUMNS, shown, (title or "Operators of a profiled step") + more)


def difference_data(found: StepDifference) -> dict[str, Any]:
    """Return a cell's difference as a JSON object, with all operators."""
    whole = {BASELINE: found.baseline, CANDIDATE: found.candidate}
    timed = (
        None if found.timed is None else dict(zip((BASELINE, CANDIDATE), found.timed, strict=True))
    )
    return {
        "cell": axes.values(found.cell),
        "sentence": found.sentence,
        "profiler": found.profiler,
        "steps": found.steps,
        "launches": found.launches,
        "profiled_seconds": whole,
        "seconds": timed,
        "differs": found.differs,
        "named": [each.name for each in found.named],
        "explained": found.explained,
        "operators": objects(COLUMNS, found.operators),
        "kinds": objects(COLUMNS, found.kinds),
        "circumstances": list(found.circumstances),
        "problem": found.problem,
    }


def _page(found: StepDifference, top: int) -> Page:
    """Return the operators and their kinds as tables, and the result in words."""
    if found.problem:
        return Page((f"{name_of(found.cell)}.",), (), tuple(lines(found)))
    before = (
        f"{name_of(found.cell)}, against the baseline.",
        (
            f"Under {found.profiler} a step takes {number(found.candidate * 1e3)} ms, and "
            f"{number(found.baseline * 1e3)} ms in the baseline (means of "
            f"{counted(found.launches, 'launch', 'launches')} each, {counted(found.steps, 'step')} "
            "a launch)."
        ),
    )
    tables = (
        table(COLUMNS, found.kinds, "Kinds of operators of a profiled step"),
        operator_table(found, top),
    )
    legend = f"{BEST} accounts for a part of the difference that repeats over the launches."
    return Page(before, tables, (*((legend,) if found.named else ()), *lines(found)))


REPORT: Report[StepDifference] = Report(
    name="operators",
    summary="Which operators account for the difference between two builds of one cell's step.",
    examples=("dlbench explain jax/lstm32 --against 0.4.20",),
    page=lambda found, options: _page(found, options.top),
    data=lambda found: {"schema": SCHEMA, **difference_data(found)},
    rows=lambda found: csv_rows(COLUMNS, found.operators),
)
"""`dlbench explain --against`."""
