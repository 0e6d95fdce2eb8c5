"""The line that a launch leaves on the screen."""

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Status
from dlbench.suites.display.progress import result_line


@pytest.mark.parametrize(
    ("status", "begins"),
    [
        (Status.OK, "0.5 s, parity agrees"),
        (Status.PARITY_FAILED, "0.5 s, parity agrees: why"),
        (Status.IMPLAUSIBLE, "implausible: why"),
    ],
)
def test_a_number_that_cannot_be_is_not_shown(status: Status, begins: str) -> None:
    outcome = make.outcome([0.5] * 5)._replace(status=status, reason="why", parity=make.parity("agrees"))
    assert result_line(make.record(result=outcome)) == begins
