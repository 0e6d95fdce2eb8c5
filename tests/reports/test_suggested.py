"""What is suggested after a run: reports that have something to show of it, and no others."""

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.catalogue import suggested
from dlbench.reports.results.outcome import Outcome


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"tables"}),
        ({"threads": (1, 2)}, {"tables", "threads"}),
        ({"threads": (0, 2), "device": ("cuda:0",)}, {"tables", "ceilings"}),
        ({"threads": (1, 2), "world_size": (2,)}, {"tables", "scaling"}),
        ({"batch_size": (32, 64)}, {"tables", "figure1"}),
        ({"world_size": (1, 2)}, {"tables", "scaling"}),
        ({"framework": ("torch", "mxnet")}, {"tables", "progress", "fastest"}),
        ({"mode": ("eager", "compile")}, {"tables", "fastest", "costs"}),
        ({"network": ("fcn5", "lstm32")}, {"tables"}),
    ],
    ids=lambda given: " ".join(sorted(given)),
)
def test_a_report_is_suggested_where_it_has_something_to_show(values, expected):
    one, two = (
        make.record(**{name: value[place % len(value)] for name, value in values.items()})
        for place in (0, 1)
    )
    assert {report.name for report in suggested([one, two])} == expected
    failed = [
        make.record(result=Outcome(Status.CRASHED, "signal 11"), **made.cell._asdict())
        for made in (one, two)
    ]
    assert suggested(failed) == []
    # Two counts of which one failed are nothing to compare.
    assert {report.name for report in suggested([one, failed[1]])} <= {
        "tables",
        "scaling",
        "ceilings",
    }
