"""Deliberately broken adapters: each makes one mistake that people really make in porting a network.

They are small overrides of the float64 NumPy adapter, so what the parity check sees of them is the mistake alone, not
rounding. Every mistake that can be made without changing the first loss is made that way: a wrong loss would give
it away too easily.
"""

from typing import NamedTuple

import numpy as np

from dlbench.adapters.families import LEARNING_RATE, Attention, Convolutional, Elman, Recurrent, Residual
from dlbench.adapters.reference import arithmetic
from dlbench.adapters.reference.adapter import ReferenceAdapter
from dlbench.adapters.reference.networks import AttentionModel, ChainModel, ResidualModel
from dlbench.adapters.reference.recurrent import LAYERS, ElmanModel, Gru, Lstm, RecurrentModel, Simple


class Mistake(NamedTuple):
    """One broken adapter and the networks, by name, on which it has to be caught."""

    name: str
    adapter: type[ReferenceAdapter]
    networks: tuple[str, ...]


def with_model(family, model):
    """Return an adapter that builds another model for this family."""
    return type("Broken", (ReferenceAdapter,), {"models": {**ReferenceAdapter.models, family: model}})


def model_of(**kinds):
    """Return a model whose layers of these cells are of other classes."""
    return type("BrokenModel", (RecurrentModel,), {"kinds": {**LAYERS, **kinds}})


def in_order(kind, order):
    """Return a layer that reads and writes its gates in another order."""

    class Permuted(kind):
        def split(self, sums):
            parts = super().split(sums)
            return [parts[place] for place in order]

        def join(self, parts):
            joined = [None] * len(order)
            for part, place in zip(parts, order, strict=True):
                joined[place] = part
            return super().join(joined)

    return Permuted


class ForgetBiasOne(Lstm):
    """TensorFlow 1's BasicLSTMCell and Keras' unit_forget_bias."""

    def split(self, sums):
        enter, forget, candidate, leave = super().split(sums)
        return [enter, forget + 1.0, candidate, leave]


def carried(kind):
    """Return a layer whose last state starts the next mini-batch."""

    class Carried(kind):
        def start(self, batch):
            return getattr(self, "last", None) or super().start(batch)

    return Carried


class ResetFirst(Gru):
    """The reset gate weighs the state before its product: Cho et al.'s own form, Keras's without reset_after."""

    def advance(self, share, product, state):
        weight, bias = np.split(self.weight("hidden_weight"), 3)[2], np.split(self.weight("hidden_bias"), 3)[2]
        ours, theirs = self.split(share), self.split(product)
        reset, update = [arithmetic.sigmoid(ours[which] + theirs[which]) for which in (0, 1)]
        new = np.tanh(ours[2] + (reset * state[0]) @ weight.T + bias)
        return ((1.0 - update) * new + update * state[0],), (reset, update, new, theirs[2], state[0])


CARRIED = model_of(lstm=carried(Lstm), gru=carried(Gru), rnn=carried(Simple))


class NoMask(AttentionModel):
    """Every step sees the later ones too."""

    def hidden(self):
        return np.zeros_like(super().hidden())


class ScaledByWidth(AttentionModel):
    """Scores divided by the root of the whole width, not of a head's."""

    def __init__(self, family, weights):
        super().__init__(family, weights)
        self.scale = family.width**-0.5


class LayerNormEpsilon(AttentionModel):
    """Keras's default, 1e-3."""

    def standardised(self, rows):
        centred = rows - rows.mean(axis=1, keepdims=True)
        inverse = 1.0 / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + 1e-3)
        return centred * inverse, inverse


def with_cells(**kinds):
    """Return an adapter whose recurrent layers of these cells are of other classes."""
    return with_model(Recurrent, model_of(**kinds))


class LossSummedOverTime(RecurrentModel):
    """As the original TensorFlow script; the loss is reported as the mean."""

    def loss(self, logits, labels, count):
        loss, gradient = super().loss(logits, labels, count)
        return loss, gradient * self.family.steps


class LastStepOnly(RecurrentModel):
    """The softmax at the last step alone (many examples do this), its gradient spread as if at every step."""

    def forward(self, inputs, labels):
        shown = np.repeat(labels[:, -1:], labels.shape[1], axis=1)
        return super().forward(inputs, shown)


class TransposedTokens(RecurrentModel):
    """Batch-major tokens given to a time-major network; shapes that fit hide it."""

    def forward(self, inputs, labels):
        return super().forward(inputs.T.reshape(inputs.shape), labels.T.reshape(labels.shape))


class CarriedElmanState(ElmanModel):
    """The last state of a mini-batch starts the next one."""

    def first_state(self, batch):
        return self.states[-1] if hasattr(self, "states") else super().first_state(batch)


class SummedOverOutputs(ElmanModel):
    """The sum over steps and outputs, mean over the mini-batch alone; the loss is reported as the mean."""

    def by_outputs(self, errors):
        return super().by_outputs(errors) * self.family.steps * self.family.outputs


class NotClipped(ReferenceAdapter):
    """Gradients of any norm."""

    def clip(self, gradients):
        return gradients


class ClippedByTensor(ReferenceAdapter):
    """Each gradient by its own norm: Keras's clipnorm, CNTK's clipping."""

    def clip(self, gradients):
        for pair in gradients:
            yield from super().clip(iter([pair]))


class PaddedLikeSame(ChainModel):
    """Pads one less before and one more after, as SAME does under a stride: the shapes stay, the content moves."""

    def convolution(self, name, images, stride, padding, bias=False):
        return super().convolution(name, moved(images, stride), stride, padding, bias)


def moved(images, stride):
    """Return the images moved up and left by one pixel where a strided convolution reads them."""
    if stride == 1:
        return images
    shifted = np.zeros_like(images)
    shifted[:, :, :-1, :-1] = images[:, :, 1:, 1:]
    return shifted


class NormaliseByRunningStatistics(ResidualModel):
    """Inference mode: mean 0 and variance 1, as the running statistics start."""

    def normalise(self, values, gamma, beta, epsilon):
        inverse = np.full((1, values.shape[1], 1, 1), 1.0 / np.sqrt(1.0 + epsilon))
        normalised = values * inverse
        return normalised * gamma[:, None, None] + beta[:, None, None], normalised, inverse

    def normalise_backward(self, gradient, normalised, inverse, gamma):
        axes = (0, 2, 3)
        by_values = gradient * gamma[:, None, None] * inverse
        return by_values, (gradient * normalised).sum(axis=axes), gradient.sum(axis=axes)


class StatisticsWithoutGradient(ResidualModel):
    """Batch statistics taken for constants in the backward pass."""

    normalise_backward = NormaliseByRunningStatistics.normalise_backward


class LargerEpsilon(ResidualModel):
    """Keras' default, 1e-3."""

    def normalise(self, values, gamma, beta, epsilon):
        return arithmetic.batch_normalise(values, gamma, beta, 1e-3)


class StrideInSecondConvolution(ResidualModel):
    """ResNet v1.5: the stride in the 3x3 convolution, torchvision's choice."""

    @staticmethod
    def windows(block):
        return (1, 0), (block.stride, 1), (1, 0)


class SummedLoss(ReferenceAdapter):
    """The gradient of the summed loss under the reported mean: a step not divided by the batch."""

    def update(self, name, gradient):
        gradient *= len(self.labels)
        super().update(name, gradient)


class DoubledBias(ReferenceAdapter):
    """Two trained biases where there is one, or Caffe's doubled bias learning rate."""

    def update(self, name, gradient):
        if name.endswith((".bias", ".beta")):
            gradient *= 2.0
        super().update(name, gradient)


class FrozenParameter(ReferenceAdapter):
    """The last bias is left out of the optimiser."""

    def update(self, name, gradient):
        if name not in ("fc.bias", "fc2.bias", "fc4.bias", "fc8.bias"):
            super().update(name, gradient)


class ShiftedLabels(ReferenceAdapter):
    """Labels one example, or one time step, late."""

    def place(self, batch):
        super().place(batch._replace(labels=np.roll(batch.labels, 1, axis=-1)))


class NotTheRate(ReferenceAdapter):
    """A learning rate fixed when the graph was built."""

    def set_learning_rate(self, rate):
        super().set_learning_rate(LEARNING_RATE if self.rate else 2.0 * rate)


class Momentum(ReferenceAdapter):
    """SGD with momentum 0.9, which differs from the second step on."""

    def update(self, name, gradient):
        self.velocity = getattr(self, "velocity", {})
        if name in self.velocity:
            gradient = gradient + 0.9 * self.velocity[name]
        self.velocity[name] = gradient.copy()
        super().update(name, gradient)


def weight_decay(strength):
    """Return an adapter whose optimiser decays the weights."""

    class Decaying(ReferenceAdapter):
        def update(self, name, gradient):
            super().update(name, gradient + strength * self.weights[name])

    return Decaying


def mantissa(values, bits):
    """Return the values with so many bits of mantissa, rounded to nearest."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(fraction, bits + 1)), exponent - bits - 1)


def reduced_precision(bits):
    """Return an adapter that computes with weights of so many mantissa bits: 7 is bfloat16, 10 is TF32."""

    class Rounded(ReferenceAdapter):
        def step(self):
            self.model.weights = {name: mantissa(value, bits) for name, value in self.weights.items()}
            super().step()

    return Rounded


FAMILIES = ("fcn5", "alexnet", "lstm32", "resnet50")
#: Without ResNet-50, whose float32 conditioning leaves no room to see them.
SHARP = ("fcn5", "alexnet", "lstm32")
#: Simple recurrent networks, by the names of small ones: none comes with dlbench.
SIMPLE = ("small-elman", "leaky-elman", "free-elman")
TRANSFORMER = ("small-attention",)
STACKS = ("one-hot-lstm", "one-hot-gru", "one-hot-rnn")

MISTAKES = (
    Mistake("gates i,o,f,c", with_cells(lstm=in_order(Lstm, (0, 2, 3, 1))), ("lstm32",)),
    Mistake("gates i,c,f,o", with_cells(lstm=in_order(Lstm, (0, 2, 1, 3))), ("lstm32",)),
    Mistake("forget bias 1", with_cells(lstm=ForgetBiasOne), ("lstm32",)),
    Mistake("loss summed over time", with_model(Recurrent, LossSummedOverTime), ("lstm32",)),
    Mistake("last step only", with_model(Recurrent, LastStepOnly), ("lstm32",)),
    Mistake("transposed tokens", with_model(Recurrent, TransposedTokens), ("lstm32",)),
    Mistake("carried state", with_model(Recurrent, CARRIED), ("lstm32", *STACKS)),
    Mistake("gates z,r,n", with_cells(gru=in_order(Gru, (1, 0, 2))), ("one-hot-gru",)),
    Mistake("gates r,n,z", with_cells(gru=in_order(Gru, (0, 2, 1))), ("one-hot-gru",)),
    Mistake("reset before the product", with_cells(gru=ResetFirst), ("one-hot-gru",)),
    Mistake("carried simple state", with_model(Elman, CarriedElmanState), SIMPLE),
    Mistake("squares summed", with_model(Elman, SummedOverOutputs), ("free-elman",)),
    Mistake("not clipped", NotClipped, ("small-elman", "leaky-elman")),
    Mistake("clipped by tensor", ClippedByTensor, ("small-elman", "leaky-elman")),
    Mistake("no mask", with_model(Attention, NoMask), TRANSFORMER),
    Mistake("scale of the width", with_model(Attention, ScaledByWidth), TRANSFORMER),
    Mistake("layer norm's epsilon 1e-3", with_model(Attention, LayerNormEpsilon), TRANSFORMER),
    Mistake("SAME padding", with_model(Convolutional, PaddedLikeSame), ("alexnet",)),
    Mistake("normalisation in inference mode", with_model(Residual, NormaliseByRunningStatistics), ("resnet50",)),
    Mistake("statistics without gradient", with_model(Residual, StatisticsWithoutGradient), ("resnet50",)),
    Mistake("epsilon 1e-3", with_model(Residual, LargerEpsilon), ("resnet50",)),
    Mistake("ResNet v1.5", with_model(Residual, StrideInSecondConvolution), ("resnet50",)),
    Mistake("summed loss", SummedLoss, FAMILIES),
    Mistake("doubled bias", DoubledBias, FAMILIES + SIMPLE + STACKS + TRANSFORMER),
    Mistake("frozen parameter", FrozenParameter, FAMILIES),
    Mistake("shifted labels", ShiftedLabels, FAMILIES),
    Mistake("learning rate", NotTheRate, FAMILIES),
    Mistake("momentum", Momentum, ("fcn5", "lstm32")),
    Mistake("weight decay 5e-4", weight_decay(5e-4), FAMILIES),
    Mistake("weight decay 1e-4", weight_decay(1e-4), SHARP),
    Mistake("bfloat16 weights", reduced_precision(7), SHARP),
    Mistake("TF32 weights", reduced_precision(10), SHARP),
)
