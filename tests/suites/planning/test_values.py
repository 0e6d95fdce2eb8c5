"""The words of axes: whatever is typed is either understood or refused in one sentence with the remedy."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlbench.suites.errors import UsageError
from dlbench.suites.planning import values
from dlbench.suites.planning.framework import find
from dlbench.suites.planning.values import Build, Capacity

MACHINE = Capacity(cores=3, cpus=7)

numbers = st.integers(1, values.MOST_THREADS)
ranges = st.tuples(numbers, numbers).map(sorted)
# What a person, a script or a cat on the keyboard types: anything, and much that is nearly right.
typed = st.one_of(st.text(max_size=40), st.text(alphabet="0123456789-*,. corespu:msh=~/٣²", max_size=20))


def refused(function, *arguments):
    """Return the sentence with which these words are refused."""
    with pytest.raises(UsageError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def tried(function, *arguments):
    """Return the value, or None and the sentence of the refusal."""
    try:
        return function(*arguments), ""
    except UsageError as error:
        return None, str(error)


@given(st.lists(st.one_of(numbers.map(lambda n: (n, n)), ranges), min_size=1, max_size=6))
def test_counts_are_the_distinct_numbers_of_all_words_rising(parts):
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
    expected = sorted({n for low, high in parts for n in range(low, high + 1)})
    assert values.parse_counts(text, MACHINE) == tuple(expected)


@given(st.integers(1, 2048), st.integers(1, 2048))
def test_two_dots_are_a_ladder_of_doublings_and_halves_between(low, high):
    low, high = sorted((low, high))
    found = values.parse_counts(f"{low}..{high}", MACHINE)
    assert (found[0], found[-1]) == (low, high)
    steps_of_two_kinds = {2**n for n in range(12)} | {3 * 2**n for n in range(11)}
    assert set(found) - {low, high} == {n for n in steps_of_two_kinds if low < n < high}


@given(typed)
@example("1" * 5000)
@example("0*cores")
@example("٣*cores")
@example("٣")
@example("4-")
@example("-4")
@example("1-2-3")
@example("1" * 5000 + "*cpus")
def test_counts_are_positive_or_refused(text):
    found, refusal = tried(values.parse_counts, text, MACHINE)
    assert "\n" not in refusal
    if refusal:
        return
    assert found
    assert all(1 <= n <= values.MOST_THREADS for n in found)
    assert set(text) <= set(string.digits + string.whitespace + "-*.,coresps" + "uqta")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("-1", "'-1' is not a thread count"),
        ("..8", "lacks an end. Write both, as in 4..8"),
        ("4-", "Write both"),
        ("8-4", "Write 4-8"),
        ("5000", "4096"),
        (" , ,", "one value or several"),
        ("2 *cores", "2*cores"),
    ],
)
def test_a_wrong_count_is_refused_with_the_remedy(text, remedy):
    assert remedy in refused(values.parse_counts, text, MACHINE)


@given(typed)
@example("9" * 400)
@example("٣")
@example("0.0")
@example("nan")
@example("1e3")
def test_a_duration_is_positive_and_finite_or_refused(text):
    seconds, refusal = tried(values.duration, text)
    assert "\n" not in refusal
    if refusal:
        assert any(words in refusal for words in ("10m", "needs a unit", "give more than 0"))
    else:
        assert 0 < seconds < 1e13


def test_a_build_takes_a_frameworks_row_or_one_of_its_own(tmp_path):
    python = tmp_path / "bin" / "python"
    assert values.build(f"torch={python}") == Build("torch", find("torch"), python)
    assert values.build(f"torch-nightly:torch={python}") == Build("torch-nightly", find("torch"), python)
    assert values.build(f"torch:torch={python}") == Build("torch", find("torch"), python)


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


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("torch", "FRAMEWORK=PATH"),
        ("torch=", "FRAMEWORK=PATH"),
        ("a b:torch=/bin/python", "FRAMEWORK=PATH"),
        ("mxnet:torch=/bin/python", "another row name"),
        ("tourch=/bin/python", "Did you mean 'torch'?"),
        ("reference=/bin/python", "There is no framework"),
        ("torch=~no-such-user-at-all/bin/python", "full path"),
    ],
)
def test_a_wrong_build_is_refused_with_the_remedy(text, remedy):
    assert remedy in refused(values.build, text)


@given(st.lists(st.integers(1, 4000).map(lambda n: n / 100), min_size=1, max_size=6))
def test_quotas_are_the_distinct_numbers_rising_and_none_is_0(quotas):
    text = ", ".join(["none", *(f"{each:g}" for each in quotas)])
    assert values.parse_quotas(text, MACHINE) == (0.0, *sorted(set(quotas)))


@given(st.integers(1, 200), st.integers(1, 200))
def test_a_range_of_quotas_goes_by_halves_then_as_counts_do(low, high):
    low, high = sorted((low / 4, high / 4))
    found = values.parse_quotas(f"{low}..{high}", MACHINE)
    assert (found[0], found[-1]) == (low, high)
    assert set(found) >= {each for each in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0) if low <= each <= high}
    assert all(2 * each == int(2 * each) for each in found[1:-1])


@given(typed)
@example("0")
@example("1e3")
@example("nan")
@example("inf")
@example("-1")
@example("٣")
@example("0.5..")
@example("9" * 400)
def test_quotas_are_positive_and_finite_or_refused(text):
    found, refusal = tried(values.parse_quotas, text, MACHINE)
    assert "\n" not in refusal
    if not refusal:
        assert found
        assert all(each == 0 or values.LEAST_QUOTA <= each < 1e9 for each in found)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("0.001", "1 ms in each 100 ms. Give at least 0.01, or none"),
        ("half", "such as 0.5 or 2"),
        ("2..0.5", "Write 0.5..2"),
        ("0.5..", "lacks an end"),
    ],
)
def test_a_wrong_quota_is_refused_with_the_remedy(text, remedy):
    assert remedy in refused(values.parse_quotas, text, MACHINE)


def test_threads_may_be_the_frameworks_own_or_follow_the_quota():
    assert values.parse_threads("cores,default", MACHINE) == (0, 3)
    assert values.parse_threads("default", MACHINE) == (0,)
    assert [values.parse_threads("quota", Capacity(3, 7, quota=each)) for each in (0.5, 1.5, 9.0)] == [(1,), (2,), (7,)]
    assert values.parse_threads("quota", MACHINE) == (7,)  # without one every CPU
