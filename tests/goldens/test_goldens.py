"""Compare what each report prints for fixed stores, as JSON and in an 80-column terminal, with its recorded output.

After an intended change, record the outputs again and read the difference:

    DLBENCH_RECORD=1 .venv/bin/python -m pytest tests/goldens
    git diff tests/goldens/outputs
"""

import json
import lzma
import os
import shlex
import sys
from pathlib import Path

import pytest
from golden_commands import COMMANDS

from dlbench.suites.__main__ import main

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs"
EXAMPLES = HERE.parents[1] / "reports" / "examples"


def one_line_each(text: str) -> str:
    """Return a JSON document with a line for each element of its lists at the top."""
    content = json.loads(text)
    lists = content if isinstance(content, dict) else {"": content}
    lines = []
    for name, value in lists.items():
        elements = value if isinstance(value, list) else [value]
        lines += [f"{name}: {json.dumps(element)}" for element in elements]
    return "\n".join(lines) + "\n"


def unpack(line: str, folder: Path) -> None:
    """Put the stores that a command names into a folder."""
    for word in shlex.split(line):
        if word.endswith(".sqlite"):
            kept, example = HERE / "stores" / f"{word}.xz", EXAMPLES / word.removesuffix(".sqlite") / "store.sqlite.xz"
            packed = kept if kept.exists() else example
            (folder / word).write_bytes(lzma.decompress(packed.read_bytes()))


@pytest.mark.parametrize("name", COMMANDS)
def test_output(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    unpack(COMMANDS[name], tmp_path)
    monkeypatch.chdir(tmp_path)
    for variable, value in {"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "argv", ["dlbench", *shlex.split(COMMANDS[name])])
    with pytest.raises(SystemExit) as end:
        main()
    printed, complaints = capsys.readouterr()
    text = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    if text.startswith(("{", "[")):
        text = one_line_each(text)
    assert end.value.code in (0, None, 1), complaints
    recorded = OUTPUTS / f"{name}.txt"
    if os.environ.get("DLBENCH_RECORD"):
        recorded.write_text(text, encoding="utf-8")
    assert text.splitlines() == recorded.read_text(encoding="utf-8").splitlines()


def test_every_recorded_output_has_a_command() -> None:
    assert {path.stem for path in OUTPUTS.iterdir()} == set(COMMANDS)
