"""Files of weights and mini-batches: what a launch would draw, whatever happened to the files
before a run."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from processes import plan_of

from dlbench.adapters.launch import batches, parity
from dlbench.adapters.launch.batches import CHECKED, TIMED
from dlbench.adapters.launch.feeds import Feed, path_of
from dlbench.adapters.networks import family_of, network_with
from dlbench.adapters.protocol import FED
from dlbench.hardware_probe import probe
from dlbench.suites.planning.suite import load
from dlbench.suites.run import launch_files

NUMBERS = {"inputs": 1025, "hidden": [1024, 8], "outputs": 10, "activation": "relu"}
NETWORK = network_with("wide", family_of({"family": "feedforward", "numbers": NUMBERS}))
LARGE = next(iter(NETWORK.family.parameters()))
FEED = load("feed")
SIZE = 2


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))


def check_weights(report=print):
    return launch_files.checked_weights(NETWORK, report)


def check_feeds(report=print):
    return launch_files.checked_feeds(FEED.known["pictures"], SIZE, report)


@pytest.fixture
def weights():
    """Give the folder of the network's weights, which is made."""
    return check_weights()


@pytest.mark.parametrize("purpose", [TIMED, CHECKED])
def test_mapped_weights_are_those_that_would_be_drawn(weights, purpose):
    assert sorted(path.name for path in weights.iterdir()) == [
        "fc1.weight.f4",
        "timed fc1.weight.f4",
    ]
    mapped, drawn = (
        batches.initial_weights(NETWORK, purpose, place) for place in (str(weights), None)
    )
    assert list(mapped) == list(drawn)
    for name, value in drawn.items():
        assert np.array_equal(mapped[name], value)
        assert (mapped[name].dtype, type(mapped[name])) == (np.float32, np.ndarray)


def test_what_an_adapter_does_to_a_weight_is_not_seen_by_the_next(weights):
    of_check = parity.Weights(NETWORK, str(weights))
    right = of_check[LARGE.name].copy()
    of_check[LARGE.name][...] = 0.0
    assert np.array_equal(of_check[LARGE.name], right)
    assert np.array_equal(batches.weight(NETWORK, LARGE, folder=str(weights)), right)


def test_files_of_mini_batches_have_those_that_would_be_drawn():
    place, described = check_feeds()
    assert sorted(path.name for path in place.iterdir()) == ["b2.feed", "timed b2.feed"]
    checked, timed = (
        Path(path_of(str(place), SIZE, purpose)).read_bytes() for purpose in (CHECKED, TIMED)
    )
    for purpose, content in ((CHECKED, checked), (TIMED, timed)):
        assert content == b"".join(Feed(FEED.known["pictures"], SIZE, purpose).drawn())
    assert launch_files.megabytes() == 1
    digest = hashlib.sha256(timed).hexdigest()[:16]
    assert described == {"digest": digest, "mini_batches": 64, "mini_batch_bytes": len(timed) // 64}


def cut(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def changed(path):
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\1\2\3\4")


def lengthened(path):
    with path.open("ab") as file:
        file.write(b"\0")


@pytest.mark.parametrize("damage", [cut, changed, lengthened, Path.unlink])
@pytest.mark.parametrize(
    ("check", "name"), [(check_weights, "timed fc1.weight.f4"), (check_feeds, "timed b2.feed")]
)
def test_a_damaged_file_is_written_anew_and_said(check, name, damage, tmp_path):
    check()
    (path,) = tmp_path.rglob(name)
    right = path.read_bytes()
    path.chmod(0o644)
    damage(path)
    lines = []
    assert check(lines.append) is not None
    assert path.read_bytes() == right
    (line,) = lines
    assert ("once: " if damage is Path.unlink else f"{path} was truncated or changed") in line


@pytest.mark.parametrize("damage", [cut, Path.unlink])
def test_a_launch_draws_what_it_cannot_map(weights, damage):
    path = weights / "fc1.weight.f4"
    path.chmod(0o644)
    damage(path)
    assert np.array_equal(
        batches.weight(NETWORK, LARGE, folder=str(weights)), batches.weight(NETWORK, LARGE)
    )


@pytest.mark.parametrize(
    ("check", "words"), [(check_weights, "each launch draws them"), (check_feeds, "are left out")]
)
def test_where_no_file_can_be_written_it_is_said_once(check, words, tmp_path):
    (tmp_path / "weights").touch()  # where a folder belongs
    lines = []
    assert check(lines.append) is None
    assert words in lines[-1]


def test_files_are_for_the_cells_that_take_mini_batches(tmp_path):
    chosen = {"batch_sizes": str(SIZE), "threads": "1"}
    plan = plan_of("feed", frameworks="torch,null", **chosen)
    feeds = launch_files.prepare_feeds(plan, probe(), print)
    for cell in plan.cells:
        assert (feeds(cell) is not None) is (cell.placement in FED)
    assert len([*tmp_path.rglob("*.feed")]) == 2
    alone = plan_of("feed", frameworks="null", **chosen)
    assert not any(
        map(launch_files.prepare_feeds(alone, probe(), print), alone.cells)
    )  # it computes nothing
