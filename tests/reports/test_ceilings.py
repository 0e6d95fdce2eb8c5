"""What GPUs did at best in made-up launches, and how it is shown."""

from typing import Any

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import DeviceCeilings, DeviceEvidence
from dlbench.reports.ceilings import (
    FINISHES,
    PRODUCTS,
    STARTS,
    TRANSFERS,
    Best,
    gpu_ceilings,
    ridge,
)
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
rate = st.floats(1e6, 1e16)


def launch(
    gemm: float | None = None,
    board: str | None = H200,
    computes: bool = True,
    number: int = 0,
    **fields: Any,
) -> Record:
    """A launch on a GPU; what is not named is of the cell, but for the ceilings."""
    ceilings = DeviceCeilings(
        **{name: fields.pop(name) for name in DeviceCeilings._fields if name in fields}
    )
    cell = {"device": "cuda:0", **fields}
    outcome = make.outcome(
        gemm_flops_per_second=gemm,
        parameter_count=1 if computes else None,
        device=DeviceEvidence("as the framework says", ceilings=ceilings),
    )
    if board is not None:
        outcome = outcome._replace(
            software={**outcome.software, "gpu": {"index": 0, "name": board}}
        )
    return make.record(launch=number, result=outcome, **cell)


def found_in(*records: Record, **fields: Any) -> Any:
    """Return the ceilings of each GPU."""
    return gpu_ceilings(Results(tuple(records), **fields))


def only(*records: Record, **fields: Any) -> Any:
    (ceilings,) = found_in(*records, **fields).values()
    return ceilings


@given(st.lists(st.tuples(st.none() | rate, st.none() | rate), min_size=1, max_size=5))
def test_rates_are_the_highest_and_times_the_shortest_of_all_launches(
    pairs: list[tuple[float | None, ...]],
) -> None:
    records = [
        launch(gemm, number=place, copy_bytes_per_second=copy, operator_start_seconds=copy)
        for place, (gemm, copy) in enumerate(pairs)
    ]
    products = [gemm for gemm, _ in pairs if gemm]
    copies = [copy for _, copy in pairs if copy]
    ceilings = found_in(*records)
    if not products and not copies:
        assert ceilings == {}
        return
    (gpu,) = ceilings.values()
    best = {"float32": Best(max(products), len(products), "torch eager")} if products else {}
    assert gpu[PRODUCTS] == best
    assert gpu[TRANSFERS] == (
        {"copy": Best(max(copies), len(copies), "torch eager")} if copies else {}
    )
    assert gpu[STARTS] == (
        {"torch": Best(min(copies), len(copies), "torch eager")} if copies else {}
    )
    assert gpu[FINISHES] == {}
    assert ridge(gpu, "float32") == (
        pytest.approx(max(products) / max(copies)) if products and copies else None
    )


def test_another_board_in_the_same_slot_is_another_gpu() -> None:
    ceilings_by_gpu = found_in(
        launch(1e13, board=A100),
        launch(2e13),
        launch(3e13, device="cuda:10"),
        launch(4e13, device="cuda:2"),
        launch(5e13, machine="m-two", board=None),
    )
    assert [
        (*gpu, ceilings[PRODUCTS]["float32"].value) for gpu, ceilings in ceilings_by_gpu.items()
    ] == [
        ("m-one", "cuda:0", A100, 1e13),
        ("m-one", "cuda:0", H200, 2e13),
        ("m-one", "cuda:2", H200, 4e13),
        ("m-one", "cuda:10", H200, 3e13),
        ("m-two", "cuda:0", "as the framework says", 5e13),
    ]


def test_a_pretended_rate_stands_beside_no_measured_one() -> None:
    pretended = launch(computes=False, framework="null", mode="null", copy_bytes_per_second=9e15)
    gpu = only(pretended)
    assert gpu[TRANSFERS] == {"copy": Best(9e15, 1, "null")}
    gpu = only(pretended, launch(1e13, copy_bytes_per_second=4e12))
    assert gpu[TRANSFERS] == {"copy": Best(4e12, 1, "torch eager")}


def test_products_of_records_that_were_not_read_count_where_the_board_is_clear() -> None:
    elsewhere = {
        ("m-one", "cuda:0", "float32"): ((1, 8e13), (1, 9e13)),
        ("m-one", "cuda:0", "tf32"): ((1, 3e14),),
    }
    gpu = only(launch(5e13), products=elsewhere)
    assert {name: (best.value, best.row) for name, best in gpu[PRODUCTS].items()} == {
        "float32": (9e13, ""),
        "tf32": (3e14, ""),
    }
    gpu = only(launch(5e14), products=elsewhere)
    assert gpu[PRODUCTS]["float32"] == Best(5e14, 1, "torch eager")
    of_two = found_in(launch(1e13, board=A100), launch(2e13), products=elsewhere)
    assert [gpu[PRODUCTS]["float32"].value for gpu in of_two.values()] == [1e13, 2e13]
