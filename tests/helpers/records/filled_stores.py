"""A store with some records."""

import multiprocessing
from pathlib import Path

import factory_of_records as make

from dlbench.reports.storage.store import Store

fresh = multiprocessing.get_context("spawn")


def fill(path: Path, count: int, run: str = "run-1") -> None:
    with Store.open(path) as store:
        for launch in range(count):
            store.append(make.record(launch=launch, run=run))
