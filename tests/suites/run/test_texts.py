"""Texts to train on, generated or a user's, and runs that train on them."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import records_in, refusal, suite_of_null
from properties import examples

from dlbench.adapters.families import ALPHABET
from dlbench.suites.errors import UsageError
from dlbench.suites.run import texts
from dlbench.suites.run.texts import BREAK, CLASSES, CLOSING, DEEPEST, KINDS, LETTERS, LINE, OPENING

STREAMS, LENGTH = 64, 1300
SYMBOLS = texts.symbols(STREAMS, LENGTH).reshape(STREAMS, LENGTH)


def parsed():
    """Yield for each symbol its kind, the depth before it, and the letters before it, as a reader
    of the text tells.

    Depth is known from the first time on that a reader is sure of it: never more than `DEEPEST` are
    open, nor less than none, so the span of all later depths tells it once it is as wide as it can
    be.
    """
    for stream in SYMBOLS:
        symbols = np.array(stream)
        opening = (symbols >= OPENING) & (symbols < CLOSING)
        closing = (symbols >= CLOSING) & (symbols < BREAK)
        steps = opening.astype(int) - closing.astype(int)
        heights = np.concatenate([[0], np.cumsum(steps)])
        if heights.max() - heights.min() < DEEPEST:
            continue  # nobody can tell how many were open at first
        letters: list[int] = []
        for place, symbol in enumerate(stream):
            yield place, int(symbol), int(heights[place] - heights.min()), letters[-2:]
            if symbol < LETTERS:
                letters.append(int(symbol))


def test_its_bits_are_the_same_everywhere():
    text = texts.generated_text()
    assert text.digest == "32ffacef266fc754"
    assert len(text.symbols) == 1024 * 126 * 65
    assert (text.symbols.min(), text.symbols.max()) == (0, ALPHABET - 1)
    assert text.described()["floor"] == pytest.approx(2.0351, abs=1e-4)


def test_its_entropy_is_that_of_a_model_who_knows_the_rules():
    """The mean surprise of the text, by chances written down here anew, lies about the closed
    form."""
    table = texts.followers()
    weights = [1 / rank / sum(1 / divisor for divisor in range(1, 9)) for rank in range(1, 9)]
    surprises = []
    for place, symbol, depth, letters in parsed():
        if place % (LINE + 1) == LINE:
            surprises.append(0.0)
            continue
        opens, closes = 0.05 * (depth < DEEPEST), 0.05 * (depth > 0)
        if symbol >= OPENING:
            chance = opens / KINDS if symbol < CLOSING else closes
        elif len(letters) < 2:
            continue
        else:
            rank = list(table[letters[0] % CLASSES, letters[1]]).index(symbol)
            chance = (1 - opens - closes) * weights[rank]
        surprises.append(-math.log(chance))
    error = float(np.std(surprises)) / math.sqrt(len(surprises))
    assert error < 0.01
    assert abs(float(np.mean(surprises)) - texts.entropy()) < 4 * error


@examples(40)
@given(st.binary(min_size=1, max_size=3000))
def test_symbols_are_ranks_of_frequency_and_rare_bytes_share_the_last(content):
    symbols = texts.as_symbols(np.frombuffer(content, dtype=np.uint8))
    counts = Counter(content)
    ranked = sorted(counts, key=lambda byte: (-counts[byte], byte))
    assert list(symbols) == [min(ranked.index(byte), 95) for byte in content]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (b"short", "has 5 bytes"),
        (bytes(range(256)) * 1000, "binary"),
        ("text".encode("utf-16") * 50_000, "binary"),
        (None, "is not a file"),
    ],
    ids=["empty", "short", "binary", "utf-16", "folder"],
)
def test_a_corpus_that_is_no_text_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "given"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        texts.read_corpus(path)
    assert "\n" not in str(caught.value)


def test_a_file_of_launches_is_written_once_and_mended(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    path = tmp_path / "text"
    path.write_bytes(b"all work and no play " * 10_000)
    text = texts.read_corpus(path)
    file = text.file()
    assert file.read_bytes() == text.symbols.tobytes()
    file.write_bytes(b"damaged")
    assert text.file().read_bytes() == text.symbols.tobytes()
    assert [path.name for path in file.parent.iterdir()] == [file.name]


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
QUIET = ("--no-ceilings", "--no-wait-for-quiet")


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


def test_a_run_trains_resumes_and_is_reported(command, tmp_path):
    write(tmp_path)
    run = ("run", "mine.toml", "--corpus", corpus(tmp_path), *QUIET)
    code, _, errors = command(*run, "--budget", "1ms")
    assert code == 0
    assert "After the timed steps, each launch of null null trains 120 steps on a text." in errors
    assert "The text: corpus, 210,000 symbols" in " ".join(errors.split())
    (first,) = records_in(tmp_path)
    assert [step for step, _ in first.outcome.curve] == [50, 100, 120]
    reported = first.outcome.software["text"]
    assert {key: reported[key] for key in ("name", "symbols", "floor")} == {
        "name": "corpus",
        "symbols": 210000,
        "floor": None,
    }
    assert str(tmp_path) not in json.dumps(first.to_dict())
    # Another text, or the generated one, is another training.
    other_text = corpus(tmp_path, "other.txt", b"never odd or even ")
    code, _, errors = command("run", "mine.toml", "--corpus", other_text, *QUIET, "--resume")
    assert code == 2
    assert "trains on another text" in " ".join(errors.split())
    code, _, errors = command(*run, "--resume")
    assert code == 0
    assert len({record.cell.network for record in records_in(tmp_path)}) == 2
    code, out, _ = command("report", "recurrent", "--json")
    content = json.loads(out)
    (text,) = content["texts"]
    assert (text["symbols"], text["common_steps"], len(text["curves"])) == (210000, 120, 2)
    assert {time_to_target["text"] for time_to_target in content["times"]} == {text["digest"]}
    # The newest run of a cell only timed it: what it learnt is still reported.
    write(tmp_path, steps=0)
    assert command("run", "mine.toml", *QUIET)[0] == 0
    again = json.loads(command("report", "recurrent", "--json")[1])
    assert again["texts"] == content["texts"]
    assert {speed["run"] for speed in again["speeds"]} != {
        speed["run"] for speed in content["speeds"]
    }


def test_a_loss_that_is_not_finite_is_told(command, tmp_path):
    write(tmp_path, grid=NETWORK.replace(', "gru"', ""), nan_from=100)
    assert command("run", "mine.toml", "--corpus", corpus(tmp_path), *QUIET)[0] == 0
    (record,) = records_in(tmp_path)
    assert [step for step, _ in record.outcome.curve] == [50]
    out = " ".join(command("report", "recurrent")[1].split())
    assert "training in null ended: the loss was not finite in steps 51 to 100" in out


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ({"protocol": {"curve_steps": -1}}, (), "curve_steps"),
        ({"protocol": {"curve_steps": 0, "curve_check_steps": 5}}, (), "needs curve_steps"),
        (
            {"grid": NETWORK.replace("96", "90")},
            (),
            "takes 90 symbols; to train on a text it must take 96",
        ),
        ({"grid": '[[network]]\nname = "own"\nfamily = "own"\n'}, (), "takes no symbols"),
        ({}, ("--corpus", "nowhere.txt"), "nowhere.txt is not a file"),
        ({"steps": 0}, ("--corpus", "nowhere.txt"), "trains on no text"),
    ],
    ids=["negative", "check alone", "few symbols", "no symbols", "no file", "no training"],
)
def test_what_cannot_be_trained_is_refused_in_a_line(command, tmp_path, change, words, message):
    write(tmp_path, **change)
    assert message in refusal(command, "run", "mine.toml", *words, *QUIET)
    assert not (tmp_path / "dlbench.sqlite").exists()


@pytest.mark.slow
@pytest.mark.framework
def test_pytorch_learns_a_text_and_jax_confirms_it(command, tmp_path, framework_python):
    write(tmp_path, steps=150, grid=NETWORK, protocol={"curve_check_steps": 100})
    text = (tmp_path / "mine.toml").read_text().replace('["null"]', '["torch", "jax"]')
    (tmp_path / "mine.toml").write_text(text.partition("[settings.null]")[0] + NETWORK)
    pythons = [
        word
        for name in ("torch", "jax")
        for word in ("--python", f"{name}={framework_python(name)}")
    ]
    assert command("run", "mine.toml", "--corpus", corpus(tmp_path), *pythons, *QUIET)[0] == 0
    (reported,) = json.loads(command("report", "recurrent", "--json")[1])["texts"]
    assert [curve["cell"] for curve in reported["curves"]] == ["rnn", "gru"]
    for curve in reported["curves"]:
        assert (curve["framework"], curve["confirmed"], len(curve["blocks"])) == ("torch", True, 3)
        losses = [loss for _, loss in curve["blocks"]]
        assert losses == sorted(losses, reverse=True)
        assert curve["test_loss"] < losses[-1] < 0.8 * losses[0]
