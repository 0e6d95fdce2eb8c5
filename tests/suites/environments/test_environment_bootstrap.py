"""What the script for a fresh checkout hands to dlbench and pytest."""

import os
import subprocess
import sys
from pathlib import Path

import properties
import pytest

from dlbench.suites import bootstrap

NAMES = ["caffe", "cntk"]


@pytest.mark.parametrize("given", [["-k", "lstm or 2"], ["-klstm or 2"], ["-k=lstm or 2"]])
def test_a_users_choice_of_tests_narrows_that_of_the_frameworks(given):
    words = bootstrap.narrowed(NAMES, ["-x", "-m", "slow or not slow", *given, "tests/adapters"])
    assert words == ["-k", "(caffe or cntk) and (lstm or 2)", "-x", "-m", "slow or not slow", "tests/adapters"]


def test_without_a_choice_the_tests_of_the_frameworks_are_meant():
    assert bootstrap.narrowed(NAMES, ["-x"]) == ["-k", "caffe or cntk", "-x"]


def test_pytest_takes_the_choice(tmp_path):
    (tmp_path / "test_it.py").write_text("".join(f"def test_{name}(): pass\n" for name in ("caffe_a", "caffe_b", "a")))
    words = bootstrap.narrowed(NAMES, ["-k", "a and not b", "--collect-only", "-q"])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if "::" in line] == ["test_it.py::test_caffe_a"]


@pytest.mark.parametrize("word", ["test", "rest"])
def test_frameworks_that_cannot_be_listed_end_it_in_one_line(monkeypatch, capfd, word):
    monkeypatch.setattr(bootstrap, "set_up", lambda lock: "")
    monkeypatch.setattr(bootstrap, "DLBENCH", ["sh", "-c", "exit 4"])
    monkeypatch.delenv("CI", raising=False)
    assert bootstrap.main([word]) == 3
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("dlbench: The frameworks could not be listed")


@pytest.mark.slow
def test_properties_are_tried_at_random_where_that_was_asked_for_and_the_same_way_otherwise(tmp_path):
    (tmp_path / "conftest.py").write_text("from properties import load_profile\nload_profile()\n")
    (tmp_path / "test_it.py").write_text(
        "from hypothesis import given, strategies as st\nfrom properties import examples\n"
        "seen = []\n@examples(50)\n@given(st.integers())\ndef test_it(number): seen.append(number)\n"
        "def test_told(): print('seen', seen)\n"
    )

    def seen(**variables):
        others = {name: value for name, value in os.environ.items() if name != properties.VARIABLE}
        helpers = str(Path(properties.__file__).parent)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"],
            env={**others, "PYTHONPATH": helpers, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        (line,) = [line for line in done.stdout.splitlines() if "seen [" in line]
        return line

    first = seen()
    assert seen() == first
    assert first.count(",") + 1 == 50 * properties.IN_EVERY_RUN // properties.USUAL
    assert seen(**{properties.VARIABLE: "100"}).count(",") == 49


def test_the_command_for_properties_asks_for_so_many_examples(monkeypatch):
    called = []
    monkeypatch.setattr(bootstrap, "set_up", lambda lock: "")
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(bootstrap.subprocess, "run", lambda words, **options: called.append((words, options)) or done)
    assert bootstrap.main(["properties", "--examples", "70", "-k", "matrix"]) == 0
    ((words, options),) = called
    assert words[-4:] == ["-m", "hypothesis", "-k", "matrix"]
    assert options["env"][properties.VARIABLE] == "70"


@pytest.mark.parametrize("line", ["if (n := 1): pass", "f'{n=}'", "import dataclasses", "def f(a, /): pass"])
def test_syntax_that_is_too_new_for_a_guest_is_noticed(tmp_path, monkeypatch, line):
    monkeypatch.setattr(bootstrap, "PYTHON", sys.executable)
    own = tmp_path / "new"
    own.mkdir()
    (own / "framework.toml").write_text('python = ["3.12", "3.11"]\n')
    for folder in (tmp_path, own):
        (folder / "module.py").write_text("n = 1\n" + line + "\n")
    found = bootstrap.guest_modules(tmp_path)
    assert found == {(3, 6): [tmp_path / "module.py"], (3, 11): [own / "module.py"]}
    assert bootstrap.too_new((3, 6), found[3, 6])
    assert not bootstrap.too_new((3, 11), found[3, 11])


@pytest.mark.slow
def test_tests_of_one_group_share_a_worker_so_that_what_they_launch_is_launched_once(tmp_path):
    """With pytest 9.2, pytest-xdist 3.8.0 takes the groups for nothing and says nothing."""
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib, pytest\n@pytest.mark.xdist_group('one')\n@pytest.mark.parametrize('number', range(8))\n"
        "def test_it(number): pathlib.Path(os.environ['PYTEST_XDIST_WORKER']).touch()\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *bootstrap.WORKERS, "-n", "2"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert len(list(tmp_path.glob("gw*"))) == 1
