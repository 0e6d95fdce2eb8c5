"""What the guides (the READMEs and the documentation) show is what the program takes."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from dlbench.suites import cli
from dlbench.suites.planning import framework
from dlbench.suites.planning.suite import load

ROOT = Path(cli.__file__).resolve().parents[1]
GUIDES = [
    ROOT / "README.md",
    *(
        ROOT / room / "README.md"
        for room in ("suites", "adapters", "hardware_probe", "reports", "tests")
    ),
    ROOT / "suites/definitions/README.md",
    ROOT / "suites/fleet/README.md",
    ROOT / "reports/examples/README.md",
    *sorted(ROOT.glob("*/docs/**/*.md")),
]
MADE_THERE = ("NAME", "COMMAND", "slowest", "littlenet", "my_framework")
"""What a guide leaves to be filled in, or makes itself."""
STEPS = (
    *("train_step.py", "before/train_step.py", "after/train_step.py"),
    *("variable.py", "call_1.py", "call_2.py"),
    *("answer.py", "matmul.py", "../base/train_step.py"),
)
"""Files of steps that commands of guides name."""


def shown(guide: Path) -> list[str]:
    """Return the command lines of a guide, without the remarks behind them."""
    text = guide.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(
        r"^    (?:\.venv/bin/|python3 suites/bootstrap\.py )?(?:dlbench|run) .*$",
        text,
        re.MULTILINE,
    )
    for block in re.findall(
        r"^```(?:console|sh|bash|text)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        lines += re.findall(r"^(?:\S+=\S+ )*(dlbench [a-z].*)$", block, re.MULTILINE)
    lines += re.findall(r"`(dlbench [a-z][^`\n]*)`", text)
    return [
        re.split(r"\s{3,}| > | \| ", line.strip().removeprefix("python3 suites/bootstrap.py "))[0]
        for line in lines
    ]


@cache
def app_of(word: str) -> Any:
    return typer.main.get_command(cli.build_app(word))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(ROOT)))
def test_every_command_of_a_guide_is_accepted(guide, tmp_path, monkeypatch):
    for name in STEPS:
        file = (tmp_path / "project" / name).resolve()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.chdir(tmp_path / "project")
    for line in shown(guide):
        monkeypatch.setattr(framework, "_added", {})
        words = shlex.split(line.removeprefix("dlbench "))
        if any(name in line for name in MADE_THERE):
            continue
        command = app_of(words[0])
        context = command.context_class(command, info_name="dlbench")
        options = {option for parameter in command.params for option in parameter.opts}
        if words[0] in options and words[0] != "--help":
            continue
        while words and hasattr(command, "commands") and words[0] != "--help":
            named_command = command.get_command(context, words[0])
            assert named_command is not None, f"{guide.name}: {line}"
            command, words = named_command, words[1:]
        if words and words != ["--help"]:
            command.make_context("dlbench", words, parent=context)


def test_the_suite_of_the_guide_is_one(tmp_path):
    guide = ROOT / "suites/docs/how-to/define-a-network.md"
    (text,) = re.findall(r"^```toml\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.toml").write_text(text)
    suite = load(str(tmp_path / "mine.toml"))
    assert (suite.name, list(suite.frameworks)) == ("mine", ["torch", "jax"])
    assert len(suite.its_networks) == 5
