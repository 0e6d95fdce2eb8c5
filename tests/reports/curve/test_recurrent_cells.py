"""Recurrent cells: curves from records and what confirms them, times to a loss of known laws,
findings, formats."""

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.reports.curve.curve import Curves
from dlbench.reports.curve.recurrent_cells import REPORT, flops, study
from dlbench.reports.curve.training import ALIKE, learnt_of, training_of
from dlbench.reports.formats.export import export
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

TEXT = {"name": "generated", "digest": "0123456789abcdef", "symbols": 1000, "floor": 2.0}
KNOWS_NOTHING = math.log(96)


def falling(length: float, least: float = 2.0) -> Callable[[float], float]:
    """A loss that falls exponentially from that of a network which knows nothing."""
    return lambda step: least + (KNOWS_NOTHING - least) * math.exp(-step / length)


def blocks(loss: Callable[[float], float], steps: int = 600, block: int = 50) -> list[list[float]]:
    """The curve of these losses: means over the blocks."""
    return [
        [end, sum(map(loss, range(end - block, end))) / block]
        for end in range(block, steps + 1, block)
    ]


def network(cell: str = "gru", layers: int = 1, size: int = 64, **numbers: Any) -> dict[str, Any]:
    """The fields of a record of this network."""
    named = f"char-{cell}-l{layers}-h{size}-t100"
    data = {
        "vocabulary": 96,
        "embedding": 0,
        "hidden": size,
        "layers": layers,
        "steps": 100,
        "cell": cell,
        **numbers,
    }
    return {"network": named, "specification": f"of {named}", "batch_size": 100, "data": data}


def launches(
    seconds: float,
    curve: Sequence[Sequence[float]] = (),
    *,
    text: dict[str, Any] | None = None,
    ended: str = "",
    network_fields: dict[str, Any] | None = None,
    **axes: Any,
) -> list[Record]:
    """Three launches of a network; the first one trained."""
    fields = dict(network_fields or network())
    numbers = fields.pop("data")
    records = [
        replace(record, network={"family": "recurrent", "numbers": numbers})
        for record in make.launches(seconds, **{**fields, **axes})
    ]
    if curve or ended:
        first = records[0].outcome
        software = {**first.software, "text": TEXT if text is None else text}
        blocks_of_curve = [list(block) for block in curve]
        trained = first._replace(curve=blocks_of_curve, curve_ended=ended, software=software)
        records[0] = replace(records[0], outcome=trained)
    return records


def study_of(records: Sequence[Record]) -> Curves:
    """Return the report of these records."""
    results = Results(tuple(records), {make.MACHINE: Host(make.MACHINE, "A machine", 2, 2)})
    return study(build_matrix(results), results.records)


COSTS = {"rnn": 1.0, "gru": 2.0, "lstm": 2.5}
LENGTHS = {"rnn": 300.0, "gru": 120.0, "lstm": 140.0}
FLOORS = {"rnn": 2.4, "gru": 2.05, "lstm": 2.1}


def records(seconds=0.01, sizes=(64, 128), layers=(1, 2)):
    """A made-up study: twice the size and a layer more help, and cost twice as much."""
    study_records = []
    for cell in COSTS:
        for size in sizes:
            for deep in layers:
                loss = falling(LENGTHS[cell] / (size // 64), FLOORS[cell] - 0.01 * deep)
                cost = seconds * COSTS[cell] * size / 64 * deep
                study_records += launches(
                    cost, blocks(loss), network_fields=network(cell, deep, size)
                )
    return study_records


def shown(content, form="terminal", **options):
    return export(REPORT, content, ReportOptions(**options), form)


def only(records):
    (learnt,) = learnt_of(records)
    (training,) = learnt.nets.values()
    return training


# Curves.


@examples(40)
@given(st.floats(150, 800), st.floats(2.2, 4.0))
def test_steps_to_a_loss_are_those_of_the_law(length, target):
    curve = training_of(launches(0.01, blocks(falling(length), 2000))[0])
    expected = -length * math.log((target - 2.0) / (math.log(96) - 2.0))
    steps = curve.steps_to(target)
    if 25 < expected < 1975:
        assert steps == pytest.approx(expected, abs=6)
        assert curve.loss_at(steps) == pytest.approx(target, rel=1e-9)
    elif expected > 1980:
        assert steps is None


def test_the_longest_curve_counts_and_of_equal_ones_the_newest():
    short = launches(0.01, [[50, 3]])[0]
    first = launches(0.01, [[50, 3.1], [100, 3.1]])[0]
    last = launches(0.01, [[50, 3.2], [100, 3.2]])[0]
    later = [first, short, last]
    for minutes, record in enumerate(later):
        object.__setattr__(record, "started", record.started + timedelta(minutes=minutes))
    assert only(later).losses == (3.2, 3.2)
    assert only(later[:2]).losses == (3.1, 3.1)
    assert only(later).confirmed is None  # one framework only


@examples(40)
@given(st.floats(-0.02, 0.02), st.sampled_from([50, 300, 500, 550]))
def test_another_framework_confirms_a_curve_up_to_step_500(error, where):
    curve = blocks(falling(200))
    other_curve = [[step, loss * (1 + error * (step == where))] for step, loss in curve]
    training = only(
        [
            launches(0.01, curve)[0],
            launches(0.01, other_curve[:-1], framework="jax", adapter="jax", mode="jit")[0],
        ]
    )
    (check,) = training.checks
    assert check.steps == 500
    assert check.difference == pytest.approx(abs(error) if where <= 500 else 0.0, abs=1e-12)
    assert training.confirmed is (where > 500 or check.difference < ALIKE)


@pytest.mark.parametrize(
    "changed",
    [
        {"curve": [[50, 3.0], [50, 2.9]]},
        {"curve": [[50, math.inf]]},
        {"curve": [], "curve_ended": ""},
        {"software": {"text": "no table"}},
        {"software": {"text": {**TEXT, "digest": 5}}},
    ],
    ids=str,
)
def test_a_record_without_a_readable_curve_is_skipped(changed):
    record = launches(0.01, blocks(falling(200)))[0]
    object.__setattr__(record, "outcome", record.outcome._replace(**changed))
    assert training_of(record) is None
    assert (
        training_of(launches(0.01, [[50, 3.0]], network_fields=network(vocabulary=10000))[0])
        is None
    )


# Times to a loss.


@examples(30)
@given(st.floats(150, 400), st.floats(1e-4, 10.0))
def test_hours_to_a_loss_are_steps_times_seconds(length, seconds):
    conclusions = study_of(launches(seconds, blocks(falling(length)))).conclusions
    (learnt,) = conclusions.texts
    (time,) = conclusions.times
    # The loss falls to a tenth of the way after so many lengths.
    assert learnt.target == pytest.approx(KNOWS_NOTHING - learnt.share * (KNOWS_NOTHING - 2.0))
    assert time.steps_to_target == pytest.approx(length * math.log(1 / (1 - learnt.share)), abs=6)
    hours, low, high = time.hours_to_target
    assert hours == pytest.approx(time.steps_to_target * seconds / 3600, rel=1e-3)
    update = time.point.seconds
    assert (low / hours, high / hours) == pytest.approx(
        (update.low / update.median, update.high / update.median)
    )


def test_the_target_is_the_largest_share_that_any_network_reached_and_others_never_come_there():
    lengths = {0.9: 200, 0.8: 300, 0.5: 800}
    shares = {
        share: study_of(launches(0.01, blocks(falling(n)))).conclusions.texts[0].share
        for share, n in lengths.items()
    }
    assert shares == {share: share for share in lengths}
    half_way = study_of(launches(0.01, blocks(falling(5000))))  # none came half way
    assert half_way.conclusions.texts[0].share == 0.9
    two_networks = [
        *launches(0.01, blocks(falling(200))),
        *launches(0.005, blocks(falling(900)), network_fields=network("rnn")),
    ]
    content = study_of(two_networks)
    assert {
        time.point.at.cell: time.hours_to_target is None for time in content.conclusions.times
    } == {"gru": False, "rnn": True}
    assert "not in 600" in shown(content)


# Findings.


def test_findings_have_the_verdicts_of_claims():
    findings = study_of(records(layers=(1, 2, 3))).conclusions.findings
    evidence = {finding.name: finding.evidence for finding in findings}
    assert list(evidence) == ["G1", "G1t", "G2", "G3", "gru", "lstm", "layers"]
    assert {evidence[name].verdict.value for name in ("G1", "G2", "G3", "lstm")} == {"reproduces"}
    costs = [question.found.value for question, _ in evidence["gru"].figures]
    assert costs == pytest.approx([2.0] * 6)
    two_networks = [
        *launches(1.0, blocks(falling(100)), network_fields=network("rnn")),
        *launches(1.0, blocks(falling(200))),
    ]
    (worse, *_) = study_of(two_networks).conclusions.findings
    assert (worse.name, worse.evidence.verdict.value) == ("G1", "differs")


def test_at_equal_time_a_costly_cell_has_fewer_steps():
    plain, gated = network("rnn"), network("gru")
    verdicts = {}
    for cost in (1.0, 10.0):
        two_networks = [
            *launches(0.01, blocks(falling(200)), network_fields=plain),
            *launches(0.01 * cost, blocks(falling(180)), network_fields=gated),
        ]
        (_, finding, *_) = study_of(two_networks).conclusions.findings
        verdicts[cost] = finding.evidence.verdict.value
    assert verdicts == {1.0: "reproduces", 10.0: "differs"}


# Formats.


@pytest.mark.parametrize("quantity", REPORT.quantities)
def test_every_quantity_fits_a_terminal_beside_the_published_losses(quantity):
    text = shown(study_of(records(layers=(1,))), quantity=quantity, against="karpathy2016")
    assert max(map(len, text.splitlines())) <= 80


def test_a_line_of_csv_for_each_speed_and_keys_of_json():
    reason = "the loss was not finite in steps 51 to 100"
    cut_short = launches(0.02, [[50, 3.0]], network_fields=network("lstm", 3, 64), ended=reason)
    untrained = launches(0.02, network_fields=network("lstm", 2, 256))
    content = study_of([*records(), *cut_short, *untrained])
    lines = list(csv.DictReader(io.StringIO(shown(content, "csv"))))
    assert len(lines) == 14
    by_net = {(line["cell"], line["layers"], line["size"]): line for line in lines}
    line = by_net["lstm", "2", "256"]
    assert line["hours_to_target.value"] == line["text"] == ""
    assert float(by_net["gru", "1", "64"]["characters_per_second"]) == pytest.approx(
        100 * 100 / 0.02, rel=1e-3
    )
    data = json.loads(shown(content, "json"))
    (text,) = data["texts"]
    # A training that ended early does not shorten the others.
    assert (text["digest"], text["common_steps"]) == (TEXT["digest"], 600)
    assert {curve["cell"] for curve in text["curves"] if curve["loss"] is None} == {"lstm"}
    assert f"lstm 3 x 64: training in torch ended: {reason}" in data["notes"]
    for curve in content.curves:
        for point in curve.points:
            operations = point.cell.gflops * 1e9 * point.cell.seconds.median
            assert operations == pytest.approx(flops(point.at))


def test_the_picture_has_numbers_at_its_axes_and_no_formulas(tmp_path):
    (path,) = REPORT.draw(study_of(records()), tmp_path / "curves.svg", ReportOptions())
    drawn = path.read_text(encoding="utf-8")
    assert "seconds of updates" in drawn
    assert "mathdefault" not in drawn
    assert "dlbench run char" in shown(study_of([]))
