"""One dlbench measures at a time on a machine, seen from processes of their own."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, wait_until

from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.run.machine_lock import lock_file, measuring, other_dlbench

pytestmark = pytest.mark.alone

HOLDER = """
import sys
from dlbench.suites.run.machine_lock import measuring
with measuring(lambda line: print(line, flush=True), wait="wait" in sys.argv):
    print("held", flush=True)
    sys.stdin.readline()
print("let go", flush=True)
"""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMPDIR", "DLBENCH_LOCK_FOLDER"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is looked up once


@contextlib.contextmanager
def holder(*words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        if not words:  # with "wait" it first says whom it waits for
            assert heard(process) == "held"
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def refuse_report(line: str) -> None:
    pytest.fail(f"nothing was to be reported, but: {line}")


def test_what_computes_nothing_takes_no_lock() -> None:
    with measuring(refuse_report), measuring(refuse_report, computes=False):
        pass


def test_alone() -> None:
    for _ in range(2):
        with measuring(refuse_report):
            assert lock_file().with_suffix(".pid").read_text() == str(os.getpid())
            assert stat.S_IMODE(lock_file().parent.stat().st_mode) == 0o700
        assert not lock_file().with_suffix(".pid").exists()


def test_a_second_one_is_refused_with_the_firsts_number() -> None:
    with holder() as first:
        with (
            pytest.raises(UsageError, match=rf"process {first.pid}\) is measuring") as refused,
            measuring(refuse_report),
        ):
            pytest.fail("two at a time")
        assert "\n" not in str(refused.value)
        let_go(first)
        assert heard(first) == "let go"
        with measuring(refuse_report):
            pass


def test_a_second_one_takes_its_turn() -> None:
    with holder() as first, holder("wait") as second:
        assert f"process {first.pid}" in heard(second)
        time.sleep(0.3)
        assert second.poll() is None
        let_go(first)
        assert heard(second) == "held"
        # Nobody removed what the second wrote when the first let go.
        assert lock_file().with_suffix(".pid").read_text() == str(second.pid)
        let_go(second)
        assert heard(second) == "let go"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_is_killed_holds_nothing(number: signal.Signals) -> None:
    with holder() as first:
        first.send_signal(number)
        first.wait(PATIENCE)
        with measuring(refuse_report):
            assert lock_file().with_suffix(".pid").read_text() == str(os.getpid())


def test_an_error_while_measuring_lets_go() -> None:
    with pytest.raises(ZeroDivisionError), measuring(refuse_report):
        raise ZeroDivisionError
    with measuring(refuse_report):
        pass


def test_without_a_readable_number_it_is_still_refused() -> None:
    with holder():
        for text in ("", "rubbish"):
            lock_file().with_suffix(".pid").write_text(text)
            with pytest.raises(UsageError, match=r"^Another dlbench is measuring"), measuring(refuse_report):
                pass


def test_children_do_not_inherit_the_lock() -> None:
    with measuring(refuse_report):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with measuring(refuse_report):
            pass
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


def test_a_folder_that_cannot_be_is_told_in_one_line(tmp_path: Path) -> None:
    lock_file().parent.write_text("in the way")
    with pytest.raises(FrameworkEnvironmentError, match="TMPDIR") as error, measuring(refuse_report):
        pass
    assert "\n" not in str(error.value)


def test_waiting_ends_by_ctrl_c() -> None:
    with holder() as first:
        with holder("wait") as second:
            assert heard(second)
            second.send_signal(signal.SIGINT)
            wait_until(lambda: second.poll() is not None, "the waiting process to end")
        assert first.poll() is None
        assert lock_file().with_suffix(".pid").read_text() == str(first.pid)


def test_another_dlbench_at_work_is_found_by_its_command_line(tmp_path: Path) -> None:
    commands = {
        1: ["/sbin/init"],
        12: ["/usr/bin/python3", "-m", "dlbench.suites", "run", "quick"],
        13: ["vi", "/home/user/dlbench/README.md"],
        os.getpid(): ["/usr/bin/python3", "/opt/bin/dlbench", "run"],
    }
    for number, words in commands.items():
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "cmdline").write_text("\0".join(words) + "\0")
    assert other_dlbench(tmp_path) == "dlbench (process 12)"
    (tmp_path / "12" / "cmdline").unlink()
    assert other_dlbench(tmp_path) == ""
