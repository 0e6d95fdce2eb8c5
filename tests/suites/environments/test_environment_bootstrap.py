"""What the script for a fresh checkout hands to dlbench and pytest."""

import subprocess
import sys

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
