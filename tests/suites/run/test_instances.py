"""Instances: independent processes at once, as one launch."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import plan_of, records_in, run_command

from dlbench.adapters.protocol import Status, ThreadEvidence
from dlbench.reports.results.outcome import Outcome
from dlbench.suites.errors import UsageError
from dlbench.suites.run.instances import together


def outcome(milliseconds, steps=10, start=0.0, **changes):
    """Return an outcome whose every step took so long."""
    lasted = steps * milliseconds * 1e-3
    samples = [int(milliseconds * 1e6)] * steps
    return Outcome(Status.OK, samples_ns=samples, timed_between=[start, start + lasted], **changes)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=4))
def test_rates_of_all_add_up(milliseconds):
    joint = together([outcome(step_ms) for step_ms in milliseconds])
    assert 1 / joint.step_seconds()[0] == pytest.approx(
        sum(1e3 / step_ms for step_ms in milliseconds), rel=1e-5
    )
    assert joint.observed_steps() == 10 * len(milliseconds)


def test_only_the_time_that_all_share_counts():
    quick, slow = outcome(10, steps=10), outcome(10, steps=20, start=0.05)
    quick = quick._replace(samples_ns=[10**7] * 5 + [4 * 10**6] * 5, timed_between=[0.0, 0.07])
    joint = together([quick, slow])
    assert joint.timed_between == [0.05, 0.07]
    assert len(joint.samples_ns) == 2
    assert len(joint.software["samples_ns_of_instances"][1]) == 20


def test_threads_and_memory_are_those_of_all_and_a_failure_is_that_of_one():
    evidence = ThreadEvidence(1, None, 3, 2.0, 1.0, [1.5, 0.5])
    outcomes = [outcome(10, threads=evidence, peak_memory_bytes=100, cpus=[cpu]) for cpu in (2, 1)]
    joint = together(outcomes)
    assert joint.threads == ThreadEvidence(2, None, 6, 4.0, 1.0, [1.5, 1.5, 0.5, 0.5])
    assert (joint.peak_memory_bytes, joint.cpus) == (200, [1, 2])
    failed = together([outcomes[0], Outcome(Status.OUT_OF_MEMORY, "no room")])
    assert (failed.status, failed.reason, failed.samples_ns) == (
        Status.OUT_OF_MEMORY,
        "an instance: no room",
        [],
    )


def planned(threads, instances):
    return plan_of(
        "table4", frameworks="null", networks="fcn5", threads=threads, instances=instances
    )


def test_instances_that_do_not_fit_are_left_out_or_refused():
    plan = planned("1,2", "1,2")
    assert [(cell.threads, cell.instances) for cell in plan.cells] == [(1, 1), (2, 1), (1, 2)]
    assert [(cell.threads, cell.instances) for cell in plan.left_out] == [(2, 2)]
    with pytest.raises(UsageError, match="2 CPUs to bind threads to"):
        planned("2", "2")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_two_processes_run_at_once_on_cpus_of_their_own(tmp_path):
    words = (
        "--frameworks",
        "null",
        "--networks",
        "fcn5",
        "--threads",
        "1",
        "--launches",
        "1",
        "--instances",
        "1,2",
    )
    done = run_command(tmp_path, "run", "quick", *words, "--no-wait-for-quiet", "--no-ceilings")
    assert done.returncode == 0, done.stderr
    alone, of_two = sorted(records_in(tmp_path), key=lambda record: record.cell.instances)
    assert of_two.outcome.status is Status.OK, of_two.outcome.reason
    assert len(of_two.outcome.cpus) == 2
    assert of_two.outcome.threads.requested == 2
    assert len(of_two.outcome.software["samples_ns_of_instances"]) == 2
    # They were timed at the same time, and together take less for a step than each.
    begin, end = of_two.outcome.timed_between
    assert begin < end
    assert max(of_two.outcome.step_seconds()) < 1e-9 * max(
        map(max, of_two.outcome.software["samples_ns_of_instances"])
    )
    assert alone.outcome.software.get("samples_ns_of_instances") is None
