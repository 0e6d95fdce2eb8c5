"""What PyTorch copies to find out the ceilings of a GPU; none is needed here, its tensors lie on the CPU."""

from collections.abc import Callable
from pathlib import Path

import pytest
from inside import Guest, guest_of

from dlbench.adapters.libraries import device_ceilings

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(framework_python: Callable[[str], Path], tmp_path: Path) -> Guest:
    """Give a function that runs statements in PyTorch's interpreter."""
    imports = "import torch\nfrom guest.libraries import device_ceilings\nfrom guest.pytorch import ceilings\n"
    return guest_of(framework_python("torch"), tmp_path, "torch", "pytorch", "eager", imports)


# Page-locked memory needs a driver: a copy stands for it, and the tensor is remembered.
PINNING = """
locked = []
def pin(tensor):
    locked.append(tensor.clone())
    return locked[-1]
torch.Tensor.pin_memory = pin
"""


def test_each_copy_moves_all_bytes_from_where_to_where_its_name_says(guest: Guest) -> None:
    told = guest(
        PINNING
        + """
answer = {}
for name in device_ceilings.TRANSFERS:
    del locked[:]
    # On a device without memory what lies there can be told from what lies on the host.
    source, target = ceilings.pair(name, 1000, "meta")
    answer[name] = [source.device.type, target.device.type, source.nbytes, target.nbytes,
                    any(each is source or each is target for each in locked)]
"""
    )
    assert told == {
        "copy": ["meta", "meta", 1000, 1000, False],
        "to_device_pinned": ["cpu", "meta", 1000, 1000, True],
        "to_device_pageable": ["cpu", "meta", 1000, 1000, False],
        "from_device_pinned": ["meta", "cpu", 1000, 1000, True],
        "from_device_pageable": ["meta", "cpu", 1000, 1000, False],
    }


def test_a_start_copies_and_memory_was_written_to_before(guest: Guest) -> None:
    told = guest(
        PINNING
        + """
answer, made, pair = {}, [], ceilings.pair
def remembered(*given):
    made[:] = pair(*given)
    return tuple(made)
ceilings.pair = remembered
for name in device_ceilings.TRANSFERS:
    waited = []
    probe = ceilings.probe(name, 1000, "cpu", lambda: waited.append(1))
    before = [tensor.unique().tolist() for tensor in made]
    probe.start()
    probe.wait()
    answer[name] = [before, bool((made[0] == made[1]).all()), len(waited)]
"""
    )
    assert set(told) == set(device_ceilings.TRANSFERS)
    for name, (before, copied, waited) in told.items():
        assert (copied, waited) == (True, 1), name
        assert before[0] != before[1], name
        assert name == "copy" or 0 not in (*before[0], *before[1]), name


def test_the_smallest_operator_changes_one_number(guest: Guest) -> None:
    calls, told = guest("""
        from torch.utils._python_dispatch import TorchDispatchMode
        seen = []
        class Seen(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, given=(), named=None):
                seen.append(str(function) + " " + str(given[0].numel()))
                return function(*given, **(named or {}))
        probe = ceilings.probe("operator", 0, "cpu", lambda: None)
        with Seen():
            probe.start()
        answer = [seen, device_ceilings.seconds_to_start(probe)]
    """)
    assert calls == ["aten.add_.Tensor 1"]
    assert 0 < told < 0.001


def test_a_captured_graph_starts_no_operator_by_itself(guest: Guest) -> None:
    told = guest("""
        asked = []
        ceilings.probe = lambda name, size: asked.append((name, size))
        adapters = [make("small-dense"), make("small-dense")]
        adapters[1].graphs = True
        for adapter in adapters:
            adapter.device_probe("operator", 0)
            adapter.device_probe("copy", 9)
        answer = asked
    """)
    assert told == [["operator", 0], ["copy", 9], ["copy", 9]]
