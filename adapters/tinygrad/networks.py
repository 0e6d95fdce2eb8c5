"""Networks on tinygrad's tensors, weights by name.

Everything is held in canonical layout, which is tinygrad's own; mini-batches of recurrent networks are turned to
time-major. Recurrent layers are unrolled: tinygrad has no loop that a graph could hold, and no operator for a layer.
"""

from typing import Any, Callable, Dict, List

from tinygrad import Tensor, nn

from ..families import Family, Layer
from ..libraries.walks import Functions, State

Gates = Callable[[Tensor], Tensor]  # of the sums of gates: `kept` or `fused`


def kept(value: Tensor) -> Tensor:
    """Have the value and its gradient put in memory; else tinygrad fuses how it is made into all that reads it."""
    return value.contiguous().contiguous_backward()


def fused(value: Tensor) -> Tensor:
    """Leave the value to tinygrad's scheduler."""
    return value


class TinygradFunctions(Functions):
    """Networks by the methods of tensors."""

    activations = {"sigmoid": Tensor.sigmoid, "relu": Tensor.relu, "tanh": Tensor.tanh}

    def __init__(self, family: Family, weights: Dict[str, Tensor], gates: Gates) -> None:
        super().__init__(family, weights)
        self.gates = gates

    def dense(self, name: str, values: Any) -> Any:
        return values.linear(self.w[name + ".weight"].T, self.w[name + ".bias"])

    def convolution(self, spec: Layer, values: Any) -> Any:
        given = self.w[spec.name + ".weight"], self.w.get(spec.name + ".bias")
        return values.conv2d(*given, stride=spec.stride, padding=spec.padding)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return values.max_pool2d((kernel, kernel), stride, padding=padding)

    def flatten(self, values: Any) -> Any:
        return values.flatten(1)

    def norm(self, name: str, values: Any) -> Any:
        layer = nn.BatchNorm(values.shape[1], self.family.epsilon, track_running_stats=False)
        layer.weight, layer.bias = self.w[name + ".gamma"], self.w[name + ".beta"]
        return layer(values)

    def pixel_mean(self, values: Any) -> Any:
        return values.mean((2, 3))

    def embedded(self, name: str, symbols: Any) -> Any:
        weight = self.w[name + ".weight"]
        layer = nn.Embedding(*weight.shape)
        layer.weight = weight
        return layer(symbols)

    def split(self, values: Any, count: int) -> Any:
        return values.chunk(count, dim=1)

    def product(self, name: str, output: Any) -> Any:
        return self.gates(output.linear(self.hidden_weight, self.w.get(name + ".hidden_bias")))

    def recurrent(self, inputs: Any) -> Any:
        # Made once: fused into each step's product, the search through the embedding would be made there anew.
        given = self.embedded("embedding", inputs).contiguous() if self.family.embedding else inputs
        values = [given[step] for step in range(self.family.steps)]
        for name in self.family.layer_names():
            values = self.recurrent_layer(name, values)
        return self.dense("fc", self.rows(values[0].stack(*values[1:])))

    def recurrent_layer(self, name: str, values: Any) -> List[Any]:
        self.hidden_weight = self.w[name + ".hidden_weight"].T
        state: State = (Tensor.zeros(values[0].shape[0], self.family.hidden),) * self.states
        outputs = []
        for value in values:
            share = self.gates(value.linear(self.w[name + ".input_weight"].T, self.w[name + ".bias"]))
            # Kept: those of earlier steps would be computed anew in each.
            state = tuple(kept(each) for each in self.turn(name, state, share))
            outputs.append(state[0])
        return outputs

    def elman_layer(self, values: Any) -> Any:
        self.hidden_weight = self.w["rnn.hidden_weight"].T
        states: List[Any] = []
        for step in range(self.family.steps):
            sums = values[step].linear(self.w["rnn.input_weight"].T, self.w["rnn.bias"])
            if not states:
                state = self.activated(self.gates(sums), self.family.activation)
                state = state if self.family.alpha == 1.0 else self.family.alpha * state
            else:
                sums = self.gates(sums + states[-1].linear(self.hidden_weight))
                state = self.leaky(states[-1], sums)
            states.append(kept(state))
        return states[0].stack(*states[1:])

    def layer_norm(self, name: str, values: Any) -> Any:
        return values.layernorm(eps=self.family.epsilon) * self.w[name + ".gamma"] + self.w[name + ".beta"]

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.dense(name + "qkv", values).reshape(batch, steps, 3, self.family.heads, -1)
        query, key, value = [parts[:, :, part].transpose(1, 2) for part in range(3)]
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, steps, width)

    def gelu(self, values: Any) -> Any:
        return values.gelu()


def mean_loss(family: Family, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the family's mean loss."""
    if family.loss == "squares":
        return (scores - labels).square().mean()
    return scores.sparse_categorical_crossentropy(labels)
