"""The wheel, built of an sdist: its files are those that dlbench needs, and they work."""

import email
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from processes import variables_of_command

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("adapters", "hardware_probe", "reports", "suites")
FOR_CLONES = ("*.md", "suites/requirements.lock", "reports/docs/reference/json-keys.toml")
"""Files of the rooms that an installed dlbench has no use for."""
DEMO = "reports/examples/2026-12-01-quick/store.sqlite.xz"


def tracked() -> list[PurePosixPath]:
    """Return the files of the tree that are, or would be, under version control."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = map(PurePosixPath, listed.stdout.splitlines())
    return [path for path in paths if (ROOT / path).exists()]


def needed_files() -> set[str]:
    """Return the files of the rooms that an installed dlbench needs, by their paths."""
    needed = {DEMO}
    for path in tracked():
        is_example = path.parts[:2] == ("reports", "examples")
        for_clones = any(path.match(pattern) for pattern in FOR_CLONES)
        if path.parts[0] in ROOMS and not is_example and not for_clones:
            needed.add(str(path))
    return needed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist of a copy of the tree, and a wheel of the sdist, as pip does."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone, and git says which of its files are to be packaged")
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"
    for path in tracked():
        if path.parts[0] not in ("tests", ".git"):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, tree / path, follow_symlinks=False)
    sdist = _build("sdist", tree, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return _build("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


def _build(kind: str, tree: Path, folder: Path) -> Path:
    """Build a package of a tree by this environment's setuptools, and return its path."""
    program = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def test_the_wheel_has_every_file_that_is_needed_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("dlbench/")]
    packaged = {name.removeprefix("dlbench/") for name in names}
    packaged -= {path.name for path in (ROOT / ".packages" / "dlbench").iterdir() if path.is_file()}
    needed = needed_files()
    assert needed - packaged == set()
    assert packaged - needed == set()


def test_the_wheel_describes_the_project(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# dlbench")
    assert "Programming Language :: Python :: 3.13" in metadata.get_all("Classifier")
    assert "pytorch" in metadata["Keywords"]


STEPS = {
    ("demo", "--no-page"): "clearly the fastest: tensorflow function in 3",
    ("plan", "quick"): "2 launches of each",
    ("run", "quick", "--frameworks", "null", "--threads", "1", "--launches", "1"): "null",
}
"""First steps of a visitor, and a part of what each prints."""
FURTHER_STEPS = {
    ("demo",): "Written: dlbench-demo.html",
    ("list",): "inference-quick",
    ("new", "step", "train_step.py"): "",
    ("try", "train_step.py"): "",
    ("run", "quick", "--frameworks", "numpy", "--networks", "lstm32", "--threads", "2"): "plain",
    ("report", "page"): "",
}


def take(
    steps: dict[tuple[str, ...], str], python: str, folder: Path, variables: dict[str, str]
) -> None:
    """Take steps in a folder, with the dlbench of this Python."""
    folder.mkdir(exist_ok=True)
    for words, expected in steps.items():
        command = [python, "-m", "dlbench", *words]
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        assert expected in done.stdout, (words, done.stdout)


def test_the_files_of_the_wheel_take_a_visitors_first_steps(wheel: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    variables = variables_of_command(tmp_path / "home", PYTHONPATH=str(unpacked))
    program = "import dlbench; print(dlbench.__file__)"
    output = subprocess.check_output([sys.executable, "-c", program], env=variables, text=True)
    assert Path(output.strip()).is_relative_to(unpacked)
    take(STEPS, sys.executable, tmp_path / "work", variables)


@pytest.mark.slow  # downloads about 100 MB, and takes most of a minute
def test_an_installed_wheel_takes_a_visitors_first_steps(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True)
    variables = variables_of_command(tmp_path / "home")
    take(STEPS | FURTHER_STEPS, python, tmp_path / "work", variables)
