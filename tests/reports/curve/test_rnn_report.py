"""`dlbench report rnn`: its tables in every format, and of a run of the null framework."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import factory_of_records as make
import pytest
from processes import suite_of_null
from records_of_claims import small, tables_of

from dlbench.adapters.protocol import Status
from dlbench.reports.curve.rnn import Size, Study, study
from dlbench.reports.formats.export import FORMATS
from dlbench.reports.storage.store import Store

Call = Callable[..., tuple[int, str, str]]
GRID = [Size(n, t) for n in (10, 100, 500) for t in (20, 50, 100)]


def launches(time: Callable[[Size], float], sizes: Iterable[Size] = GRID, **of_cell: object) -> list[make.Record]:
    return [each for size in sizes for each in small(time(size), *size, **{"mode": "eager", **of_cell})]


def everything() -> list[make.Record]:
    """A row with one thread and four, and on a GPU; another row; another machine."""
    gpu = {"device": "cuda:0", "threads": 4}
    return [
        *launches(lambda size: 1e-5 * size.steps * size.hidden, threads=1),
        *launches(lambda size: 1e-5 * size.steps * (20 + size.hidden / 2), threads=4),
        *launches(lambda size: 2e-3 * size.steps, **gpu),
        *launches(lambda size: 3e-5 * size.steps * size.hidden, threads=1, mode="loop"),
        *launches(lambda size: 2e-3 * size.steps**1.0, threads=1, machine="m-two"),
        *launches(lambda size: 1e-3, [Size(10, 20, 100), Size(100, 20, 2, "sigmoid")], threads=1),
    ]


def found(records: Iterable[make.Record]) -> Study:
    cells = tables_of(records)
    return study(cells.matrix, cells.networks)


def test_lines_threads_crossings_and_rows() -> None:
    of = found(everything())
    (one,) = [
        each for each in of.lines if (each.line.name, each.line.machine) == ("torch eager, 1 thread", make.MACHINE)
    ]
    assert [(size.hidden, fit.per_step.value) for size, fit in one.fits.items()] == [
        (n, pytest.approx(1e-5 * n, rel=1e-4)) for n in (10, 100, 500)
    ]
    assert all(abs(fit.fixed.value) < 1e-5 * size.hidden for size, fit in one.fits.items())
    assert {each.knee.at for each in one.growth if each.series.inputs == 2} == {100}
    assert {pays.from_units for pays in of.threads if pays.line.threads == 4} == {100}
    crossings = {(each.what, each.first.name, each.second.name): each.at for each in of.crossings}
    at = crossings["torch eager", "1 thread of a machine [m-one]", "4 threads of a machine [m-one]"]
    # Linear in the logarithms between 10 units, where one thread takes 10 / 25 of four, and 100, where it is 100 / 70.
    assert at.units == pytest.approx(10 ** (1 + math.log(25 / 10) / math.log(25 / 10 * 100 / 70)))
    # The GPU takes 200, the fastest thread count 70 with 100 units, and 270 with 500.
    on_gpu = crossings["torch", "cpu of a machine [m-one]", "cuda:0 of a machine [m-one]"]
    assert on_gpu.units == pytest.approx(100 * 5 ** (math.log(200 / 70) / math.log(270 / 70)))
    assert ("torch", "cpu of a machine [m-one]", "cpu of a machine [m-two]") in crossings
    compared = {(each.line.name, each.line.machine): each for each in of.compared}
    assert set(compared) == {
        (name, make.MACHINE) for name in ("torch eager, 1 thread", "torch eager, 4 threads", "torch eager, cuda:0")
    } | {("torch loop, 1 thread", make.MACHINE)}
    loop, eager = compared["torch loop, 1 thread", make.MACHINE], compared["torch eager, 1 thread", make.MACHINE]
    assert loop.mean.value == pytest.approx(3 * eager.mean.value)
    assert (loop.wins, {size.hidden for size in eager.wins}) == ((), {10})
    assert (eager.sizes, eager.of) == (9, 9)


def test_what_cannot_be_used_stands_in_the_first_table_alone() -> None:
    many = {"threads": make.threads(1, 1.0, cpu_per_wall=3.0)}
    exceeding = [each for size in GRID for each in small(1.0, *size, mode="eager", threads=1)]
    exceeding = [each.__class__(**{**vars(each), "outcome": each.outcome._replace(**many)}) for each in exceeding]
    hole = make.hole(Status.CRASHED, "signal 11", **launches(lambda size: 1.0, GRID[:1], mode="loop")[0].cell._asdict())
    hole = hole.__class__(**{**vars(hole), "network": launches(lambda size: 1.0, GRID[:1])[0].network})
    of = found([*exceeding, hole])
    assert [len(each.cells) for each in of.lines] == [9, 1]
    assert all(each.fits == {} and each.growth == () for each in of.lines)
    assert of.compared == ()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    kept = f"{tmp_path_factory.mktemp('rnn')}/kept.sqlite"
    with Store.open(kept) as store:
        for each in everything():
            store.append(each)
    return kept


@pytest.fixture
def call(command: Call, path: str) -> Call:
    return lambda *words: command("report", "rnn", "--store", path, *words)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_beside_the_study_and_without(form: str, call: Call) -> None:
    for words in ((), ("--quantity", "step"), ("--quantity", "paper", "--against", "brandfonbrener2017")):
        code, out, errors = call("--format", form, *words)
        assert (code, errors) == (0, "")
        assert ("Figure 9" in out) is ("--against" in words)
        if form == "terminal":
            assert max(map(len, out.splitlines())) <= 80


def test_json_and_csv_say_the_same_and_the_quantities_are_of_the_same_times(call: Call) -> None:
    data = json.loads(call("--json", "--against", "brandfonbrener2017")[1])
    assert data["beside"]["lines"]
    sizes = [size for of in (data, data["beside"]) for line in of["lines"] for size in line["sizes"]]
    lines = list(csv.DictReader(io.StringIO(call("--format", "csv", "--against", "brandfonbrener2017")[1])))
    assert len(lines) == len(sizes)
    for line, size in zip(lines, sizes, strict=True):
        seconds = size["seconds_per_minibatch"]["median"]
        assert float(line["seconds_per_minibatch.median"]) == seconds
        assert math.isclose(size["seconds_per_time_step"] * size["steps"], seconds)
        assert math.isclose(size["seconds_of_a_run"], 2000 * seconds)
    for each in data["crossings"]:
        assert (each["units"] is not None) is (each["where"] == "between")


def test_mistakes_are_one_line(call: Call) -> None:
    for words, part in (
        (("--against", "shi2016"), "published table"),
        (("--quantity", "seconds"), "choose one of update, step, paper"),
    ):
        code, out, errors = call(*words)
        assert (code, out) == (2, "")
        assert part in " ".join(errors.split())


def test_a_run_of_the_null_framework_is_reported_from_end_to_end(command: Call, tmp_path: Path) -> None:
    grid = '[[grid]]\nname = "r{hidden}-t{steps}"\nfamily = "elman"\ninputs = 2\nhidden = [4, 8]\noutputs = 2\n'
    text = suite_of_null(networks=["r*"], threads=[1, 2], step_seconds=0.002, cores=2)
    Path("mine.toml").write_text(f'{text}\n{grid}steps = 2\nactivation = "relu"\nbatch_size = 1\n')
    assert command("run", "mine.toml", "--no-ceilings", "--no-quiet-gate")[0] == 0
    code, out, _ = command("report", "rnn", "--json")
    data = json.loads(out)
    assert code == 0
    assert [(line["framework"], line["threads"]) for line in data["lines"]] == [("null", 1), ("null", 2)]
    assert [[size["hidden"] for size in line["sizes"]] for line in data["lines"]] == [[4, 8], [4, 8]]
    assert all(line["growth"] for line in data["lines"])
    medians = [[size["seconds_per_minibatch"]["median"] for size in line["sizes"]] for line in data["lines"]]
    ratios = [each["ratio"]["value"] for pays in data["threads"] for each in pays["sizes"]]
    assert sorted(ratios) == pytest.approx(sorted(two / one for one, two in zip(*medians, strict=True)))
