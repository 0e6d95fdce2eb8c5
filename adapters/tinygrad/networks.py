"""Builds the networks' specifications on tinygrad's tensors: a function from inputs to outputs, weights by name.

Everything is held in canonical layout, which is tinygrad's own; mini-batches of recurrent networks are turned to
time-major.
"""

from functools import partial
from typing import Callable, Dict, List, Optional, Tuple

from tinygrad import Tensor, nn

from ..base import Unsupported
from ..families import (
    Attention,
    Bottleneck,
    Chain,
    Convolution,
    Dense,
    Elman,
    Family,
    Flatten,
    MaxPool,
    Recurrent,
    Residual,
)
from ..families.residual import NormalisedConvolution


def dense(w: Dict[str, Tensor], name: str, values: Tensor) -> Tensor:
    """Return the dense layer of this name, over any leading axes."""
    return values.linear(w[name + ".weight"].T, w[name + ".bias"])


def activated(values: Tensor, activation: str) -> Tensor:
    """Return the values through this activation."""
    return values if activation == "none" else getattr(values, activation)()


def looked_up(weight: Tensor, tokens: Tensor) -> Tensor:
    """Return the rows of an embedding's weight."""
    layer = nn.Embedding(*weight.shape)
    layer.weight = weight
    return layer(tokens)


Weights = Dict[str, Tensor]
State = Tuple[Tensor, ...]  # the layer's output first, each (batch, hidden)
Gates = Callable[[Tensor], Tensor]  # what is done with the sums of gates: `kept` or `fused`


def _lstm(state: State, share: Tensor, product: Tensor) -> State:
    """Gates input, forget, cell, output: the sums of tinygrad's ``nn.LSTMCell``."""
    given, forget, candidate, shown = (share + product).chunk(4, dim=1)
    memory = forget.sigmoid() * state[1] + given.sigmoid() * candidate.tanh()
    return shown.sigmoid() * memory.tanh(), memory


def _gru(state: State, share: Tensor, product: Tensor) -> State:
    """Gates reset, update, new; the reset gate weighs the state's product."""
    ours, theirs = share.chunk(3, dim=1), product.chunk(3, dim=1)
    reset, update = [(ours[gate] + theirs[gate]).sigmoid() for gate in (0, 1)]
    new = (ours[2] + reset * theirs[2]).tanh()
    return ((1.0 - update) * new + update * state[0],)


def _rnn(state: State, share: Tensor, product: Tensor) -> State:
    return ((share + product).tanh(),)


_TURNS: Dict[str, Callable[[State, Tensor, Tensor], State]] = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def kept(value: Tensor) -> Tensor:
    """Have the value and its gradient put in memory; else tinygrad fuses how it is made into all that reads it."""
    return value.contiguous().contiguous_backward()


def fused(value: Tensor) -> Tensor:
    """Leave to tinygrad what it makes of the value."""
    return value


def _recurrent_layer(cell: str, w: Weights, name: str, values: List[Tensor], gates: Gates) -> List[Tensor]:
    """Run a layer from a zero state, step by step: each (batch, inputs) gives (batch, hidden)."""
    weight, bias = w[name + ".hidden_weight"].T, w.get(name + ".hidden_bias")
    state: State = (Tensor.zeros(values[0].shape[0], weight.shape[0]),) * (2 if cell == "lstm" else 1)
    elman_outputs = []
    for value in values:
        share = value.linear(w[name + ".input_weight"].T, w[name + ".bias"])
        state = _TURNS[cell](state, gates(share), gates(state[0].linear(weight, bias)))
        state = tuple(kept(each) for each in state)  # of earlier steps would be computed anew in each
        elman_outputs.append(state[0])
    return elman_outputs


def recurrent_logits(family: Recurrent, w: Weights, gates: Gates, inputs: Tensor) -> Tensor:
    """Return the logits of all steps, (steps * batch, vocabulary), of time-major tokens or one-hot symbols."""
    # Made once: fused into each step's product, the search through the embedding would be made there anew.
    given = looked_up(w["embedding.weight"], inputs).contiguous() if family.embedding else inputs
    values = [given[step] for step in range(family.steps)]
    for name in family.layer_names():
        values = _recurrent_layer(family.cell, w, name, values, gates)
    return dense(w, "fc", values[0].stack(*values[1:]).reshape(-1, family.hidden))


def elman_outputs(family: Elman, w: Weights, gates: Gates, values: Tensor) -> Tensor:
    """Return the outputs of all steps, (steps * batch, outputs), of inputs (steps, batch, inputs)."""
    state: Optional[Tensor] = None
    states = []
    for step in range(family.steps):
        sums = values[step].linear(w["rnn.input_weight"].T, w["rnn.bias"])
        sums = gates(sums if state is None else sums + state.linear(w["rnn.hidden_weight"].T))
        found = activated(sums, family.activation)
        if family.alpha != 1.0:
            found = family.alpha * found if state is None else (1.0 - family.alpha) * state + family.alpha * found
        state = kept(found)
        states.append(state)
    return dense(w, "out", states[0].stack(*states[1:]).reshape(-1, family.hidden))


def attention_logits(family: Attention, w: Dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps)."""
    batch, steps = tokens.shape

    def norm(name: str, values: Tensor) -> Tensor:
        return values.layernorm(eps=family.epsilon) * w[name + ".gamma"] + w[name + ".beta"]

    values = looked_up(w["embedding.weight"], tokens) + w["position.weight"]
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        parts = dense(w, name + "qkv", norm(name + "norm1", values)).reshape(batch, steps, 3, family.heads, -1)
        query, key, value = [parts[:, :, part].transpose(1, 2) for part in range(3)]
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True)
        values = values + dense(w, name + "project", mixed.transpose(1, 2).reshape(batch, steps, family.width))
        raised = dense(w, name + "upper", norm(name + "norm2", values)).gelu()
        values = values + dense(w, name + "lower", raised)
    return dense(w, "fc", norm("norm", values).reshape(batch * steps, family.width))


def _chain(family: Chain, w: Weights, values: Tensor) -> Tensor:
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = activated(dense(w, layer.name, values), layer.activation)
        elif isinstance(layer, Convolution):
            weight, bias = w[layer.name + ".weight"], w[layer.name + ".bias"]
            values = values.conv2d(weight, bias, stride=layer.stride, padding=layer.padding)
            values = activated(values, layer.activation)
        elif isinstance(layer, MaxPool):
            values = values.max_pool2d((layer.kernel, layer.kernel), layer.stride, padding=layer.padding)
        elif isinstance(layer, Flatten):
            values = values.flatten(1)
        else:
            raise Unsupported("tinygrad: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _unit(w: Weights, spec: NormalisedConvolution, epsilon: float, values: Tensor) -> Tensor:
    """Return the convolution without bias and its batch normalisation, by the batch's own biased statistics."""
    values = values.conv2d(w[spec.name + ".weight"], stride=spec.stride, padding=spec.padding)
    layer = nn.BatchNorm(values.shape[1], epsilon, track_running_stats=False)
    layer.weight, layer.bias = w[spec.norm + ".gamma"], w[spec.norm + ".beta"]
    return layer(values)


def _bottleneck(block: Bottleneck, epsilon: float, w: Weights, values: Tensor) -> Tensor:
    first, second, third = block.body
    inner = _unit(w, first, epsilon, values).relu()
    inner = _unit(w, third, epsilon, _unit(w, second, epsilon, inner).relu())
    if block.shortcut is not None:
        values = _unit(w, block.shortcut, epsilon, values)
    return (inner + values).relu()


def _residual(family: Residual, w: Weights, values: Tensor) -> Tensor:
    values = _unit(w, family.stem, family.epsilon, values).relu()
    values = values.max_pool2d((3, 3), 2, padding=1)
    for block in family.bottlenecks:
        values = _bottleneck(block, family.epsilon, w, values)
    return dense(w, "fc", values.mean((2, 3)))


_BUILDERS: Tuple[Tuple[type, Callable[..., Tensor]], ...] = (
    (Chain, _chain),
    (Residual, _residual),
    (Attention, attention_logits),
)
_RECURRENT: Tuple[Tuple[type, Callable[..., Tensor]], ...] = ((Recurrent, recurrent_logits), (Elman, elman_outputs))


def build(family: Family, weights: Weights, gates: Gates) -> Callable[[Tensor], Tensor]:
    """Return the function from inputs to logits, or to outputs where the loss is the squared error."""
    for kind, builder in _BUILDERS:
        if isinstance(family, kind):
            return partial(builder, family, weights)
    for kind, builder in _RECURRENT:
        if isinstance(family, kind):
            return partial(builder, family, weights, gates)
    raise Unsupported("tinygrad: no way to build a network of type %s" % type(family).__name__)


def mean_loss(family: Family, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the family's mean loss."""
    if family.loss == "squares":
        return (scores - labels).square().mean()
    return scores.sparse_categorical_crossentropy(labels)
