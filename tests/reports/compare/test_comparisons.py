"""`dlbench report comparisons`: what gates and comparisons of a store said, from their launches again."""

from dataclasses import replace
from pathlib import Path

from kept_stores import kept_store

from dlbench.reports.catalogue import reports
from dlbench.reports.compare.comparisons import WHOLE, compared, newest, outcome
from dlbench.reports.compare.verdict import DEFAULT, Verdict, chosen
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.storage.results import Narrowing, Results
from dlbench.reports.storage.store import Store


def source(folder: Path, name: str) -> Source:
    path = kept_store(folder, name)
    with Store.open(path) as store:
        runs = [(run, 0) for run in store.runs()]
    return Source(Results, lambda: runs, of_run=lambda run: Results.read([path], run))


def test_each_run_of_two_sides_is_judged_again_newest_first(tmp_path: Path) -> None:
    found = compared(source(tmp_path, "gates"))
    assert [each[0].purpose for each in found] == ["compare", "compare", "gate", "gate", "gate", "gate"]
    assert [each[0].started for each in found] == sorted((each[0].started for each in found), reverse=True)
    # The candidate that computes more is slower in every cell; the one without a number breaks the gate.
    assert {cell.judgement.verdict for cell in found[1][1].cells} == {Verdict.REGRESSION}
    assert "without a number though the baseline has one" in outcome(found[2])
    assert [outcome(each).partition(":")[0] for each in found[2:]] == [
        "gate failed",
        "gate passed",
        "gate passed",
        "gate failed",
    ]
    report = reports()["comparisons"]
    page = report.page(found, ReportOptions())
    assert len(page.tables) == 1 + WHOLE
    assert len(page.tables[0].rows) == len(found)
    assert newest(found)[0].endswith("4 inconclusive.")


def test_a_run_is_judged_by_the_rule_that_it_was_made_with(tmp_path: Path) -> None:
    usual = source(tmp_path, "gates")
    lenient = chosen(replace(DEFAULT, magnitude=9.0))
    assert lenient == {"magnitude": 9.0}
    runs = [(replace(run, rule=lenient), count) for run, count in usual.runs()]
    slower = [Verdict.REGRESSION in {cell.judgement.verdict for cell in each[1].cells} for each in compared(usual)]
    assert any(slower)
    for each in compared(replace(usual, runs=lambda: runs)):
        assert Verdict.REGRESSION not in {cell.judgement.verdict for cell in each[1].cells}


def test_of_a_part_the_gate_is_judged_by_that_part_alone(tmp_path: Path) -> None:
    every = source(tmp_path, "gates")
    narrowed = replace(every, narrowing=Narrowing(axes={"threads": "1"}))
    passed = [index for index, each in enumerate(compared(every)) if outcome(each).startswith("gate passed")]
    assert passed
    for index in passed:
        assert outcome(compared(narrowed)[index]).startswith("gate passed")
