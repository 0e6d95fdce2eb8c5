"""Feeds: files of mini-batches, what is read from them, and launches whose every step takes another
one."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import fed_observation, small_networks, write_feeds

from dlbench.adapters import networks
from dlbench.adapters.base import Unsupported
from dlbench.adapters.launch import batches, feeds, parity
from dlbench.adapters.launch.batches import CHECKED, TIMED
from dlbench.adapters.launch.feeds import Feed, FeedError, ahead
from dlbench.adapters.networks import network_with
from dlbench.adapters.protocol import Cell, Launch, Protocol, Status
from dlbench.adapters.reference.adapter import ReferenceAdapter
from dlbench.reports.results.outcome import Outcome

SMALL = small_networks(networks)
IMAGES, RECURRENT = SMALL["small-convolutional"], SMALL["small-recurrent"]
PURPOSES = (TIMED, CHECKED)
LARGE_NUMBERS = {"inputs": 26752, "hidden": [8], "outputs": 10, "activation": "sigmoid"}
LARGE = network_with(
    "large", networks.family_of({"family": "feedforward", "numbers": LARGE_NUMBERS})
)


def written(folder: Path, network: networks.Network) -> str:
    return str(write_feeds(feeds, batches, network, str(folder)))


@pytest.mark.parametrize("name", [name for name, network in SMALL.items() if network.family.trains])
def test_a_file_has_what_would_be_drawn_in_the_shapes_of_a_resident_mini_batch(
    name: str, tmp_path: Path
) -> None:
    network = SMALL[name]
    folder = written(tmp_path, network)
    for purpose, storage in itertools.product(PURPOSES, ("cache", "disk")):
        drawn, read = Feed(network, 4, purpose), Feed(network, 4, purpose, folder, storage)
        assert read.record_bytes % feeds.PAGE == 0
        for number in (0, drawn.count - 1, drawn.count):  # the last one is the first again
            for drawn_array, read_array in zip(drawn[number], read[number], strict=True):
                assert np.array_equal(drawn_array, read_array)
        resident = batches.mini_batch(network, 4)
        assert [(array.shape, array.dtype) for array in read[0]] == [
            (array.shape, array.dtype) for array in resident
        ]
    different = {read[number].inputs.tobytes() for number in range(read.count)}
    assert len(different) == read.count > 1


def test_images_are_bytes_in_the_file_and_numbers_within_their_scale_for_the_step() -> None:
    feed = Feed(IMAGES, 4, TIMED)
    inputs, labels = feed.parts
    assert (inputs.type, inputs.shape, labels.type) == (feeds.IMAGES, (4, 15, 15, 2), feeds.SYMBOLS)
    values = feed[0].inputs
    assert values.dtype == np.float32
    raw = np.frombuffer(feed.record(0), np.uint8, inputs.length)
    assert np.array_equal(
        values.transpose(0, 2, 3, 1).reshape(-1), (raw.astype(np.float64) - 128) / 128
    )
    assert -1.0 <= values.min() < -0.5 < 0.5 < values.max() < 1.0


def test_large_mini_batches_are_few_and_small_ones_many() -> None:
    assert Feed(RECURRENT, 4, TIMED).count == 64
    assert 4 <= Feed(LARGE, 64, TIMED).count < 64
    assert Feed(LARGE, 100_000, TIMED).count == 4
    assert Feed(LARGE, 64, CHECKED).count == LARGE.parity.steps


@given(st.integers(0, 3), st.integers(1, 5), st.integers(0, 30))
def test_ahead_gives_batches_in_order_and_makes_no_more_than_its_depth(
    workers: int, depth: int, n: int
) -> None:
    numbers_made: list[int] = []

    def make(number: int) -> int:
        numbers_made.append(number)
        return number

    source = ahead(make, workers, depth)
    assert list(itertools.islice(source, n)) == list(range(n))
    source.close()
    assert len(numbers_made) <= n + (depth if workers else 0)


def test_a_failure_in_a_thread_ends_the_step_and_a_closed_source_its_threads() -> None:
    def fail(number: int) -> int:
        raise FeedError(f"no {number}")

    with pytest.raises(FeedError, match="no 0"):
        next(ahead(fail, 2, 4))
    before = threading.active_count()
    source = ahead(abs, 2, 4)
    assert next(source) == 0
    source.close()
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(5.0)
    assert threading.active_count() <= before


class Stuck(ReferenceAdapter):
    """Computes each step on the mini-batch that it was first given."""

    def take(self, ready: batches.Batch) -> None:
        """Ignore it."""


def observed(
    kind: type[ReferenceAdapter], network: networks.Network, folder: str | None, **of_cell: Any
) -> parity.Observation:
    cell = Cell("reference", "reference", "", network.name, "cpu", 1, 4)._replace(
        **{"placement": "fed", **of_cell}
    )
    launch = Launch(cell, Protocol(), {}, "", feed=folder)
    observation: parity.Observation = fed_observation(
        feeds, parity, batches, launch, kind(cell, {}, ""), network
    )
    return observation


@pytest.mark.parametrize(
    "of_cell",
    [
        {"placement": "prefetched"},
        {"placement": "loader"},
        {"placement": "loader", "loader_workers": 2},
        {"placement": "loader", "loader_workers": 1, "storage": "disk"},
    ],
    ids=str,
)
def test_every_placement_gives_the_steps_the_same_mini_batches(
    of_cell: dict[str, Any], tmp_path: Path
) -> None:
    folder = written(tmp_path, RECURRENT)
    drawn, read = (
        observed(ReferenceAdapter, RECURRENT, None),
        observed(ReferenceAdapter, RECURRENT, folder, **of_cell),
    )
    assert parity.judge(read, drawn, RECURRENT.parity).verdict == "agrees"
    assert read.losses == drawn.losses


@pytest.mark.parametrize("steps", [1, 2])
def test_an_adapter_that_keeps_its_first_mini_batch_is_caught_by_one_step(steps: int) -> None:
    network = RECURRENT._replace(parity=RECURRENT.parity._replace(steps=steps))
    right, wrong = (observed(kind, network, None) for kind in (ReferenceAdapter, Stuck))
    assert parity.judge(wrong, right, network.parity).verdict == "disagrees"


def test_a_file_that_was_cut_before_or_while_it_is_read_says_what_to_do(tmp_path: Path) -> None:
    folder = written(tmp_path, IMAGES)
    path = Path(feeds.path_of(folder, 4, TIMED))
    feed = Feed(IMAGES, 4, TIMED, folder)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    feed.record(0)
    with pytest.raises(FeedError, match="it was cut; start the run again"):
        feed.record(feed.count - 1)
    with pytest.raises(Unsupported, match="start the run again, which repairs it"):
        Feed(IMAGES, 4, TIMED, folder)
    path.unlink()
    with pytest.raises(Unsupported, match="start the run again"):
        Feed(IMAGES, 4, TIMED, folder)


def test_a_loader_without_a_file_is_refused() -> None:
    with pytest.raises(Unsupported, match="no file to load from"):
        observed(ReferenceAdapter, RECURRENT, None, placement="loader")


def test_too_little_shared_memory_is_a_reason_with_the_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = Feed(LARGE, 64, TIMED)  # mini-batches of 6.8 MB
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=10, f_frsize=1_000_000))
    feeds.check_shared_memory(feed, 0)
    with pytest.raises(
        Unsupported, match=r"loader workers 1: .* need 27 MB of it; /dev/shm has 10 MB free"
    ):
        feeds.check_shared_memory(feed, 1)


def test_a_launch_whose_steps_take_mini_batches(launch: Callable[..., Outcome]) -> None:
    network = network_with("small-recurrent", RECURRENT.family, 3)
    outcome = launch("reference", "float64", network, placement="loader", loader_workers=2)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.parity is not None
    assert outcome.parity.verdict == "agrees", outcome.parity.reason
    assert outcome.threads is not None
    assert (outcome.threads.requested, outcome.threads.helpers) == (3, 2)


def test_several_workers_on_one_mini_batch_are_not_fed() -> None:
    cell = Cell(
        "reference", "reference", "", "small-recurrent", "cpu", 1, 4, placement="fed", world_size=2
    )
    assert "each of several workers keeps its part" in ReferenceAdapter(cell, {}, "").refuses_axes(
        cell
    )
