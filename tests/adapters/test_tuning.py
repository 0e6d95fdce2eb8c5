"""The words of the axis tuning: every choice of settings has one word, and every word one choice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters import tuning
from dlbench.adapters.protocol import INSTALLED, TUNED

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), unique=True, max_size=5)


@given(st.data(), NAMES)
def test_a_choice_is_read_back_from_its_word(data, names):
    chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
    word = tuning.written(chosen, names)
    assert tuning.in_force(word, names) == tuple(name for name in names if name in chosen)
    assert set(tuning.named(word)) <= set(names)


@given(st.data(), NAMES)
def test_of_two_ways_to_say_a_choice_one_is_written(data, names):
    chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
    plus = "".join(f"+{name}" for name in names if name in chosen)
    minus = "".join(f"-{name}" for name in names if name not in chosen)
    words = {tuning.written(tuning.in_force(word, names), names) for word in (INSTALLED + plus, TUNED + minus)}
    assert len(words) == 1


@given(NAMES)
def test_each_is_every_setting_alone_and_left_out_once(names):
    choices = [frozenset(tuning.in_force(word, names)) for word in tuning.each(names)]
    wanted = {frozenset(), frozenset(names)} | {frozenset([name]) for name in names}
    wanted |= {frozenset(names) - {name} for name in names}
    assert len(choices) == len(set(choices))
    assert set(choices) == (wanted if names else set())


@pytest.mark.parametrize("word", ["", "each", "fast", "installed-a", "tuned+a", "installed+", "tuned-A", "tuned-a+b"])
def test_other_words_are_none(word):
    with pytest.raises(ValueError, match=r"installed, tuned, installed\+NAME, tuned-NAME"):
        tuning.named(word)
