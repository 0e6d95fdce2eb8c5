"""What real frameworks tell of themselves when asked what their build can do."""

import pytest

from dlbench.adapters.protocol import Status
from dlbench.suites.planning.framework import find


@pytest.mark.framework
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch", {"gpu", "automatic_gradients", "several_processes"}),
        ("mxnet", {"gpu", "automatic_gradients", "several_processes"}),
    ],
)
def test_a_real_framework_answers(name, expected, launch):
    found = launch(name, find(name).default_mode, "fcn5", only_capabilities=True)
    assert found.status is Status.OK, found.reason
    told = found.software["capabilities"]
    assert expected <= set(told)
    assert told["automatic_gradients"] == [True, "the gradient of x * x at 3 came out as 6"]
    assert not found.samples_ns
