"""Cores of one's own: a quota counts as much as the cores that are there."""

from dataclasses import replace

import pytest

from dlbench.reports.storage.hosts import Host

HOST = Host("a", "a machine", physical_cores=64, logical_cpus=128, effective_cpus=128)


@pytest.mark.parametrize(
    ("cores", "cpus", "expected"), [(64, 128, 64), (64, 2, 2), (None, 4, 4), (8, None, 8), (None, None, None)]
)
def test_the_smaller_of_cores_and_quota_counts(cores, cpus, expected):
    assert replace(HOST, physical_cores=cores, effective_cpus=cpus).own_cores == expected
