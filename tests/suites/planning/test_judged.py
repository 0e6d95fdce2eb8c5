"""The quantities that a user names to be judged, right and wrong."""

import pytest

from dlbench.suites.errors import UsageError
from dlbench.suites.planning.judged import judged_given


def test_quantities_are_read_with_their_thresholds() -> None:
    judgements = judged_given("memory=3%,first_step=0.2")
    assert judgements == {"judges_time": False, "further": (("memory", 0.03), ("first_step", 0.2))}
    assert judged_given("time,memory")["judges_time"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memroy", r"'memroy' is not a known quantity to judge by\. Known: time, memory, "),
        ("time=2%", "time takes no share"),
        ("memory=abc", "the threshold of memory 'abc' cannot be read"),
        ("memory=200%", r"the threshold of memory 200% is out of range"),
    ],
)
def test_a_mistake_is_said_in_words_that_hold_for_every_command(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        judged_given(text)
