"""What a gate comes to, by what its cells came to: it passes on evidence and never for want of it."""

from hypothesis import given
from hypothesis import strategies as st

from dlbench.reports.compare.report import outcome_of
from dlbench.reports.compare.verdict import Verdict

COUNTS = st.dictionaries(st.sampled_from([f for f in Verdict if f is not Verdict.COMPARISON]), st.integers(1, 30))
GOOD = {Verdict.NO_REGRESSION, Verdict.IMPROVEMENT}
BAD = {Verdict.REGRESSION, Verdict.BROKEN}


@given(COUNTS)
def test_it_fails_on_a_regression_passes_on_proof_and_is_undecided_otherwise(counts):
    found = outcome_of(counts, "cell")
    shown = set(counts)
    if shown & BAD:
        assert found.outcome == "failed"
    elif shown and shown <= GOOD:
        assert found.outcome == "passed"
    else:
        assert found.outcome == "undecided"
    assert found.line.startswith(f"gate {found.outcome}: ")


def test_the_line_says_why():
    said = {
        "gate undecided: no cell was measured on both sides": {Verdict.HOLE: 2},
        "gate undecided: of 1 cell 1 disturbed by other programs in at least half of the pairs": {Verdict.CONTENDED: 1},
        "gate undecided: of 3 cells 1 inconclusive": {Verdict.INCONCLUSIVE: 1, Verdict.NO_REGRESSION: 2},
        "gate failed: of 3 cells 1 slower than the baseline": {Verdict.REGRESSION: 1, Verdict.CONTENDED: 2},
        "gate passed: no slowdown in 2 cells": {Verdict.NO_REGRESSION: 1, Verdict.IMPROVEMENT: 1},
        "gate undecided: of 6 cells 4 without a number on a side or not measured": {
            Verdict.NO_REGRESSION: 2,
            Verdict.HOLE: 4,
        },
        "gate undecided: no cell was measured on both sides ": {},
    }
    for line, counts in said.items():
        assert outcome_of(counts, "cell").line == line.strip()
