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
