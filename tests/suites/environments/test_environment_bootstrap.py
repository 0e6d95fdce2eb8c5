"""The script for a fresh checkout."""

import sys

import pytest

from dlbench.suites import bootstrap

NAMES = ["caffe", "cntk"]


@pytest.mark.parametrize("selection", [["-k", "lstm or 2"], ["-klstm or 2"]])
def test_a_users_choice_of_tests_narrows_that_of_the_frameworks(selection):
    words = bootstrap.narrowed(
        NAMES, ["-x", "-m", "slow or not slow", *selection, "tests/adapters"]
    )
    assert words == [
        "-k",
        "(caffe or cntk) and (lstm or 2)",
        "-x",
        "-m",
        "slow or not slow",
        "tests/adapters",
    ]


def test_frameworks_that_cannot_be_listed_end_it_in_one_line(monkeypatch, capfd):
    monkeypatch.setattr(bootstrap, "set_up", lambda lock: "")
    monkeypatch.setattr(bootstrap, "DLBENCH", ["sh", "-c", "exit 4"])
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(SystemExit) as ended:
        bootstrap.main(["test"])
    assert ended.value.code == 3
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("dlbench: The frameworks could not be listed")


@pytest.mark.parametrize(
    "line", ["if (n := 1): pass", "f'{n=}'", "import dataclasses", "def f(a, /): pass"]
)
def test_syntax_that_is_too_new_for_a_guest_is_noticed(tmp_path, monkeypatch, line):
    monkeypatch.setattr(bootstrap, "PYTHON", sys.executable)
    own = tmp_path / "new"
    own.mkdir()
    (own / "framework.toml").write_text('python = ["3.12", "3.11"]\n')
    for folder in (tmp_path, own):
        (folder / "module.py").write_text("n = 1\n" + line + "\n")
    modules = bootstrap.guest_modules(tmp_path)
    assert modules == {(3, 6): [tmp_path / "module.py"], (3, 11): [own / "module.py"]}
    assert bootstrap.too_new((3, 6), modules[3, 6])
    assert not bootstrap.too_new((3, 11), modules[3, 11])
