"""The suite of the paper's Figure 1: on every GPU, or on the CPU with smaller mini-batches, if that is asked for."""

from itertools import pairwise

import pytest
from pretended_gpus import TWO, gpus

from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.values import Capacity

FIGURE1 = suite.load("figure1")


TWO_GPUS = Capacity(4, 8, gpus(TWO))


def ladder(plan, network: str, device: str) -> tuple[int, ...]:
    return tuple(sorted({c.batch_size for c in plan.cells if (c.network, c.device) == (network, device)}))


@pytest.mark.parametrize("network", FIGURE1.networks)
def test_sizes_are_powers_of_two_from_the_paper_s_own_and_smaller_on_the_cpu(network):
    for sizes in (FIGURE1.batch_sizes[network], FIGURE1.cpu_batch_sizes[network]):
        assert len(sizes) >= 3
        assert all(larger == 2 * size for size, larger in pairwise(sizes))
    assert max(FIGURE1.cpu_batch_sizes[network]) < max(FIGURE1.batch_sizes[network])


def test_every_gpu_has_every_size_and_the_cpu_none():
    plan = expand(FIGURE1, SuiteOverrides(), TWO_GPUS, seed=1)
    assert {cell.device for cell in plan.cells} == {"cuda:0", "cuda:1"}
    for network in FIGURE1.networks:
        for device in ("cuda:0", "cuda:1"):
            assert ladder(plan, network, device) == FIGURE1.batch_sizes[network]


def test_the_cpu_has_sizes_of_its_own_beside_a_gpu_too():
    alone = expand(FIGURE1, SuiteOverrides(devices="cpu"), Capacity(2, 2), seed=1)
    both = expand(FIGURE1, SuiteOverrides(devices="cpu,cuda:0"), TWO_GPUS, seed=1)
    for network in FIGURE1.networks:
        assert ladder(alone, network, "cpu") == ladder(both, network, "cpu") == FIGURE1.cpu_batch_sizes[network]
        assert ladder(both, network, "cuda:0") == FIGURE1.batch_sizes[network]
