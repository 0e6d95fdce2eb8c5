"""Files of large weights: the numbers that a launch would draw, whatever happened to the files before a run."""

import numpy as np
import pytest

from dlbench.adapters.launch import batches, parity
from dlbench.adapters.networks import family_of, of_family
from dlbench.suites.run import weights

NUMBERS = {"inputs": 1025, "hidden": [1024, 8], "outputs": 10, "activation": "relu"}
NETWORK = of_family("wide", family_of({"family": "feedforward", "numbers": NUMBERS}))
LARGE = next(iter(NETWORK.family.parameters()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give the folder of the network's weights, which is made."""
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    return checked()


def checked():
    return weights.checked(NETWORK, lambda line: None)


@pytest.mark.parametrize("purpose", [batches.TIMED, batches.CHECKED])
def test_mapped_weights_are_those_that_would_be_drawn(folder, purpose):
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["fc1.weight.f4", "timed fc1.weight.f4"]
    mapped, drawn = (batches.initial_weights(NETWORK, purpose, place) for place in (str(folder), None))
    assert list(mapped) == list(drawn)
    for name, value in drawn.items():
        assert np.array_equal(mapped[name], value)
        assert (mapped[name].dtype, type(mapped[name])) == (np.float32, np.ndarray)


def test_what_an_adapter_does_to_a_weight_is_not_seen_by_the_next(folder):
    of_check = parity.Weights(NETWORK, str(folder))
    right = of_check[LARGE.name].copy()
    of_check[LARGE.name][...] = 0.0
    assert np.array_equal(of_check[LARGE.name], right)
    assert np.array_equal(batches.weight(NETWORK, LARGE, folder=str(folder)), right)


def cut(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def changed(path):
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\1\2\3\4")


@pytest.mark.parametrize("damage", [cut, changed, lambda path: path.unlink()])
def test_a_damaged_file_is_made_again(folder, damage):
    path = folder / "fc1.weight.f4"
    path.chmod(0o644)
    damage(path)
    found = checked()
    drawn = batches.weight(NETWORK, LARGE)
    assert np.array_equal(np.fromfile(found / path.name, "<f4"), drawn.reshape(-1))


@pytest.mark.parametrize("damage", [cut, lambda path: path.unlink()])
def test_a_launch_draws_what_it_cannot_map(folder, damage):
    path = folder / "fc1.weight.f4"
    path.chmod(0o644)
    damage(path)
    assert np.array_equal(batches.weight(NETWORK, LARGE, folder=str(folder)), batches.weight(NETWORK, LARGE))


def test_where_no_file_can_be_written_it_is_said_once_and_launches_draw(tmp_path, monkeypatch):
    (tmp_path / "weights").touch()  # where a folder belongs
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    said = []
    assert weights.checked(NETWORK, said.append) is None
    assert "each launch draws them" in said[-1]
