"""`dlbench report claims`: what it prints, and what it refuses."""

import json
from collections.abc import Callable

import pytest
from records_of_claims import timed

from dlbench.reports.results.storage.store import Store

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(command: Call, tmp_path: object) -> Call:
    path = f"{tmp_path}/kept.sqlite"
    with Store.open(path) as opened:
        for record in (*timed("tensorflow", 2.5, "resnet50"), *timed("caffe", 1.0, "resnet50")):
            opened.append(record)
    return lambda *words: command("report", "claims", "--store", path, *words)


def test_words_that_are_wrong_are_one_line(call: Call) -> None:
    for words, part in (
        (("--paper", "shi2061"), "choose one of shi2016"),
        (("--fail-on", "fails"), "choose one of reproduces"),
        (("--reference", "wuensche"), "Did you mean 'wuensche2018'?"),
    ):
        code, out, errors = call(*words)
        assert (code, out) == (2, "")
        assert part in " ".join(errors.split())


def test_a_published_table_may_stand_in_place_of_a_store(call: Call) -> None:
    code, out, _ = call("--reference", "shi2016", "--paper", "shi2016", "--json")
    assert code == 0
    for claim in json.loads(out):
        # Of one machine of the table the paper speaks alone; here every machine counts.
        if claim["id"] in ("A1", "A2", "A3", "A4", "A5", "A13", "A16"):
            assert claim["verdict_here"] == claim["verdict_on_paper"], claim["id"]
    _, out, _ = call("--reference", "wuensche2018", "--paper", "wuensche2018", "--json")
    assert next(claim["verdict_here"] for claim in json.loads(out)) == "partly"
