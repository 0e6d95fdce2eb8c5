"""The nights of a cell on a page: of several stores the one that has most of them."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import factory_of_records as make
import pytest

from dlbench.reports.storage.results import Narrowing
from dlbench.reports.storage.store import Store
from dlbench.suites.publishing.page import _histories


def _nights(path: Path, name: str, *threads_of_nights: tuple[int, ...]) -> str:
    with Store.open(path) as store:
        for night, threads in enumerate(threads_of_nights):
            run = make.run(id=f"{name}-{night:02}", started=make.START + timedelta(days=night))
            records = [each for count in threads for each in make.launches([1.0, 1.01, 0.99], threads=count)]
            store.append_runs([(run, [replace(each, run=run.id, started=run.started) for each in records])])
    return str(path)


@pytest.mark.parametrize("turned", [False, True])
def test_of_several_stores_each_cell_has_its_longest_history(tmp_path: Path, turned: bool) -> None:
    few = _nights(tmp_path / "few.sqlite", "few", (1, 2), (1, 2), (2,), (2,), (2,))
    many = _nights(tmp_path / "many.sqlite", "many", (1, 2, 4), (1, 2), (1,), (1,))
    stores = [many, few] if turned else [few, many]
    found = {cell.threads: each for (_, cell), each in _histories(stores, Narrowing()).items()}
    # Four nights in the second store, five in the first; one night is no history.
    assert {threads: [len(each.series) for each in histories] for threads, histories in found.items()} == {
        1: [4],
        2: [5],
    }
    assert found[1][0].series.runs[0].startswith("many")
    assert found[2][0].series.runs[0].startswith("few")
