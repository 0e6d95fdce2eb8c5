"""Guests that flood, fork, kill, fill and leave strange things behind: their cell crashed, and the host is as before.

Each is an interpreter that is a program of its own; the next launch, an honest one, must find nothing of it.
"""

import json
import sys
import time
from pathlib import Path

import psutil
import pytest
from made_up_pythons import script
from processes import gone, null_order, wait_until

from dlbench.adapters.protocol import OUTCOME_FILE, PHASE_FILE, Status
from dlbench.suites.run import launcher, outcomes
from dlbench.suites.run.judge import judged
from dlbench.suites.run.launcher import ProcessLauncher

FORGED = '{"schema_version": 1, "status": "unsupported", "reason": %s}'
#: Starts a process that left the session, has no parent and no mark any more, and never ends by itself.
ESCAPES = """
import os, signal, sys, time
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[2], "a") as file:
            file.write("%d\\n" % os.getpid())
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], {})
for _ in range(int(sys.argv[1])):
    os.wait()
"""
#: Says on the host's line what stands in a file, to its end.
SAYS = (
    f"{sys.executable} -c 'import os, shutil, sys, time; "
    'shutil.copyfileobj(open(sys.argv[1], "rb"), os.fdopen(int(os.environ["DLBENCH_HOST"]), "wb")); time.sleep(0.2)\''
)


def launch(folder, body, ticks=None, **options):
    """Launch a guest that is a shell script; ``$3`` is the launch's folder."""
    order = null_order(folder, interpreter=script(folder / "python", f"#!/bin/sh\n{body}\n"), **options)
    return judged(order, ProcessLauncher().launch(order, *([ticks] if ticks else [])), None).outcome


#: Says what is no word, waits for its answer, and notes that it ended.
ASKS = (
    f'{sys.executable} -c \'import os; line = int(os.environ["DLBENCH_HOST"]); os.write(line, b"nonsense\\n"); '
    "os.read(line, 100)'"
)


def test_a_guest_that_waits_for_an_answer_to_nonsense_waits_no_longer(tmp_path):
    begun = time.monotonic()
    outcome = launch(tmp_path, ASKS, timeout=100.0)
    assert time.monotonic() - begun < 50
    assert outcome.status is Status.CRASHED
    assert "it said 'nonsense' where 'begin' belongs" in outcome.reason


def is_well(folder):
    """Tell whether an honest launch ends well after a bad one."""
    order = null_order(folder)
    return judged(order, ProcessLauncher().launch(order), None).outcome.status is Status.OK


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_flood_of_words_fills_neither_disk_nor_reason(stream, tmp_path, monkeypatch):
    monkeypatch.setattr(launcher.tempfile, "tempdir", str(tmp_path))
    most = []
    flood = f"head -c 300000000 /dev/zero | tr '\\0' 'x'{stream}\necho the end >&2\nexit 3"
    outcome = launch(tmp_path, flood, lambda directory: most.append(outcomes.bytes_in(directory, 10**9)))
    assert outcome.status is Status.CRASHED
    assert outcome.reason.startswith("exit code 3, no answer")
    assert outcome.reason.endswith("the end")
    assert len(outcome.reason) < 1000
    assert max(most, default=0) < 10**6
    assert is_well(tmp_path)


def test_whatever_a_guest_forks_ends_with_it(tmp_path):
    noted, program = tmp_path / "pids", tmp_path / "escapes.py"
    program.write_text(ESCAPES)
    escaping = (
        f"{sys.executable} {program} 20 {noted}\nwhile [ $(wc -l < {noted}) -lt 20 ]; do sleep 0.05; done\nexit 1"
    )
    assert launch(tmp_path, escaping).status is Status.CRASHED
    escaped = [int(line) for line in noted.read_text().split()]
    assert len(escaped) == 20
    for pid in escaped:
        wait_until(lambda pid=pid: gone(pid), "the end of a process that left everything behind")
    assert is_well(tmp_path)


def test_a_guest_that_ignores_every_request_to_end_is_ended_with_all_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "_GRACE_SECONDS", 0.5)
    noted, program = tmp_path / "pids", tmp_path / "escapes.py"
    program.write_text(ESCAPES)
    stubborn = f"trap '' TERM INT HUP\n{sys.executable} {program} 3 {noted}\nwhile :; do sleep 1; done"
    outcome = launch(tmp_path, stubborn, timeout=3.0)
    assert outcome.status is Status.TIMED_OUT
    for pid in map(int, noted.read_text().split()):
        wait_until(lambda pid=pid: gone(pid), "the end of a process that left everything behind")


@pytest.mark.parametrize("signal", ["KILL", "TERM", "STOP"])
def test_a_guest_that_turns_on_its_parent_harms_its_own_launch_alone(signal, tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "_GRACE_SECONDS", 0.5)
    outcome = launch(tmp_path, f"kill -{signal} $PPID\nsleep 0.3\nexit 4", timeout=5.0)
    assert outcome.status in (Status.CRASHED, Status.TIMED_OUT)
    assert is_well(tmp_path)
    assert [child for child in psutil.Process().children() if child.status() == psutil.STATUS_STOPPED] == []


def test_a_guest_that_fills_the_disk_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "_MOST_BYTES", 20 * 1024**2)
    monkeypatch.setattr(launcher.tempfile, "tempdir", str(tmp_path))
    filling = 'i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero > "$TMPDIR/$i"; done'
    start = time.monotonic()
    outcome = launch(tmp_path, filling, timeout=60.0)
    assert time.monotonic() - start < 30
    assert outcome.status is Status.CRASHED
    assert "into its folder" in outcome.reason
    assert list(tmp_path.glob("dlbench-launch-*")) == []
    assert is_well(tmp_path)


@pytest.mark.parametrize("name", [OUTCOME_FILE, PHASE_FILE])
@pytest.mark.parametrize(
    ("leave", "what"),
    [
        ('mkfifo "$3/{name}"', "a named pipe"),
        ('mkdir "$3/{name}"', "a folder"),
        ('ln -s /etc/passwd "$3/{name}"', "a link"),
        ('ln -s /dev/zero "$3/{name}"', "a link"),
        ('ln -s nowhere "$3/{name}"', "a link"),
        ('truncate -s 1G "$3/{name}"', "bytes, more than"),
        ('printf "\\377\\376" > "$3/{name}"', "no JSON"),
        ('printf "{{" > "$3/{name}"', "no JSON"),
        ('printf \'{{"phase": [1], "expected_seconds": 1e999}}\' > "$3/{name}"', ""),
    ],
)
@pytest.mark.thinned(2)
def test_whatever_lies_where_a_file_is_expected_neither_hangs_nor_ends_the_run(name, leave, what, tmp_path):
    seen = []
    start = time.monotonic()
    outcome = launch(
        tmp_path,
        leave.format(name=name) + "\nsleep 0.8\nexit 6",
        lambda directory: seen.append(outcomes.read_phase(directory)),
    )
    assert time.monotonic() - start < 20
    assert outcome.status is Status.CRASHED
    assert seen
    assert set(seen) == {("", None)}
    if name == OUTCOME_FILE:
        assert outcome.reason.startswith("its answer cannot be believed")
        assert what in outcome.reason
    else:
        assert outcome.reason == "exit code 6, no answer"
    assert is_well(tmp_path)


@pytest.mark.parametrize(
    "reason",
    ["\x1b[2J\x1b]0;owned\x07", "one\ntwo\rthree", "\u202ereversed", "a\x00b", "[red]not red[/red]", "x" * 15_000],
)
def test_a_reason_is_one_printable_line(reason, tmp_path):
    (tmp_path / "answer").write_text(FORGED % json.dumps(reason))
    outcome = launch(tmp_path, f'cp {tmp_path}/answer "$3/outcome.json"')
    assert outcome.status is Status.UNSUPPORTED
    assert outcome.reason.isprintable()
    assert len(outcome.reason) <= 1000


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"hello\n", "where 'begin' belongs"),
        (b"begin\nend\n", "where 'end' belongs"),
        (b"begin\nend -5\n", "where 'end' belongs"),
        (b"begin\nend 99999999999999999999999999\nread\n", "where 'reset' belongs"),
        (b"begin\nend 5\nreset\nreset\n", "where 'steps' belongs"),
        (b"x" * 500, "where a word belongs"),
        (b"\xff\xff\n", "where 'begin' belongs"),
    ],
)
@pytest.mark.thinned(2)
def test_a_guest_that_says_what_it_should_not_is_not_believed(said, complaint, tmp_path):
    answer = (
        '{"schema_version": 1, "status": "ok", "samples_ns": [1], "threads": {"requested": 1, "framework_says": null, '
        '"os_threads": 1, "cpu_seconds": 0.1, "wall_seconds": 0.1, "cpu_seconds_by_thread": null}}'
    )
    (tmp_path / "answer").write_text(answer)
    (tmp_path / "said").write_bytes(said)
    outcome = launch(tmp_path, f'{SAYS} {tmp_path}/said\ncp {tmp_path}/answer "$3/outcome.json"')
    assert outcome.status is Status.CRASHED
    assert complaint in outcome.reason


def test_a_guest_that_talks_without_end_on_the_hosts_line_is_ended_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher, "_GRACE_SECONDS", 0.5)
    before = psutil.Process().memory_info().rss
    outcome = launch(tmp_path, f"{SAYS} /dev/zero", timeout=2.0)
    assert outcome.status in (Status.TIMED_OUT, Status.CRASHED)
    assert psutil.Process().memory_info().rss - before < 50 * 1024**2
    assert is_well(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_no_descriptor_and_no_process_is_left_behind(tmp_path):
    assert is_well(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir())), len(psutil.Process().children())
    for body in ("exit 1", "kill -9 $PPID", "mkfifo $3/outcome.json"):
        launch(tmp_path, body)
    assert (len(list(Path("/proc/self/fd").iterdir())), len(psutil.Process().children())) == before
