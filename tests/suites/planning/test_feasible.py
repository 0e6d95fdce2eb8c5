"""What is too much for a machine or a run is said before anything is launched."""

from dataclasses import replace

import numpy as np
import pytest
from fake_nvml import TWO, gpus

from dlbench.adapters.launch.batches import mini_batch
from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.reports.storage.store import Store
from dlbench.suites.planning import networks, suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand, too_large
from dlbench.suites.planning.values import Capacity

MACHINE = probe()
GIB = 2**30
LARGE = """
name = "large"
summary = "too large for any machine"
networks = ["small", "wide"]
frameworks = ["torch"]
threads = [1]
[protocol]
warmup_steps = 1
steps = 2
[[network]]
name = "small"
family = "feedforward"
inputs = 4
hidden = [4]
outputs = 4
activation = "tanh"
[[network]]
name = "wide"
family = "feedforward"
inputs = 90000
hidden = [90000]
outputs = 4
activation = "tanh"
batch_size = 1000000
"""


def machine(gigabytes, limit=None, board=None):
    memory = replace(MACHINE.memory, total_bytes=gigabytes * GIB, limit_bytes=limit and limit * GIB)
    boards = gpus(TWO)
    reported = tuple(replace(each, memory_bytes=board and int(board * GIB)) for each in boards.devices)
    return replace(MACHINE, memory=memory, gpus=replace(boards, devices=reported))


def plan_of(of=None, **words):
    return expand(of or suite.load("quick"), SuiteOverrides(words), Capacity(2, 2, gpus(TWO)), 1)


@pytest.mark.parametrize("name", networks.shipped())
def test_the_estimate_is_below_what_the_arrays_of_one_step_take(name):
    network = networks.shipped()[name]
    inputs, labels = (np.asarray(each) for each in mini_batch(network, 2))
    least = network.family.least_bytes(2)
    weights = sum(int(np.prod(each.shape)) for each in network.family.parameters())
    assert least <= 8 * weights + inputs.size * 4 + labels.size * 4
    assert least > 8 * weights


@pytest.mark.parametrize(
    ("device", "of", "reported"),
    [
        ("cpu", machine(1), ""),
        ("cpu", machine(64, limit=1), ""),
        ("cpu", machine(0), "this machine has 0.0 GB"),
        ("cuda:0", machine(64, board=1), ""),
        ("cuda:0", machine(64), ""),
        ("cuda:0", machine(64, board=0.25), "cuda:0 has 0.3 GB"),
    ],
)
def test_memory_is_that_of_the_machine_its_group_or_the_gpu(device, of, reported):
    plan = plan_of(networks="fcn5", frameworks="torch", devices=device, batch_sizes="64")
    why = too_large(plan, plan.cells[0], of)
    assert reported in why
    assert bool(reported) == bool(why)


def test_what_does_not_fit_is_said_and_becomes_cells_with_the_reason(command, tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))  # without environments
    (tmp_path / "large.toml").write_text(LARGE)
    _, planned, _ = command("plan", "large.toml")
    said = "1 cell does not fit into memory and will not be launched; wide, mini-batch 1000000: weights, gradients and"
    assert said in " ".join(planned.split())
    _, _, complaint = command(
        "run", "large.toml", "--networks", "wide", "--no-ceilings", "--no-quiet-gate", "--no-build"
    )
    assert said in " ".join(complaint.split())
    with Store.open(tmp_path / "dlbench.sqlite", create=False) as store:
        (record,) = store.records()
    assert record.outcome.status is Status.SKIPPED
    assert "need at least" in record.outcome.reason


def test_run_asks_for_yes(command, tmp_path):
    words = ("--frameworks", "null", "--networks", "fcn5", "--threads", "1", "--batch-sizes", "1-10001")
    code, _, said = command("run", "quick", *words)
    assert (code, "--yes" in said) == (2, True)
    assert not (tmp_path / "dlbench.sqlite").exists()
