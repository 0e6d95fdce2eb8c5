from dataclasses import replace
from typing import Any

import factory_of_records as make
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import Status
from dlbench.reports.evidence.attempts import disturbed, effective
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

HOST = Host(make.MACHINE, "two CPUs", 2, 2, 2.0)


def attempt(number: int, kind: str = "good", launch: int = 0, **changes: Any) -> Record:
    fields = {key: changes.pop(key) for key in ("side", "stage") if key in changes}
    if kind == "good":
        made = make.record(launch=launch, **changes)
    elif kind == "disturbed":
        result = make.outcome()._replace(contention=make.contention(steal_seconds=2.0))
        made = make.record(launch=launch, result=result, **changes)
    else:
        made = make.hole(Status.CRASHED, "signal 9", launch=launch, **changes)
    return replace(made, attempt=number, **fields)


def test_a_launch_is_disturbed_by_others_not_by_its_own_end() -> None:
    assert disturbed(attempt(0, "disturbed"), HOST)
    assert not disturbed(attempt(0), HOST)
    assert not disturbed(attempt(0, "crashed"), HOST)


kinds = st.lists(st.sampled_from(["good", "disturbed", "crashed"]), min_size=1, max_size=5)


@given(kinds, st.randoms())
def test_the_first_good_attempt_counts_else_the_last(outcomes: list[str], lot: Any) -> None:
    attempts = [attempt(number, kind) for number, kind in enumerate(outcomes)]
    stored = list(attempts)
    lot.shuffle(stored)
    expected = attempts[outcomes.index("good")] if "good" in outcomes else attempts[-1]
    assert effective(stored, HOST) == [expected]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "baseline", "candidate"]), st.integers(1, 2))))
def test_one_record_is_left_of_each_launch(launches: list[tuple[int, str, int]]) -> None:
    records = [
        attempt(number, launch=launch, side=side, threads=threads)
        for number, (launch, side, threads) in enumerate(launches)
    ]
    found = effective(records, HOST)
    keys = [(record.launch, record.side, record.cell.threads) for record in found]
    assert len(keys) == len(set(keys))
    assert set(keys) == set(launches)


def test_sides_stages_and_runs_are_launches_of_their_own() -> None:
    records = [
        attempt(0, side=side, stage=stage) for side in ("baseline", "candidate") for stage in ("screen", "confirm")
    ]
    assert effective([*records, attempt(0, run="run-2")], HOST) == [*records, attempt(0, run="run-2")]


def test_a_repetition_that_is_faster_does_not_displace_a_good_one() -> None:
    first, second = attempt(0), replace(make.record([0.1] * 3), attempt=1)
    assert effective([second, first], HOST) == [first]
