"""`dlbench report scaling`, as called: on a store with made-up launches of one worker and of two."""

import csv
import io
import json
from functools import partial
from pathlib import Path

import factory_of_records as make
import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.storage.store import Store

SECONDS = {
    # threads, mini-batch, workers
    (1, 32, 1): 0.5,
    (1, 64, 1): 1.0,
    (2, 64, 1): 0.55,
    (1, 64, 2): 0.6,
}


@pytest.fixture
def call(command):
    """Give a function that runs `dlbench report` in an empty folder: exit code, output, complaints."""
    return partial(command, "report")


def fill(name: str) -> None:
    cells = {
        make.cell(threads=threads, batch_size=batch, world_size=count): seconds
        for (threads, batch, count), seconds in SECONDS.items()
    }
    refused = make.cell(framework="mxnet", adapter="mxnet", mode="hybrid", world_size=2)
    with Store.open(name) as store:
        store.begin_run(make.run(plan=(*cells, refused)))
        for launch in range(3):
            for cell, seconds in cells.items():
                store.append(make.record([seconds * (1 + 0.01 * launch)] * 5, launch=launch, **cell._asdict()))
        store.append(make.hole(Status.UNSUPPORTED, "it drives one device only", **refused._asdict()))


def test_every_format_and_the_picture(call, tmp_path: Path):
    fill("dlbench.sqlite")
    code, out, err = call("scaling", "--plot", "scaling.svg")
    assert code == 0
    assert "Drawn: scaling.svg." in out + err
    assert "w" in Path("scaling.svg").read_text()
    assert max(map(len, out.splitlines())) <= 80
    assert "1.67x" in out  # the same mini-batch, and the throughput of each half of it
    assert "0.917x" in out  # two threads in one process are faster
    assert "2 x 1 thread at 64: n/a, it drives one device only" in out
    for form in ("markdown", "latex"):
        code, out, _ = call("scaling", "--format", form, "--run", "run-1")
        assert code == 0
        assert "1.67x" in out
    code, out, _ = call("scaling", "--json", "--store", "dlbench.sqlite")
    assert code == 0
    torch = next(line for line in json.loads(out)["lines"] if line["framework"] == "torch")
    (team,) = (point for point in torch["points"] if point["world_size"] == 2)
    assert team["strong"]["speedup"]["value"] == pytest.approx(1 / 0.6)
    assert team["weak"]["efficiency"]["value"] == pytest.approx(0.5 / 0.6)
    assert team["one_process"]["speedup"]["value"] == pytest.approx(0.55 / 0.6)
    code, out, _ = call("scaling", "--format", "csv")
    assert code == 0
    assert {row["world_size"] for row in csv.DictReader(io.StringIO(out))} == {"1", "2"}


def test_the_other_reports_keep_workers_apart(call):
    fill("dlbench.sqlite")
    code, out, _ = call("matrix")
    assert code == 0
    assert "1 x2" in out
    code, out, _ = call("threads")
    assert code == 0
    assert "Not shown: 2 cells of several workers" in out


def test_mistakes_are_said_before_anything_is_read(call):
    mistakes = {("--plot", "scaling.pdf"): 2, ("--format", "html"): 2, (): 4, ("--store", "missing.sqlite"): 4}
    for words, expected in mistakes.items():
        code, out, err = call("scaling", *words)
        assert code == expected == call("figure1", *words)[0], words
        assert out == ""
        assert len(err.strip().splitlines()) <= 3
    fill("dlbench.sqlite")
    code, _, err = call("scaling", "--run", "another")
    assert code == 2
    assert "--run another" in err
