"""Compare what each report prints for fixed stores, as JSON and in an 80-column terminal, with its
recorded output.

After an intended change, record the outputs again and read the difference:

    DLBENCH_RECORD=1 .venv/bin/python -m pytest tests/goldens
    git diff tests/goldens/outputs
"""

import json
import lzma
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_reference import documented_keys

from dlbench.suites.__main__ import main

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs"
EXAMPLES = HERE.parents[1] / "reports" / "examples"
GATE, FIRST, SECOND = "20261122T140656-32ed51", "20261122T140431-a3f7a8", "20261122T141202-886d39"


def both(name: str, line: str) -> dict[str, str]:
    """Return a report's command for the terminal and as JSON."""
    return {f"{name}-terminal": line, f"{name}-json": f"{line} --json"}


COMMANDS = {
    **{
        f"matrix-cpu-{form}": f"report matrix --store cpu.sqlite --format {form}"
        for form in ("terminal", "markdown", "latex", "csv")
    },
    "matrix-cpu-json": (
        "report matrix --store cpu.sqlite --networks fcn5 --frameworks torch --threads 1 --json"
    ),
    "matrix-faults-terminal": "report matrix --store faults.sqlite",
    "matrix-gpu-terminal": "report matrix --store gpu.sqlite",
    "matrix-workers-terminal": "report matrix --store workers.sqlite",
    "threads-cpu-terminal": "report threads --store cpu.sqlite",
    "threads-cpu-json": (
        "report threads --store cpu.sqlite --networks fcn5 --frameworks torch --json"
    ),
    **both("scaling-cpu", "report scaling --store cpu.sqlite"),
    **both("figure1-cpu", "report figure1 --store cpu.sqlite --networks fcn5 --frameworks torch"),
    **both("tables-cpu", "report tables --store cpu.sqlite"),
    **both("ceilings-gpu", "report ceilings --store gpu.sqlite"),
    **both("phases", "report phases --store launches.sqlite"),
    **both("costs-cpu", "report costs --store cpu.sqlite --networks fcn5"),
    "matrix-memory-terminal": "report matrix --store cpu.sqlite --networks fcn5 --quantity memory",
    **both("progress-cpu", "report progress --store cpu.sqlite --networks fcn5 --frameworks torch"),
    **both("against-cpu", "report matrix --store cpu.sqlite --against shi2016"),
    **both("fastest-cpu", "report fastest --store cpu.sqlite --networks fcn5"),
    **both("frameworks-cpu", "report frameworks --store cpu.sqlite"),
    **both("machines", "report machines --store cpu.sqlite --store elsewhere.sqlite"),
    **both("tuning", "report tuning --store tuning.sqlite"),
    **both("fleet", "report fleet --store 2026-11-23-two-nodes-of-a-cluster.sqlite"),
    **both("recurrent", "report recurrent --store 2026-11-23-recurrent-cells-and-a-text.sqlite"),
    **both("claims-cpu", "report claims --store cpu.sqlite"),
    **both("rnn", "report rnn --reference brandfonbrener2017"),
    **both("history-nights", "history --store nights.sqlite"),
    **both("compare-gate", f"compare {GATE} --store gates.sqlite"),
    **both("compare-runs", f"compare {FIRST} {SECOND} --store cpu.sqlite"),
    "export-cpu": f"export --store cpu.sqlite --run {FIRST}",
}


def one_line_each(text: str) -> str:
    """Return a JSON document with a line for each element of its lists at the top."""
    content = json.loads(text)
    lists = content if isinstance(content, dict) else {"": content}
    lines = []
    for name, value in lists.items():
        elements = value if isinstance(value, list) else [value]
        lines += [f"{name}: {json.dumps(element)}" for element in elements]
    return "\n".join(lines) + "\n"


def rounded(text: str) -> list[str]:
    """Return the lines with long numbers at nine digits: libraries of linear algebra differ in the
    last ones."""
    return re.sub(
        r"\d+\.\d{8,}(e-?\d+)?", lambda match: f"{float(match[0]):.9g}", text
    ).splitlines()


def unpack(line: str, folder: Path) -> None:
    """Put the stores that a command names into a folder."""
    for word in shlex.split(line):
        if word.endswith(".sqlite"):
            golden, example = (
                HERE / "stores" / f"{word}.xz",
                EXAMPLES / word.removesuffix(".sqlite") / "store.sqlite.xz",
            )
            packed = golden if golden.exists() else example
            (folder / word).write_bytes(lzma.decompress(packed.read_bytes()))


@pytest.mark.parametrize("name", COMMANDS)
def test_output(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(COMMANDS[name], tmp_path)
    monkeypatch.chdir(tmp_path)
    for variable, value in {
        "COLUMNS": "80",
        "LINES": "40",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "TZ": "UTC",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "argv", ["dlbench", *shlex.split(COMMANDS[name])])
    with pytest.raises(SystemExit) as end:
        main()
    printed, complaints = capsys.readouterr()
    text = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    if text.startswith(("{", "[")):
        text = one_line_each(text)
    assert end.value.code in (0, None, 1, 6), (
        complaints
    )  # 6: a comparison without a cell measured on both sides
    recorded = OUTPUTS / f"{name}.txt"
    if os.environ.get("DLBENCH_RECORD"):
        recorded.write_text(text, encoding="utf-8")
    assert rounded(text) == rounded(recorded.read_text(encoding="utf-8"))


UNDESCRIBED = {
    *(
        "stands",
        "ceiling_now",
        "not_compared",
        "common",
        "operator_start_seconds",
        "operator_finish_seconds",
    ),
    "counts",
    "findings",
}
"""Keys whose own keys are names or numbers, or are those of another report."""


def keys_of(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        yield from content
        yield from (
            key
            for name, item in content.items()
            if name not in UNDESCRIBED
            for key in keys_of(item)
        )
    elif isinstance(content, list):
        yield from (key for item in content for key in keys_of(item))


@pytest.mark.parametrize(
    "name",
    [
        command
        for command in COMMANDS
        if command.endswith("-json") and not command.startswith(("tables", "phases"))
    ],
)
def test_the_documentation_describes_each_key(name: str) -> None:
    described = documented_keys(name.partition("-")[0])
    for line in (OUTPUTS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(": ")
        assert {*keys_of({key: json.loads(value)})} <= described


def test_every_recorded_output_has_a_command() -> None:
    assert {path.stem for path in OUTPUTS.iterdir()} == set(COMMANDS)
