"""The families of networks, walked through once for all frameworks.

`Functions` is for frameworks that compute by calls on values, with weights by canonical name; `Layers` for those that
put layer objects in a row. A framework's subclass gives its operations; a walk calls them in the order of the family's
mathematics. A walk is a method with the family's name.
"""

import math
from typing import Any, Callable, Dict, List, Mapping, Tuple

from ..base import Unsupported
from ..families import Bottleneck, Chain, Convolution, Dense, Family, MaxPool, Residual

HIDDEN = -1e9  # added to the scores of attention that are masked, as is usual; exponentials of it are zero
State = Tuple[Any, ...]  # of a recurrent layer: its output first, each (batch, hidden)


def gelu_by_tanh(values: Any, tanh: Callable[[Any], Any]) -> Any:
    """Return gelu by single operators (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    return 0.5 * values * (1.0 + tanh(math.sqrt(2.0 / math.pi) * (values + 0.044715 * values * values * values)))


class Functions:
    """A network as calls: ``scores`` of inputs, rows of logits or outputs."""

    title = ""
    activations: Mapping[str, Callable[[Any], Any]] = {}

    def __init__(self, family: Family, weights: Mapping[str, Any]) -> None:
        self.family: Any = family
        self.w = weights

    # Operations. Each reads its own parameters from ``w``, under ``name`` and a dot.

    def dense(self, name: str, values: Any) -> Any:
        """Return the fully connected layer, over any leading axes."""
        raise NotImplementedError

    def convolution(self, spec: Any, values: Any, bias: bool) -> Any:
        """Return the convolution that ``spec`` describes, a `Convolution` or `NormalisedConvolution`."""
        raise NotImplementedError

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        """Return the maxima of square windows; sizes round down."""
        raise NotImplementedError

    def flatten(self, values: Any) -> Any:
        """Return images as rows in canonical order, or as their layout and the next dense weight's have it."""
        raise NotImplementedError

    def norm(self, name: str, values: Any) -> Any:
        """Return the batch normalisation by the batch's own biased statistics."""
        raise NotImplementedError

    def added(self, inner: Any, values: Any) -> Any:
        """Return the sum of a block's layers and its shortcut."""
        return inner + values

    def pixel_mean(self, values: Any) -> Any:
        """Return the mean of each channel, (batch, channels)."""
        raise NotImplementedError

    def rows(self, values: Any) -> Any:
        """Return values of all steps in rows."""
        return values.reshape(-1, values.shape[-1])

    def embedded(self, name: str, symbols: Any) -> Any:
        """Return the rows of a table that tokens name."""
        return self.w[name + ".weight"][symbols]

    def recurrent_layer(self, name: str, values: Any) -> Any:
        """Return the outputs of all steps from a zero state."""
        raise NotImplementedError

    def elman_layer(self, values: Any) -> Any:
        """Return the states of all steps from a zero state."""
        raise NotImplementedError

    def positioned(self, tokens: Any) -> Any:
        """Return the embedded tokens, each with the vector of its step added."""
        return self.embedded("embedding", tokens) + self.w["position.weight"]

    def dense_of_steps(self, name: str, values: Any) -> Any:
        """Return a fully connected layer of a transformer."""
        return self.dense(name, values)

    def logits_of_steps(self, values: Any) -> Any:
        """Return a transformer's logits in rows."""
        return self.dense_of_steps("fc", self.rows(values))

    def layer_norm(self, name: str, values: Any) -> Any:
        """Return the normalisation of each step."""
        raise NotImplementedError

    def attended(self, name: str, values: Any) -> Any:
        """Return causal self-attention without its last product; ``name`` is the layer's, with a dot."""
        raise NotImplementedError

    def gelu(self, values: Any) -> Any:
        """Return gelu, approximated by tanh."""
        raise NotImplementedError

    # Walks.

    def scores(self, inputs: Any) -> Any:
        """Return the logits, or the outputs where the loss is the squared error."""
        walk = getattr(self, self.family.name, None)
        if walk is None:
            raise Unsupported("%s: no way to build a network of the family %s" % (self.title, self.family.name))
        return walk(inputs)

    def activated(self, values: Any, activation: str) -> Any:
        """Return the values through an activation, or as they are."""
        return values if activation == "none" else self.activations[activation](values)

    def feedforward(self, values: Any) -> Any:
        """Walk through a chain of layers."""
        for layer in self.family.layers:
            if isinstance(layer, Dense):
                values = self.activated(self.dense(layer.name, values), layer.activation)
            elif isinstance(layer, Convolution):
                values = self.activated(self.convolution(layer, values, True), layer.activation)
            elif isinstance(layer, MaxPool):
                values = self.pool(values, layer.kernel, layer.stride, layer.padding)
            else:
                values = self.flatten(values)
        return values

    convolutional = feedforward

    def residual(self, values: Any) -> Any:
        """Walk through stem, blocks and the last layer."""

        def unit(spec: Any, values: Any) -> Any:
            return self.norm(spec.norm, self.convolution(spec, values, False))

        values = self.pool(self.activated(unit(self.family.stem, values), "relu"), 3, 2, 1)
        for block in self.family.bottlenecks:
            inner = values
            for spec in block.body[:-1]:
                inner = self.activated(unit(spec, inner), "relu")
            inner = unit(block.body[-1], inner)
            if block.shortcut is not None:
                values = unit(block.shortcut, values)
            values = self.activated(self.added(inner, values), "relu")
        return self.dense("fc", self.pixel_mean(values))

    def recurrent(self, inputs: Any) -> Any:
        """Walk through embedding, layers and the last layer."""
        values = self.embedded("embedding", inputs) if self.family.embedding else inputs
        for name in self.family.layer_names():
            values = self.recurrent_layer(name, values)
        return self.dense("fc", self.rows(values))

    def elman(self, inputs: Any) -> Any:
        """Walk through the layer and its outputs."""
        return self.dense("out", self.rows(self.elman_layer(inputs)))

    def attention(self, tokens: Any) -> Any:
        """Walk through the layers of a transformer."""
        values = self.positioned(tokens)
        for layer in range(1, self.family.layers + 1):
            name = "layer%d." % layer
            mixed = self.attended(name, self.layer_norm(name + "norm1", values))
            values = values + self.dense_of_steps(name + "project", mixed)
            raised = self.gelu(self.dense_of_steps(name + "upper", self.layer_norm(name + "norm2", values)))
            values = values + self.dense_of_steps(name + "lower", raised)
        return self.logits_of_steps(self.layer_norm("norm", values))

    # Steps of recurrent layers, for frameworks without an operator for a whole layer.

    @property
    def states(self) -> int:
        """How many arrays go from step to step."""
        return 2 if self.family.cell == "lstm" else 1

    def product(self, name: str, output: Any) -> Any:
        """Return the product of the output of the step before, with its bias where there is one."""
        raise NotImplementedError

    def sums(self, name: str, share: Any, output: Any) -> Any:
        """Return the inputs' share of a step's sums and the product together."""
        return share + self.product(name, output)

    def split(self, values: Any, count: int) -> List[Any]:
        """Return the gates' parts of (batch, gates * hidden)."""
        raise NotImplementedError

    def turn(self, name: str, state: State, share: Any) -> State:
        """Return the state of a recurrent layer after a step."""
        if self.family.cell == "gru":
            return (self.gru(state[0], share, self.product(name, state[0])),)
        sums = self.sums(name, share, state[0])
        return self.lstm(state[1], sums) if self.family.cell == "lstm" else (self.activated(sums, "tanh"),)

    def lstm(self, memory: Any, sums: Any) -> State:
        """Gates input, forget, cell, output."""
        sigmoid, tanh = self.activations["sigmoid"], self.activations["tanh"]
        enter, forget, candidate, leave = self.split(sums, 4)
        memory = sigmoid(forget) * memory + sigmoid(enter) * tanh(candidate)
        return sigmoid(leave) * tanh(memory), memory

    def gru(self, output: Any, share: Any, product: Any) -> Any:
        """Gates reset, update, new; the reset gate weighs the product."""
        ours, theirs = self.split(share, 3), self.split(product, 3)
        reset, update = [self.activated(ours[gate] + theirs[gate], "sigmoid") for gate in (0, 1)]
        new = self.activated(ours[2] + reset * theirs[2], "tanh")
        return (1.0 - update) * new + update * output

    def leaky(self, state: Any, sums: Any) -> Any:
        """Return the state of a simple recurrent layer after a step."""
        found, alpha = self.activated(sums, self.family.activation), self.family.alpha
        return found if alpha == 1.0 else (1.0 - alpha) * state + alpha * found


class Layers:
    """Makes a framework's layer objects, and knows where each canonical parameter lies."""

    title = ""
    activations: Dict[str, Callable[[], Any]] = {}
    flatten: Callable[[], Any]
    average: Tuple[Callable[[], Any], ...]  # what makes images each channel's mean, (batch, channels)

    def networks(self) -> Dict[str, Callable[[Any, Any], Any]]:
        """Return what makes a network, by family: a call with the family and this, or a class."""
        return {}

    def row(self, layers: List[Any]) -> Any:
        """Return layers one after another as one."""
        raise NotImplementedError

    def block(self, spec: Bottleneck, epsilon: float) -> Any:
        """Return a residual block: its `body`, its shortcut added, and a ReLU."""
        raise NotImplementedError

    def __init__(self) -> None:
        self.parameters: Dict[str, Any] = {}

    def dense(self, name: str, inputs: int, outputs: int) -> Any:
        """Return a fully connected layer."""
        raise NotImplementedError

    def convolution(self, spec: Any, bias: bool) -> Any:
        """Return the convolution that ``spec`` describes, a `Convolution` or `NormalisedConvolution`."""
        raise NotImplementedError

    def norm(self, name: str, channels: int, epsilon: float) -> Any:
        """Return a batch normalisation."""
        raise NotImplementedError

    def pool(self, kernel: int, stride: int, padding: int) -> Any:
        """Return a max-pool."""
        raise NotImplementedError

    def network(self, family: Family) -> Any:
        """Return the network of this family."""
        if isinstance(family, Chain):
            return self.row(self.chain(family))
        if isinstance(family, Residual):
            return self.row(self.residual(family))
        make = self.networks().get(family.name)
        if make is None:
            raise Unsupported("%s: no way to build a network of the family %s" % (self.title, family.name))
        return make(family, self)

    def note(self, name: str, **held: Any) -> None:
        """Note where parameters lie: each under this name, a dot and its keyword."""
        self.parameters.update(("%s.%s" % (name, part), value) for part, value in held.items())

    def chain(self, family: Chain) -> List[Any]:
        """Return the layers of a chain, with their activations."""
        made: List[Any] = []
        for layer in family.layers:
            if isinstance(layer, Dense):
                made.append(self.dense(layer.name, layer.inputs, layer.outputs))
            elif isinstance(layer, Convolution):
                made.append(self.convolution(layer, True))
            elif isinstance(layer, MaxPool):
                made.append(self.pool(layer.kernel, layer.stride, layer.padding))
            else:
                made.append(self.flatten())
            activation = getattr(layer, "activation", "none")
            if activation != "none":
                made.append(self.activations[activation]())
        return made

    def normalised(self, spec: Any, epsilon: float) -> List[Any]:
        """Return a convolution without bias, and its batch normalisation."""
        return [self.convolution(spec, False), self.norm(spec.norm, spec.outputs, epsilon)]

    def body(self, block: Bottleneck, epsilon: float) -> List[Any]:
        """Return the layers of a residual block before the addition."""
        first, second, third = block.body
        inner = [*self.with_relu(first, epsilon), *self.with_relu(second, epsilon)]
        return [*inner, *self.normalised(third, epsilon)]

    def with_relu(self, spec: Any, epsilon: float) -> List[Any]:
        """Return a convolution without bias, its normalisation and a ReLU."""
        return [*self.normalised(spec, epsilon), self.activations["relu"]()]

    def residual(self, family: Residual) -> List[Any]:
        """Return the layers of a residual network."""
        made = [*self.with_relu(family.stem, family.epsilon), self.pool(3, 2, 1)]
        made += [self.block(each, family.epsilon) for each in family.bottlenecks]
        made += [make() for make in self.average]
        return [*made, self.dense("fc", family.features, family.classes)]
