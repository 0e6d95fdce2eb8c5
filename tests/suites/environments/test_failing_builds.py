"""Builds of environments that fail: each says why, and leaves nothing behind."""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
from made_up_pythons import make_python
from tiny_framework import left_behind, make_framework, refused, start_build

from dlbench.suites.environments import children, environment, folders, python_packages
from dlbench.suites.environments.environment import State
from dlbench.suites.errors import FrameworkEnvironmentError


@pytest.mark.parametrize(
    ("says", "parts"),
    [
        (
            "NewConnectionError: Connection refused",
            ["index could not be reached", "dlbench env build tiny", "--python"],
        ),
        ("Temporary failure in name resolution", ["index could not be reached"]),
        ("OSError: [Errno 28] No space left on device", ["no space", "DLBENCH_HOME"]),
        ("ERROR: No matching distribution found for tiny==9", ["No matching distribution found for tiny==9", "log"]),
    ],
)
def test_a_failed_installation_says_why_and_leaves_nothing(tiny, home, monkeypatch, says, parts):
    monkeypatch.setenv("FAKE_PIP_SAYS", says)
    monkeypatch.setenv("FAKE_PIP_EXIT", "1")
    message = refused(tiny)
    for part in parts:
        assert part in message
    assert left_behind(home) == []
    assert environment.locate(tiny).state is State.NOT_BUILT
    monkeypatch.setenv("FAKE_PIP_SAYS", "ERROR: hashes do not match")
    assert "hashes do not match" in refused(tiny)  # a second failure is told by its own words
    monkeypatch.delenv("FAKE_PIP_EXIT")
    monkeypatch.setenv("FAKE_MISSING", '"tiny"')
    assert "lacks the module tiny" in refused(tiny)
    assert left_behind(home) == []
    monkeypatch.delenv("FAKE_MISSING")
    assert environment.build(tiny).state is State.READY


def test_a_python_that_makes_no_virtual_environments(tiny, home, monkeypatch):
    monkeypatch.setenv("FAKE_VENV_EXIT", "1")
    monkeypatch.setenv("FAKE_BARE_VENV_EXIT", "1")
    monkeypatch.setenv("FAKE_VENV_SAYS", "no ensurepip")
    message = refused(tiny)
    assert "cannot make virtual environments" in message
    assert "Install its venv package" in message
    assert left_behind(home) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_whatever_ends_a_build_leaves_nothing(tiny, home, monkeypatch, error):
    run = children.run

    def broken(command, log, **options):
        if "pip" in command:
            raise error
        return run(command, log, **options)

    monkeypatch.setattr(children, "run", broken)
    with pytest.raises((KeyboardInterrupt, FrameworkEnvironmentError)) as caught:
        environment.build(tiny)
    if caught.type is not KeyboardInterrupt:
        assert "No space left on device. Set DLBENCH_HOME" in str(caught.value)
    assert left_behind(home) == []


def test_a_build_that_was_killed_is_half_built_and_made_anew(tiny, home, tmp_path, monkeypatch):
    hangs = tmp_path / "hangs"
    builder = start_build(tiny, FAKE_VENV_HANGS=str(hangs))
    try:
        until = time.monotonic() + 60
        while not (hangs.exists() and hangs.read_text().strip()) and time.monotonic() < until:
            time.sleep(0.02)
        assert environment.locate(tiny).state is State.BEING_BUILT
    finally:
        builder.kill()
        builder.wait()
    os.kill(int(hangs.read_text()), signal.SIGKILL)
    half = environment.locate(tiny)
    assert half.state is State.HALF_BUILT
    (half.directory / "rest-of-before").touch()
    built = environment.build(tiny)
    assert built.state is State.READY
    assert not (built.directory / "rest-of-before").exists()


def test_downloads_of_a_build_that_was_killed_when_it_was_done_are_removed(tiny):
    built = environment.build(tiny)
    folders.make_folder(folders.downloads(built.directory))
    assert environment.build(tiny).state is State.READY
    assert not folders.downloads(built.directory).exists()


def test_a_home_that_cannot_be_written_is_named_with_the_remedy(tiny, home):
    home.write_text("a file where a folder should be")
    assert environment.locate(tiny).state is State.NOT_BUILT
    message = refused(tiny)
    assert str(home) in message
    assert "Set DLBENCH_HOME" in message
    assert home.read_text() == "a file where a folder should be"
    with pytest.raises(FrameworkEnvironmentError, match="Set DLBENCH_HOME"):
        folders.make_folder(folders.cache_directory(tiny))


def test_a_home_that_may_not_be_looked_into_holds_no_environment(tiny, home, monkeypatch):
    exists = Path.exists

    def forbidden(path):
        if path.is_relative_to(home):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", forbidden)  # as for one who is not root
    assert environment.locate(tiny).state is State.NOT_BUILT


@pytest.mark.usefixtures("home")
def test_a_folder_that_may_not_be_written_is_named_with_the_remedy(monkeypatch):
    with tempfile.TemporaryDirectory() as name:  # one that others than root may look into
        folder = Path(name)
        tiny = make_framework(folder)
        make_python(folder / "path" / "python3.99", "3.99")
        home = folder / "home"
        home.mkdir()
        for each in (folder, home):
            each.chmod(0o555)
        monkeypatch.setenv("PATH", f"{folder / 'path'}:/usr/bin:/bin")
        monkeypatch.setenv("DLBENCH_HOME", str(home))
        root = os.geteuid() == 0
        try:
            if root:
                os.seteuid(65534)
            message = refused(tiny)
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
        assert "Permission denied. Set DLBENCH_HOME to a folder" in message
        assert list(home.iterdir()) == []


RETRIED = "WARNING: Retrying after connection broken by 'NewConnectionError'"


@pytest.mark.parametrize("command", ["the same", "an earlier"])
def test_a_connection_that_came_back_does_not_hide_a_wrong_checksum(tiny, tmp_path, command):
    log = tmp_path / "log"
    said = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"
    before, now = (f"{RETRIED}\n", said) if command == "an earlier" else ("", f"{RETRIED}\n{said}")
    log.write_text(before)
    with pytest.raises(FrameworkEnvironmentError, match=r"by its checksum"):
        python_packages._run(tiny, ["sh", "-c", f'echo "{now}"; exit 1'], log, "Tiny", lambda line: None)


def test_a_connection_that_came_back_is_no_reason_of_a_later_failure(tiny, tmp_path):
    log = tmp_path / "log"
    log.write_text(f"{RETRIED}\n")
    with pytest.raises(FrameworkEnvironmentError, match="could not be installed: ERROR: no such thing"):
        python_packages._run(tiny, ["sh", "-c", "echo ERROR: no such thing; exit 1"], log, "Tiny", lambda line: None)


def test_a_disk_so_full_that_no_log_can_be_written_is_told_by_itself(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    assert not children.out_of_room("some other failure", tmp_path / "log")
    assert children.out_of_room("cannot write: No space left on device", tmp_path / "log")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4096))
    assert children.out_of_room("E: cut off in the mid", tmp_path / "log")
