"""Settings as data and as an axis: which cells a plan has, in which order, and what a launch is reported."""

from itertools import pairwise

import pytest

from dlbench.adapters.protocol import INSTALLED, TUNED
from dlbench.suites.errors import SuiteError, UsageError
from dlbench.suites.planning import framework
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.suite import load, parse
from dlbench.suites.planning.values import Capacity

HEAD = 'name = "made_up"\ntitle = "Made up"\nsummary = "none"\n[variables]\nTHREADS = "{threads}"\n'
MODES = '[modes.plain]\nsummary = "plain"\nsettings = { a = 1 }\n[modes.other]\nsummary = "other"\n'
SETTINGS = """
[tuning.quick]
replaces = "slow"
why = "faster"
settings = { a = 2, b = 3 }
modes = ["plain"]
[tuning.large]
replaces = "small"
why = "larger"
variables = { SIZE = "{threads}0" }
devices = ["cpu"]
families = ["recurrent"]
"""


def described(tmp_path, text):
    folder = tmp_path / "made_up"
    folder.mkdir(exist_ok=True)
    (folder / "framework.toml").write_text(text)
    return framework.read(folder / "framework.toml")


def plan(names, **chosen):
    choices = SuiteOverrides(frameworks=names, threads="1", **chosen)
    return expand(load("table4"), choices, Capacity(2, 2), 1)


def test_a_setting_counts_where_it_means_something(tmp_path):
    made = described(tmp_path, HEAD + MODES + SETTINGS)
    assert made.tunable("plain") == ("quick", "large")
    assert made.tunable("other") == ("large",)
    assert made.tunable("plain", "cuda:0", "recurrent") == ("quick",)
    assert made.tunable("plain", "cpu", "feedforward") == ("quick",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tuning.a]\nreplaces = ""\nwhy = ""\n', "the setting a needs settings or variables"),
        ('[tuning.a]\nreplaces = ""\nwhy = ""\nmodes = ["none"]\nsettings = { b = 1 }\n', "unknown mode 'none'"),
        ('[tuning."a+b"]\nreplaces = ""\nwhy = ""\nsettings = { b = 1 }\n', "tuning"),
        ('[tuning.a]\nreplaces = ""\nwhy = ""\nvariables = { B = "{nosuch}" }\n', "unknown placeholder {nosuch}"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(tmp_path, text, words):
    with pytest.raises(SuiteError, match=words):
        described(tmp_path, HEAD + MODES + text)


def test_each_setting_is_in_force_alone_and_left_out():
    words = [cell.tuning for cell in plan("torch,tinygrad", networks="alexnet", tuning="each").cells]
    names = ("allocator", "fused_update", "channels_last")
    assert words == [INSTALLED, *(f"installed+{name}" for name in names), *(f"tuned-{name}" for name in names), TUNED]


def test_words_that_mean_nothing_are_refused():
    for words, reported in (
        ("quick", "'quick' is not one of installed, tuned"),
        ("installed+nosuch", "No row has a setting 'nosuch'. There are torch: allocator"),
        ("each", "No row here has such settings"),
        ("tuned-channels_last", r"No cell here has the setting channels_last \(--tuning tuned-channels_last\)"),
        ("installed,tuned,installed+channels_last", "No cell here has the setting channels_last"),
    ):
        with pytest.raises(UsageError, match=reported):
            plan("tinygrad" if words == "each" else "torch", networks="fcn5", tuning=words)
    with pytest.raises(SuiteError, match="key tuning: 'quick' is not one of"):
        parse(
            'name = "a"\nsummary = "b"\nnetworks = ["fcn5"]\nframeworks = ["null"]\nthreads = 1\ntuning = "quick"\n',
            "x",
        )


def test_pairs_are_neighbours_in_time():
    planned = plan("torch,mxnet", networks="fcn5,lstm32,alexnet", tuning="each")
    for block in range(3):
        order = [launch.cell._replace(tuning=TUNED) for launch in planned.block(block)]
        changes = sum(before != after for before, after in pairwise(order))
        assert changes + 1 == len(set(order))
