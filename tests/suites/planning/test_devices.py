"""Devices: which words mean which, what a launch on one sees, and the command on machines with and
without GPUs."""

import pytest
from fake_nvml import (
    A100,
    FIRST,
    H200,
    LOST,
    NO_DRIVER,
    NO_GPU,
    NO_PARTS,
    OTHER_PART,
    PART,
    PARTED,
    SECOND,
    TWINS,
    TWO,
    gpus,
)

from dlbench.suites.errors import UsageError
from dlbench.suites.planning import devices


def meant(words, source=TWO, visible=None):
    return devices.resolve(words.split(","), gpus(source), visible)


def refused(words, source=TWO, visible=None):
    """Return the sentence with which these words are refused."""
    with pytest.raises(UsageError) as caught:
        meant(words, source, visible)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "words", "names"),
    [
        (TWO, "cpu,gpus", ["cpu", "cuda:0", "cuda:1"]),
        (TWO, "cuda:1,gpus,cpu,cuda:01", ["cuda:1", "cuda:0", "cpu"]),  # each once
        (TWO, SECOND, ["cuda:1"]),
        (PARTED, "cuda:all", ["cuda:0:0", "cuda:0:1", "cuda:1"]),
        (PARTED, f"{OTHER_PART},cuda:0:0,GPU-b", ["cuda:0:1", "cuda:0:0", "cuda:1"]),
        (LOST, "gpus", ["cuda:0", "cuda:1"]),  # the lost one gives cells without a number
        (NO_GPU, "cpu,gpus", ["cpu"]),
    ],
)
def test_words_mean_devices_of_this_machine(source, words, names):
    assert meant(words, source) == tuple(names)


@pytest.mark.parametrize(
    ("source", "words", "parts"),
    [
        (
            TWO,
            "cuda:2",
            ["no GPU 2", "cpu", f"cuda:0 ({A100}) = {FIRST}", f"cuda:1 ({H200}) = {SECOND}"],
        ),
        (TWO, "GPU-c", ["begins with GPU-c", FIRST, SECOND]),
        (
            TWO.replace("bbbb", "aaaa", 1),
            "GPU-aaaa",
            ["matches several GPUs", FIRST, "GPU-aaaabbbb"],
        ),
        (TWO, "cuda:0:1", ["not in MIG mode", "cuda:0"]),
        (TWO, "gpu", ["'gpu' is not a device", "cuda:0", "gpus"]),
        (PARTED, "cuda:0", ["MIG mode", "as a whole", f"= {PART}", f"= {OTHER_PART}"]),
        (PARTED, "cuda:0:2", ["no cuda:0:2", PART]),
        (NO_PARTS, "cuda:0", ["MIG mode", "has no MIG device", "nvidia-smi mig"]),
        (NO_PARTS, "cuda:all", ["MIG mode without a MIG device", "cpu"]),
        (LOST, "cuda:1", ["cuda:1 does not answer", "GPU is lost"]),
        (NO_GPU, "cuda:0", ["finds no GPU", "There is: cpu"]),
        (NO_DRIVER, "cpu,cuda:all", ["NVML Shared Library Not Found", "There is: cpu"]),
        (
            NO_DRIVER,
            "gpus",
            ["gpus means no device of this machine", "NVML Shared Library Not Found"],
        ),
    ],
)
def test_words_that_mean_no_device_are_refused_with_the_devices_at_hand(source, words, parts):
    message = refused(words, source)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["cuda:1"]),
        (f"{SECOND},0", ["cuda:0", "cuda:1"]),
        ("GPU-a", ["cuda:0"]),
        ("1,7,0", ["cuda:1"]),  # nothing after a word that means nothing
        ("", []),
    ],
)
def test_all_gpus_are_those_that_a_batch_system_leaves(visible, names):
    assert meant("cpu,gpus", visible=visible) == ("cpu", *names)
    assert meant("cuda:0", visible=visible) == ("cuda:0",)  # what is named is taken
    if names:
        assert meant("cuda:all", visible=visible) == tuple(names)
    else:
        assert f"CUDA_VISIBLE_DEVICES={visible} leaves none" in refused("cuda:all", visible=visible)


THREE = (
    f"fake.FakeNvml(fake.board(uuid={FIRST!r}), fake.board(uuid={SECOND!r}), "
    "fake.board(uuid='GPU-eeeeeeee'))"
)


@pytest.mark.parametrize(
    ("source", "name", "count", "named", "visible", "expected"),
    [
        (TWINS, "cuda:0", 2, (), None, ["cuda:0", "cuda:1"]),
        (THREE, "cuda:0", 2, ("cuda:0", "cuda:2"), None, ["cuda:0", "cuda:2"]),
        (THREE, "cuda:0", 2, ("cuda:0",), "0,2", ["cuda:0", "cuda:2"]),
        (THREE, "cuda:0", 3, (), "0,2", "there are 2"),
        (TWO, "cuda:1", 2, (), None, "2 workers need 2 GPUs from cuda:1 on, and there are 1"),
        (
            TWO,
            "cuda:0",
            2,
            (),
            None,
            "differ: cuda:0 (NVIDIA A100-SXM4-80GB), cuda:1 (NVIDIA H200); name others",
        ),
        (PARTED, "cuda:0:1", 2, (), None, "MIG devices (cuda:0:1) cannot reach one another"),
    ],
)
def test_several_gpus_are_found_in_the_drivers_order_or_refused_with_the_reason(
    source, name, count, named, visible, expected
):
    located = devices.locate(name, gpus(source), gpus(source), count, named, visible)
    if isinstance(expected, str):
        assert expected in located
    else:
        assert [device.name for device in located] == expected
