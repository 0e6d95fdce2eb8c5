"""What is particular to Caffe, shown by the guest in Caffe's own interpreter."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest
from known_networks import NETWORKS, data_of

from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.suites.planning.framework import find
from dlbench.suites.run.launcher import LaunchRequest, ProcessLauncher

pytestmark = pytest.mark.framework

FRAMEWORK = "caffe"


def test_gates_are_reordered_and_back(guest: Guest) -> None:
    there, back = guest("""
        from guest.caffe.networks import reorder_gates
        rows = np.arange(8).repeat(3).reshape(8, 3)
        answer = reorder_gates(rows)[:, 0].tolist(), bool((reorder_gates(reorder_gates(rows)) == rows).all())
    """)
    assert there == [0, 1, 2, 3, 6, 7, 4, 5]
    assert back


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two CPUs are needed to see two threads work")
@pytest.mark.parametrize("build", ["pthread", "openmp"])
def test_products_run_on_as_many_threads_as_asked(guest: Guest, build: str) -> None:
    """CPU time is told of each thread by the kernel, not by the library."""
    busy = {}
    for threads in (1, 2):
        busy[threads] = guest(
            """
            import time
            def ticks():
                found = {}
                for task in os.listdir("/proc/self/task"):
                    fields = open("/proc/self/task/%s/stat" % task).read().rsplit(")", 1)[1].split()
                    found[task] = int(fields[11]) + int(fields[12])
                return found
            multiply = make("small-dense", threads=int(os.environ["OMP_NUM_THREADS"])).multiply(1024)
            multiply()
            before, end = ticks(), time.time() + 1.0
            while time.time() < end:
                multiply()
            after = ticks()
            spent = [after[task] - before.get(task, 0) for task in after]
            answer = sum(1 for value in spent if value > 0.2 * max(spent))
            """,
            **find("caffe").launch_variables(build, threads),
        )
    assert busy == {1: 1, 2: 2}


def test_a_failed_check_is_an_outcome_with_caffes_words(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    """Caffe ends its process where it cannot go on; here because it may have no more memory."""
    framework, network = find("caffe"), "fcn5"
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -v 1700000\nexec {framework_python("caffe")} "$@"\n')
    limited.chmod(0o755)
    cell = Cell("caffe", "caffe", "pthread", network, "cpu", 1, NETWORKS[network].batch_size)
    launch = Launch(cell, Protocol(), {}, None, str(tmp_path), network=data_of(network))
    variables: dict[str, Any] = framework.launch_variables("pthread", 1)
    outcome = ProcessLauncher().launch(LaunchRequest(launch, limited, variables, 300.0)).outcome
    assert outcome.status in (Status.CRASHED, Status.OUT_OF_MEMORY)
    if outcome.status is Status.CRASHED:
        assert "host allocation of size" in outcome.reason, outcome.reason
