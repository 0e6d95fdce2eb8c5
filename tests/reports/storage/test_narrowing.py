"""What a reader asks for: rows that have no setting are as installed, too."""

from dataclasses import replace

import factory_of_records as make

from dlbench.adapters.protocol import INSTALLED
from dlbench.adapters.tuning import TUNABLE
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Narrowing, Results, untunable


def told(record: Record, *names: str) -> Record:
    """Return the record with the names of its row's settings."""
    software = {**record.outcome.software, TUNABLE: list(names)}
    return replace(record, outcome=record.outcome._replace(software=software))


def shown(records: list[Record], words: str) -> list[tuple[str, str]]:
    kept = Narrowing(axes={"tuning": words}).of(Results(tuple(records), {})).records
    return [(record.cell.framework, record.cell.tuning) for record in kept]


def test_what_has_no_setting_is_shown_as_installed_and_as_tuned() -> None:
    records = [
        told(make.record(framework="torch"), "allocator"),
        told(make.record(framework="torch", tuning=INSTALLED), "allocator"),
        told(make.record(framework="tinygrad")),
    ]
    assert shown(records, "installed") == [("torch", "installed"), ("tinygrad", "tuned")]
    assert shown(records, "i*") == shown(records, "installed")
    assert shown(records, "tuned") == [("torch", "tuned"), ("tinygrad", "tuned")]


def test_a_row_that_got_a_setting_since_is_not_as_installed() -> None:
    records = [told(make.record(framework="tinygrad")), told(make.record(framework="tinygrad"), "kept_gates")]
    assert untunable(records) == frozenset()


def test_records_that_do_not_tell_are_as_installed_only_beside_others_of_their_run() -> None:
    software = {"version": "1"}
    old = [make.record(result=make.outcome(software=software), run=run, framework="tinygrad") for run in ("a", "b")]
    installed = make.record(run="b", framework="torch", tuning=INSTALLED)
    assert untunable(old) == frozenset()
    assert {cell.framework for _, cell in untunable([*old, installed])} == {"tinygrad"}
    assert shown([old[0], installed], "installed") == [("torch", "installed")]
