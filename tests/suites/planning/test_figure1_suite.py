"""The suite of the paper's Figure 1: on every GPU, or on the CPU with smaller mini-batches, if that is asked for."""

from itertools import pairwise

import pytest
from pretended_gpus import TWO, gpus

from dlbench.suites.planning import suite
from dlbench.suites.planning.values import Capacity

FIGURE1 = suite.load("figure1")


TWO_GPUS = Capacity(4, 8, gpus(TWO))


@pytest.mark.parametrize("network", FIGURE1.networks)
def test_sizes_are_powers_of_two_from_the_paper_s_own_and_smaller_on_the_cpu(network):
    for sizes in (FIGURE1.batch_sizes[network], FIGURE1.cpu_batch_sizes[network]):
        assert len(sizes) >= 3
        assert all(larger == 2 * size for size, larger in pairwise(sizes))
    assert max(FIGURE1.cpu_batch_sizes[network]) < max(FIGURE1.batch_sizes[network])
