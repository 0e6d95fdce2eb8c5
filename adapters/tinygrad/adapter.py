"""tinygrad: the training step as one TinyJit, its kernels compiled from C by clang.

Everything is held in canonical layout, which is tinygrad's own; mini-batches of recurrent networks
are turned to time-major. Recurrent layers are unrolled: tinygrad has no loop that a graph could
hold, and no operator for a layer.
"""

import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
from tinygrad import Device, Tensor, TinyJit, helpers, nn

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE, Family, Layer
from ..launch.batches import Batch, by_example, laid_out
from ..libraries import software
from ..libraries.walks import Functions, State
from ..networks import Network

Gates = Callable[[Tensor], Tensor]  # of the sums of gates: `kept` or `fused`


def kept(value: Tensor) -> Tensor:
    """Have the value and its gradient put in memory.

    Otherwise tinygrad fuses its computation into everything that reads it.
    """
    return value.contiguous().contiguous_backward()


def fused(value: Tensor) -> Tensor:
    """Leave the value to tinygrad's scheduler."""
    return value


class TinygradFunctions(Functions):
    """Networks by the methods of tensors."""

    activations = {"sigmoid": Tensor.sigmoid, "relu": Tensor.relu, "tanh": Tensor.tanh}
    gelu = staticmethod(Tensor.gelu)

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
        layer = nn.BatchNorm(
            values.shape[1], self.family.epsilon, track_running_stats=bool(self.statistics)
        )
        layer.weight = self.w[name + ".gamma"]
        layer.bias = self.w[name + ".beta"]
        if self.statistics:
            layer.running_mean = self.statistics[name + ".mean"]
            layer.running_var = self.statistics[name + ".variance"]
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
        # Made once: fused into each step's product, the search through the embedding would be made
        # there anew.
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
            share = self.gates(
                value.linear(self.w[name + ".input_weight"].T, self.w[name + ".bias"])
            )
            # Kept: those of earlier steps would be computed anew in each.
            state = tuple(kept(value) for value in self.turn(name, state, share))
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
        return (
            values.layernorm(eps=self.family.epsilon) * self.w[name + ".gamma"]
            + self.w[name + ".beta"]
        )

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.dense(name + "qkv", values).reshape(batch, steps, 3, self.family.heads, -1)
        query, key, value = [parts[:, :, part].transpose(1, 2) for part in range(3)]
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, steps, width)


def mean_loss(family: Family, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the family's mean loss."""
    if family.loss == "squares":
        return (scores - labels).square().mean()
    return scores.sparse_categorical_crossentropy(labels)


GPUS = {"AMD", "CL", "CUDA", "HIP", "METAL", "NV", "QCOM", "WEBGPU"}  # among tinygrad's devices


class TinygradAdapter(EveryFamily):
    """Drives tinygrad.

    Setting: ``gates``, "fused" (default: tinygrad's own schedule) or "kept": in memory at each
    step.

    The first step runs uncaptured, the second is captured, and every further one replays the
    kernels of that one.
    """

    further_axes = ("task",)

    def set_up(self) -> None:
        self.gates = self.chosen("gates", "fused", "kept")
        self.compiler, reason = software.compiler(os.environ.get("CC", "clang"))
        self.reason = reason and "tinygrad compiles its kernels with clang, and " + reason
        # tinygrad's own cache knows a kernel by its source alone, not by the compiler.
        name = "kernels-%s.db" % software.mark(self.compiler)
        helpers.CACHEDB = os.path.join(os.path.abspath(self.cache_directory), name)

    def refuses(self, network: Network) -> str:
        return self.reason

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.weights = {name: _placed(value) for name, value in weights.items()}
        self.inputs, self.labels = [
            _placed(array).is_param_(False) for array in laid_out(self.family, batch)
        ]
        self.optimizer = nn.optim.SGD(list(self.weights.values()), lr=LEARNING_RATE)
        gates = kept if self.gates == "kept" else fused

        def train() -> Tensor:
            self.optimizer.zero_grad()
            scores = TinygradFunctions(self.family, self.weights, gates).scores(self.inputs)
            loss = mean_loss(self.family, scores, self.labels).backward()
            if self.family.clip:
                self._clip()
            # Realized together: a loss that is realized after the update would be computed from the
            # new weights.
            return loss.realize(*self.optimizer.schedule_step())

        self.train = TinyJit(train)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.family = network.family
        self.inputs = _placed(laid_out(self.family, batch)[0]).is_param_(False)
        held = {name: _placed(value) for name, value in weights.items()}
        functions = TinygradFunctions(self.family, held, kept if self.gates == "kept" else fused)
        functions.statistics = {name: _placed(value) for name, value in statistics.items()}
        self.forward = TinyJit(lambda: functions.scores(self.inputs).realize())

    def infer(self) -> None:
        self.result = self.forward()

    def show(self, batch: Batch) -> None:
        _fill(self.inputs, laid_out(self.family, batch)[0])

    def outputs(self) -> np.ndarray:
        return by_example(self.family, self.result.numpy(), self.cell.known_batch_size)

    def _clip(self) -> None:
        gradients = [value.grad for value in self.weights.values()]
        norm = sum(gradient.square().sum() for gradient in gradients).sqrt()
        scale = (self.family.clip / norm).minimum(1.0)
        for value, gradient in zip(self.weights.values(), gradients):
            value.grad = gradient * scale

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        for name, held in self.weights.items():
            _fill(held, weights[name])
        for held, value in zip((self.inputs, self.labels), laid_out(self.family, batch)):
            _fill(held, value)

    def step(self) -> None:
        with Tensor.train():
            self.loss = self.train()

    def synchronize(self) -> None:
        Device[Device.DEFAULT].synchronize()

    def set_learning_rate(self, rate: float) -> None:
        _fill(self.optimizer.lr, np.array([rate], np.float32))

    def last_loss(self) -> float:
        return float(self.loss.item())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self.weights.items():
            yield name, value.numpy()

    def effective_threads(self) -> Optional[int]:
        return int(
            helpers.CPU_COUNT.value
        )  # of slices of a kernel, each computed by its own thread

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "tinygrad",
            "version": software.environment()["distributions"].get("tinygrad", ""),
            "device": Device.DEFAULT,
            "renderer": type(Device[Device.DEFAULT].renderer).__name__,
            "compiler": self.compiler,
            "beam": int(helpers.BEAM.value),
            "cpu_count": int(helpers.CPU_COUNT.value),
            "recurrence": "unrolled",
            "gates": self.gates,
            "execution": "TinyJit of the whole %s"
            % ("forward pass" if self.cell.infers else "step"),
            "optimizer": None if self.cell.infers else "tinygrad.nn.optim.SGD",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        gpus = sorted(set(Device._devices) & GPUS)
        answers = {
            "gpu": (bool(gpus), "tinygrad's devices: %s" % ", ".join(sorted(Device._devices)))
        }
        if not self.reason:
            value = Tensor([3.0])
            (value * value).sum().backward()
            answers["automatic_gradients"] = slope_found(float(value.grad.item()))
        return answers

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = [_placed(factor) for factor in factors(size)]
        product = TinyJit(lambda: (left @ right).realize())

        def synchronous() -> object:
            result = product()
            self.synchronize()
            return result

        return synchronous

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == 12)


def _placed(value: np.ndarray) -> Tensor:
    return Tensor(value).contiguous().realize()


def _fill(held: Tensor, value: np.ndarray) -> None:
    held.assign(Tensor(value, device=held.device)).realize()


ADAPTER = TinygradAdapter
