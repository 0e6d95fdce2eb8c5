"""Which GPUs code for an architecture runs on: cases as NVIDIA's guides give them."""

import pytest

from dlbench.adapters.libraries.gpus import has_code


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (["sm_80"], (8, 0), True),
        (["sm_80"], (8, 6), True),  # a later minor version
        (["sm_86"], (8, 0), False),  # an earlier one
        (["sm_80"], (9, 0), False),  # another major version
        (["compute_80"], (9, 0), True),  # PTX is translated
        (["compute_90"], (8, 9), False),
        (["sm_90a"], (9, 0), True),
        (["compute_90a"], (10, 0), False),  # of one capability alone
        (["sm_100f"], (10, 3), True),
        (["sm_100f"], (12, 0), False),
        (["sm_50", "sm_60", "sm_70"], (7, 5), True),
        (["sm_50", "sm_60", "sm_70"], (8, 0), False),
        (["sm_120"], (12, 0), True),
        (["sm_75", "compute_75"], (12, 1), True),
        ([], (8, 0), False),
        (["gfx90a", "sm_x", "sm_"], (9, 0), False),
    ],
)
def test_code_runs_where_nvidia_says(architectures, capability, runs):
    assert has_code(architectures, capability) is runs


@pytest.mark.parametrize("minor", range(10))
def test_ptx_of_any_capability_covers_its_own_machine_code(minor):
    for major in (5, 7, 8, 9, 12):
        for later in range(minor, 10):
            assert has_code([f"sm_{major}{minor}"], (major, later))
            assert has_code([f"compute_{major}{minor}"], (major, later))
