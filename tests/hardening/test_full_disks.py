"""Every command that writes, on a disk that is full or read-only: one line, a documented code,
nothing half-written.

Root's right to mount is needed.
"""

import ctypes
import json
import lzma
import os
import shutil
import sqlite3
import traceback
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import fork_command, share_digests, suite_of_null

from dlbench.reports.results.storage.store import Store
from dlbench.suites.commands import compare, plan, report, run  # noqa: F401 - loaded once, for all the forks
from dlbench.suites.fleet import node  # noqa: F401 - as above

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NAMESPACE = 0x00020000
_READ_ONLY, _REMOUNT, _PRIVATE, _ALL_BELOW = 1, 32, 1 << 18, 1 << 14
MEGABYTE = 1 << 20
KEPT = Path(__file__).parents[1] / "goldens"
BRIEF = {"warmup_steps": 1, "steps": 3, "seconds": 0.01, "launches": 2}
COMMANDS = {
    "a run": "run mine.toml --store new.sqlite",
    "a copy": "store copy cpu.sqlite new.sqlite",
    "an import": "import foreign-a1.json --store new.sqlite",
    "reports of a comparison": "compare 20261122T140656-32ed51 --store gates.sqlite "
    "--write r.md --write r.json --write r.xml --write r.csv",
    "a picture": "report progress --store cpu.sqlite --plot drawn.svg",
    ("two sides"): (
        "compare --now --suite mine.toml --same --frameworks null --pairs 3 --store new.sqlite "
        "--write r.md"
    ),
    "a list": "list",
    "a report": "report matrix --store gates.sqlite",
    "a plan": "plan mine.toml --store gates.sqlite",
    "a build": "env build mxnet",
}
MORE = (0, 4096, 16_384, 65_536, 131_072, 200_000, 400_000)


def mount(target: Path | str, kind: str, flags: int, options: str = "") -> None:
    if _LIBC.mount(b"none", str(target).encode(), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")


def on_own_disk(folder: Path, free: int | None, action: Callable[[], Any]) -> Any:
    """Return what an action returns that sees a disk of 8 MB at ``folder`` with so much room, or
    one to be read only.

    It is carried out in a fork, which alone sees that disk, and must return what JSON knows; skips
    where none can be mounted. The disk holds a suite, two stores and a file of pytest-benchmark.
    """
    answer = folder.parent / "answer.json"
    child = os.fork()
    if child == 0:
        try:
            if _LIBC.unshare(_NEW_NAMESPACE):
                raise OSError(ctypes.get_errno(), "unshare")
            mount("/", "", _PRIVATE | _ALL_BELOW)
            mount(folder, "tmpfs", 0, f"size={8 * MEGABYTE}")
        except OSError as error:
            answer.write_text(json.dumps({"skipped": str(error)}))
            os._exit(0)
        try:
            (folder / "mine.toml").write_text(suite_of_null(step_seconds=0.0005, protocol=BRIEF))
            shutil.copy(KEPT / "inputs" / "foreign-a1.json", folder)
            for name in ("gates.sqlite", "cpu.sqlite"):
                (folder / name).write_bytes(
                    lzma.decompress((KEPT / "stores" / f"{name}.xz").read_bytes())
                )
            (folder / "home" / "tmp").mkdir(parents=True)
            share_digests(folder / "home")
            mount(folder, "", _REMOUNT | _READ_ONLY) if free is None else fill(folder, free)
            answer.write_text(json.dumps({"answer": action()}))
        except BaseException:
            answer.write_text(json.dumps({"failed": traceback.format_exc()}))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    content = json.loads(answer.read_text())
    if "skipped" in content:
        pytest.skip(f"no disk can be mounted here: {content['skipped']}")
    assert "failed" not in content, content["failed"]
    return content["answer"]


def fill(folder: Path, free: int) -> None:
    """Leave so many bytes of the disk free."""
    with (folder / "filler").open("wb", buffering=0) as file:
        room = os.statvfs(folder)
        remaining = room.f_bavail * room.f_bsize - free
        while remaining > 0:
            remaining -= file.write(b"\0" * min(remaining, MEGABYTE))


def carry_out(folder: Path, output: Path, *words: str) -> tuple[int, str]:
    """Run a command in a folder that holds its home and temporary files too: exit code, and what it
    complains of."""
    _, status = os.waitpid(fork_command(folder, output, *words), 0)
    return os.waitstatus_to_exitcode(status), (output / "err").read_text()


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


def give(folder: Path, output: Path, words: str) -> dict[str, Any]:
    """Run a command; return how it ended and what it left."""
    names_before = {path.name for path in folder.iterdir()}
    code, printed = carry_out(folder, output, *words.split())
    if "filler" in names_before:
        (folder / "filler").unlink()
    new_files = [
        path for path in folder.iterdir() if path.is_file() and path.name not in names_before
    ]
    unfinished = [
        path.name
        for path in new_files
        if not path.name.endswith(("-wal", "-shm", "-journal")) and not whole(path)
    ]
    with Store.open(folder / "gates.sqlite", create=False) as store:
        has_records = len(store.records()) > 0
    temporary = [
        path.name
        for path in folder.rglob("*")
        if path.suffix == ".part" or path.name.startswith("dlbench-")
    ]
    return {
        "code": code,
        "said": printed,
        "left": unfinished,
        "kept": has_records,
        "temporary": temporary,
    }


@pytest.fixture
def disk(tmp_path):
    for name in ("disk", "output"):
        (tmp_path / name).mkdir()
    return tmp_path / "disk"


@pytest.mark.parametrize(
    "free",
    [None, 40_960, *(pytest.param(size, marks=pytest.mark.slow) for size in MORE)],
    ids=lambda free: "read-only" if free is None else f"{free} bytes",
)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_takes_no_more_costs_one_line_and_leaves_nothing_half_written(disk, name, free):
    done = on_own_disk(disk, free, lambda: give(disk, disk.parent / "output", COMMANDS[name]))
    assert "Traceback" not in done["said"]
    assert done["code"] in range(7), done["said"]
    if done["code"] in (2, 3, 4):
        lines = [line for line in done["said"].splitlines() if line.startswith("dlbench: ")]
        assert lines == done["said"].splitlines()[-1:]
    assert (done["left"], done["kept"], done["temporary"]) == ([], True, [])


@pytest.mark.parametrize(
    "words", [("report", "matrix"), ("report", "matrix", "--json"), ("export",), ("history",)]
)
def test_output_onto_a_full_disk_is_an_error(disk, words):
    def give_full() -> list[Any]:
        (disk / "err").symlink_to(disk.parent / "err")
        return [*carry_out(disk, disk, *words, "--store", "cpu.sqlite")]

    code, output = on_own_disk(disk, 0, give_full)
    assert code == 2
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith(
        "dlbench: the output cannot be written: No space left on device"
    )
