"""What is particular to Caffe, shown by the guest in Caffe's own interpreter."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest
from known_networks import NETWORKS, data_of

from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.suites.planning.framework import find
from dlbench.suites.run.launcher import LaunchRequest, ProcessLauncher

pytestmark = pytest.mark.framework

FRAMEWORK = "caffe"


@asked.of_every_framework(
    asked.reference(),
    asked.reference(only=["wide-recurrent", "one-hot-lstm"]),
    asked.rate("id(adapter.solver)"),
    asked.reset("id(adapter.solver)"),
    # Debian's build is for the CPU only.
    asked.capabilities(gpu=False, automatic_gradients=True, several_processes=False),
    asked.description(version="1.0.0", framework="…", execution="…", optimizer="…", threads=1),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


def test_gates_are_reordered_and_back(guest: Guest) -> None:
    there, back = guest("""
        from guest.caffe.networks import reorder_gates
        rows = np.arange(8).repeat(3).reshape(8, 3)
        answer = reorder_gates(rows)[:, 0].tolist(), bool((reorder_gates(reorder_gates(rows)) == rows).all())
    """)
    assert there == [0, 1, 2, 3, 6, 7, 4, 5]
    assert back


def test_no_gradient_is_computed_for_data_or_statistics(guest: Guest) -> None:
    """Nothing is trained but the network's parameters, and no step pays for the gradient of its mini-batch."""
    data, statistics = guest("""
        adapter = prepared("small-residual")
        for blob in ("inputs", "labels"):
            adapter.net.blobs[blob].diff[...] = 7
        adapter.step()
        data = [float(abs(adapter.net.blobs[blob].diff - 7).max()) for blob in ("inputs", "labels")]
        layers = [layer for layer in adapter.net.layers if layer.type == "BatchNorm"]
        answer = data, [float(abs(blob.diff).max()) for layer in layers for blob in layer.blobs]
    """)
    assert data == [0.0, 0.0]
    assert statistics
    assert set(statistics) == {0.0}


@pytest.mark.parametrize("build", ["pthread", "openmp"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_mode_chooses_the_blas_and_its_threads(guest: Guest, build: str, threads: int) -> None:
    """More threads than CPUs too, which OpenBLAS's own pool does not take from the environment."""
    says, blas = guest(
        f"adapter = make('small-dense', threads={threads})\n"
        "answer = adapter.effective_threads(), adapter.describe()['blas']",
        **find("caffe").launch_variables(build, threads),
    )
    assert says == threads
    assert blas["threading"] == build
    assert ("USE_OPENMP" in blas["build"]) == (build == "openmp")
    assert blas["kernels"]


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


def test_the_product_is_one(guest: Guest) -> None:
    assert guest("answer = np.unique(make('small-dense').multiply(64)()).tolist()") == [64 * 0.5 * 0.25]


def test_nothing_is_left_behind(guest: Guest, tmp_path: Path) -> None:
    left = guest(f"""
        os.chdir({str(tmp_path)!r})
        before = set(os.listdir("."))
        prepared("small-dense").step()
        answer = sorted(set(os.listdir(".")) - before)
    """)
    assert left == []


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
