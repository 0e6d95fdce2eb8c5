"""`dlbench report comparisons`: what gates and comparisons of a store said, from their launches
again."""

from dataclasses import replace
from pathlib import Path

import factory_of_records as make
import numpy as np
from kept_stores import kept_store

from dlbench.reports.catalogue import reports
from dlbench.reports.compare.comparisons import WHOLE, compared, newest, outcome
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.record import BASELINE, CANDIDATE, GATE
from dlbench.reports.results.results import Narrowing, Results
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import DEFAULT, EARLY_LOOK, Verdict, chosen


def source(folder: Path, name: str) -> ReportSource:
    path = kept_store(folder, name)
    with Store.open(path) as store:
        runs = [(run, 0) for run in store.runs()]
    return ReportSource(Results, lambda: runs, of_run=lambda run: Results.read([path], run))


def test_each_run_of_two_sides_is_judged_again_newest_first(tmp_path: Path) -> None:
    comparisons = compared(source(tmp_path, "gates"))
    assert [pair[0].purpose for pair in comparisons] == [
        "compare",
        "compare",
        "gate",
        "gate",
        "gate",
        "gate",
    ]
    assert [pair[0].started for pair in comparisons] == sorted(
        (pair[0].started for pair in comparisons), reverse=True
    )
    # The candidate that computes more is slower in every cell; the one without a number breaks the
    # gate.
    assert {cell.judgement.verdict for cell in comparisons[1][1].cells} == {Verdict.REGRESSION}
    assert "without a number though the baseline has one" in outcome(comparisons[2])
    assert [outcome(pair).partition(":")[0] for pair in comparisons[2:]] == [
        "gate failed",
        "gate passed",
        "gate passed",
        "gate failed",
    ]
    report = reports()["comparisons"]
    page = report.page(comparisons, ReportOptions())
    assert len(page.tables) == 1 + WHOLE
    assert len(page.tables[0].rows) == len(comparisons)
    assert newest(comparisons)[0].endswith("4 inconclusive.")


def test_a_run_is_judged_by_the_rule_that_it_was_made_with(tmp_path: Path) -> None:
    gates = source(tmp_path, "gates")
    lenient = chosen(replace(DEFAULT, threshold=9.0))
    assert lenient == {"threshold": 9.0}
    runs = [(replace(run, rule=lenient), count) for run, count in gates.runs()]
    slower = [
        Verdict.REGRESSION in {cell.judgement.verdict for cell in pair[1].cells}
        for pair in compared(gates)
    ]
    assert any(slower)
    for pair in compared(replace(gates, runs=lambda: runs)):
        assert Verdict.REGRESSION not in {cell.judgement.verdict for cell in pair[1].cells}


def test_of_a_part_the_gate_is_judged_by_that_part_alone(tmp_path: Path) -> None:
    gates = source(tmp_path, "gates")
    narrowed = replace(gates, narrowing=Narrowing(axes={"threads": "1"}))
    passed = [
        index
        for index, pair in enumerate(compared(gates))
        if outcome(pair).startswith("gate passed")
    ]
    assert passed
    for index in passed:
        assert outcome(compared(narrowed)[index]).startswith("gate passed")


def test_a_cell_that_its_gates_other_cells_decided_keeps_its_verdict_alone() -> None:
    """Three pairs of each: how pairs deviate is learned from all cells, though a report shows
    one."""
    logs = np.random.default_rng(4).normal(0, 0.012, (8, EARLY_LOOK))
    records = []
    for threads, of_cell in enumerate(np.exp(logs), 1):
        for number, ratio in enumerate(of_cell):
            for side, seconds in ((BASELINE, 0.1), (CANDIDATE, 0.1 * float(ratio))):
                launch = make.record([seconds] * 3, launch=number, threads=threads)
                records.append(replace(launch, side=side))
    plan = tuple({record.cell: None for record in records})
    run = make.run(purpose=GATE, sides={BASELINE: "before", CANDIDATE: "after"}, plan=plan)
    results = Results(tuple(records))
    gates = ReportSource(Results, lambda: [(run, 0)], of_run=lambda run: results)
    verdicts = {cell.cell.threads: cell.verdict for cell in compared(gates)[0][1].cells}
    assert list(verdicts.values()).count(Verdict.NO_REGRESSION) >= 6
    for threads, verdict in verdicts.items():
        ((_, alone),) = compared(
            replace(gates, narrowing=Narrowing(axes={"threads": str(threads)}))
        )
        assert [cell.verdict for cell in alone.cells] == [verdict]
