"""Runs of two stores that share no cell: which were taken, and which would do."""

from collections.abc import Callable
from pathlib import Path

import factory_of_records as make

from dlbench.reports.storage.store import Store

Call = Callable[..., tuple[int, str, str]]


def keep(path: Path, name: str, day: int, threads: int) -> None:
    cell = make.cell(threads=threads)
    with Store.open(path) as store:
        store.begin_run(make.run(id=name, started=make.START.replace(day=day), plan=(cell,)))
        for launch in range(6):
            store.append(make.record([1.0 + launch / 100], run=name, launch=launch, threads=threads))


def test_runs_that_share_no_cell_are_named_and_others_suggested(tmp_path: Path, command: Call) -> None:
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    keep(first, "old-a", 1, threads=2)
    keep(first, "new-a", 2, threads=1)
    keep(second, "new-b", 3, threads=2)
    code, _, err = command("compare", "first.sqlite", "second.sqlite")
    said = " ".join(err.split())
    assert code == 2
    assert "run new-a of" in said
    assert "run new-b of" in said
    assert "These share cells: first.sqlite:old-a." in said
    code, out, err = command("compare", "first.sqlite:old-a", "second.sqlite")
    assert code in (0, 1), err
    assert "old-a" in out
