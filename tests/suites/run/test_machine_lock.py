"""One measurement at a time: the lock of a user, and that of all users of a machine."""

import contextlib
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PATIENCE

from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.run import quiet
from dlbench.suites.run.quiet import measuring, other_dlbench

pytestmark = pytest.mark.alone

HOLDER = """
import sys
from dlbench.suites.run.quiet import measuring
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
        let_go(second)
        assert heard(second) == "let go"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_is_killed_holds_nothing(number: signal.Signals) -> None:
    with holder() as first:
        first.send_signal(number)
        first.wait(PATIENCE)
        with measuring(refuse_report):
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


def test_a_folder_that_cannot_be_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLBENCH_LOCK_FOLDER")
    monkeypatch.setattr(quiet, "_SHARED", ())
    (tmp_path / f"dlbench-{os.getuid()}").write_text("in the way")
    with pytest.raises(FrameworkEnvironmentError, match="TMPDIR") as error, measuring(refuse_report):
        pass
    assert "\n" not in str(error.value)


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


# What an ordinary user may do, who has no right to write to the file of another.
TRY = """
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("held")
else:
    print("free")
"""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("everybodys")
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(folder))
    return folder


def tried_by_another(place: Path, name: str = quiet._NAME) -> str:
    """Try to take the lock from another process, as another user where this one is root."""
    as_whom = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        as_whom = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        for folder in (place, *place.parents):
            if folder.stat().st_uid == 0 and folder != Path("/"):
                folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    # The system's Python: nobody may not read that of a user.
    command = ["/usr/bin/python3" if os.getuid() == 0 else sys.executable, "-c", TRY]
    return subprocess.run([*command, place / name], capture_output=True, text=True, **as_whom).stdout.strip()


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the system has no Python that everybody may use")
def test_another_user_sees_that_it_is_held_whatever_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        with measuring(refuse_report):
            assert tried_by_another(place) == "held"
        assert tried_by_another(place) == "free"
    finally:
        os.umask(before)


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (place / quiet._NAME).symlink_to(tmp_path / "elsewhere")
    with measuring(refuse_report):  # by the lock of this user
        assert tried_by_another(tmp_path, "elsewhere") == "free"


def test_a_folder_that_is_named_and_is_none_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(place / "none"))
    with pytest.raises(UsageError, match="is not a folder"), measuring(refuse_report):
        pass
