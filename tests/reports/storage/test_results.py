from pathlib import Path

import factory_of_records as make
import pytest

from dlbench.hardware_probe import Ceilings, probe
from dlbench.reports.errors import StoreError
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "one.sqlite", tmp_path / "two.sqlite"]
    machine = probe()
    ceiling = Ceilings((make.ceiling(1, 1e9),))
    with Store.open(paths[0]) as store:
        store.add_machine(machine.fingerprint, machine.to_dict())
        store.save_ceilings(machine.fingerprint, ceiling.to_dict())
        store.append(make.record(machine=machine.fingerprint))
        store.append(make.record(machine=machine.fingerprint, run="run-2", minutes=5))
    with Store.open(paths[1]) as store:
        store.append(make.record(machine=machine.fingerprint))  # the same record, copied
        store.append(make.record(machine="m-two"))
        store.add_machine("m-three", {"of": "a future version"})
        store.append(make.record(machine="m-three"))
        store.save_ceilings("m-three", {"of": "a future version"})
    return paths


def test_several_stores_are_read_as_one(stores: list[Path]) -> None:
    results = Results.read(stores)
    here = probe()
    assert len(results.records) == 4
    assert list(results.hosts) == [here.fingerprint, "m-two", "m-three"]
    host = results.hosts[here.fingerprint]
    assert host.effective_cpus == here.cpu.effective_cpus
    assert dict(host.description)["CPU"] == here.cpu.model
    assert results.hosts["m-two"].effective_cpus is None
    assert results.hosts["m-three"].effective_cpus is None
    assert list(results.ceilings) == [here.fingerprint]
    assert len(Results.read(stores, run="run-2").records) == 1
    assert len(Results.read(stores, machine="m-two").records) == 1
    assert Results.read(stores, suite="nothing") == Results()


def test_an_open_store_can_be_read_too(stores: list[Path]) -> None:
    with Store.open(stores[0]) as store:
        assert len(Results.of([store], run="run-1").records) == 1


def test_a_store_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no result store"):
        Results.read([tmp_path / "none.sqlite"])


def test_a_machine_of_a_newer_version_has_a_name_at_least() -> None:
    assert read_host("0123456789abcdef", {"cpu": None}).name == "0123456789ab"
    assert read_host("m", None).name == "m"
