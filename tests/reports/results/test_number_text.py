"""Changes of a time in words: per cents while they are small, multiples where per cents hide the
size."""

import pytest

from dlbench.reports.results.number_text import (
    change_in_words,
    longer_in_words,
    percent,
    signed_change,
)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.025, "2.5 %"), (0.05, "5 %"), (0.2, "20 %"), (0.245, "24.5 %"), (1.5, "150 %"), (0, "0 %")],
)
def test_a_share_has_one_decimal_at_most_and_a_space(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.203, 1.15, 1.258, "20.3 % slower (+15.0 to +25.8 %)"),
        (0.8, 0.75, 0.85, "20.0 % faster (-25.0 to -15.0 %)"),
        (4.006, 3.999, 5.633, "4.01 times as long (4.00 to 5.63)"),
        (146.161, 140.2, 152.4, "146 times as long (140 to 152)"),
        (0.25, 0.24, 0.26, "0.250 times as long (0.240 to 0.260)"),
        (0.0123, 0.0121, 0.0125, "0.0123 times as long (0.0121 to 0.0125)"),
        (1.5, None, None, "50.0 % slower"),
        (1.5, 0.0, float("inf"), "50.0 % slower"),  # too few pairs for an interval
        (14516.1, 14000.0, 15000.0, "14516 times as long (14000 to 15000)"),
    ],
)
def test_a_change_reads_as_a_person_would_say_it(
    ratio: float, low: float, high: float, text: str
) -> None:
    assert change_in_words(ratio, low, high) == text


def test_signs_and_longer_times() -> None:
    assert signed_change(1.012, 0.995, 1.029) == "+1.2 % (-0.5 to +2.9 %)"
    assert signed_change(3.0, 2.5, 3.5) == "3.00 times as long (2.50 to 3.50)"
    assert longer_in_words(1.08, 1.07, 1.09) == "8.0 % longer (+7.0 to +9.0 %)"
    assert longer_in_words(146.161, 140.0, 152.0) == "146 times as long (140 to 152)"
