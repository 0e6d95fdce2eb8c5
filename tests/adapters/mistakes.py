"""Deliberately broken adapters: each makes one mistake that people really make in porting a
network.

They are small overrides of the float64 NumPy adapter, so the parity check sees the mistake alone,
not rounding. Every mistake that can be made without changing the first loss is made that way: a
wrong loss would give it away too easily.
"""

import numpy as np

from dlbench.adapters.families import (
    LEARNING_RATE,
    Attention,
    Boltzmann,
    Convolutional,
    Elman,
    McCullochPitts,
    Recurrent,
    Residual,
    Spiking,
)
from dlbench.adapters.reference import arithmetic
from dlbench.adapters.reference.adapter import ReferenceAdapter as Adapter
from dlbench.adapters.reference.networks import AttentionModel, ChainModel, ResidualModel
from dlbench.adapters.reference.recurrent import (
    LAYERS,
    ElmanModel,
    Gru,
    LeakyIntegrateAndFire,
    Lstm,
    RecurrentModel,
    Simple,
    SpikingModel,
)
from dlbench.adapters.reference.sampling import BoltzmannMachine, Chains, McCullochPittsMachine


def broken(base, **methods):
    """Return the class with other methods."""
    return type("Broken", (base,), methods)


def with_model(family, base, **methods):
    """Return an adapter whose model of this family has other methods."""
    return broken(Adapter, models={**Adapter.models, family: broken(base, **methods)})


def with_cells(**kinds):
    """Return an adapter whose recurrent layers of these cells are of other classes."""
    return with_model(Recurrent, RecurrentModel, kinds={**LAYERS, **kinds})


def in_order(kind, order):
    """Return a layer that reads and writes its gates in another order."""

    def join(self, parts):
        return kind.join(self, [parts[order.index(place)] for place in range(len(order))])

    return broken(
        kind, split=lambda self, sums: [kind.split(self, sums)[place] for place in order], join=join
    )


def forget_bias_one(self, sums):
    """Split the gates as TensorFlow 1's BasicLSTMCell and Keras' unit_forget_bias."""
    enter, forget, candidate, leave = Lstm.split(self, sums)
    return [enter, forget + 1.0, candidate, leave]


def carried(kind):
    """Return a layer whose last state starts the next mini-batch."""
    return broken(
        kind, start=lambda self, batch: getattr(self, "last", None) or kind.start(self, batch)
    )


def reset_first(self, share, product, state):
    """Weigh the state by the reset gate before its product: Cho et al.'s own form, Keras's without
    reset_after."""
    weight, bias = (
        np.split(self.weight("hidden_weight"), 3)[2],
        np.split(self.weight("hidden_bias"), 3)[2],
    )
    ours, theirs = self.split(share), self.split(product)
    reset, update = [arithmetic.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
    new = np.tanh(ours[2] + (reset * state[0]) @ weight.T + bias)
    return ((1.0 - update) * new + update * state[0],), (reset, update, new, theirs[2], state[0])


def scale_of_width(self, family, weights):
    """Divide the scores by the root of the whole width, not of a head's."""
    AttentionModel.__init__(self, family, weights)
    self.scale = family.width**-0.5


def layer_norm_epsilon(self, rows):
    """Standardise with Keras's default, 1e-3."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    inverse = 1.0 / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + 1e-3)
    return centred * inverse, inverse


def summed_over_time(self, logits, labels, count):
    """Sum as the original TensorFlow script; the loss is reported as the mean."""
    loss, gradient = RecurrentModel.loss(self, logits, labels, count)
    return loss, gradient * self.family.steps


def last_step_only(self, inputs, labels):
    """Take the softmax at the last step alone (many examples do this), its gradient spread as if at
    every step."""
    return RecurrentModel.forward(self, inputs, np.repeat(labels[:, -1:], labels.shape[1], axis=1))


def transposed_tokens(self, inputs, labels):
    """Give batch-major tokens to a time-major network; shapes that fit hide it."""
    return RecurrentModel.forward(
        self, inputs.T.reshape(inputs.shape), labels.T.reshape(labels.shape)
    )


def summed_over_outputs(self, errors):
    """Sum over steps and outputs, mean over the mini-batch alone; the loss is reported as the
    mean."""
    return ElmanModel.by_outputs(self, errors) * self.family.steps * self.family.outputs


def clipped_by_tensor(self, gradients):
    """Clip each gradient by its own norm: Keras's clipnorm, CNTK's clipping."""
    for pair in gradients:
        yield from Adapter.clip(self, iter([pair]))


def spiking(**methods):
    """Return an adapter whose spiking layer has other methods."""
    return with_model(
        Spiking, SpikingModel, kinds={"lif": broken(LeakyIntegrateAndFire, **methods)}
    )


def steeper(self, potential):
    """Return the slope of another surrogate, as steep as snnTorch's usual one."""
    return 1.0 / np.square(1.0 + 25.0 * np.abs(potential - 1.0))


def boltzmann(**methods):
    """Return an adapter whose Boltzmann machine has other methods."""
    return with_model(Boltzmann, BoltzmannMachine, **methods)


def mcculloch_pitts(**methods):
    return with_model(McCullochPitts, McCullochPittsMachine, **methods)


def as_the_sweep_began(self, numbers):
    """Decide every block from the states before the sweep: gaps that are not kept up to date."""
    before = self.state.copy()
    product = BoltzmannMachine.product

    def of_before(block):
        current, self.state = self.state, before
        products = product(self, block)
        self.state = current
        return products

    self.product = of_before
    return BoltzmannMachine.move(self, numbers)


def in_blocks(*blocks):
    """Return a constructor of a machine that decides these blocks, one after another."""

    def make(self, family, weights):
        BoltzmannMachine.__init__(self, family, weights)
        self.blocks = list(blocks) or [slice(unit, unit + 1) for unit in range(family.units)]

    return make


def started_anew(self, inputs, labels):
    """Start from the states of the mini-batch, whatever the step before left."""
    self.state = None
    return Chains.forward(self, inputs, labels)


def of_transposed(self, state):
    self.weights = dict(self.weights, weight=self.weights["weight"].T)
    McCullochPittsMachine.start(self, state)


def without_diagonal(self, chosen, change):
    """Change the fields of the other units alone, as of a Boltzmann machine."""
    fields = self.fields[self.rows, chosen]
    McCullochPittsMachine.update(self, chosen, change)
    self.fields[self.rows, chosen] = fields


def with_stopped_clock(self, choices, waits):
    return McCullochPittsMachine.transition(self, choices, np.ones_like(waits))


def padded_like_same(self, name, values, stride, padding, bias=False):
    """Pad one less before and one more after, as SAME does under a stride: the shapes stay, the
    content moves."""
    if stride > 1:
        moved = np.zeros_like(values)
        moved[:, :, :-1, :-1] = values[:, :, 1:, 1:]
        values = moved
    return ChainModel.convolution(self, name, values, stride, padding, bias)


def running_statistics(self, values, gamma, beta, epsilon):
    """Normalise as in inference: mean 0 and variance 1, as the running statistics start."""
    inverse = np.full((1, values.shape[1], 1, 1), 1.0 / np.sqrt(1.0 + epsilon))
    normalised = values * inverse
    return normalised * gamma[:, None, None] + beta[:, None, None], normalised, inverse


def constant_statistics(self, gradient, normalised, inverse, gamma):
    """Take batch statistics for constants in the backward pass."""
    axes = (0, 2, 3)
    by_values = gradient * gamma[:, None, None] * inverse
    return by_values, (gradient * normalised).sum(axis=axes), gradient.sum(axis=axes)


def larger_epsilon(self, values, gamma, beta, epsilon):
    """Normalise with Keras' default, 1e-3."""
    return arithmetic.batch_normalise(values, gamma, beta, 1e-3)


def stride_in_second_convolution(self, block):
    """Compute ResNet v1.5: the stride in the 3x3 convolution, torchvision's choice."""
    return (1, 0), (block.body[0].stride, 1), (1, 0)


def updating(change):
    """Return an adapter that updates by another gradient, or by none."""

    def update(self, name, gradient):
        gradient = change(self, name, gradient)
        if gradient is not None:
            Adapter.update(self, name, gradient)

    return broken(Adapter, update=update)


def doubled_bias(self, name, gradient):
    """Return the gradient of two trained biases where there is one, or Caffe's doubled bias
    learning rate."""
    return gradient * 2.0 if name.endswith((".bias", ".beta")) else gradient


def all_but_the_last_bias(self, name, gradient):
    return gradient if name not in ("fc.bias", "fc2.bias", "fc4.bias", "fc8.bias") else None


def momentum(self, name, gradient):
    """Return the gradient of SGD with momentum 0.9, which differs from the second step on."""
    self.velocity = getattr(self, "velocity", {})
    self.velocity[name] = gradient + 0.9 * self.velocity.get(name, 0.0)
    return self.velocity[name]


def weight_decay(strength):
    return updating(lambda self, name, gradient: gradient + strength * self.weights[name])


def late_labels(self, batch):
    """Place labels one example, or one time step, late."""
    Adapter.place(self, batch._replace(labels=np.roll(batch.labels, 1, axis=-1)))


def fixed_rate(self, rate):
    """Keep the learning rate from when the graph was built."""
    Adapter.set_learning_rate(self, LEARNING_RATE if self.rate else 2.0 * rate)


def reduced_precision(bits):
    """Return an adapter that computes with weights of so many mantissa bits: 7 is bfloat16, 10 is
    TF32."""

    def rounded(values):
        fraction, exponent = np.frexp(values)
        return np.ldexp(np.round(np.ldexp(fraction, bits + 1)), exponent - bits - 1)

    def step(self):
        self.model.weights = {name: rounded(value) for name, value in self.weights.items()}
        Adapter.step(self)

    return broken(Adapter, step=step)


FAMILIES = ("fcn5", "alexnet", "lstm32", "resnet50")
#: Without ResNet-50, whose float32 conditioning leaves no room to see them.
SHARP = ("fcn5", "alexnet", "lstm32")
#: Simple recurrent networks, by the names of small ones: none comes with dlbench.
SIMPLE = ("small-elman", "leaky-elman", "free-elman")
CLIPPED = ("small-elman", "leaky-elman")
TRANSFORMER = ("small-attention",)
STACKS = ("one-hot-lstm", "one-hot-gru", "one-hot-rnn")
BOLTZMANN = ("small-sequential", "small-synchronous", "small-bipartite")
IN_BLOCKS = ("small-sequential", "small-bipartite")

#: The broken adapter, and the networks, by name, on which it has to be caught.
MISTAKES = {
    "gates i,o,f,c": (with_cells(lstm=in_order(Lstm, (0, 2, 3, 1))), ("lstm32",)),
    "gates i,c,f,o": (with_cells(lstm=in_order(Lstm, (0, 2, 1, 3))), ("lstm32",)),
    "forget bias 1": (with_cells(lstm=broken(Lstm, split=forget_bias_one)), ("lstm32",)),
    "loss summed over time": (
        with_model(Recurrent, RecurrentModel, loss=summed_over_time),
        ("lstm32",),
    ),
    "last step only": (with_model(Recurrent, RecurrentModel, forward=last_step_only), ("lstm32",)),
    "transposed tokens": (
        with_model(Recurrent, RecurrentModel, forward=transposed_tokens),
        ("lstm32",),
    ),
    "carried state": (
        with_cells(lstm=carried(Lstm), gru=carried(Gru), rnn=carried(Simple)),
        ("lstm32", *STACKS),
    ),
    "gates z,r,n": (with_cells(gru=in_order(Gru, (1, 0, 2))), ("one-hot-gru",)),
    "gates r,n,z": (with_cells(gru=in_order(Gru, (0, 2, 1))), ("one-hot-gru",)),
    "reset before the product": (
        with_cells(gru=broken(Gru, advance=reset_first)),
        ("one-hot-gru",),
    ),
    "carried simple state": (with_model(Elman, ElmanModel, kinds={"rnn": carried(Simple)}), SIMPLE),
    "squares summed": (
        with_model(Elman, ElmanModel, by_outputs=summed_over_outputs),
        ("free-elman",),
    ),
    "not clipped": (broken(Adapter, clip=lambda self, gradients: gradients), CLIPPED),
    "clipped by tensor": (broken(Adapter, clip=clipped_by_tensor), CLIPPED),
    "no mask": (
        with_model(
            Attention,
            AttentionModel,
            hidden=lambda self: np.zeros_like(AttentionModel.hidden(self)),
        ),
        TRANSFORMER,
    ),
    "scale of the width": (
        with_model(Attention, AttentionModel, __init__=scale_of_width),
        TRANSFORMER,
    ),
    "layer norm's epsilon 1e-3": (
        with_model(Attention, AttentionModel, standardised=layer_norm_epsilon),
        TRANSFORMER,
    ),
    "spikes without a reset": (spiking(staying=lambda self, state: self.beta), ("small-lif",)),
    "another surrogate": (spiking(slope=steeper), ("small-lif",)),
    "spikes without a slope": (
        spiking(slope=lambda self, potential: 0.0 * potential),
        ("small-lif",),
    ),
    "carried potential": (
        with_model(Spiking, SpikingModel, kinds={"lif": carried(LeakyIntegrateAndFire)}),
        ("small-lif",),
    ),
    "gap of the other sign": (
        boltzmann(probabilities=lambda self, gaps: BoltzmannMachine.probabilities(self, -gaps)),
        BOLTZMANN,
    ),
    "twice the temperature": (
        boltzmann(
            probabilities=lambda self, gaps: BoltzmannMachine.probabilities(self, gaps / 2.0)
        ),
        BOLTZMANN,
    ),
    "gaps not kept up to date": (boltzmann(move=as_the_sweep_began), IN_BLOCKS),
    "one after another": (boltzmann(__init__=in_blocks()), ("small-synchronous",)),
    "the halves exchanged": (
        boltzmann(__init__=in_blocks(slice(4, 9), slice(0, 4))),
        ("small-bipartite",),
    ),
    "transposed weights": (mcculloch_pitts(start=of_transposed), ("small-mpm",)),
    "no diagonal": (mcculloch_pitts(update=without_diagonal), ("small-mpm",)),
    "fields not kept up to date": (
        mcculloch_pitts(update=lambda self, chosen, change: None),
        ("small-mpm",),
    ),
    "stopped clock": (mcculloch_pitts(transition=with_stopped_clock), ("small-mpm",)),
    "Boltzmann chains started anew": (boltzmann(forward=started_anew), BOLTZMANN),
    "McCulloch-Pitts chains started anew": (mcculloch_pitts(forward=started_anew), ("small-mpm",)),
    "SAME padding": (
        with_model(Convolutional, ChainModel, convolution=padded_like_same),
        ("alexnet",),
    ),
    "normalisation in inference mode": (
        with_model(
            Residual,
            ResidualModel,
            normalise=running_statistics,
            normalise_backward=constant_statistics,
        ),
        ("resnet50",),
    ),
    "statistics without gradient": (
        with_model(Residual, ResidualModel, normalise_backward=constant_statistics),
        ("resnet50",),
    ),
    "epsilon 1e-3": (with_model(Residual, ResidualModel, normalise=larger_epsilon), ("resnet50",)),
    "ResNet v1.5": (
        with_model(Residual, ResidualModel, windows=stride_in_second_convolution),
        ("resnet50",),
    ),
    "summed loss": (updating(lambda self, name, gradient: gradient * len(self.labels)), FAMILIES),
    "doubled bias": (updating(doubled_bias), FAMILIES + SIMPLE + STACKS + TRANSFORMER),
    "frozen parameter": (updating(all_but_the_last_bias), FAMILIES),
    "shifted labels": (broken(Adapter, place=late_labels), FAMILIES),
    "learning rate": (broken(Adapter, set_learning_rate=fixed_rate), FAMILIES),
    "momentum": (updating(momentum), ("fcn5", "lstm32")),
    "weight decay 5e-4": (weight_decay(5e-4), FAMILIES),
    "weight decay 1e-4": (weight_decay(1e-4), SHARP),
    "bfloat16 weights": (reduced_precision(7), SHARP),
    "TF32 weights": (reduced_precision(10), SHARP),
}
