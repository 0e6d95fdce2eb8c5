"""Every command that writes, on a disk that is full or read-only: one line, a documented code, nothing half-written."""

import json
import lzma
import shutil
import sqlite3
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
import small_disks
from processes import suite_of_null

from dlbench.reports.storage.store import Store

KEPT = Path(__file__).parents[1] / "goldens"
BRIEF = {"warmup_steps": 1, "steps": 3, "seconds": 0.01, "launches": 2}
COMMANDS = {
    "a run": ("run", "mine.toml", "--store", "new.sqlite"),
    "a copy": ("store", "copy", "cpu.sqlite", "new.sqlite"),
    "an import": ("import", "foreign-a1.json", "--store", "new.sqlite"),
    "reports of a comparison": (
        *("compare", "20261122T140656-32ed51", "--store", "gates.sqlite"),
        *("--write", "r.md", "--write", "r.json", "--write", "r.xml", "--write", "r.csv"),
    ),
    "a picture": ("report", "progress", "--store", "cpu.sqlite", "--plot", "drawn.svg"),
    "two sides": (
        *(
            "compare",
            "--now",
            "--suite",
            "mine.toml",
            "--same",
            "--frameworks",
            "null",
            "--pairs",
            "3",
            "--store",
            "new.sqlite",
        ),
        *("--write", "r.md"),
    ),
    "a list": ("list",),
    "a report": ("report", "matrix", "--store", "gates.sqlite"),
    "a plan": ("plan", "mine.toml", "--store", "gates.sqlite"),
    "a build": ("env", "build", "mxnet"),
}
FREE = (40_960,)
MORE = (0, 4096, 16_384, 65_536, 131_072, 200_000, 400_000)


def prepare(folder: Path) -> None:
    (folder / "mine.toml").write_text(suite_of_null(step_seconds=0.0005, protocol=BRIEF))
    shutil.copy(KEPT / "inputs" / "foreign-a1.json", folder)
    for name in ("gates.sqlite", "cpu.sqlite"):
        (folder / name).write_bytes(lzma.decompress((KEPT / "stores" / f"{name}.xz").read_bytes()))


def whole(path: Path) -> bool:
    """Tell whether a file that a command made is as a whole one is."""
    if ".sqlite" in path.name:
        connection = sqlite3.connect(path)
        verdict = connection.execute("PRAGMA integrity_check").fetchone()
        connection.close()
        return bool(verdict == ("ok",))
    text = path.read_text()
    if path.suffix == ".json":
        json.loads(text)
    elif path.suffix in (".xml", ".svg"):
        xml.etree.ElementTree.fromstring(text)
    return text.endswith("\n")


def give(folder: Path, output: Path, words: tuple[str, ...], free: int | None) -> dict[str, Any]:
    """Run a command on a disk with so much room, or on one that is read-only; tell how it ended and what it left."""
    prepare(folder)
    given = {path.name for path in folder.iterdir()}
    (folder / "home" / "tmp").mkdir(parents=True)
    small_disks.make_read_only(folder) if free is None else small_disks.fill(folder, free)
    code, said = small_disks.carry_out(folder, output, words)
    if free is not None:
        (folder / "filler").unlink()
    made = [path for path in folder.iterdir() if path.is_file() and path.name not in given]
    left = [path.name for path in made if not path.name.endswith(("-wal", "-shm", "-journal")) and not whole(path)]
    with Store.open(folder / "gates.sqlite", create=False) as store:
        kept = len(store.records()) > 0
    temporary = [path.name for path in folder.rglob("*") if path.suffix == ".part" or path.name.startswith("dlbench-")]
    return {"code": code, "said": said, "left": left, "kept": kept, "temporary": temporary}


def name_of(free: int | None) -> str:
    return "read-only" if free is None else f"{free} bytes"


@pytest.mark.parametrize(
    "free", [None, *FREE, *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)], ids=name_of
)
@pytest.mark.parametrize("what", list(COMMANDS))
def test_a_disk_that_takes_no_more_costs_one_line_and_leaves_nothing_half_written(tmp_path, what, free):
    folder, output = tmp_path / "disk", tmp_path / "output"
    folder.mkdir()
    output.mkdir()
    told = small_disks.on_own_disk(folder, lambda: give(folder, output, COMMANDS[what], free))
    assert "Traceback" not in told["said"]
    assert told["code"] in range(7), told["said"]
    if told["code"] in (2, 3, 4):
        lines = [line for line in told["said"].splitlines() if line.startswith("dlbench: ")]
        assert told["said"].splitlines()[-1] == lines[-1]
        assert len(lines) == 1
    assert told["left"] == []
    assert told["kept"]
    assert told["temporary"] == []


@pytest.mark.parametrize("words", [("report", "matrix"), ("report", "matrix", "--json"), ("export",), ("history",)])
def test_output_onto_a_full_disk_is_told(tmp_path, words):
    folder = tmp_path / "disk"
    folder.mkdir()

    def give_full() -> list[Any]:
        prepare(folder)
        (folder / "home" / "tmp").mkdir(parents=True)
        (folder / "err").symlink_to(tmp_path / "err")
        small_disks.fill(folder, 0)
        return [*small_disks.carry_out(folder, folder, (*words, "--store", "cpu.sqlite"))]

    code, said = small_disks.on_own_disk(folder, give_full)
    assert code == 2
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("dlbench: the output cannot be written: No space left on device")
