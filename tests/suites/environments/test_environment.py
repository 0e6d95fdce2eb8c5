"""Environments: their states, what is said before anything is downloaded, interrupted builds, and
removal."""

import os
import re
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import filelock
import pytest
from made_up_pythons import left_behind, make_framework, make_python, refused, script, start_build
from processes import run_command, suite_of_null

from dlbench.hardware_probe import probe_cpu
from dlbench.suites.commands import list as listing
from dlbench.suites.commands.env import env_build
from dlbench.suites.environments import debian, environment, folders, interpreters
from dlbench.suites.environments.environment import State
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning import framework
from dlbench.suites.planning.framework import find
from dlbench.suites.planning.values import Build


def source_of(framework, interpreter=None, name="tiny", build_missing=True):
    lines = []
    sources = environment.prepare_sources(
        [Build(name, framework, interpreter)], lines.append, build_missing
    )
    return sources[name], lines


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
    for part in (
        "Tiny needs a Python of version 3.99",
        "PATH",
        "pyenv install 3.99",
        "uv python install 3.99",
    ):
        assert part in located.reason
    assert "--python tiny=/path/to/python" in located.reason
    assert refused(tiny) == located.reason
    assert left_behind(home) == []


def test_of_its_locks_that_of_the_first_python_that_is_there_is_taken(tiny, tmp_path):
    located_first = environment.locate(tiny)
    (tmp_path / "newer.lock").write_text("# newer\n")
    with_two_locks = tiny.model_copy(
        update={"python": ("3.98", *tiny.python), "locks": {"3.98": "newer.lock"}}
    )
    assert environment.locate(with_two_locks).directory == located_first.directory
    make_python(tmp_path / "path" / "python3.98", "3.98")
    interpreters.find_python.cache_clear()
    lines = []
    built = environment.build(with_two_locks, lines.append)
    assert "newer.lock" in lines[0]
    assert built.directory != located_first.directory
    assert environment.locate(with_two_locks) == built
    # It needs its Python no more.
    (tmp_path / "path" / "python3.98").unlink()
    interpreters.find_python.cache_clear()
    assert environment.locate(with_two_locks) == built
    # The lock of a Python that is there is meant, even where it cannot be read.
    make_python(tmp_path / "path" / "python3.98", "3.98")
    interpreters.find_python.cache_clear()
    (tmp_path / "newer.lock").unlink()
    located = environment.locate(with_two_locks)
    assert located.state is State.UNAVAILABLE
    assert "newer.lock, which tiny's framework.toml names, cannot be read" in located.reason
    assert refused(with_two_locks) == located.reason


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
    assert debian.keyring() == tmp_path / "keys.gpg"


def test_room_is_needed_for_what_is_kept_beside_the_environment(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(
        environment, "free_megabytes", lambda folder: 2.5
    )  # 2 MB of environment, 1 MB of download
    hashed = make_framework(tmp_path, f"one==1 --hash=sha256:{'0' * 64}\n")
    assert "needs about 3 MB" in environment.locate(hashed).reason
    half = environment.locate(hashed).directory
    half.mkdir(parents=True)
    (half / "library").write_bytes(bytes(600_000))
    assert environment._why_unavailable(hashed, half) == ""  # the build takes it away first
    assert environment.locate(make_framework(tmp_path, "one==1\n")).state is State.NOT_BUILT
    message = refused(tiny.model_copy(update={"disk_megabytes": 10**9}))
    assert f"needs about {10**9} MB" in message
    assert "DLBENCH_HOME" in message


def test_a_broken_interpreter_is_its_own_row_and_ends_no_list(tiny, monkeypatch):
    built = environment.build(tiny)
    null = find("null")
    monkeypatch.setattr(listing, "offered", lambda: {"tiny": tiny, "null": null})
    assert [row["state"] for row in listing.list_frameworks()] == ["ready", "ready"]
    script(built.interpreter, "#!/bin/sh\nexit 1\n")
    broken, working = listing.list_frameworks()
    assert (broken["state"], broken["interpreter"], broken["python"]) == ("unavailable", None, None)
    for part in (
        str(built.interpreter),
        "does not start",
        "dlbench env remove tiny",
        "dlbench env build tiny",
    ):
        assert part in broken["reason"]
    assert working["state"] == "ready"


def test_a_row_without_an_adapter_says_so_and_does_not_claim_that_its_packages_are_gone(home):
    for name in ("deeplearning4j", "torch7"):
        reason = environment.locate(find(name)).reason
        assert "dlbench has no adapter for it" in reason
        assert not re.search("no longer|do not have it", reason)
    assert "Maven has its packages" in environment.locate(find("deeplearning4j")).reason


def test_a_framework_that_nobody_can_have_says_so_and_is_not_asked_for_more(home):
    gone = find("torch7")
    located = environment.locate(gone)
    assert (located.state, located.interpreter) == (State.UNAVAILABLE, None)
    assert gone.unavailable in located.reason
    assert "torch takes its place" in located.reason
    assert refused(gone) == located.reason
    source, output = source_of(gone, name="torch7")
    assert (source.interpreter, source.reason) == (None, located.reason)
    assert output == [f"{gone.title} is left out. {located.reason}"]
    with pytest.raises(FrameworkEnvironmentError, match="is not available"):
        source_of(gone, Path(sys.executable), name="torch7")
    assert left_behind(home) == []


def test_a_build_that_was_killed_is_half_built_and_made_anew(tiny, home, tmp_path, monkeypatch):
    hangs = tmp_path / "hangs"
    monkeypatch.setenv("FAKE_VENV_HANGS", str(hangs))
    builder = start_build(tiny)
    try:
        until = time.monotonic() + 60
        while not (hangs.exists() and hangs.read_text().strip()) and time.monotonic() < until:
            time.sleep(0.02)
        assert environment.locate(tiny).state is State.BEING_BUILT
    finally:
        builder.kill()
        builder.join()
    monkeypatch.delenv("FAKE_VENV_HANGS")
    os.kill(int(hangs.read_text()), signal.SIGKILL)
    half = environment.locate(tiny)
    assert half.state is State.HALF_BUILT
    (half.directory / "rest-of-before").touch()
    built = environment.build(tiny)
    assert built.state is State.READY
    assert not (built.directory / "rest-of-before").exists()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["written", "looked into"])
def test_a_folder_that_may_not_be_used_is_named_with_the_remedy(monkeypatch, mode):
    with tempfile.TemporaryDirectory() as name:  # one that others than root may look into
        folder = Path(name)
        tiny = make_framework(folder)
        make_python(folder / "path" / "python3.99", "3.99")
        home = folder / "home"
        home.mkdir()
        folder.chmod(0o555)
        home.chmod(mode)
        monkeypatch.setenv("PATH", f"{folder / 'path'}:/usr/bin:/bin")
        monkeypatch.setenv("DLBENCH_HOME", str(home))
        root = os.geteuid() == 0
        try:
            if root:
                os.seteuid(65534)
            assert environment.locate(tiny).state is State.NOT_BUILT
            message = refused(tiny)
        finally:
            if root:
                os.seteuid(0)
            for path in (folder, home):
                path.chmod(0o755)
        assert "Permission denied. Set DLBENCH_HOME to a folder" in message
        assert list(home.iterdir()) == []


def test_removing_takes_the_environments_of_earlier_locks_and_of_no_other_framework(
    tiny, home, tmp_path
):
    earlier = environment.build(tiny).directory
    changed = make_framework(tmp_path, "numpy==1.0\n")
    current = environment.build(changed).directory
    other_folders = [
        home / "environments" / name
        for name in ("tiny-er-01234567", "tinyer-01234567", "tiny-012345678")
    ]
    own_downloads = folders.make_folder(folders.downloads(earlier))
    other_downloads = folders.make_folder(folders.downloads(other_folders[0]))
    for folder in other_folders:
        folder.mkdir()
    assert environment.remove(changed)
    assert sorted(left_behind(home)) == sorted(folder.name for folder in other_folders)
    assert not any(folder.exists() for folder in (earlier, current, own_downloads))
    assert other_downloads.exists()
    assert not list((home / "environments").glob("tiny-*.log"))
    assert not environment.remove(changed)


def test_an_environment_that_is_being_built_is_not_removed(tiny, monkeypatch):
    directory = environment.build(tiny).directory
    monkeypatch.setattr(environment, "_PATIENCE", 0.01)
    with filelock.FileLock(f"{directory}.lock"):
        with pytest.raises(FrameworkEnvironmentError, match="is being built now") as caught:
            environment.remove(tiny)
        assert (caught.value.exit_code, "\n" in str(caught.value)) == (3, False)
        assert environment.locate(tiny).state is State.READY
        with pytest.raises(filelock.Timeout):  # the same file is still the lock
            filelock.FileLock(f"{directory}.lock").acquire(timeout=0.01)
    assert environment.remove(tiny)


@pytest.mark.parametrize("on_request", [False, True])
def test_without_names_a_build_leaves_out_what_is_built_on_request(home, monkeypatch, on_request):
    built = []
    monkeypatch.setattr(environment, "build", lambda framework, *ways: built.append(framework.name))
    env_build(on_request=on_request)
    assert {"caffe", "cntk", "theano"}.isdisjoint(built) != on_request
    assert ("mxnet" in built) != on_request
    assert not any(find(name).unavailable for name in built)
    built.clear()
    env_build(names=["caffe"], on_request=on_request)
    assert ("caffe" in built, built.count("caffe")) == (True, 1)


def test_a_source_is_built_where_it_is_missing_and_wanted_and_announced_first(tiny, home, tmp_path):
    source, output = source_of(tiny, build_missing=False)
    assert (source.interpreter, left_behind(home)) == (None, [])
    assert "dlbench env build tiny" in source.reason
    assert "left out" in output[0]
    source, output = source_of(tiny)
    assert source.interpreter == environment.locate(tiny).interpreter
    assert source.name == "FakePython 3.99.1"
    assert len(source.digest) == 12
    assert output[:3] == [
        "To be downloaded: about 1 MB (Tiny 1 MB).",
        f"Installed that takes about 2 MB in {home / 'environments'}.",
        "It may take 10 s at 50 Mbit/s, and 10 s to install.",
    ]
    assert source_of(tiny) == (source, [])
    own_source, _ = source_of(tiny, tmp_path / "path" / "python3.99", name="mine")
    assert (own_source.name, own_source.interpreter) == (
        "FakePython 3.99.1",
        tmp_path / "path" / "python3.99",
    )


def test_an_environment_that_cannot_be_had_leaves_the_other_rows_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_PIP_EXIT", "1")
    monkeypatch.setenv("FAKE_PIP_SAYS", "NewConnectionError")
    lines = []
    sources = environment.prepare_sources(
        [Build("tiny", tiny), Build("null", find("null"))], lines.append
    )
    assert sources["tiny"].interpreter is None
    assert "could not be reached" in sources["tiny"].reason
    assert sources["null"].interpreter == Path(sys.executable)
    assert any("Tiny is left out" in line for line in lines)


@pytest.mark.parametrize("change", [{"model": "Another"}, {"instruction_sets": ("avx2",)}])
def test_another_kind_of_processor_keeps_its_own_programs(monkeypatch, change):
    jax = framework.find("jax")
    cache = folders.cache_directory(jax)
    cpu = replace(probe_cpu(), affinity=(0,), quota_cpus=0.5)
    try:
        for same, changes in ((True, {}), (False, change)):
            folders.processor.cache_clear()
            monkeypatch.setattr(
                folders, "probe_cpu", lambda changes=changes: replace(cpu, **changes)
            )
            assert (folders.cache_directory(jax) == cache) is same
            assert folders.cache_directory(jax).parent == cache.parent
    finally:
        folders.processor.cache_clear()


def test_a_relative_folder_for_temporary_files_crashes_no_launch(tmp_path):
    suite_file = tmp_path / "mine.toml"
    suite_file.write_text(suite_of_null())
    done = run_command(tmp_path, "run", "mine.toml", TMPDIR=".")
    assert done.returncode == 0, done.stderr
    assert "crash" not in done.stdout
