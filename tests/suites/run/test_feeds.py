"""Files of feeds on the host: written once, the same numbers each time, and repaired before a run."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dlbench.adapters.launch.batches import CHECKED, TIMED
from dlbench.adapters.launch.feeds import Feed, path_of
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import FED
from dlbench.hardware_probe import probe
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run import feeds, weights

FEED = suite.load("feed")
NETWORK: Network = FEED.known["pictures"]
SIZE = 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of the files, which are written."""
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    found = feeds.checked(NETWORK, SIZE, lambda line: None)
    assert found is not None
    return found.folder


def test_both_files_have_the_mini_batches_that_would_be_drawn(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["b2.feed", "timed b2.feed"]
    for purpose in (TIMED, CHECKED):
        content = b"".join(Feed(NETWORK, SIZE, purpose).drawn())
        assert Path(path_of(str(folder), SIZE, purpose)).read_bytes() == content
    assert weights.megabytes() == 1
    found = feeds.checked(NETWORK, SIZE, lambda line: None)
    assert found is not None
    timed = Path(path_of(str(folder), SIZE, TIMED)).read_bytes()
    assert found.described == {
        "digest": hashlib.sha256(timed).hexdigest()[:16],
        "mini_batches": 64,
        "mini_batch_bytes": len(timed) // 64,
    }


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def changed(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\1\2\3\4")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "was cut or changed"),
        (changed, "was cut or changed"),
        (Path.unlink, "drawing mini-batches of pictures, once"),
    ],
)
def test_a_damaged_file_is_written_anew_and_said(folder: Path, damage: Callable[[Path], None], words: str) -> None:
    path = Path(path_of(str(folder), SIZE, TIMED))
    right = path.read_bytes()
    path.chmod(0o644)
    damage(path)
    said: list[str] = []
    assert feeds.checked(NETWORK, SIZE, said.append) is not None
    assert path.read_bytes() == right
    (line,) = said
    assert words in line
    assert str(path) in line


def test_where_no_file_can_be_written_it_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").touch()  # where a folder belongs
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    said: list[str] = []
    assert feeds.checked(NETWORK, SIZE, said.append) is None
    assert "are left out" in said[-1]


def test_files_are_for_the_cells_that_take_mini_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    choices = SuiteOverrides(frameworks="torch,null", batch_sizes=str(SIZE), threads="1")
    plan = expand(FEED, choices, Capacity(2, 2), 1)
    found = feeds.prepare(plan, probe(), lambda line: None)
    for cell in plan.cells:
        assert (found(cell) is not None) is (cell.placement in FED)
    assert len([*tmp_path.rglob("*.feed")]) == 2
    alone = expand(FEED, choices.but(frameworks="null"), Capacity(2, 2), 1)
    assert not any(map(feeds.prepare(alone, probe(), lambda line: None), alone.cells))  # it computes nothing
