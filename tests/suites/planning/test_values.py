"""The words of axes: whatever is typed is either understood or refused in one sentence with the
remedy."""

import string
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlbench.suites.errors import UsageError
from dlbench.suites.planning import values
from dlbench.suites.planning.values import Capacity

MACHINE = Capacity(cores=3, cpus=7)
counts, quotas = (
    partial(parser, capacity=MACHINE) for parser in (values.parse_counts, values.parse_quotas)
)

numbers = st.integers(1, values.MOST_THREADS)
ranges = st.tuples(numbers, numbers).map(sorted)
# What a person, a script or a cat on the keyboard types: anything, and much that is nearly right.
typed = st.one_of(
    st.text(max_size=40), st.text(alphabet="0123456789-*,. corespu:msh=~/٣²", max_size=20)
)


@given(st.lists(st.one_of(numbers.map(lambda n: (n, n)), ranges), min_size=1, max_size=6))
def test_counts_are_the_distinct_numbers_of_all_words_rising(parts):
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
    expected = sorted({n for low, high in parts for n in range(low, high + 1)})
    assert counts(text) == tuple(expected)


@given(st.integers(1, 2048), st.integers(1, 2048))
def test_two_dots_are_a_ladder_of_doublings_and_halves_between(low, high):
    low, high = sorted((low, high))
    ladder = counts(f"{low}..{high}")
    assert (ladder[0], ladder[-1]) == (low, high)
    steps_of_two_kinds = {2**n for n in range(12)} | {3 * 2**n for n in range(11)}
    assert set(ladder) - {low, high} == {n for n in steps_of_two_kinds if low < n < high}


def are_counts(numbers, text):
    letters = set(string.digits + string.whitespace + "-*.,coresps" + "uqta")
    return numbers and all(1 <= n <= values.MOST_THREADS for n in numbers) and set(text) <= letters


def are_quotas(quotas, text):
    return quotas and all(quota == 0 or values.LEAST_QUOTA <= quota < 1e9 for quota in quotas)


@pytest.mark.parametrize(
    ("parse", "are_valid"),
    [
        (counts, are_counts),
        (quotas, are_quotas),
        (values.duration, lambda seconds, text: 0 < seconds < 1e13),
    ],
    ids=["counts", "quotas", "duration"],
)
@given(typed)
@example("1" * 5000)
@example("9" * 400)
@example("0")
@example("0.0")
@example("0*cores")
@example("٣*cores")
@example("٣")
@example("4-")
@example("-4")
@example("1-2-3")
@example("0.5..")
@example("1e3")
@example("nan")
@example("inf")
@example("1" * 5000 + "*cpus")
def test_any_text_is_a_valid_value_or_refused_in_one_line(parse, are_valid, text):
    refusal = ""
    try:
        assert are_valid(parse(text), text)
    except UsageError as error:
        refusal = str(error)
    assert "\n" not in refusal


@pytest.mark.parametrize(
    ("parse", "text", "remedy"),
    [
        (counts, "-1", "'-1' is not a thread count"),
        (counts, "..8", "lacks an end. Write both ends, as in 4..8"),
        (counts, "8-4", "Write 4-8"),
        (counts, "5000", "4096"),
        (counts, " , ,", "one value, or several"),
        (counts, "2 *cores", "2*cores"),
        (quotas, "0.001", "1 ms in each 100 ms. Give at least 0.01, or none"),
        (quotas, "half", "such as 0.5 or 2"),
        (values.duration, "soon", "Write for example 90s, 10m or 1.5h"),
        (values.duration, "10", "needs a unit: 10s, 10m or 10h"),
        (values.duration, "0s", "give more than 0"),
        (values.build, "torch", "FRAMEWORK=PATH"),
        (values.build, "torch=", "FRAMEWORK=PATH"),
        (values.build, "a b:torch=/bin/python", "FRAMEWORK=PATH"),
        (values.build, "mxnet:torch=/bin/python", "another row name"),
        (values.build, "tourch=/bin/python", "Did you mean 'torch'?"),
        (values.build, "reference=/bin/python", "There is no framework"),
        (values.build, "torch=~no-such-user-at-all/bin/python", "full path"),
    ],
)
def test_a_wrong_word_is_refused_with_the_remedy(parse, text, remedy):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_virtual_environments_python_is_not_followed_to_what_it_links_to(tmp_path):
    link = tmp_path / "python"
    link.symlink_to("/bin/sh")
    assert values.build(f"null={link}").interpreter == link


def test_a_build_without_a_slash_is_a_command_of_path(tmp_path, monkeypatch):
    command = tmp_path / "my-python"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert values.build("null=my-python").interpreter == command


@given(st.lists(st.integers(1, 4000).map(lambda n: n / 100), min_size=1, max_size=6))
def test_quotas_are_the_distinct_numbers_rising_and_none_is_0(requested):
    text = ", ".join(["none", *(f"{quota:g}" for quota in requested)])
    assert quotas(text) == (0.0, *sorted(set(requested)))


@given(st.integers(1, 200), st.integers(1, 200))
def test_a_range_of_quotas_goes_by_halves_then_as_counts_do(low, high):
    low, high = sorted((low / 4, high / 4))
    ladder = quotas(f"{low}..{high}")
    assert (ladder[0], ladder[-1]) == (low, high)
    assert set(ladder) >= {
        quota for quota in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0) if low <= quota <= high
    }
    assert all(2 * quota == int(2 * quota) for quota in ladder[1:-1])
