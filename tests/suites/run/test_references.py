"""Parity references: which one a cell gets, and what is computed for it."""

import pytest
from fake_nvml import TWO, gpus
from known_networks import NETWORKS
from processes import plan_of

from dlbench.adapters.networks import family_of, network_with
from dlbench.hardware_probe import probe
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run import preparation, references
from dlbench.suites.run.preparation import Reference, ReferenceKey, fitting

SHIPPED = {
    network: {
        int(size)
        for path in references.SHIPPED.glob(f"{network}-b*.npz")
        if (size := path.stem.rpartition("-b")[2]).isdecimal()
    }
    for network in ("fcn5", "alexnet", "resnet50", "lstm32")
}


@pytest.fixture
def computed(tmp_path, monkeypatch):
    """Give the (network, mini-batch) pairs that are computed, each an empty file."""
    pairs = []

    def compute(network, batch_size, path, threads, parts, local_steps, inference, fed):
        of_parts = (parts, local_steps)[: 1 + bool(local_steps)] if parts > 1 else ()
        pairs.append((network.name, batch_size, *of_parts))
        path.touch()
        return ""

    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    monkeypatch.setattr(references, "compute", compute)
    return pairs


def fit(network, size, on_cpu):
    lines = []
    return fitting(ReferenceKey(NETWORKS[network], size), on_cpu, lines.append), lines


@pytest.mark.parametrize(
    ("size", "workers", "computed_size"), [(192, 3, 8), (768, 3, 8), (75, 3, 25), (12, 3, 4)]
)
def test_for_any_number_of_workers_a_small_reference_with_labels_for_each_is_computed(
    computed, size, workers, computed_size
):
    lines = []
    key = ReferenceKey(NETWORKS["resnet50"], size, workers)
    reference = fitting(key, False, lines.append)
    assert computed == [("resnet50", computed_size, workers)]
    assert (reference.repeated_batch, reference.label_sets) == (computed_size, workers)
    assert f"mini-batch {computed_size} with {workers} sets of labels" in lines[0]
    assert (fitting(key, False, pytest.fail), len(computed)) == (reference, 1)


@pytest.mark.parametrize("network", SHIPPED)
@pytest.mark.parametrize("size", [48, 96, 512, 1024, 768, 4096])
def test_on_a_gpu_the_largest_reference_at_hand_that_fills_the_mini_batch_is_repeated(
    computed, network, size
):
    divisors = [divisor for divisor in SHIPPED[network] if size % divisor == 0 and divisor < size]
    reference, output = fit(network, size, on_cpu=False)
    assert computed == []
    assert reference == Reference(references.shipped(f"{network}-b{max(divisors)}"), max(divisors))
    assert f"repeated {size // max(divisors)} times" in output[0]


def test_on_the_cpu_it_is_computed_and_then_serves_the_gpu_too(computed):
    on_cpu, _ = fit("lstm32", 24, on_cpu=True)
    assert computed == [("lstm32", 24)]
    assert on_cpu.repeated_batch is None
    assert fit("lstm32", 24, on_cpu=False) == (on_cpu, [])
    assert fit("lstm32", 48, on_cpu=False)[0] == Reference(
        on_cpu.path, 24
    )  # one's own is at hand as well
    assert computed == [("lstm32", 24)]


def test_other_mini_batches_in_each_step_have_a_reference_of_their_own(computed):
    references_of_cells = [
        fitting(ReferenceKey(NETWORKS["lstm32"], 24, fed=fed), True, print)
        for fed in (False, True, True)
    ]
    assert references_of_cells[0].path != references_of_cells[1].path == references_of_cells[2].path
    assert computed == [("lstm32", 24), ("lstm32", 24)]


def test_what_would_need_too_much_memory_is_repeated_on_the_cpu_too_or_stays_unchecked(computed):
    assert fit("resnet50", 256, on_cpu=True)[0].repeated_batch == 32
    reference, output = fit("resnet50", 131, on_cpu=True)
    assert reference is None
    assert "too much memory" in output[-1]
    assert fit("resnet50", 131, on_cpu=False)[0] is None
    assert computed == []


def test_in_a_plan_of_both_the_gpu_is_compared_with_what_the_cpu_needs_anyway(computed):
    chosen = {
        "networks": "lstm32",
        "frameworks": "torch,null",
        "devices": "cuda:0,cpu",
        "batch_sizes": "24,48",
    }
    plan = plan_of("quick", Capacity(1, 1, gpus(TWO)), **chosen)
    reference = preparation.prepare_references(plan, probe(), lambda line: None)
    assert computed == [("lstm32", 24), ("lstm32", 48)]
    for cell in plan.cells:
        fitting_reference = reference(cell)
        assert fitting_reference is not None
        assert (
            fitting_reference.path.name.startswith(f"lstm32-b{cell.batch_size}-"),
            fitting_reference.repeated_batch,
        ) == (True, None)
    computes_nothing = plan_of(frameworks="null", networks="fcn5")
    reference = preparation.prepare_references(computes_nothing, probe(), print)
    assert reference(computes_nothing.cells[0]) is None


def test_local_steps_have_references_of_their_own_and_asynchronous_workers_have_none(computed):
    words = {
        "networks": "lstm32",
        "frameworks": "torch",
        "threads": "1",
        "batch_sizes": "4",
        "world_sizes": "1,2",
    }
    plan = plan_of(**words, sync="step,local:3,local:4,async")
    reference = preparation.prepare_references(plan, probe(), lambda line: None)
    references_by_workers = {(cell.world_size, cell.sync): reference(cell) for cell in plan.cells}
    assert computed == [("lstm32", 4, 2, 3), ("lstm32", 4, 2, 4)]
    assert (
        references_by_workers[1, "step"]
        == references_by_workers[2, "step"]
        == Reference(references.shipped("lstm32-b4"))
    )
    for steps in (3, 4):
        assert references_by_workers[2, f"local:{steps}"].path.name.startswith(
            f"lstm32-b4-w2-h{steps}-"
        )
    assert references_by_workers[2, "async"] is None


def small(**changes):
    numbers = {"inputs": 784, "hidden": [32], "outputs": 10, "activation": "relu", **changes}
    return network_with("small", family_of({"family": "feedforward", "numbers": numbers}))


def test_a_network_of_ones_own_gets_a_reference_by_its_numbers(computed):
    first = fitting(ReferenceKey(small(), 64), True, print)
    second = fitting(ReferenceKey(small(hidden=[33]), 64), True, print)
    assert computed == [("small", 64), ("small", 64)]
    assert first.path != second.path
    assert fitting(ReferenceKey(small(), 64), True, pytest.fail) == first


def test_a_mini_batch_too_large_for_a_reference_of_its_own_repeats_a_small_one(computed):
    reference = fitting(ReferenceKey(small(), 2**15), False, print)
    assert computed == [("small", 8)]
    assert reference.repeated_batch == 8


@pytest.mark.parametrize(
    ("chains", "computed_chains"), [(1, 1), (8, 8), (64, 8), (1024, 8), (67, 67)]
)
def test_many_chains_of_a_machine_repeat_a_few_that_each_launch_can_settle(
    computed, chains, computed_chains
):
    numbers = {"units": 400, "order": "sequential"}
    machine = network_with("machine", family_of({"family": "boltzmann", "numbers": numbers}))
    single, repeated = (fitting(ReferenceKey(machine, count), True, print) for count in (1, chains))
    assert computed == [("machine", 1), *([("machine", computed_chains)] * (chains > 1))]
    assert repeated.repeated_batch == (None if chains == computed_chains else computed_chains)
    assert (repeated == single) is (chains == 1)
