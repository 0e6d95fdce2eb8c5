"""The suite of the paper's Figure 1: on every GPU, or on the CPU with smaller mini-batches, if that is asked for."""

from itertools import pairwise

import pytest
from pretended_gpus import TWO, gpus

from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import suite
from dlbench.suites.planning.choices import Choices
from dlbench.suites.planning.expansion import expand
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
    plan = expand(FIGURE1, Choices(), TWO_GPUS, seed=1)
    assert {cell.device for cell in plan.cells} == {"cuda:0", "cuda:1"}
    for network in FIGURE1.networks:
        for device in ("cuda:0", "cuda:1"):
            assert ladder(plan, network, device) == FIGURE1.batch_sizes[network]


def test_the_cpu_has_sizes_of_its_own_beside_a_gpu_too():
    alone = expand(FIGURE1, Choices(devices="cpu"), Capacity(2, 2), seed=1)
    both = expand(FIGURE1, Choices(devices="cpu,cuda:0"), TWO_GPUS, seed=1)
    for network in FIGURE1.networks:
        assert ladder(alone, network, "cpu") == ladder(both, network, "cpu") == FIGURE1.cpu_batch_sizes[network]
        assert ladder(both, network, "cuda:0") == FIGURE1.batch_sizes[network]


def test_sizes_typed_by_the_user_are_measured_on_every_device():
    plan = expand(FIGURE1, Choices(devices="cpu,cuda:0", batch_sizes="16,32"), TWO_GPUS, seed=1)
    assert {cell.batch_size for cell in plan.cells} == {16, 32}


def test_without_a_gpu_one_line_says_what_there_is():
    with pytest.raises(UsageError, match="cpu") as caught:
        expand(FIGURE1, Choices(), Capacity(2, 2), seed=1)
    assert "\n" not in str(caught.value)


def test_a_network_that_is_none_is_refused_there_too():
    text = 'name = "mine"\nsummary = "s"\nnetworks = ["fcn5"]\nframeworks = ["null"]\nthreads = [1]\n'
    with pytest.raises(SuiteError, match=r"key cpu_batch_sizes: .*Did you mean 'fcn"):
        suite.parse(text + "[cpu_batch_sizes]\nfcn6 = [1]\n", "my.toml")
