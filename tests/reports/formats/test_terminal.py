"""Lines in a terminal: what is folded, and what stays whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.reports.formats.terminal import wrapped

COMMAND = "`dlbench run table4 --networks fcn5 --frameworks torch --threads 1,2,4`"


def test_a_command_is_never_broken_over_lines() -> None:
    lines = wrapped(f"Not measured for A1 to A4: seconds of fcn5 with 4 threads. Measure: {COMMAND}", 80)
    assert [COMMAND in line for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(len(line) <= 80 for line in lines)


def test_one_longer_than_a_line_sticks_out_and_the_words_beside_it_do_not() -> None:
    lines = wrapped(f"Measure what is missing: {COMMAND} and look at it again", 40)
    (whole,) = (line for line in lines if "dlbench" in line)
    assert whole.strip() == COMMAND
    assert all(len(line) <= 40 for line in lines if line != whole)


@given(st.lists(st.from_regex(r"[a-z`-]{1,12}", fullmatch=True), min_size=1, max_size=40), st.integers(20, 100))
def test_nothing_is_lost_and_everything_else_fits(words: list[str], width: int) -> None:
    line = " ".join(words)
    lines = wrapped(line, width)
    assert " ".join(" ".join(lines).split()) == line
    assert all(len(each) <= width for each in lines)


@pytest.mark.parametrize("width", [20, 80])
def test_an_indent_is_kept(width: int) -> None:
    assert all(line.startswith("    ") for line in wrapped("    a line that is indented and long", width))
