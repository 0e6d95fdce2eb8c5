"""Environments: their states, and what is said before anything is downloaded."""

import sys
from pathlib import Path

import pytest
from made_up_pythons import make_python, script
from tiny_framework import HOST, left_behind, make_framework, refused, source_of

from dlbench.suites.commands import list as listing
from dlbench.suites.environments import apt, environment, folders, interpreters, needs
from dlbench.suites.environments.environment import State
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import find


def test_the_states_of_an_environment(tiny, home, tmp_path):
    assert environment.locate(tiny).state is State.NOT_BUILT
    assert "dlbench env build tiny" in environment.locate(tiny).reason
    built = environment.build(tiny)
    assert (built.state, built.reason) == (State.READY, "")
    assert environment.locate(tiny) == built
    assert built.interpreter == built.directory / "bin" / "python"
    assert built.directory.is_relative_to(home)
    (built.directory / interpreters.MANIFEST).unlink()
    half = environment.locate(tiny)
    assert (half.state, half.interpreter) == (State.HALF_BUILT, None)
    assert "dlbench env build tiny" in half.reason
    built = environment.build(tiny)
    built.interpreter.unlink()
    assert environment.locate(tiny).state is State.HALF_BUILT
    changed = environment.locate(make_framework(tmp_path, "numpy==1.0\n"))
    assert (changed.state, changed.directory == built.directory) == (State.NOT_BUILT, False)
    null = environment.locate(find("null"))
    assert (null.state, null.interpreter) == (State.READY, Path(sys.executable))


def test_without_a_fitting_python_it_says_how_to_get_one(home, tmp_path):
    tiny = make_framework(tmp_path, python="3.99")
    located = environment.locate(tiny)
    assert located.state is State.UNAVAILABLE
    for part in ("Tiny needs a Python of version 3.99", "PATH", "pyenv install 3.99", "uv python install 3.99"):
        assert part in located.reason
    assert "--python tiny=/path/to/python" in located.reason
    assert refused(tiny) == located.reason
    assert left_behind(home) == []


def test_the_first_python_that_is_there_is_taken(tiny, tmp_path):
    wanted = tiny.model_copy(update={"python": ("3.98", "3.99", HOST)})
    said = []
    environment.build(wanted, said.append)
    assert str(tmp_path / "path" / "python3.99") in said[0]


def test_of_its_locks_that_of_the_first_python_that_is_there_is_taken(tiny, tmp_path):
    usual = environment.locate(tiny)
    (tmp_path / "newer.lock").write_text("# newer\n")
    asked = tiny.model_copy(update={"python": ("3.98", *tiny.python), "locks": {"3.98": "newer.lock"}})
    assert environment.locate(asked).directory == usual.directory
    make_python(tmp_path / "path" / "python3.98", "3.98")
    interpreters.find_python.cache_clear()
    said = []
    built = environment.build(asked, said.append)
    assert "newer.lock" in said[0]
    assert built.directory != usual.directory
    assert environment.locate(asked) == built
    # It needs its Python no more.
    (tmp_path / "path" / "python3.98").unlink()
    interpreters.find_python.cache_clear()
    assert environment.locate(asked) == built
    # The lock of a Python that is there is meant, even where it cannot be read.
    make_python(tmp_path / "path" / "python3.98", "3.98")
    interpreters.find_python.cache_clear()
    (tmp_path / "newer.lock").unlink()
    located = environment.locate(asked)
    assert located.state is State.UNAVAILABLE
    assert "newer.lock" in located.reason


def test_what_is_downloaded_and_where_it_goes_is_announced(tiny, home):
    line = environment.announce(tiny)
    assert "1 MB" in line
    assert "2 MB" in line
    assert str(home) in line


def test_a_built_environment_is_not_built_again(tiny, monkeypatch):
    built = environment.build(tiny)
    monkeypatch.setattr(environment, "_install", None)  # would fail
    assert environment.build(tiny) == built


def test_a_relative_home_is_meant_from_where_dlbench_was_started(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLBENCH_HOME", "here")
    built = environment.build(tiny)
    assert built.interpreter.is_relative_to(tmp_path / "here")
    assert folders.cache_directory(tiny).is_absolute()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DLBENCH_HOME", "~/there")
    assert folders.home() == tmp_path / "there"
    monkeypatch.setenv("DLBENCH_DEBIAN_KEYRING", "keys.gpg")
    assert apt.keyring() == tmp_path / "keys.gpg"


def test_room_is_needed_for_what_is_kept_beside_the_environment(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(needs, "free_megabytes", lambda folder: 2.5)  # 2 MB of environment, 1 MB of download
    hashed = make_framework(tmp_path, f"one==1 --hash=sha256:{'0' * 64}\n")
    assert "needs about 3 MB" in environment.locate(hashed).reason
    half = environment.locate(hashed).directory
    half.mkdir(parents=True)
    (half / "library").write_bytes(bytes(600_000))
    assert needs.missing(hashed, half) == ""  # the build takes it away first
    assert environment.locate(make_framework(tmp_path, "one==1\n")).state is State.NOT_BUILT


def test_a_broken_interpreter_is_its_own_row_and_ends_no_list(tiny, monkeypatch):
    built = environment.build(tiny)
    null = find("null")
    monkeypatch.setattr(listing, "offered", lambda: {"tiny": tiny, "null": null})
    assert [row["state"] for row in listing.list_frameworks()] == ["ready", "ready"]
    script(built.interpreter, "#!/bin/sh\nexit 1\n")
    broken, other = listing.list_frameworks()
    assert (broken["state"], broken["interpreter"], broken["python"]) == ("unavailable", None, None)
    for part in (str(built.interpreter), "does not start", "dlbench env remove tiny", "dlbench env build tiny"):
        assert part in broken["reason"]
    assert other["state"] == "ready"


def test_a_framework_that_nobody_can_have_says_so_and_is_not_asked_for_more(home):
    gone = find("torch7")
    located = environment.locate(gone)
    assert (located.state, located.interpreter) == (State.UNAVAILABLE, None)
    assert gone.unavailable in located.reason
    assert "torch takes its place" in located.reason
    assert refused(gone) == located.reason
    assert not environment.remove(gone)
    source, said = source_of(gone, name="torch7")
    assert (source.interpreter, source.reason) == (None, located.reason)
    assert said == [f"{gone.title} is left out. {located.reason}"]
    with pytest.raises(FrameworkEnvironmentError, match="is not available"):
        source_of(gone, Path(sys.executable), name="torch7")
    assert left_behind(home) == []


def test_a_program_that_is_missing_is_named_before_anything_is_downloaded(tiny, home):
    needing = tiny.model_copy(update={"programs": ("sh", "no-such-compiler")})
    located = environment.locate(needing)
    assert located.state is State.UNAVAILABLE
    for part in ("Tiny is not available here", "needs no-such-compiler, which is not on PATH", "--python tiny="):
        assert part in located.reason
    assert refused(needing) == located.reason
    source, _ = source_of(needing)
    assert source.reason == located.reason
    assert left_behind(home) == []


def test_too_small_a_disk_is_said_before_anything_is_downloaded(tiny, home):
    huge = tiny.model_copy(update={"disk_megabytes": 10**9})
    message = refused(huge)
    assert f"needs about {10**9 + 1} MB" in message  # the download lies beside it
    assert "DLBENCH_HOME" in message
    assert environment.locate(huge).state is State.UNAVAILABLE
    assert left_behind(home) == []


def test_a_lock_file_that_is_not_there_is_named(tiny):
    (tiny.directory / "requirements.lock").unlink()
    located = environment.locate(tiny)
    assert located.state is State.UNAVAILABLE
    assert f"{tiny.lock_file}, which tiny's framework.toml names, cannot be read" in located.reason
    assert refused(tiny) == located.reason


def test_variables_name_the_environments_folder(tiny):
    named = tiny.model_copy(update={"variables": {"LD_LIBRARY_PATH": "{environment}/lib", "N": "{threads}"}})
    folder = environment.build(tiny).directory
    assert named.launch_variables("only", 2, folder) == {"LD_LIBRARY_PATH": f"{folder}/lib", "N": "2"}
    assert named.launch_variables("only", 0, folder) == {"LD_LIBRARY_PATH": f"{folder}/lib"}
    source, _ = source_of(tiny)
    assert source.folder == folder
    source, _ = source_of(tiny.model_copy(update={"imports": "sys"}), Path(sys.executable), name="mine")
    assert source.folder == Path(sys.prefix)
