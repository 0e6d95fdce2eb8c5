"""Binding a process to CPUs, and what its threads may use between them."""

import json
import os
import threading

import pytest
from known_networks import data_of

from dlbench.adapters import protocol
from dlbench.adapters.launch import evidence
from dlbench.adapters.protocol import Cell, Launch, Protocol

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot bind a process to CPUs"
)


@pytest.fixture(autouse=True)
def as_before():
    before = os.sched_getaffinity(0)
    yield sorted(before)
    os.sched_setaffinity(0, before)


def write(folder, cpus):
    cell = Cell("null", "null", "null", "fcn5", "cpu", 1, 8)
    protocol.write_launch(
        str(folder), Launch(cell, Protocol(), {}, None, str(folder), cpus=cpus, network=data_of(cell.network))
    )


def test_a_launch_is_bound_to_the_cpus_that_it_names_in_whatever_order(tmp_path, as_before):
    for cpus in (None, as_before[::-1] * 2, *([cpu] for cpu in as_before)):
        write(tmp_path, cpus)
        evidence.bind(str(tmp_path))
        assert os.sched_getaffinity(0) == set(cpus or as_before)
        assert set(cpus or as_before) <= set(evidence.cpus_allowed())
        assert evidence.binding_refusal(cpus) == ""


@pytest.mark.parametrize("cpus", [[4095], [0, 4095], [-1], [10**30], ["0"], "0", 5, {"a": 1}])
def test_what_cannot_be_set_is_left_to_the_worker(tmp_path, as_before, cpus):
    write(tmp_path, None)
    content = json.loads((tmp_path / protocol.CELL_FILE).read_text())
    (tmp_path / protocol.CELL_FILE).write_text(json.dumps({**content, "cpus": cpus}))
    evidence.bind(str(tmp_path))
    assert sorted(os.sched_getaffinity(0)) == as_before  # nor is a part of it set
    if isinstance(cpus, list) and all(isinstance(cpu, int) for cpu in cpus):
        assert "cannot be bound" in evidence.binding_refusal(cpus)


def test_threads_bound_apart_count_together(as_before):
    """OpenMP's pools bind each thread to a CPU of its own, the main one too."""
    if len(as_before) < 2:
        pytest.skip("one CPU: threads cannot be bound apart")
    ready, release = threading.Event(), threading.Event()

    def other():
        os.sched_setaffinity(0, as_before[1:2])
        ready.set()
        release.wait()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        ready.wait()
        os.sched_setaffinity(0, as_before[:1])
        assert set(as_before[:2]) <= set(evidence.cpus_allowed())
    finally:
        release.set()
        thread.join()
