"""The lock of all users: by processes that have nothing in common but the machine and a folder."""

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.suites.errors import UsageError
from dlbench.suites.run import machine_lock

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


def tried_by_another(place: Path) -> str:
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
    return subprocess.run(
        [*command, place / machine_lock._NAME], capture_output=True, text=True, **as_whom
    ).stdout.strip()


def held(place: Path, wait: bool = False, said: list[str] | None = None, holder: str = ""):
    lines: list[str] = [] if said is None else said
    return machine_lock._node_lock(lines.append, wait, lambda: holder)


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the system has no Python that everybody may use")
def test_another_user_sees_that_it_is_held_whatever_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        with held(place):
            assert tried_by_another(place) == "held"
        assert tried_by_another(place) == "free"
    finally:
        os.umask(before)


def test_a_second_one_is_refused_and_told_who_measures(place: Path) -> None:
    with held(place):
        with (
            pytest.raises(UsageError, match=r"^dlbench \(process 7\) is measuring"),
            held(place, holder="dlbench (process 7)"),
        ):
            pytest.fail("two at a time")
        with pytest.raises(UsageError, match=r"^A dlbench of another user or container"), held(place):
            pytest.fail("two at a time")
    with held(place):
        pass


def test_with_wait_it_takes_its_turn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    first = held(place)
    first.__enter__()
    # The first lets go while the second waits.
    monkeypatch.setattr(machine_lock.time, "sleep", lambda seconds: first.__exit__(None, None, None))
    with held(place, wait=True, said=said):
        assert said == ["A dlbench of another user or container is measuring on this machine; waiting for it to end"]


def test_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (place / machine_lock._NAME).symlink_to(tmp_path / "elsewhere")
    with held(place), held(place):  # no lock, and no harm
        pass


def test_why_it_does_not_hold_for_everybody_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLBENCH_LOCK_FOLDER", raising=False)
    assert "container" in machine_lock.why_narrow(in_container=True)
    monkeypatch.setattr(machine_lock, "_EVERYBODYS", ())
    assert "DLBENCH_LOCK_FOLDER" in machine_lock.why_narrow(in_container=False)
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", "/somewhere")
    assert machine_lock.why_narrow(in_container=True) == ""


def test_a_folder_that_is_named_and_is_none_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLBENCH_LOCK_FOLDER", str(place / "none"))
    with pytest.raises(UsageError, match="is no folder"), held(place):
        pass
