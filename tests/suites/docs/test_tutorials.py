"""The tutorials, carried out: their commands run as written, in one shell and an empty folder, and
what they print has the shape that the page shows."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from one_launch import find_framework_python

from dlbench.suites.run import quota

ROOT = Path(__file__).resolve().parents[3]
PAGES = {page.stem: page for page in sorted((ROOT / "suites/docs/tutorials").glob("*.md"))}
FAST_BLOCKS = {
    "a-gate-in-a-pull-request": 2,
    "a-step-of-your-own": 2,
    "first-matrix": 1,
    "threads-in-a-container": 1,
    "which-release-made-it-slower": 1,
}
"""The blocks at the start of a page that take a second or two. The others measure for half a minute
to two minutes on each page."""
FRAMEWORKS = {
    "first-matrix": ("jax", "onnx"),
    "threads-in-a-container": ("onnx",),
    "which-release-made-it-slower": ("onnx",),
    "serving-within-20-ms": ("openvino",),
}
EXIT_CODES = {
    ("a-gate-in-a-pull-request", "--write comment.md"): (1,),
    # On a noisy machine identical code may stay undecided.
    ("a-gate-in-a-pull-request", "git checkout"): (0, 6),
    ("which-release-made-it-slower", "dlbench bisect"): (1,),
}
VERDICTS = {
    "a-gate-in-a-pull-request": ("REGRESSION", "gate failed", "The difference lies in"),
    "which-release-made-it-slower": ("The first slower release is onnx-1.21.0", "MatMul"),
    "threads-in-a-container": ("SessionOptions.intra_op_num_threads = 1",),
}
UNDECIDED = 6
BUSY = "measuring anyway"
"""In the progress where other programs use the machine."""
LIMIT_SECONDS = 500
NOISE = ("~", "'", "(", "...", "launches of each would decide")
"""Starts of lines that depend on the noise of the machine, or stand for lines left out."""
RANKED = ("dlbench report fastest", "dlbench report serving")
"""The times decide their rows, so only lines without numbers are compared."""


class Block(NamedTuple):
    """Commands of a page, and the output that it shows of them."""

    commands: str
    output: str


def blocks_of(page: Path) -> list[Block]:
    """Return the commands of a page in order. A block of text that begins with a command is advice,
    not output."""
    blocks: list[Block] = []
    matches = re.findall(
        r"^```(console|text)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
    )
    for language, text in matches:
        if language == "console":
            blocks.append(Block(text, ""))
        elif not text.startswith("dlbench "):
            blocks[-1] = blocks[-1]._replace(output=blocks[-1].output + text)
    return blocks


def script_of(blocks: list[Block], folder: Path) -> str:
    """Return a shell script that keeps the output and the exit code of each block."""
    lines = []
    for index, block in enumerate(blocks):
        place = folder / str(index)
        lines.append(f"exec >{place}.out 2>{place}.err")
        lines.append(block.commands)
        lines.append(f"echo $? >{place}.code")
    return "\n".join(lines)


def label(line: str) -> str:
    """Return the first column of a table's row: the words before its first number."""
    words = line.split()
    first = re.sub(r"\d+(\.\d+)*", "#", words[0])
    before = itertools.takewhile(lambda word: not re.search(r"\d", word), words)
    return " ".join(before) or first


def shape(text: str, *, with_rows: bool, only_wide: bool) -> list[str]:
    """Return the lines without numbers as they are, and of the rows of a table the first column.

    Columns stand two spaces apart where there is room. Where ``only_wide`` asks for that, sentences
    with numbers are no rows.
    """
    lines = []
    for line in text.splitlines():
        words = line.strip().lstrip("*")
        if not words or words.startswith(NOISE):
            continue
        if not re.search(r"\d", words):
            lines.append(re.sub(r"[─\s]+", " ", words).strip())
        elif with_rows and (not only_wide or re.search(r"\S\s{2,}\S", words)):
            lines.append(label(words))
    return [line for line in lines if line]


def missing(documented: str, printed: str, *, with_rows: bool = True) -> Iterator[str]:
    """Yield the first line of the page that the command did not print in this order."""
    printed_lines = iter(shape(printed, with_rows=with_rows, only_wide=False))
    for line in shape(documented, with_rows=with_rows, only_wide=True):
        if line not in printed_lines:
            yield line
            return


def test_the_shape_of_an_output_is_compared_without_its_numbers():
    documented = "threads   1    2\n  jax jit   *0.1±3%   0.2\nUse\n...\n"
    assert not list(missing(documented, "threads  1  4\nmore\n  jax jit   0.5±9%   0.4\nUse\n"))
    assert list(missing(documented, "threads  1  4\n  onnx graph   0.5±9%   0.4\nUse\n")) == [
        "jax jit"
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_is_short_and_shows_what_it_says(name):
    text = PAGES[name].read_text()
    assert len(text.split()) <= 550
    blocks = blocks_of(PAGES[name])
    assert any(block.output for block in blocks)
    assert "## Where to go next" in text


@pytest.mark.parametrize("name", FAST_BLOCKS)
def test_a_tutorial_begins_as_written(name, tmp_path):
    carry_out(name, blocks_of(PAGES[name])[: FAST_BLOCKS[name]], tmp_path)


@pytest.mark.slow
@pytest.mark.framework
@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_runs_as_written(name, tmp_path):
    for framework in FRAMEWORKS.get(name, ()):
        find_framework_python(framework)
    if name == "threads-in-a-container" and isinstance(quota.parents_of_launch_groups(), str):
        pytest.skip(quota.parents_of_launch_groups())
    printed, busy = carry_out(name, blocks_of(PAGES[name]), tmp_path)
    lost = [verdict for verdict in VERDICTS.get(name, ()) if verdict not in printed]
    if lost and busy:
        pytest.skip(f"other programs used the machine: not printed: {lost}")
    assert not lost, printed


def carry_out(name: str, blocks: list[Block], tmp_path: Path) -> tuple[str, bool]:
    """Run these blocks of a page, and hold each to its exit code and shape. Return what all printed,
    on one line, and whether other programs used the machine.

    Skip the test where a command is undecided because the machine was busy.
    """
    empty, output = tmp_path / "empty", tmp_path / "output"
    empty.mkdir()
    output.mkdir()
    inherited = {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith(("DLBENCH_", "PYTEST_", "GIT_"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    locks = {"DLBENCH_LOCK_FOLDER": os.environ["DLBENCH_LOCK_FOLDER"]}
    subprocess.run(
        ["bash", "-c", script_of(blocks, output)],
        cwd=empty,
        env={**inherited, **locks, "PATH": path, "COLUMNS": "80"},
        timeout=LIMIT_SECONDS,
        check=False,
    )
    everything, busy = "", False
    for index, block in enumerate(blocks):
        printed = (output / f"{index}.out").read_text()
        errors = (output / f"{index}.err").read_text()
        code = int((output / f"{index}.code").read_text())
        allowed = exit_codes_of(name, block)
        if code == UNDECIDED and code not in allowed and BUSY in errors:
            pytest.skip("other programs used the machine, so a verdict is undecided")
        assert code in allowed, f"{block.commands}{printed}{errors}"
        with_rows = not any(command in block.commands for command in RANKED)
        lost = list(missing(block.output, printed, with_rows=with_rows))
        assert not lost, f"{lost}\n{block.commands}{printed}"
        everything += printed
        busy = busy or BUSY in errors
    return " ".join(everything.split()), busy


def exit_codes_of(name: str, block: Block) -> tuple[int, ...]:
    """Return the exit codes that a block of a page may end with."""
    for (page, words), codes in EXIT_CODES.items():
        if page == name and words in block.commands:
            return codes
    return (0,)
