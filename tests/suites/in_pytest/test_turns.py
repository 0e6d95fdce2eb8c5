"""Processes that profile benchmarks take turns, and one that ends holds up no other."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
import signal_handlers

from dlbench.suites.in_pytest.turns import Member, TurnsOfProcess, grant_turns

PROCESS = """
import os, sys, time
from pathlib import Path

from dlbench.suites.in_pytest.turns import TurnsOfProcess

name, log, descriptor, count, ending = sys.argv[1:]
turns = TurnsOfProcess(int(descriptor))
for number in range(int(count)):
    turns.wait()
    for moment in ("begins", "ends"):
        with open(log, "a") as stream:
            print(name, number, moment, file=stream)
        time.sleep(0.003)
    if ending == "crash":
        os._exit(1)
"""


@contextlib.contextmanager
def process(log, name, count, ending="end"):
    own_end, its_end = socket.socketpair()
    words = name, log, its_end.fileno(), count, ending
    command = [sys.executable, "-c", PROCESS, *map(str, words)]
    with own_end:
        with its_end:
            started = subprocess.Popen(command, pass_fds=[its_end.fileno()])
        try:
            yield Member(started, own_end)
        finally:
            started.kill()
            started.wait()


def test_no_two_turns_overlap(tmp_path):
    log = tmp_path / "log.txt"
    with process(log, "a", 12) as first, process(log, "b", 12) as second:
        grant_turns([first, second])
        assert [member.process.wait() for member in (first, second)] == [0, 0]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 48
    for begin, end in zip(lines[::2], lines[1::2], strict=True):
        assert begin[:2] == end[:2]
        assert (begin[2], end[2]) == ("begins", "ends")
    rounds = [{lines[place][0], lines[place + 2][0]} for place in range(0, 48, 4)]
    assert rounds == [{"a", "b"}] * 12


@pytest.mark.parametrize("ending", ["crash", "end"])
def test_a_process_that_ends_early_does_not_hold_up_the_other(tmp_path, ending):
    log = tmp_path / "log.txt"
    with process(log, "a", 2, ending) as first, process(log, "b", 5) as second:
        grant_turns([first, second])
        assert second.process.wait() == 0
    assert log.read_text().count("b ") == 10


def test_a_process_that_keeps_its_socket_open_through_a_child_is_seen_to_end(tmp_path):
    own_end, its_end = socket.socketpair()
    with own_end, its_end:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        grant_turns([Member(ended, own_end)])


@pytest.fixture
def deadly_pipes():
    """Let SIGPIPE end this process, as a test may have done."""
    with signal_handlers.restored():
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        yield


def test_a_process_goes_on_once_its_session_is_gone(deadly_pipes):
    own_end, its_end = socket.socketpair()
    turns = TurnsOfProcess(its_end.detach())
    waiting = threading.Thread(target=turns.wait)
    waiting.start()
    own_end.close()
    waiting.join(10)
    assert not waiting.is_alive()
    turns.wait()


def test_the_socket_is_not_for_programs_that_a_test_starts():
    own_end, its_end = socket.socketpair()
    descriptor = its_end.detach()
    os.set_inheritable(descriptor, True)
    turns = TurnsOfProcess(descriptor)
    with own_end:
        assert not os.get_inheritable(descriptor)
    turns.wait()
