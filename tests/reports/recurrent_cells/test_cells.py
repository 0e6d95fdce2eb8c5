"""The report of recurrent cells: times to a loss of known laws, findings, and what is shown of it all."""

import csv
import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from records_of_claims import CLAIMS
from records_of_curves import KNOWS_NOTHING, TEXT, blocks, falling, launches, network, study_of

from dlbench.reports.cells import Matrix
from dlbench.reports.claims.claims import try_claims
from dlbench.reports.claims.figures import Tables
from dlbench.reports.formats.export import FORMATS, export
from dlbench.reports.recurrent_cells.findings import findings, flops
from dlbench.reports.recurrent_cells.report import REPORT, Found
from dlbench.reports.recurrent_cells.settings import losses_of
from dlbench.reports.report import ReportOptions

COSTS = {"rnn": 1.0, "gru": 2.0, "lstm": 2.5}
LENGTHS = {"rnn": 300.0, "gru": 120.0, "lstm": 140.0}
FLOORS = {"rnn": 2.4, "gru": 2.05, "lstm": 2.1}


def records(seconds=0.01, sizes=(64, 128), layers=(1, 2)):
    """A made-up study: twice the size and a layer more help, and cost twice as much."""
    found = []
    for cell in COSTS:
        for size in sizes:
            for deep in layers:
                loss = falling(LENGTHS[cell] / (size // 64), FLOORS[cell] - 0.01 * deep)
                cost = seconds * COSTS[cell] * size / 64 * deep
                found += launches(cost, blocks(loss), of=network(cell, deep, size))
    return found


def shown(found, form="terminal", **options):
    return export(REPORT, Found(found, findings(found)), ReportOptions(**options), form)


@examples(30)
@given(st.floats(150, 400), st.floats(1e-4, 10.0))
def test_hours_to_a_loss_are_steps_times_seconds(length, seconds):
    found = study_of(launches(seconds, blocks(falling(length))))
    (learnt,), (way,) = found.learnt, found.ways
    # The loss falls to a tenth of the way after so many lengths.
    steps = length * math.log(1 / (1 - learnt.share))
    assert learnt.target == pytest.approx(KNOWS_NOTHING - learnt.share * (KNOWS_NOTHING - 2.0))
    assert way.steps == pytest.approx(steps, abs=6)
    hours, low, high = way.hours
    assert hours == pytest.approx(way.steps * seconds / 3600, rel=1e-3)
    assert low / hours == pytest.approx(way.seconds.low / way.seconds.median)
    assert high / hours == pytest.approx(way.seconds.high / way.seconds.median)


def test_the_target_is_the_lowest_share_of_the_way_that_any_network_reached():
    lengths = {0.9: 200, 0.8: 300, 0.5: 800}
    assert {share: study_of(launches(0.01, blocks(falling(n)))).learnt[0].share for share, n in lengths.items()} == {
        share: share for share in lengths
    }
    # Nothing came half way.
    assert study_of(launches(0.01, blocks(falling(5000)))).learnt[0].share == 0.9


def test_what_never_came_to_the_loss_says_so():
    both = [*launches(0.01, blocks(falling(200))), *launches(0.005, blocks(falling(900)), of=network("rnn"))]
    found = study_of(both)
    assert {way.net.cell: way.hours is None for way in found.ways} == {"gru": False, "rnn": True}
    assert "not in 600" in shown(found)


def test_the_best_are_those_that_no_other_beats_in_both():
    found = study_of(records())
    best = {(way.net.cell, way.net.layers, way.net.size) for way in found.ways if way.best}
    for way in found.ways:
        beaten = any(o.loss < way.loss and o.seconds.median < 0.9 * way.seconds.median for o in found.ways)
        assert ((way.net.cell, way.net.layers, way.net.size) in best) is not beaten
    assert ("rnn", 1, 64) in best  # nothing is faster
    assert ("gru", 2, 128) in best  # nothing is lower


def test_findings_have_the_verdicts_of_claims():
    found = {each.name: each for each in findings(study_of(records(layers=(1, 2, 3))))}
    assert list(found) == ["G1", "G1t", "G2", "G3", "gru", "lstm", "layers"]
    assert {name: found[name].evidence.verdict.value for name in ("G1", "G2", "G3")} == dict.fromkeys(
        ("G1", "G2", "G3"), "reproduces"
    )
    costs = [question.found.value for question, _ in found["gru"].evidence.figures]
    assert costs == pytest.approx([2.0] * 6)
    assert found["lstm"].evidence.verdict.value == "reproduces"
    (worse, *_) = findings(
        study_of([*launches(1.0, blocks(falling(100)), of=network("rnn")), *launches(1.0, blocks(falling(200)))])
    )
    assert (worse.name, worse.evidence.verdict.value) == ("G1", "differs")


def test_at_equal_time_a_costly_cell_has_fewer_steps():
    plain, gated = network("rnn"), network("gru")
    found = {}
    for cost in (1.0, 10.0):
        both = [*launches(0.01, blocks(falling(200)), of=plain), *launches(0.01 * cost, blocks(falling(180)), of=gated)]
        (_, finding, *_) = findings(study_of(both))
        found[cost] = finding.evidence.verdict.value
    assert found == {1.0: "reproduces", 10.0: "differs"}


def test_work_is_that_of_the_matrix():
    found = study_of(records(sizes=(64,), layers=(1,)))
    (line,) = found.lines
    for net, cell in line.cells.items():
        assert cell.gflops * 1e9 * cell.seconds.median == pytest.approx(flops(net))


def test_the_lectures_claims_are_tried_on_ones_own_curves():
    tables = Tables(Matrix(), lambda cell: "", losses=losses_of(study_of(records()).learnt))
    tried = {each.claim.id: each for each in try_claims([CLAIMS[name] for name in ("G1", "G2", "G3")], tables).tried}
    assert {name: (each.here.verdict.value, each.here.of) for name, each in tried.items()} == {
        "G1": ("reproduces", 8),
        "G2": ("reproduces", 6),
        "G3": ("reproduces", 6),
    }
    assert tried["G1"].on_paper.of == 36


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("quantity", REPORT.quantities)
def test_every_format_shows_every_quantity(form, quantity):
    text = shown(study_of(records()), form, quantity=quantity, against="karpathy2016")
    assert text
    if form == "terminal":
        assert max(map(len, text.splitlines())) <= 80


def test_a_line_of_csv_for_each_speed_and_keys_of_json():
    cut_short = launches(
        0.02, [[50, 3.0]], of=network("lstm", 3, 64), ended="the loss was not finite in steps 51 to 100"
    )
    untrained = launches(0.02, of=network("lstm", 2, 256))
    found = study_of([*records(), *cut_short, *untrained])
    lines = list(csv.DictReader(io.StringIO(shown(found, "csv"))))
    assert len(lines) == 14
    by_net = {(each["cell"], each["layers"], each["size"]): each for each in lines}
    assert by_net["lstm", "2", "256"]["hours_to_target.value"] == by_net["lstm", "2", "256"]["text"] == ""
    assert float(by_net["gru", "1", "64"]["characters_per_second"]) == pytest.approx(100 * 100 / 0.02, rel=1e-3)
    data = json.loads(shown(found, "json"))
    assert set(data) == {"texts", "speeds", "times", "findings", "notes"}
    (text,) = data["texts"]
    # What ended early does not pull the others back to where it came.
    assert (text["digest"], text["common_steps"]) == (TEXT["digest"], 600)
    assert {each["cell"] for each in text["curves"] if each["loss"] is None} == {"lstm"}
    assert "ended" in shown(found)
    assert "lstm 3 x 64: training in torch ended: the loss was not finite in steps 51 to 100" in data["notes"]


def test_a_curve_that_another_framework_does_not_confirm_is_marked():
    curve = blocks(falling(200))
    other = [[step, loss * 1.05] for step, loss in curve]
    found = study_of([*launches(0.01, curve), *launches(0.02, other[:10], framework="jax", adapter="jax", mode="jit")])
    text = " ".join(shown(found).split())
    assert "not confirmed. jax differs from torch by 5.0% in a block up to step 500" in text


def test_nothing_is_no_error():
    found = study_of([])
    assert "dlbench run char" in shown(found)
    assert findings(found) == ()
    assert shown(found, "csv").count("\n") == 1


def test_the_picture_has_numbers_at_its_axes_and_no_formulas(tmp_path):
    found = study_of(records())
    (path,) = REPORT.draw(Found(found, findings(found)), tmp_path / "curves.svg", ReportOptions())
    drawn = path.read_text(encoding="utf-8")
    assert "seconds of updates" in drawn
    assert "mathdefault" not in drawn
