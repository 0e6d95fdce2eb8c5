"""The options of the axes: one for each line of the table, and words that become values."""

import pytest

from dlbench.adapters import axes
from dlbench.suites.errors import UsageError
from dlbench.suites.planning.axes import AXIS_OPTIONS, PLAIN, SuiteOverrides, parse_plain
from dlbench.suites.planning.values import Capacity

MACHINE = Capacity(3, 6)
BY_AXIS = {each.axis: each for each in AXIS_OPTIONS}


def test_every_axis_has_one_option():
    # A mode is written behind its framework: torch:compile.
    assert [each.axis for each in AXIS_OPTIONS].count("threads") == 1
    assert set(BY_AXIS) == {axis.name for axis in axes.AXES if not axis.goes_with} - {"mode"}
    assert len({each.key for each in AXIS_OPTIONS}) == len(AXIS_OPTIONS)


@pytest.mark.parametrize("option", [each for each in PLAIN if each.known], ids=lambda option: option.key)
def test_names_are_read_once_each_in_their_order_and_others_refused_with_those_there_are(option):
    backwards = tuple(reversed(option.known))
    assert parse_plain(option, ", ".join([*backwards, backwards[0]]), MACHINE) == backwards
    with pytest.raises(UsageError, match=", ".join(option.known)):
        parse_plain(option, "fp16", MACHINE)


def test_empty_words_are_an_error_and_not_as_the_suite_says():
    for words in ("", "  "):
        with pytest.raises(UsageError, match=r"--world-sizes is empty\. Give a value, or leave the option out\."):
            SuiteOverrides({"world_sizes": words})
    assert not SuiteOverrides({"world_sizes": None}).narrows
    assert SuiteOverrides({"threads": "1"}, networks=None).words == {"threads": "1"}
    assert not SuiteOverrides(threads="1").but(threads=None).narrows
