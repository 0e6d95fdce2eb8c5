"""A few of the kills of ``bootstrap.py kills``, and that it would see what may not be."""

from pathlib import Path
from random import Random

import kills
import kills_of_builds
import kills_of_runs
import pytest
from kills_of_runs import Place, Violation

from dlbench.reports.storage import database
from dlbench.reports.storage.store import Store

COUNT = 3


def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    counts = kills.kill_so_often(COUNT, seed=1, folder=tmp_path)
    assert counts.total() >= COUNT
    assert set(counts) <= set(kills.KINDS)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give the place of a run that nobody disturbed."""
    place = Place(tmp_path, tmp_path / "home")
    (tmp_path / "mine.toml").write_text(kills_of_runs.SUITE)
    assert kills_of_runs.ended(place.begin("run", "mine.toml")) == 0
    return place


def test_a_lost_and_a_doubled_record_are_seen(place: Place) -> None:
    path = place.folder / kills_of_runs.STORE
    _, records = kills_of_runs.check(place, [])
    assert len(records) == 4
    with Store.open(path) as store:
        store.append(records[0])
    with pytest.raises(Violation, match="twice"):
        kills_of_runs.check(place, [])
    with Store.open(path) as store, database.writing(store._engine, "") as connection:
        connection.exec_driver_sql("DELETE FROM records WHERE id > 2")
    with pytest.raises(Violation, match="4 records were reported, 2 are stored"):
        kills_of_runs.check(place, [])
    with pytest.raises(Violation, match="lost or changed"):
        kills_of_runs.check(place, records)


def test_an_environment_that_counts_as_built_and_is_not_whole_is_seen(tmp_path: Path) -> None:
    def break_one(framework: object, folder: Path) -> None:
        found = next((folder / "home" / "environments").glob("tiny-*/bin/file-7"), None)
        if found is not None:
            found.write_text("begin\n")
        look(framework, folder)

    look = kills_of_builds._look
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kills_of_builds, "_look", break_one)
        patch.setattr(kills_of_builds, "BUILD_SECONDS", 0.0)
        with pytest.raises(Violation, match="counts as built with 19 of 20 files"):
            kills_of_builds.trial(tmp_path, Random(1))
