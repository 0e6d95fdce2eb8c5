"""Environments removed, with what was kept for them."""

import shutil

import filelock
import pytest
from tiny_framework import left_behind, make_framework

from dlbench.suites.environments import environment, folders
from dlbench.suites.environments.environment import State
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.planning.framework import find


def test_removing_takes_environment_and_cache(tiny):
    directory = environment.build(tiny).directory
    cache = folders.make_folder(folders.cache_directory(tiny))
    assert environment.remove(tiny)
    assert not directory.exists()
    assert not cache.exists()
    assert not environment.remove(tiny)
    with pytest.raises(FrameworkEnvironmentError, match="there is nothing to remove"):
        environment.remove(find("null"))


def test_removing_takes_the_environments_of_earlier_locks_and_of_no_other_framework(tiny, home, tmp_path):
    earlier = environment.build(tiny).directory
    changed = make_framework(tmp_path, "numpy==1.0\n")
    now = environment.build(changed).directory
    others = [home / "environments" / name for name in ("tiny-er-01234567", "tinyer-01234567", "tiny-012345678")]
    kept = [folders.make_folder(folders.downloads(directory)) for directory in (earlier, others[0])]
    for other in others:
        other.mkdir()
    assert environment.remove(changed)
    assert sorted(left_behind(home)) == sorted(other.name for other in others)
    assert [folder.exists() for folder in (earlier, now, *kept)] == [False, False, False, True]
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


def test_what_cannot_be_removed_is_said_in_one_line(tiny, monkeypatch):
    directory = environment.build(tiny).directory

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(FrameworkEnvironmentError) as caught:
        environment.remove(tiny)
    assert str(caught.value) == f"Tiny cannot be removed: {directory}: Permission denied."
    assert caught.value.exit_code == 3
