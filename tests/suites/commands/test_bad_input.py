"""Whatever is wrong with what a person gives: one line with the remedy, a documented exit code,
nothing damaged."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from made_up_pythons import script
from processes import refusal

from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.storage.store import Store
from dlbench.suites import cli
from dlbench.suites import errors as exit_codes
from dlbench.suites.errors import (
    FrameworkEnvironmentError,
    HungUp,
    Interrupted,
    Terminated,
    UsageError,
)

QUICKLY = ["--frameworks", "null", "--networks", "fcn5", "--threads", "1", "--steps", "2"]
NULL = ["--framework", "null"]
TUNED_NULL = ["--network", "fcn5", *NULL]


@pytest.fixture
def call(command, tmp_path, monkeypatch):
    """Give the function that runs the command in this process, in an empty folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        tempfile, "tempdir", str(folder.parent)
    )  # where the lock lies: others may be measuring
    return command


@pytest.mark.parametrize("verb", ["run", "plan"])
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["tabel4"], ["no suite named 'tabel4'", "Did you mean 'table4'?", ".toml"]),
        (["quick", "--threads", "0"], ["'0' is not a thread count", "whole number from 1"]),
        (["quick", "--steps", "1000000000000"], ["from 1 to 1000000"]),
        (["quick", "--colour"], ["No such option: --colour", "--help"]),
        (["quick", "surplus"], ["surplus", "--help"]),
        ([], ["Missing argument 'SUITE'", "--help"]),
    ],
)
def test_a_wrong_word_is_refused_before_anything_is_written(call, tmp_path, verb, words, parts):
    line = refusal(call, verb, *words)
    assert all(part in line for part in parts), line
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]


def test_a_wrong_suite_file_is_refused_by_its_name(call):
    Path("mine.toml").write_bytes(b"\xff\xfe")
    line = refusal(call, "run", "mine.toml")
    assert "mine.toml" in line
    assert "not a text file in UTF-8" in line
    assert [entry.name for entry in Path.cwd().iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["env", "nosuch"], 2, ["nosuch"]),
        (["report", "releasse"], 2, ["Did you mean 'releases'?"]),
        (["run", "quick", *QUICKLY, "--budget", "soon"], 2, ["10m"]),
        (
            ["plan", "quick", *QUICKLY, "--python", "null=/no/such/python"],
            3,
            ["/no/such/python is not a Python"],
        ),
        (
            ["compare", "--now", "quick"],
            2,
            ["quick cannot be the name of a stored run", "write --suite quick"],
        ),
        (
            ["compare", "--now", "latest"],
            2,
            ["latest cannot be the name of a stored run. Leave it out"],
        ),
        (
            ["run", "quick", "--no-ceilings", "--resume"],
            4,
            ["There is no result store dlbench.sqlite", "dlbench run"],
        ),
        *(
            (
                [*words, "--store", "none.sqlite"],
                4,
                ["no result store none.sqlite. Measure first (`dlbench run quick`)"],
            )
            for words in (
                ["report", "matrix"],
                ["history"],
                ["export"],
                ["compare", "latest", "previous"],
            )
        ),
        (
            ["run", "quick", *QUICKLY, "--store", "no/such/x.sqlite"],
            4,
            ["there is no folder no/such", "--store FILE"],
        ),
        (["run", "quick", "--budget="], 2, ["--budget has an empty value"]),
        (["run", "quick", "--threads", " "], 2, ["--threads has an empty value"]),
        (["run", ""], 2, ["An argument is empty"]),
        (["list", "--json", ""], 2, ["--json has an empty value"]),
        (["report", "matrix", "--format", "jsn"], 2, ["Did you mean 'json'?"]),
        (["report", "threads", "--reference", "shi2061"], 2, ["Did you mean 'shi2016'?"]),
        (["list", "--capabilities", "--against", "shi2016"], 2, ["gurari2021"]),
        (["list", "--against", "gurari2021"], 2, ["--capabilities"]),
        (["explain", "/fcn5"], 2, ["is not a cell"]),
        (["explain", "null:fast/fcn5"], 2, ["null has no mode 'fast'"]),
        (["explain", "null/fcn5", "--batch-size", "8-16"], 2, ["and these are 9"]),
        (["explain", "torch:*/fcn5"], 2, ["Only one cell can be explained at a time"]),
        (["explain", "null/fcn5", "--steps", "0"], 2, ["--steps"]),
        (["tune", "--framework", "null"], 2, ["Name the network"]),
        (["tune", "--network", "fcn5"], 2, ["Name the frameworks"]),
        (
            ["tune", "--network", "fcn5,lstm32", *NULL],
            2,
            ["Times of different work are not comparable"],
        ),
        (["tune", *TUNED_NULL, "--batch-sizes", "8,16"], 2, ["different work"]),
        (["tune", *TUNED_NULL, "--suite", "nosuch"], 2, ["nosuch"]),
        (["tune", *TUNED_NULL, "--threads", "1"], 2, ["There is only one configuration to try"]),
        (["tune", *TUNED_NULL, "--write", "tuned.txt"], 2, ["Name it FILE.sh"]),
        (["tune", *TUNED_NULL, "--write", "no/a.sh"], 2, ["no folder"]),
    ],
)
def test_other_wrong_words(call, words, code, parts):
    line = refusal(call, *words, code=code)
    assert all(part in line for part in parts), line
    assert not list(Path().glob("*.sqlite"))


def test_output_in_another_encoding_is_output(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "dlbench.suites", "report", "matrix", "--reference", "shi2016"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"resnet50" in done.stdout
    assert done.stderr == b""


def test_a_closed_output_is_one_line(tmp_path):
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -m dlbench.suites list >&-', sys.executable],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dlbench: Standard output is closed")
    assert len(done.stderr.splitlines()) == 1


def test_a_python_that_is_no_interpreter_is_refused(call, tmp_path):
    path = script(
        tmp_path / "python", "#!/bin/sh\necho Unknown option: -I >&2\nexit 2\n"
    )  # as Python 2 does
    line = refusal(
        call, "run", "quick", *QUICKLY, "--no-ceilings", "--python", f"null={path}", code=3
    )
    assert f"{path} is not a Python interpreter that starts" in line
    assert not Path("dlbench.sqlite").exists()


def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(call):
    Store.open("damaged.sqlite").close()
    content = Path("damaged.sqlite").read_bytes()
    Path("damaged.sqlite").write_bytes(content[:100] + b"\xaa" * (len(content) - 100))
    Path("notes.sqlite").write_text("these are my notes, not a database")
    for name, part in (("damaged.sqlite", "damaged"), ("notes.sqlite", "is not a database")):
        before = Path(name).read_bytes()
        line = refusal(call, "run", "quick", *QUICKLY, "--store", name, code=4)
        assert part in line
        assert name in line
        assert Path(name).read_bytes() == before


def test_a_store_that_is_empty_has_no_history(call):
    Store.open("empty.sqlite").close()
    assert "holds no measured run yet" in refusal(call, "history", "--store", "empty.sqlite")


@pytest.mark.parametrize(
    "store", ["notes.txt/results.sqlite", "/proc/results.sqlite", "nosuch://host/base"]
)
def test_a_store_that_cannot_be_written_is_refused(call, store):
    Path("notes.txt").write_text("notes")
    assert "store" in refusal(call, "run", "quick", *QUICKLY, "--store", store, code=4)
    assert Path("notes.txt").read_text() == "notes"


def test_a_home_that_cannot_be_written_is_refused(call, monkeypatch):
    Path("notes.txt").write_text("notes")
    monkeypatch.setenv("DLBENCH_HOME", "notes.txt")
    code, _, errors = call("run", "quick", *QUICKLY)
    assert code == 3
    assert "Set DLBENCH_HOME" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    code, _, errors = call("env", "build", "mxnet")
    assert code == 3
    assert "dlbench: " in errors.splitlines()[-1]
    assert Path("notes.txt").read_text() == "notes"
    assert call("list")[0] == 0


def test_the_documented_codes_are_those_of_the_errors():
    folder = Path(cli.__file__).resolve().parent
    section = (folder / "docs/reference/exit-codes.md").read_text()
    rows = re.findall(r"^\| (\d[\d, ]*) \|", section, flags=re.MULTILINE)
    documented = {int(number) for row in rows for number in row.split(", ")}
    of_errors = {
        error.exit_code
        for error in (
            UsageError,
            FrameworkEnvironmentError,
            StoreError,
            Interrupted,
            Terminated,
            HungUp,
        )
    }
    of_results = {
        value
        for name, value in vars(exit_codes).items()
        if name.isupper() and isinstance(value, int)
    }
    assert documented == {0} | of_errors | of_results
