"""Training on a text: its mini-batches, its losses, its ends, and RMSProp against a reference of
its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretending_adapter import Pretender, run
from properties import examples

from dlbench.adapters.families import Recurrent
from dlbench.adapters.launch import batches
from dlbench.adapters.networks import network_with, to_data
from dlbench.adapters.protocol import Status

NETWORK = network_with("char-lstm", Recurrent(96, 7, 8, 1, 5, "lstm"), 4)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.bin"
    (np.arange(5000) % 96).astype(np.uint8).tofile(path)
    return path


class Learner(Pretender):
    """Yields the losses that it is given, of each block those of its steps."""

    def __init__(self, folder, loss, **failures):
        super().__init__(folder, **failures)
        self.loss_at, self.given = loss, []

    def refuses_training(self, network):
        return str(self.failures.get("refuses", ""))

    def train_on_text(self, weights, blocks, update):
        done = 0
        for block in blocks:
            self.given.append((block.length, block.rate))
            losses = [self.loss_at(done + number) for number in range(block.length)]
            done += block.length
            yield losses


def train(folder, text, adapter, steps=120, network=NETWORK):
    launch_fields = {"text": str(text), "network": to_data(network)}
    return run(
        folder, adapter, network=network.name, curve_steps=steps, launch_fields=launch_fields
    )


def test_a_curve_has_the_mean_of_each_block_and_last_the_loss_on_what_was_kept(tmp_path, text):
    adapter = Learner(tmp_path, lambda step: 4.0 - step / 100)
    outcome = train(tmp_path, text, adapter)
    assert outcome.reason == "it only pretends"
    assert outcome.curve == [
        [50, pytest.approx(3.755)],
        [100, pytest.approx(3.255)],
        [120, pytest.approx(2.905)],
    ]
    assert outcome.test_loss == pytest.approx(4.0 - 1.245)
    assert (outcome.status, outcome.curve_ended) == (Status.OK, "")
    assert adapter.given == [(50, 2e-3), (50, 2e-3), (20, 2e-3), (10, 0.0)]
    assert outcome.samples_ns


@pytest.mark.parametrize(
    ("loss", "curve", "ended"),
    [
        (lambda step: float("nan"), 0, "the loss was not finite in steps 1 to 50"),
        (
            lambda step: float("inf") if step >= 105 else 2.0,
            2,
            "the loss was not finite in steps 101 to 120",
        ),
        (
            lambda step: float("nan") if step >= 120 else 2.0,
            3,
            "the loss was not finite on the text kept to test with",
        ),
        (lambda step: 1 / (60 - step) if step < 61 else 1, 1, "ZeroDivisionError: "),
    ],
)
def test_what_ends_training_early_is_noted_and_costs_no_number(tmp_path, text, loss, curve, ended):
    outcome = train(tmp_path, text, Learner(tmp_path, loss))
    assert (outcome.status, len(outcome.curve)) == (Status.OK, curve)
    assert outcome.curve_ended.startswith(ended)
    assert outcome.test_loss is None
    assert outcome.samples_ns


@pytest.mark.parametrize(
    ("network", "adapter", "reason"),
    [
        (
            NETWORK,
            Pretender,
            "no training on a text: this adapter times steps of one mini-batch only",
        ),
        (
            NETWORK,
            lambda folder: Learner(folder, None, refuses="not in this mode"),
            "not in this mode",
        ),
        (
            network_with("few", Recurrent(50, 7, 8, 1, 5), 4),
            Learner,
            "the text has 96 symbols, the network 50",
        ),
        (
            network_with("long", Recurrent(96, 7, 8, 1, 500), 4),
            Learner,
            "a tenth of the text has 500 symbols, too few",
        ),
    ],
    ids=["adapter", "mode", "alphabet", "length"],
)
def test_unsuitable_training_is_refused_before_the_adapter_is_prepared(
    tmp_path, text, network, adapter, reason
):
    built_adapter = adapter(tmp_path, None) if adapter is Learner else adapter(tmp_path)
    outcome = train(tmp_path, text, built_adapter, network=network)
    assert outcome.status is Status.UNSUPPORTED
    assert outcome.reason.startswith(reason)
    assert "prepare" not in built_adapter.calls


@examples(20)
@given(st.integers(1, 9), st.integers(1, 30), st.booleans(), st.integers(0, 10_000))
def test_mini_batches_are_stretches_of_the_text_and_labels_a_symbol_later(
    batch, steps, embedded, number
):
    network = network_with("any", Recurrent(96, 7 if embedded else 0, 8, 1, steps), batch)
    symbols = np.random.RandomState(number).randint(0, 96, 400).astype(np.uint8)
    result = batches.text_mini_batch(symbols, network, batches.seeded("text", number), batch)
    tokens = result.inputs if embedded else result.inputs.argmax(axis=-1)
    content = bytes(symbols)
    for example in range(batch):
        stretch = bytes(tokens[example].astype(np.uint8)) + bytes([result.labels[example, -1]])
        assert stretch in content
        assert list(result.labels[example]) == list(stretch[1:])
    if not embedded:
        assert result.inputs.dtype == np.float32
        assert (result.inputs.sum(axis=-1) == 1).all()


def test_every_step_draws_other_places_and_never_of_the_held_out_text(text):
    trained, held_out = batches.read_text(str(text))
    assert (len(trained), len(held_out)) == (4500, 500)
    trained[:] = 1
    held_out[:] = 2
    *training, last = (
        list(block.batches) for block in batches.text_blocks(trained, held_out, NETWORK, 4, 120)
    )
    assert [len(batch) for batch in training] == [50, 50, 20]
    assert {int(batch.labels.max()) for block in training for batch in block} == {1}
    assert {int(batch.labels.min()) for batch in last} == {2}


#: RMSProp written down anew in float64, with the gradients of the reference; the framework trains
#: beside it.
QUESTION = """
from guest.launch import batches as texts
from guest.reference.adapter import ReferenceAdapter
family = families.Recurrent(5, 0, 3, 1, 4, "gru")
network = networks.network_with("tiny", family, 2)
symbols = np.arange(200) ** 2 % 7 % 5
batches_of = [texts.text_mini_batch(symbols, network, texts.seeded("here", n), 2) for n in range(6)]
weights = batches.initial_weights(network)
for value in weights.values():
    value *= 20  # so that gradients are clipped

update = texts.RmsProp(rate=0.05, decay=0.9, epsilon=1e-3, clip=0.3)
reference = ReferenceAdapter(Cell("reference", "reference", "", "tiny", "cpu", 1, 2), {}, "")
reference.prepare(network, weights, batches_of[0])
means = dict.fromkeys(weights, 0.0)
expected, norms = [], []
for batch in batches_of:
    reference.place(batch)
    expected.append(reference.model.forward(reference.inputs, reference.labels))
    gradients = dict(reference.model.backward())
    norms.append(np.sqrt(sum((gradient ** 2).sum() for gradient in gradients.values())))
    for name, gradient in gradients.items():
        gradient = gradient * min(1.0, update.clip / norms[-1])
        means[name] = update.decay * means[name] + (1 - update.decay) * gradient ** 2
        reference.weights[name] -= update.rate * gradient / (np.sqrt(means[name]) + update.epsilon)

SMALL["tiny"] = network
adapter = make("tiny", batch_size=2)
adapter.prepare(network, weights, batches_of[0])
adapter.set_learning_rate(0.5)
adapter.step()
first = texts.Block(iter(batches_of[:4]), 4, update.rate)
second = texts.Block(iter(batches_of[4:]), 2, update.rate)
still = texts.Block(iter(batches_of[:1] * 2), 2, 0.0)
losses = list(adapter.train_on_text(weights, [first, second, still], update))
answer = losses, expected, bool(max(norms) > update.clip)
"""


@pytest.mark.framework
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("torch", marks=pytest.mark.xdist_group("guest of torch")),
        pytest.param("jax", marks=pytest.mark.slow),
    ],
)
def test_a_framework_trains_as_a_reference_in_double_precision_does(guests, name):
    losses, expected, clipped = guests(name)(QUESTION)
    assert clipped
    assert [len(block) for block in losses] == [4, 2, 2]
    assert losses[0] + losses[1] == pytest.approx(expected, rel=1e-5)
    # At rate 0 nothing moves.
    assert losses[2][0] == losses[2][1]
    assert losses[2][0] != pytest.approx(losses[0][0], rel=1e-3)
