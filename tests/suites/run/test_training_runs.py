"""Runs that train on a text, of the null framework's made-up curve, from the command to the report."""

import json

import pytest
from suites_of_null import suite_of_null

from dlbench.reports.storage.store import Store
from dlbench.suites.planning import suite
from dlbench.suites.run.texts import Text

NETWORK = """
[[grid]]
name = "char-{cell}"
family = "recurrent"
vocabulary = 96
embedding = 0
cell = ["rnn", "gru"]
layers = 1
hidden = 8
steps = 10
batch_size = 4
"""
QUIET = ("--no-ceilings", "--no-quiet-gate")


def write(folder, steps=120, grid=NETWORK, protocol=None, **settings):
    text = suite_of_null(
        networks=[],
        step_seconds=0.02,
        protocol={"curve_steps": steps, "seconds": 0.05, **(protocol or {})},
        loss_steps=30,
        **settings,
    )
    (folder / "mine.toml").write_text(text.replace("networks = []\n", "") + grid)


def corpus(folder, name="text.txt", words=b"all work and no play "):
    (folder / name).write_bytes(words * 10_000)
    return name


def records(folder):
    with Store.open(folder / "dlbench.sqlite", create=False) as store:
        return store.records()


def test_a_run_trains_resumes_and_is_reported(command, tmp_path):
    write(tmp_path)
    run = ("run", "mine.toml", "--corpus", corpus(tmp_path), *QUIET)
    code, _, said = command(*run, "--budget", "1ms")
    assert code == 0
    assert "Behind the timed steps each launch of null null trains 120 steps on a text." in said
    assert "The text: corpus, 210,000 symbols" in " ".join(said.split())
    (first,) = records(tmp_path)
    assert [step for step, _ in first.outcome.curve] == [50, 100, 120]
    told = first.outcome.software["text"]
    assert {key: told[key] for key in ("name", "symbols", "floor")} == {
        "name": "corpus",
        "symbols": 210000,
        "floor": None,
    }
    assert str(tmp_path) not in json.dumps(first.to_dict())
    # Another text, or the generated one, is another training.
    other = corpus(tmp_path, "other.txt", b"never odd or even ")
    code, _, said = command("run", "mine.toml", "--corpus", other, *QUIET, "--resume")
    assert code == 2
    assert "trains on another text" in " ".join(said.split())
    code, _, said = command(*run, "--resume")
    assert code == 0
    assert len({each.cell.network for each in records(tmp_path)}) == 2
    code, out, _ = command("report", "cells", "--json")
    found = json.loads(out)
    (text,) = found["texts"]
    assert (text["symbols"], text["common_steps"], len(text["curves"])) == (210000, 120, 2)
    assert {each["text"] for each in found["times"]} == {text["digest"]}
    # The newest run of a cell only timed it: what it learnt is still told.
    write(tmp_path, steps=0)
    assert command("run", "mine.toml", *QUIET)[0] == 0
    again = json.loads(command("report", "cells", "--json")[1])
    assert again["texts"] == found["texts"]
    assert {each["run"] for each in again["speeds"]} != {each["run"] for each in found["speeds"]}


def test_a_loss_that_is_not_finite_is_told(command, tmp_path):
    write(tmp_path, grid=NETWORK.replace(', "gru"', ""), nan_from=100)
    assert command("run", "mine.toml", "--corpus", corpus(tmp_path), *QUIET)[0] == 0
    (record,) = records(tmp_path)
    assert [step for step, _ in record.outcome.curve] == [50]
    out = " ".join(command("report", "cells")[1].split())
    assert "training in null ended: the loss was not finite in steps 51 to 100" in out


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        ({"protocol": {"curve_steps": -1}}, (), "curve_steps"),
        ({"protocol": {"curve_steps": 0, "curve_check_steps": 5}}, (), "needs curve_steps"),
        ({"grid": NETWORK.replace("96", "90")}, (), "takes 90 symbols; to train on a text it must take 96"),
        ({"grid": '[[network]]\nname = "own"\nfamily = "own"\n'}, (), "takes no symbols"),
        ({}, ("--corpus", "nowhere.txt"), "nowhere.txt is not a file"),
        ({"steps": 0}, ("--corpus", "nowhere.txt"), "trains on no text"),
    ],
    ids=["negative", "check alone", "few symbols", "no symbols", "no file", "no training"],
)
def test_what_cannot_be_trained_is_refused_in_a_line(command, tmp_path, change, words, said):
    write(tmp_path, **change)
    code, out, errors = command("run", "mine.toml", *words, *QUIET)
    assert (code, out) == (2, "")
    assert said in " ".join(errors.split())
    assert not (tmp_path / "dlbench.sqlite").exists()


def test_the_shipped_suites_train_what_they_say():
    for name, count in (("char", 3), ("char-grid", 18)):
        found = suite.load(name)
        assert len(found.its_networks) == count
        assert found.protocol.curve_steps >= found.protocol.curve_check_steps == 500


def test_every_row_behind_the_first_trains_to_check_it(command, tmp_path, monkeypatch):
    out = " ".join(command("plan", "char")[1].split())
    assert "each launch of torch eager trains 600 steps on a text, and of jax jit 500 to check it" in out
    alone = " ".join(command("plan", "char", "--frameworks", "jax")[1].split())
    assert "each launch of jax jit trains 600 steps on a text." in alone


@pytest.mark.slow
@pytest.mark.framework
def test_pytorch_learns_a_text_and_jax_confirms_it(command, tmp_path, framework_python):
    write(tmp_path, steps=150, grid=NETWORK, protocol={"curve_check_steps": 100})
    text = (tmp_path / "mine.toml").read_text().replace('["null"]', '["torch", "jax"]')
    (tmp_path / "mine.toml").write_text(text.partition("[settings.null]")[0] + NETWORK)
    pythons = [word for name in ("torch", "jax") for word in ("--python", f"{name}={framework_python(name)}")]
    assert command("run", "mine.toml", "--corpus", corpus(tmp_path), *pythons, *QUIET)[0] == 0
    (told,) = json.loads(command("report", "cells", "--json")[1])["texts"]
    assert [each["cell"] for each in told["curves"]] == ["rnn", "gru"]
    for curve in told["curves"]:
        assert (curve["framework"], curve["confirmed"], len(curve["blocks"])) == ("torch", True, 3)
        losses = [loss for _, loss in curve["blocks"]]
        assert losses == sorted(losses, reverse=True)
        assert curve["test_loss"] < losses[-1] < 0.8 * losses[0]


def test_a_text_has_one_description(tmp_path):
    import numpy as np

    text = Text("corpus", np.zeros(10, dtype=np.uint8), 1.5)
    assert text.described() == {"name": "corpus", "digest": text.digest, "symbols": 10, "floor": 1.5}
