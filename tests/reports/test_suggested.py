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
    ids=lambda axes_values: " ".join(sorted(axes_values)),
)
def test_a_report_is_suggested_where_it_has_something_to_show(values, expected):
    first = make.record(**{name: choices[0] for name, choices in values.items()})
    second = make.record(**{name: choices[-1] for name, choices in values.items()})
    assert {report.name for report in suggested([first, second])} == expected
    failed = [
        make.record(result=Outcome(Status.CRASHED, "signal 11"), **record.cell._asdict())
        for record in (first, second)
    ]
    assert suggested(failed) == []
    # Two counts of which one failed are nothing to compare.
    assert {report.name for report in suggested([first, failed[1]])} <= {
        "tables",
        "scaling",
        "ceilings",
    }
