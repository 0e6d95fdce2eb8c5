"""A job that measures is cancelled: it ends in its own way, and keeps every finished launch."""

import contextlib
from pathlib import Path

import pytest
from processes import COMMAND, variables_of_command, wait_until
from slurm_cluster import Cluster
from suites_of_null import suite_of_null

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.store import Store
from dlbench.suites.fleet.schedulers.local import Local
from dlbench.suites.fleet.schedulers.scheduler import ENDED, Scheduler, Wanted
from dlbench.suites.fleet.schedulers.slurm import Slurm

pytestmark = pytest.mark.xdist_group("slurm")

SUITE = suite_of_null(step_seconds=0.005, protocol={"launches": 500, "cell_seconds": 1000.0, "seconds": 0.05})


@pytest.fixture(params=["local", "slurm"])
def scheduler(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """Give each scheduler that runs jobs here; Slurm where it is installed."""
    for name, value in variables_of_command(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    if request.param == "local":
        return Local(tmp_path / "jobs")
    slurm: Cluster = request.getfixturevalue("slurm")
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    return Slurm(tmp_path / "jobs")


def statuses(store: Path) -> list[str]:
    with contextlib.suppress(StoreError), Store.open(store, create=False) as opened:
        return [record.outcome.status.value for record in opened.records()]
    return []


@pytest.mark.thinned(2)
def test_a_run_that_is_cancelled_keeps_what_it_measured(scheduler: Scheduler, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SUITE)
    store = tmp_path / "kept.sqlite"
    [node] = scheduler.nodes(1, ())
    handle = scheduler.submit(Wanted(1, node, (*COMMAND, "run", "mine.toml", "--no-quiet-gate", "--store", str(store))))
    try:
        wait_until(lambda: len(statuses(store)) >= 2, "two launches")
    finally:
        scheduler.cancel([handle])
    wait_until(lambda: scheduler.seen([handle])[handle].state == ENDED, "its end")
    log = scheduler.log(handle)
    assert log is not None
    assert "Ended by SIGTERM. Every finished launch is stored" in log.read_text()
    kept = statuses(store)
    assert len(kept) >= 2
    assert set(kept) == {"ok"}
