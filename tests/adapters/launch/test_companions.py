"""Processes that work for a launch beside its own: seen while they live, and when they have ended."""

import contextlib
import os
import subprocess
import sys
import time

import psutil
import pytest
from hypothesis import strategies as st

from dlbench.adapters.launch import evidence

BUSY = "import time; until = time.process_time() + {0}\nwhile time.process_time() < until: pass\n"


def test_a_living_helper_and_its_own_child_are_seen():
    before = evidence.company()
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY.format(30)!r}])"
    helper = subprocess.Popen([sys.executable, "-c", nested], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            spent = evidence.cpu_seconds_by_process(before, evidence.company())
            if len(spent) >= 3 and max(spent) > 0.3:
                break
            time.sleep(0.05)
        assert len(spent) >= 3  # the helper, its child, and those that ended
        assert max(spent) > 0.3
    finally:
        os.killpg(helper.pid, 9)
        helper.wait()


# A helper of a helper, whose parent has ended: it works in a session of its own.
TWICE_FORKED = """
import os, sys, time
from dlbench.adapters.launch import evidence
if {adopting}:
    evidence.adopt_orphans()
before = evidence.company()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        until = time.process_time() + 0.5
        while time.process_time() < until:
            pass
        os.write({done}, b"done")
        time.sleep(60)
    os._exit(0)
os.wait()
sys.stdin.buffer.read(4)
spent = evidence.cpu_seconds_by_process(before, evidence.company())
print(max(spent))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux")
@pytest.mark.parametrize("adopting", [True, False])
def test_a_helper_whose_parent_has_ended_is_seen_once_orphans_are_adopted(adopting):
    reading, writing = os.pipe()
    statements = TWICE_FORKED.format(adopting=adopting, done=writing)
    child = subprocess.Popen(
        [sys.executable, "-c", statements],
        stdin=reading,
        stdout=subprocess.PIPE,
        pass_fds=[writing],
        start_new_session=True,
        env={**os.environ, "DLBENCH_TEST_ORPHAN": str(os.getpid())},
    )
    try:
        assert child.stdout is not None
        spent = float(child.stdout.readline())
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("DLBENCH_TEST_ORPHAN") == str(os.getpid()):
                    process.kill()
        child.communicate()
        os.close(reading)
        os.close(writing)
    assert (spent >= 0.4) is adopting


def test_the_evidence_takes_a_busy_helper_for_a_thread():
    before = evidence.snapshot()
    subprocess.run([sys.executable, "-c", BUSY.format(0.5)], check=True)
    after = evidence.snapshot()
    threads = evidence.thread_evidence(1, 1, before, after)
    assert threads.cpu_seconds >= 0.49
    assert threads.cpu_seconds_by_thread[0] >= 0.49


seconds = st.floats(0, 1e6)
