"""Parameter and FLOP counts against arithmetic done by hand, and the guest's syntax."""

from pathlib import Path

import pytest
from known_networks import NETWORKS

from dlbench.suites.planning.framework import GUEST_DIRECTORY


def dense(inputs, outputs):
    return inputs * outputs + outputs


# Written out rather than looped over the specification, which is what is under test.
FCN5 = dense(26752, 2048) + 2 * dense(2048, 2048) + dense(2048, 26752)
FCN8 = dense(26752, 2048) + 5 * dense(2048, 2048) + dense(2048, 26752)
ALEXNET = (
    (3 * 11 * 11 * 96 + 96)
    + (96 * 5 * 5 * 256 + 256)
    + (256 * 3 * 3 * 384 + 384)
    + (384 * 3 * 3 * 384 + 384)
    + (384 * 3 * 3 * 256 + 256)
    + dense(6 * 6 * 256, 4096)
    + dense(4096, 4096)
    + dense(4096, 1000)
)
LSTM = 10000 * 256 + 2 * (4 * 256 * (256 + 256) + 4 * 256) + dense(256, 10000)
GPT_LAYER = 2 * 512 + dense(256, 3 * 256) + dense(256, 256) + dense(256, 1024) + dense(1024, 256)
GPT = 10000 * 256 + 2 * GPT_LAYER + 512 + dense(256, 10000)

COUNTS = {
    "fcn5": (FCN5, 117_997_696),
    "fcn8": (FCN8, 130_586_752),
    "alexnet": (ALEXNET, 62_378_344),
    # He et al. 2015 as torchvision's resnet50 counts its parameters: the stride's place does not change the count.
    "resnet50": (25_557_032, 25_557_032),
    "lstm32": (LSTM, 6_180_624),
    "lstm64": (LSTM, 6_180_624),
    "gpt32": (GPT + 32 * 256, 6_718_224),
    "gpt64": (GPT + 64 * 256, 6_726_416),
}


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_parameter_counts(name):
    by_hand, known = COUNTS[name]
    assert by_hand == known
    assert NETWORKS[name].family.parameter_count() == known


def test_alexnet_multiply_adds():
    by_hand = (
        55 * 55 * 96 * 3 * 121
        + 27 * 27 * 256 * 96 * 25
        + 13 * 13 * 384 * 256 * 9
        + 13 * 13 * 384 * 384 * 9
        + 13 * 13 * 256 * 384 * 9
        + 9216 * 4096
        + 4096 * 4096
        + 4096 * 1000
    )
    assert sum(NETWORKS["alexnet"].family.multiply_adds()) == by_hand == 1_135_256_096


def test_resnet50_multiply_adds():
    def stage(side, inside, width, blocks, stride):
        out = 4 * width
        first = side**2 * (inside * width + 9 * width**2 + width * out + inside * out)
        return first + (blocks - 1) * side**2 * (out * width + 9 * width**2 + width * out)

    by_hand = (
        112 * 112 * 64 * 3 * 49
        + stage(56, 64, 64, 3, 1)
        + stage(28, 256, 128, 4, 2)
        + stage(14, 512, 256, 6, 2)
        + stage(7, 1024, 512, 3, 2)
        + 2048 * 1000
    )
    counted = sum(NETWORKS["resnet50"].family.multiply_adds())
    assert counted == by_hand
    assert counted == pytest.approx(3.86e9, rel=0.005)  # He et al. 2015, table 1: 3.8 x 10^9


@pytest.mark.parametrize(("name", "steps"), [("lstm32", 32), ("lstm64", 64)])
def test_lstm_multiply_adds(name, steps):
    by_hand = steps * (2 * 4 * 256 * 512 + 256 * 10000)
    assert sum(NETWORKS[name].family.multiply_adds()) == by_hand


def test_no_adapter_asks_for_a_networks_name():
    for path in GUEST_DIRECTORY.glob("*/*.py"):
        if path.name == "generate.py":
            continue
        text = Path(path).read_text(encoding="utf-8")
        for name in NETWORKS:
            assert f'"{name}"' not in text, f"{path} dispatches on the name {name}"
            assert f"'{name}'" not in text, path
