"""Processes that work for a launch beside its own: seen while they live, and when they have ended."""

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters import companions, evidence
from dlbench.adapters.companions import Companions

BUSY = "import time; until = time.process_time() + {0}\nwhile time.process_time() < until: pass\n"


def test_a_living_helper_and_its_own_child_are_seen():
    before = companions.snapshot()
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY.format(30)!r}])"
    helper = subprocess.Popen([sys.executable, "-c", nested], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            spent = companions.cpu_seconds(before, companions.snapshot())
            if len(spent) >= 3 and max(spent) > 0.3:
                break
            time.sleep(0.05)
        assert len(spent) >= 3  # the helper, its child, and those that ended
        assert max(spent) > 0.3
    finally:
        os.killpg(helper.pid, 9)
        helper.wait()


def test_one_that_ended_counts_in_full():
    before = companions.snapshot()
    subprocess.run([sys.executable, "-c", BUSY.format(0.3)], check=True)
    assert companions.cpu_seconds(before, companions.snapshot())[-1] >= 0.29


def test_the_evidence_takes_a_busy_helper_for_a_thread():
    before = evidence.snapshot()
    subprocess.run([sys.executable, "-c", BUSY.format(0.5)], check=True)
    after = evidence.snapshot()
    threads = evidence.thread_evidence(1, 1, before, after)
    assert threads.cpu_seconds >= 0.49
    assert threads.cpu_seconds_by_thread[0] >= 0.49


seconds = st.floats(0, 1e6)
readings = st.builds(Companions, st.dictionaries(st.sampled_from("abcde"), seconds), seconds)


@given(readings, readings)
def test_no_difference_is_negative(before, after):
    assert min(companions.cpu_seconds(before, after)) >= 0


@given(readings, st.dictionaries(st.sampled_from("abcde"), seconds), seconds)
def test_what_was_there_before_is_not_of_the_region(before, worked, ended):
    """Every living helper works for so long; some end: the sum is what they worked, whoever ended."""
    gone = {name for name in before.living if name not in worked}
    after = Companions(
        {name: before.living.get(name, 0.0) + spent for name, spent in worked.items()},
        before.ended + ended + sum(before.living[name] for name in gone),
    )
    total = sum(companions.cpu_seconds(before, after))
    assert total == pytest.approx(sum(worked.values()) + ended, rel=1e-6, abs=1e-3)
