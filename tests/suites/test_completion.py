"""Completion in bash, zsh and fish: what the shells ask for, and their scripts."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlbench.suites import cli

HOW_TO = Path(cli.__file__).parent / "docs" / "how-to" / "shell-completion.md"

Completed = Callable[[str, str], list[str]]


@pytest.fixture
def dlbench(tmp_path: Path) -> Path:
    """Return the command, in a folder of its own."""
    command = tmp_path / "bin" / "dlbench"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nimport sys\nfrom dlbench.suites.__main__ import main\nmain()\n"
    )
    command.chmod(0o755)
    return command


@pytest.fixture
def completed(
    command: Callable[..., tuple[Any, str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], list[str]]:
    """Return a function of a shell and a line: the completions of the line's last word."""

    def complete(shell: str, line: str) -> list[str]:
        asking = {
            "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
            "zsh": {"_TYPER_COMPLETE_ARGS": line},
            "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }[shell]
        for name, value in {**asking, "_DLBENCH_COMPLETE": f"complete_{shell}"}.items():
            monkeypatch.setenv(name, value)
        code, output, complaints = command()
        assert (code, complaints) == (0, "")
        if shell == "zsh":
            return re.findall(r'^.*?"([^":]+)"', output, re.MULTILINE)
        return [row.split("\t")[0] for row in output.splitlines()]

    return complete


@pytest.mark.parametrize(
    ("shell", "line", "expected"),
    [
        ("bash", "dlbench ga", ["gate"]),
        ("bash", "dlbench run qu", ["quick"]),
        ("zsh", "dlbench run quick --frameworks torch,ja", ["torch,jax"]),
        ("fish", "dlbench plan quick --networks lstm", ["lstm32", "lstm64"]),
        ("fish", "dlbench run quick --precisions float32,b", ["float32,bfloat16"]),
        ("bash", "dlbench gate quick --no-p", ["--no-profile"]),
        ("bash", "dlbench run quick --frameworks torch,torch", ["torch,torch7"]),
    ],
)
def test_a_shell_completes(
    completed: Completed, shell: str, line: str, expected: list[str]
) -> None:
    assert completed(shell, line) == expected


def test_a_suite_of_your_own_is_completed(completed: Completed) -> None:
    Path("mine.toml").touch()
    assert completed("bash", "dlbench plan mi") == ["mine.toml"]


def test_the_script_that_is_installed_completes_in_bash(dlbench: Path, tmp_path: Path) -> None:
    variables = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{dlbench.parent}:{os.environ['PATH']}",
    }
    script = (
        "dlbench --install-completion && source ~/.bashrc && "
        "COMP_WORDS=(dlbench report thr) COMP_CWORD=2 && _dlbench_completion dlbench && "
        'echo "completed: ${COMPREPLY[*]}"'
    )
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", script], env=variables, capture_output=True, text=True
    )
    assert "completed: threads" in done.stdout, (done.stdout, done.stderr)


def test_the_how_to_shows_what_is_completed(completed: Completed) -> None:
    examples = re.findall(r"^(dlbench \w+ .+?) {3,}(.+)$", HOW_TO.read_text(), re.MULTILINE)
    assert len(examples) == 3
    for line, expected in examples:
        assert completed("bash", line) == expected.split()
