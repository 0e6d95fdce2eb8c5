"""Jobs as shell scripts: what a script does when a shell runs it, and what nobody can know."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.suites.errors import FrameworkEnvironmentError, UsageError
from dlbench.suites.fleet.schedulers.scheduler import UNKNOWN, Scheduler, Wanted
from dlbench.suites.fleet.schedulers.scripts import Scripts

SHOW = (sys.executable, "-c", "import os, sys; print(os.getcwd()); print(sys.argv[1:])")


def test_a_script_runs_the_command_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "it's here"
    here.mkdir()
    monkeypatch.chdir(here)
    scheduler: Scheduler = Scripts(tmp_path / "scripts")
    handle = scheduler.submit(Wanted(3, "big-1", (*SHOW, "a b", "$HOME", "'", "--store=x")))
    done = subprocess.run([handle], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(here), str(["a b", "$HOME", "'", "--store=x"])]
    assert "big-1" in Path(handle).read_text().splitlines()[1]
    assert os.access(handle, os.X_OK)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=4))
@examples(20)
def test_every_word_arrives_as_it_was(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    show = ("/usr/bin/env", "printf", "%s\\0")
    handle = Scripts(tmp_path_factory.mktemp("scripts")).submit(Wanted(1, "", (*show, "first", *words)))
    shown = subprocess.run(["sh", handle], capture_output=True, check=True).stdout.decode()
    assert shown.split("\0")[:-1] == ["first", *words]


def test_a_script_ends_as_its_command_does(tmp_path: Path) -> None:
    scheduler = Scripts(tmp_path)
    handle = scheduler.submit(Wanted(1, "", ("sh", "-c", "exit 5")))
    assert subprocess.run([handle]).returncode == 5
    again = scheduler.submit(Wanted(1, "", ("sh", "-c", "exit 6")))
    assert again == handle
    assert subprocess.run([handle]).returncode == 6


def test_nobody_knows_what_becomes_of_it(tmp_path: Path) -> None:
    scheduler = Scripts(tmp_path)
    handles = [scheduler.submit(Wanted(number, "", ("true",))) for number in (1, 2)]
    assert {handle: (seen.state, seen.words) for handle, seen in scheduler.seen(handles).items()} == dict.fromkeys(
        handles, (UNKNOWN, "its scheduler cannot be asked")
    )
    assert scheduler.log(handles[0]) is None
    with pytest.raises(UsageError, match="own command"):
        scheduler.cancel(handles)
    scheduler.cancel([])


def test_nodes_are_those_named(tmp_path: Path) -> None:
    scheduler = Scripts(tmp_path)
    assert scheduler.nodes(None, ("b", "a", "b")) == ["b", "a"]
    assert scheduler.nodes(1, ("b", "a")) == ["b"]
    with pytest.raises(UsageError, match="with --nodelist"):
        scheduler.nodes(None, ())
    with pytest.raises(UsageError, match="with --nodelist"):
        scheduler.nodes(3, ("b", "a"))
    with pytest.raises(UsageError, match="without blanks"):
        scheduler.nodes(None, ("a\nrm -r x",))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(FrameworkEnvironmentError, match="could not be written"):
        Scripts(tmp_path / "taken" / "scripts").submit(Wanted(1, "", ("true",)))
