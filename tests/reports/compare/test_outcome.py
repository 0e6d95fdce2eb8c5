"""What a gate comes to, by what its cells came to: it passes on evidence and never for want of it."""

from hypothesis import given
from hypothesis import strategies as st

from dlbench.reports.compare.report import Finding, Outcome, outcome_of

COUNTS = st.dictionaries(st.sampled_from([f for f in Finding if f is not Finding.COMPARISON]), st.integers(1, 30))
GOOD = {Finding.NO_REGRESSION, Finding.IMPROVEMENT}
BAD = {Finding.REGRESSION, Finding.BROKEN}


@given(COUNTS)
def test_it_fails_on_a_regression_passes_on_proof_and_is_undecided_otherwise(counts):
    found = outcome_of(counts, "cell")
    shown = set(counts)
    if shown & BAD:
        assert found.outcome is Outcome.FAILED
    elif shown and shown <= GOOD:
        assert found.outcome is Outcome.PASSED
    else:
        assert found.outcome is Outcome.UNDECIDED
    assert found.line.startswith(f"gate {found.outcome}: ")


def test_the_line_says_why():
    said = {
        "gate undecided: no cell was measured on both sides": {Finding.HOLE: 2},
        "gate undecided: of 1 cell 1 disturbed by other programs in at least half of the pairs": {Finding.CONTENDED: 1},
        "gate undecided: of 3 cells 1 inconclusive": {Finding.INCONCLUSIVE: 1, Finding.NO_REGRESSION: 2},
        "gate failed: of 3 cells 1 slower than the baseline": {Finding.REGRESSION: 1, Finding.CONTENDED: 2},
        "gate passed: no slowdown in 2 cells": {Finding.NO_REGRESSION: 1, Finding.IMPROVEMENT: 1},
        "gate undecided: of 6 cells 4 without a number on a side or not measured": {
            Finding.NO_REGRESSION: 2,
            Finding.HOLE: 4,
        },
        "gate undecided: no cell was measured on both sides ": {},
    }
    for line, counts in said.items():
        assert outcome_of(counts, "cell").line == line.strip()
