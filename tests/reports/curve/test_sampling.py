"""The report of sampling machines on records of known times."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.curve.curve import Curves
from dlbench.reports.curve.sampling import study
from dlbench.reports.results.record import Record
from dlbench.reports.results.storage.store import Store

Call = Callable[..., tuple[int, str, str]]
UNITS = 256
CHAINS = (1, 16, 256)


def launches(
    seconds: float, chains: int, order: str = "sequential", units: int = UNITS, **axes: object
) -> list[Record]:
    """Three launches of a Boltzmann machine, or of the other one without an order."""
    name = f"bm-d{units}-{order}" if order else f"mpm-d{units}"
    numbers = {"units": units, "order": order} if order else {"units": units}
    where = {"network": name, "specification": f"of {name}", "batch_size": chains, **axes}
    network = {"family": "boltzmann" if order else "mcculloch_pitts", "numbers": numbers}
    return [replace(record, network=network) for record in make.launches(seconds, **where)]


def study_of(records: list[Record]) -> Curves:
    return study(make.matrix(*records), records)


def everything() -> list[Record]:
    """A row for few chains, one for many, and what the three orders cost in one of them."""
    for_few, for_many = {"mode": "eager"}, {"mode": "compile"}
    records = []
    for chains in CHAINS:
        records += launches(1e-3 * chains, chains, **for_few)
        records += launches(8e-3, chains, **for_many)
        records += launches(5e-4 * chains, chains, "synchronous", **for_few)
        records += launches(2e-4 * chains, chains, "bipartite", **for_few)
    records += launches(6.4e-3, 1, "", **for_few)
    records.append(make.hole(Status.CRASHED, "signal 11", mode="loop", network="fcn5"))
    return records


def test_from_how_many_chains_on_another_row_is_faster() -> None:
    (crossed,) = study_of(everything()).conclusions.crossings
    assert (crossed.what, crossed.network) == ("rows", "bm-d256-sequential")
    assert "eager" in crossed.first
    assert "compile" in crossed.second
    place = crossed.crossing.data("chains")
    assert (place["where"], place["clear"]) == ("between", True)
    assert place["chains"] == pytest.approx(8.0, rel=1e-3)
    low, high = place["interval"]
    assert low < 8.0 < high


def test_a_gpu_is_compared_with_the_best_of_the_cpus() -> None:
    gpu = {"device": "cuda:0", "mode": "graph"}
    records = everything()
    for chains in CHAINS:
        records += launches(4e-3, chains, **gpu)
    crossings = {crossed.what: crossed for crossed in study_of(records).conclusions.crossings}
    assert crossings["devices"].second == "the GPUs"
    # The fastest on the CPU take 1 ms with 1 chain and 8 ms with 16: linear in the logarithms.
    expected = 16 ** (math.log(4) / math.log(8))
    assert crossings["devices"].crossing.units == pytest.approx(expected, rel=1e-3)
    assert "graph" in crossings["rows"].second


def test_exactness_is_compared_within_a_row_at_equal_chains_and_units() -> None:
    other_rows = [
        *launches(1e-9, 1, "synchronous", mode="compile", threads=2),
        *launches(1e-9, 1, "synchronous", 64, mode="eager"),
        *launches(1e-9, 1, "synchronous", machine="m-two", mode="eager"),
    ]
    exactness = study_of([*everything(), *other_rows]).conclusions.exactness
    costs = {(cost.order, cost.chains): cost.ratio.value for cost in exactness}
    assert costs == {
        **{("sequential", chains): pytest.approx(2.0) for chains in CHAINS},
        **{("bipartite", chains): pytest.approx(0.4) for chains in CHAINS},
    }


def test_the_report_in_numbers_and_words(command: Call) -> None:
    with Store.open("kept.sqlite") as store:
        for record in everything():
            store.append(record)
    code, out, errors = command("report", "sampling", "--store", "kept.sqlite", "--json")
    assert (code, errors) == (0, "")
    content = json.loads(out)
    lines = {(line["family"], line["order"], line["mode"]): line for line in content["lines"]}
    (point,) = lines["mcculloch_pitts", None, "eager"]["points"]
    assert point["nanoseconds_per_update"] == pytest.approx(1e5, rel=1e-3)
    last = lines["boltzmann", "sequential", "compile"]["points"][-1]
    assert (last["chains"], last["updates_per_second"]) == (
        256,
        pytest.approx(256 * 256 / 8e-3, rel=1e-3),
    )
    assert last["nanojoules_per_update"] is None
    for words in ((), ("--quantity", "rate"), ("--quantity", "joules")):
        code, out, errors = command(
            "report", "sampling", "--store", "kept.sqlite", "--format", "terminal", *words
        )
        assert (code, errors) == (0, "")
        assert max(map(len, out.splitlines())) <= 80
    code, out, errors = command("report", "sampling", "--store", "kept.sqlite", "--format", "csv")
    assert len(out.strip().splitlines()) == 1 + 13
