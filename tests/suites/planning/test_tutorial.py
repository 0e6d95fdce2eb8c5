"""adapters/docs/how-to/add-a-framework.md, carried out: its files written as they stand there, its
commands run as they stand there."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import PATIENCE, run_command, variables_of_command

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "adapters/docs/how-to/add-a-framework.md").read_text()
FILES = dict(
    re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
)


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory) -> Path:
    """Give a folder with the tutorial's files, and with littlenet packaged as the tutorial says."""
    folder = tmp_path_factory.mktemp("tutorial")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    _, words = command_of("python3 -m pip wheel")
    done = subprocess.run(
        [sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in (folder / "wheels").iterdir()] == [
        "littlenet-1.0-py3-none-any.whl"
    ]
    return folder


def command_of(start: str, folder: Path | None = None) -> tuple[dict[str, str], list[str]]:
    """Return the variables and words of the tutorial's command that holds this, with the paths
    filled in."""
    line = next(
        line
        for block in re.findall(r"^```console\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if start in line
    )
    words = line.replace("path/to/littlenet", "littlenet").replace("$PWD", str(folder)).split()
    variables = dict(
        word.split("=", 1)
        for word in itertools.takewhile(lambda word: re.match("[A-Z_]+=", word), words)
    )
    return variables, words[len(variables) :]


@pytest.fixture(scope="module")
def built(tutorial) -> Path:
    """Give the folder once its environment is built by the tutorial's command."""
    variables, words = command_of("dlbench env build", tutorial)
    # Where the packages of other people are found is this machine's affair, and stays.
    variables["PIP_FIND_LINKS"] += f" {os.environ.get('PIP_FIND_LINKS', '')}"
    done = run_command(tutorial, *words[1:], **variables)
    assert done.returncode == 0, done.stderr
    assert "Littlenet: ready" in done.stderr
    return tutorial


@pytest.mark.framework
@pytest.mark.slow
def test_it_runs_as_the_tutorial_says(built):
    _, words = command_of("dlbench run quick")
    done = run_command(
        built, *words[1:], "--launches", "1", "--steps", "3", "--no-ceilings", "--no-wait-for-quiet"
    )
    assert done.returncode == 0, done.stderr
    fcn5, lstm32 = (
        line for line in done.stdout.splitlines() if line.startswith("  littlenet plain")
    )
    assert re.search(r"\d\.\d", fcn5), done.stdout
    assert "n/a" in lstm32
    assert "no network of the family recurrent: this adapter builds feedforward" in " ".join(
        done.stdout.split()
    )


@pytest.mark.framework
@pytest.mark.slow
def test_it_conforms_as_the_tutorial_says(built):
    variables, (_, *words) = command_of("DLBENCH_ADAPTERS=littlenet=path/to/littlenet .venv")
    (name,) = variables
    framework, _, folder = variables[name].partition("=")
    assert (name, framework) == ("DLBENCH_ADAPTERS", "littlenet")
    home = variables_of_command(built / "home")
    done = subprocess.run(
        [sys.executable, *words, "-p", "no:cacheprovider", "-rs"],
        cwd=ROOT,
        env={**home, name: f"{framework}={built / folder}"},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(re.search(r"(\d+) passed", done.stdout).group(1))
    assert passed >= 10
