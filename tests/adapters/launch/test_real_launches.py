"""Launches in processes of their own: extra work, short steps, CPUs they are bound to."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from pretending_adapter import launch_of

from dlbench.adapters.protocol import Status
from dlbench.suites.run.judge import judged
from dlbench.suites.run.launcher import LaunchRequest, ProcessLauncher


def null_launch(folder, cpus=None, variables=None, settings=None, **numbers):
    """Carry out one launch of the null framework in a process of its own."""
    launch = launch_of(folder, settings={"serial_fraction": 1.0, **(settings or {})}, **numbers)._replace(cpus=cpus)
    order = LaunchRequest(launch, Path(sys.executable), variables or {}, 120.0, computes=False)
    return judged(order, ProcessLauncher().launch(order), None).outcome


def fastest(launch, near):
    """Return the shortest step, of up to five launches: others may hold the machine, and only ever lengthen it."""
    best = float("inf")
    for _ in range(5):
        best = min(best, *launch().step_seconds())
        if best == pytest.approx(near, rel=0.05):
            break
    return best


def test_a_real_short_step_is_timed_right_in_batches(tmp_path):
    def launch(sample_seconds):
        settings = {"step_seconds": 1e-4}
        return null_launch(tmp_path, settings=settings, steps=30, seconds=10.0, sample_seconds=sample_seconds)

    # On a machine that others hold too, a sample of 1 ms is now and then undisturbed; one of 10 ms may never be.
    assert fastest(lambda: launch(0.001), 1e-4) == pytest.approx(1e-4, rel=0.05)
    outcome = launch(0.01)
    assert len(outcome.samples_ns) == 30
    assert min(outcome.samples_ns) >= 1e5 * outcome.steps_per_sample
    assert outcome.timed_steps() == outcome.observed_steps() == 30 * outcome.steps_per_sample
    assert np.median(outcome.samples_ns) >= 9_500_000


EXTRA = "DLBENCH_EXTRA_PRODUCTS"


def test_extra_products_make_every_timed_step_longer_by_what_they_take(tmp_path):
    def launch(variables):
        settings = {"step_seconds": 1e-3}
        return null_launch(tmp_path, settings=settings, steps=30, seconds=10.0, variables=variables)

    assert fastest(lambda: launch({}), 1.0e-3) == pytest.approx(1.0e-3, rel=0.05)
    assert fastest(lambda: launch({EXTRA: "1x500"}), 1.5e-3) == pytest.approx(1.5e-3, rel=0.05)
    assert fastest(lambda: launch({EXTRA: "3x100"}), 1.3e-3) == pytest.approx(1.3e-3, rel=0.05)
    heavier = launch({EXTRA: "1x500"})
    assert min(heavier.warmup_ns) >= 1_450_000
    assert heavier.software["variables"] == {EXTRA: "1x500"}


linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs")


@linux
def test_a_launch_bound_to_a_cpu_has_that_one_and_numpy_too(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    free = null_launch(tmp_path)
    assert free.cpus == allowed
    for cpu in (allowed[0], allowed[-1]):
        bound = null_launch(tmp_path, cpus=[cpu])
        assert (bound.status, bound.reason, bound.cpus) == (Status.OK, "", [cpu])
        # One thread, and that is the main one: NumPy's pool counted the CPUs when it was imported.
        assert bound.threads.os_threads in (None, 1)
    if len(allowed) > 1 and free.threads.os_threads is not None:
        assert free.threads.os_threads > 1, "a NumPy without a thread pool: this test shows nothing here"


@linux
def test_cpus_that_are_not_there_are_refused_before_anything_is_done(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    missing = max(allowed) + 1000
    # The kernel would take the second mask without a word, for those CPUs in it that are there.
    for cpus in ([missing], [allowed[0], missing], []):
        outcome = null_launch(tmp_path, cpus=cpus)
        assert outcome.status is Status.UNSUPPORTED
        assert outcome.reason.startswith("CPUs " + (",".join(map(str, cpus)) or "(none)"))
        assert outcome.reason.endswith("it may use " + ",".join(map(str, allowed[:16])) + ",..." * (len(allowed) > 16))
        assert outcome.samples_ns == []
