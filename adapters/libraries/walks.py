"""The families of networks, walked through once for all frameworks.

`Functions` is for frameworks that compute by calls on values, with weights by canonical name,
`LayerFunctions` for those that have layer objects. A framework's subclass gives its operations; a
walk, a method with the family's name, calls them in the order of the family's mathematics.
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Tuple

from ..families import Family, Layer

#: Added to the scores of attention that are masked, as is usual. Exponentials of it are zero.
HIDDEN = -1e9
State = Tuple[Any, ...]  # of a recurrent layer: its output first, each (batch, hidden)
Turn = Callable[[State, Any], State]


def gelu_by_tanh(values: Any, tanh: Callable[[Any], Any]) -> Any:
    """Return gelu by single operators (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    return (
        0.5
        * values
        * (1.0 + tanh(math.sqrt(2.0 / math.pi) * (values + 0.044715 * values * values * values)))
    )


def spike_slope(potential: Any) -> Any:
    """Return the slope that stands for that of a spike (Zenke and Ganguli 2018).

    It depends on the potential.
    """
    root = 1.0 + 10.0 * abs(potential - 1.0)
    return 1.0 / (root * root)


def unchanged(values: Any) -> Any:
    """Return the values: for ``rows`` of frameworks whose values of steps are rows already."""
    return values


class Functions:
    """A network as calls: ``scores`` of inputs, rows of logits or outputs.

    A framework's subclass has these operations, each with its parameters in ``w`` under ``name``
    and a dot:

    ``dense(name, values)``
        A fully connected layer, over any leading axes.
    ``convolution(spec, values)``
        The convolution that a `Layer` describes. It has a bias where it has no ``norm``.
    ``pool(values, kernel, stride, padding)``
        The maxima of square windows. Sizes round down.
    ``flatten(values)``
        Images as rows, in canonical order or as their layout and the next dense weight's have it.
    ``norm(name, values)``
        Batch normalisation by the batch's own biased statistics, or by ``statistics``.
    ``pixel_mean(values)``
        The mean of each channel, (batch, channels).
    ``over_steps(name, values, turn, states)``
        The outputs of all steps of a recurrent layer from a zero state of this many arrays.
        ``turn(state, share)`` is the state after a step, from the inputs' share of its sums.
    ``layer_norm(name, values)``
        The normalisation of each step.
    ``attended(name, values)``
        Causal self-attention without its last product. ``name`` is the layer's, with a dot.
    ``gelu(values)``
        Approximated by tanh.
    ``spikes(potential)``
        1 where a potential is above 1, else 0, with the slope of `spike_slope` on the way back.
    ``as_constant(values)``
        The values without a way back.
    ``mean_of_steps(values)``
        The mean over the leading axis.

    and, without an operator for a whole recurrent layer, those of its steps:

    ``product(name, output)``
        The product of the last step's output, with its bias where there is one.
    ``split(values, count)``
        The gates' parts of (batch, gates * hidden).
    """

    activations: Mapping[str, Callable[[Any], Any]] = {}
    #: Running means and variances of batch normalisations, by their name and ".mean" or
    #: ".variance". They replace the batch's own. Empty in training.
    statistics: Mapping[str, Any] = {}

    def __init__(self, family: Family, weights: Mapping[str, Any]) -> None:
        self.family: Any = family
        self.w: Any = weights

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def added(self, inner: Any, values: Any) -> Any:
        """Return the sum of a block's layers and its shortcut."""
        return inner + values

    def rows(self, values: Any) -> Any:
        return values.reshape(-1, values.shape[-1])

    def embedded(self, name: str, symbols: Any) -> Any:
        """Return the rows of a table for these tokens."""
        return self.w[name + ".weight"][symbols]

    def positioned(self, tokens: Any) -> Any:
        """Return the embedded tokens, each with the vector of its step added."""
        return self.embedded("embedding", tokens) + self.w["position.weight"]

    def dense_of_steps(self, name: str, values: Any) -> Any:
        return self.dense(name, values)

    def logits_of_steps(self, values: Any) -> Any:
        return self.dense_of_steps("fc", self.rows(values))

    # Walks.

    def scores(self, inputs: Any) -> Any:
        """Return the logits, or the outputs where the loss is the squared error."""
        return getattr(self, self.family.name)(inputs)

    def activated(self, values: Any, activation: str) -> Any:
        return values if activation == "none" else self.activations[activation](values)

    def feedforward(self, values: Any) -> Any:
        for layer in self.family.layers:
            if layer.kind == "dense":
                values = self.activated(self.dense(layer.name, values), layer.activation)
            elif layer.kind == "convolution":
                values = self.activated(self.convolution(layer, values), layer.activation)
            elif layer.kind == "pool":
                values = self.pool(values, layer.kernel, layer.stride, layer.padding)
            else:
                values = self.flatten(values)
        return values

    convolutional = feedforward

    def residual(self, values: Any) -> Any:
        values = self.pool(self.unit_with_relu(self.family.stem, values), 3, 2, 1)
        for block in self.family.bottlenecks:
            inner = values
            for spec in block.body[:-1]:
                inner = self.unit_with_relu(spec, inner)
            inner = self.unit(block.body[-1], inner)
            if block.shortcut is not None:
                values = self.unit(block.shortcut, values)
            values = self.activated(self.added(inner, values), "relu")
        return self.dense("fc", self.pixel_mean(values))

    def unit(self, spec: Layer, values: Any) -> Any:
        return self.norm(spec.norm, self.convolution(spec, values))

    def unit_with_relu(self, spec: Layer, values: Any) -> Any:
        return self.activated(self.unit(spec, values), "relu")

    def recurrent(self, inputs: Any) -> Any:
        values = self.embedded("embedding", inputs) if self.family.embedding else inputs
        return self.dense("fc", self.rows(self.stacked(values)))

    def stacked(self, values: Any) -> Any:
        """Return the outputs of all recurrent layers, one behind another."""
        for name in self.family.layer_names():
            values = self.recurrent_layer(name, values)
        return values

    def elman(self, inputs: Any) -> Any:
        return self.dense("out", self.rows(self.elman_layer(inputs)))

    def lif(self, inputs: Any) -> Any:
        return self.dense("out", self.mean_of_steps(self.spiking_layer(inputs)))

    def attention(self, tokens: Any) -> Any:
        values = self.positioned(tokens)
        for layer in range(1, self.family.layers + 1):
            name = "layer%d." % layer
            mixed = self.attended(name, self.layer_norm(name + "norm1", values))
            values = values + self.dense_of_steps(name + "project", mixed)
            raised = self.gelu(
                self.dense_of_steps(name + "upper", self.layer_norm(name + "norm2", values))
            )
            values = values + self.dense_of_steps(name + "lower", raised)
        return self.logits_of_steps(self.layer_norm("norm", values))

    # Recurrent layers step by step. Frameworks with an operator for a whole layer override the
    # first two.

    def recurrent_layer(self, name: str, values: Any) -> Any:
        return self.over_steps(name, values, partial(self.turn, name), self.states)

    def elman_layer(self, values: Any) -> Any:
        def turn(state: State, share: Any) -> State:
            return (self.leaky(state[0], self.sums("rnn", share, state[0])),)

        return self.over_steps("rnn", values, turn, 1)

    def spiking_layer(self, values: Any) -> Any:
        """Return the spikes of all steps."""

        def turn(state: State, share: Any) -> State:
            spikes, potential = state
            kept = self.family.beta * potential * (1.0 - self.as_constant(spikes))
            potential = kept + self.sums("rnn", share, spikes)
            return self.spikes(potential), potential

        return self.over_steps("rnn", values, turn, 2)

    def step_by_step(self, turn: Turn, state: State, shares: Iterable[Any]) -> List[Any]:
        outputs = []
        for share in shares:
            state = turn(state, share)
            outputs.append(state[0])
        return outputs

    @property
    def states(self) -> int:
        """The number of arrays that go from step to step."""
        return 2 if self.family.cell == "lstm" else 1

    def sums(self, name: str, share: Any, output: Any) -> Any:
        """Return the inputs' share of a step's sums and the product together."""
        return share + self.product(name, output)

    def turn(self, name: str, state: State, share: Any) -> State:
        if self.family.cell == "gru":
            return (self.gru(state[0], share, self.product(name, state[0])),)
        sums = self.sums(name, share, state[0])
        if self.family.cell == "lstm":
            return self.lstm(state[1], sums)
        return (self.activated(sums, "tanh"),)

    def lstm(self, memory: Any, sums: Any) -> State:
        """Return the state after a step. The gates are input, forget, cell, output."""
        sigmoid = self.activations["sigmoid"]
        tanh = self.activations["tanh"]
        enter, forget, candidate, leave = self.split(sums, 4)
        memory = sigmoid(forget) * memory + sigmoid(enter) * tanh(candidate)
        return sigmoid(leave) * tanh(memory), memory

    def gru(self, output: Any, share: Any, product: Any) -> Any:
        """Return the output of a step. The gates are reset, update, new.

        The reset gate weighs the product.
        """
        ours = self.split(share, 3)
        theirs = self.split(product, 3)
        reset = self.activated(ours[0] + theirs[0], "sigmoid")
        update = self.activated(ours[1] + theirs[1], "sigmoid")
        new = self.activated(ours[2] + reset * theirs[2], "tanh")
        return (1.0 - update) * new + update * output

    def leaky(self, state: Any, sums: Any) -> Any:
        activated = self.activated(sums, self.family.activation)
        alpha = self.family.alpha
        return activated if alpha == 1.0 else (1.0 - alpha) * state + alpha * activated


class LayerFunctions(Functions):
    """A network of a framework's layer objects, made once.

    ``w`` has their parameters by canonical name. A framework's subclass makes them, and `keep`
    hands each over to the framework:

    ``make_dense(inputs, outputs)``, ``make_convolution(spec)``, ``make_batch_norm(name,
    channels)``, ``make_layer_norm(width)``, ``make_embedding(symbols, width)``, and ``stack``, the
    recurrent layers of a recurrent network as one layer object.
    """

    #: Attributes of a layer with its parameters, by part of their names, where they have other
    #: names.
    attributes: Mapping[str, str] = {}
    #: Attributes of ``stack`` with a layer's parameters, by its number, in the order of
    #: `Recurrent.parts`.
    stack_parts: Tuple[str, ...] = ()

    def __init__(self, family: Family) -> None:
        super().__init__(family, {})
        self.layers: Dict[str, Any] = {}
        convolutions = {spec.name: spec for spec in family.convolutions()}
        shapes: Dict[str, Dict[str, Tuple[int, ...]]] = {}
        for parameter in family.parameters():
            name, _, part = parameter.name.rpartition(".")
            shapes.setdefault(name, {})[part] = parameter.shape
        for name, parts in shapes.items():
            if "hidden_weight" in parts:
                continue
            if name in convolutions:
                layer = self.make_convolution(convolutions[name])
            elif "gamma" in parts and family.normalises:
                layer = self.make_batch_norm(name, *parts["gamma"])
            elif "gamma" in parts:
                layer = self.make_layer_norm(*parts["gamma"])
            elif "bias" in parts:
                layer = self.make_dense(*reversed(parts["weight"]))
            else:
                layer = self.make_embedding(*parts["weight"])
            self.layers[name] = layer
            for part in parts:
                attribute = self.attributes.get(part, part)
                self.w["%s.%s" % (name, part)] = getattr(layer, attribute)
            self.keep("made_" + name.replace(".", "_"), layer)

    def hold_stack(self) -> List[Any]:
        """Note the parameters of ``stack``, whose layers have two biases everywhere.

        Returned are the second biases that the family does not have: they stay zero. To train both
        would double the bias's learning rate.
        """
        names = self.family.layer_names()
        parts = self.family.parts
        for layer, name in enumerate(names):
            for place, part in enumerate(parts):
                self.w["%s.%s" % (name, part)] = self.stack_parameter(layer, place)
        if len(parts) > 3:
            return []
        return [self.stack_parameter(layer, 3) for layer in range(len(names))]

    def stack_parameter(self, layer: int, place: int) -> Any:
        """Return a parameter of this layer.

        By place that is its weight of the inputs, that of the state, and the biases.
        """
        return getattr(self.stack, self.stack_parts[place] % layer)

    def dense(self, name: str, values: Any) -> Any:
        return self.layers[name](values)

    norm = layer_norm = dense

    def embedded(self, name: str, symbols: Any) -> Any:
        return self.layers[name](symbols)

    def convolution(self, spec: Layer, values: Any) -> Any:
        return self.layers[spec.name](values)

    def elman_layer(self, values: Any) -> Any:
        return self.stacked(values)
