"""MindSpore on the CPU: forward, backward and update as one graph.

MindSpore's layouts are the canonical ones (dense weights (outputs, inputs), convolutions OIHW,
images NCHW, LSTM gates input, forget, cell, output). Recurrent networks' tokens and labels are
time-major. MindSpore compiles ``construct``, and what that calls, from its source: use only the
Python that its compiler supports.
"""

import math
import os
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import mindspore
import numpy as np
from mindspore import nn, ops

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE, Attention, Elman, Layer, Recurrent
from ..launch.batches import Batch, by_example, laid_out
from ..libraries.walks import HIDDEN, LayerFunctions
from ..networks import Network

MOST_STEPS = 100  # of all layers together that are unrolled: longer graphs take minutes to compile


def reason_against(layers: int, steps: int) -> str:
    """Return why this many layers of this many steps are not unrolled; empty where they are."""
    if layers * steps <= MOST_STEPS:
        return ""
    text = (
        "%d layers of %d steps: MindSpore unrolls them, and a graph of more than %d takes minutes "
        "to compile"
    )
    return text % (layers, steps, MOST_STEPS)


class MindSporeNetwork(LayerFunctions, nn.Cell):
    """A network of MindSpore's layers, to rows of logits or outputs.

    Recurrent layers are MindSpore's own LSTM; the others loop over the steps, which its compiler
    unrolls. MindSpore's GRU and RNN layers also loop, and multiply the inputs in each step.
    """

    attributes: Dict[str, str] = {}
    activations = {"sigmoid": ops.sigmoid, "relu": ops.relu, "tanh": ops.tanh}
    make_dense = staticmethod(nn.Dense)
    keep = nn.Cell.insert_child_to_cell

    def __init__(self, family: Any) -> None:
        nn.Cell.__init__(self)
        LayerFunctions.__init__(self, family)
        if isinstance(family, Attention):
            hidden = np.triu(np.full((family.steps, family.steps), HIDDEN, np.float32), 1)
            self.hides_later = mindspore.Tensor(hidden)
        elif getattr(family, "cell", "") == "lstm":
            self.stack = nn.LSTM(family.width, family.hidden, family.layers)
            for second_bias in self.hold_stack():
                second_bias.set_data(mindspore.Tensor(np.zeros(second_bias.shape, np.float32)))
                second_bias.requires_grad = False
        for parameter in family.parameters():
            if parameter.name not in self.w:
                made = mindspore.Parameter(
                    mindspore.Tensor(np.zeros(parameter.shape, np.float32)), parameter.name
                )
                self.w[parameter.name] = made
                self.insert_param_to_cell(parameter.name.replace(".", "_"), made)

    def stack_parameter(self, layer: int, place: int) -> Any:
        stack = self.stack
        return (stack.w_ih_list, stack.w_hh_list, stack.b_ih_list, stack.b_hh_list)[place][layer]

    def construct(self, inputs: Any) -> Any:
        return self.scores(inputs)

    def make_convolution(self, spec: Layer) -> Any:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride
        return nn.Conv2d(*sizes, pad_mode="pad", padding=spec.padding, has_bias=not spec.norm)

    def make_batch_norm(self, name: str, channels: int) -> Any:
        return nn.BatchNorm2d(channels, eps=self.family.epsilon)

    def make_layer_norm(self, width: int) -> Any:
        return nn.LayerNorm((width,), epsilon=self.family.epsilon)

    def make_embedding(self, symbols: int, width: int) -> Any:
        layer = nn.Embedding(symbols, width)
        layer.weight = layer.embedding_table
        return layer

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return ops.max_pool2d(values, kernel, stride, padding)

    def flatten(self, values: Any) -> Any:
        return values.flatten(start_dim=1)

    def pixel_mean(self, values: Any) -> Any:
        return ops.mean(values, (2, 3))

    def stacked(self, values: Any) -> Any:
        if self.family.name == "recurrent" and self.family.cell == "lstm":
            return self.stack(values)[0]
        for name in self.family.layer_names():
            values = self.recurrent_layer(name, values)
        return values

    def recurrent_layer(self, name: str, values: Any) -> Any:
        """Return the states of all steps from a zero state, of a GRU or a simple layer."""
        family, hidden_weight = self.family, self.w[name + ".hidden_weight"]
        gru = family.name == "recurrent" and family.cell == "gru"
        shares = ops.dense(values, self.w[name + ".input_weight"], self.w[name + ".bias"])
        state = ops.zeros((values.shape[1], family.hidden), mindspore.float32)
        states = []
        for share in ops.unbind(shares):  # a slice's gradient would be an array of all steps
            if gru:
                product = ops.dense(state, hidden_weight, self.w[name + ".hidden_bias"])
                state = self.gru(state, share, product)
            elif family.name == "recurrent":
                state = ops.tanh(share + ops.dense(state, hidden_weight))
            else:
                state = self.leaky(state, share + ops.dense(state, hidden_weight))
            states.append(state)
        return ops.stack(states)

    def split(self, values: Any, count: int) -> Any:
        return ops.split(values, self.family.hidden, 1)

    def attended(self, name: str, values: Any) -> Any:
        heads, width = self.family.heads, self.family.width // self.family.heads
        parts = self.dense(name + "qkv", values).reshape((-1, self.family.steps, 3, heads, width))
        query, key, value = ops.unbind(parts.transpose((2, 0, 3, 1, 4)))
        scores = ops.matmul(query, key.swapaxes(2, 3)) * (1.0 / math.sqrt(width)) + self.hides_later
        return (
            ops.matmul(ops.softmax(scores, -1), value).transpose((0, 2, 1, 3)).reshape(values.shape)
        )

    def gelu(self, values: Any) -> Any:
        return ops.gelu(values, "tanh")


def load(parameters: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters."""
    for name, parameter in parameters.items():
        parameter.set_data(mindspore.Tensor(weights[name].copy()))


LOSSES = {"cross_entropy": nn.CrossEntropyLoss, "squares": nn.MSELoss}


class Descent(nn.Cell):
    """The update of plain SGD, in place."""

    def __init__(self, parameters: Any) -> None:
        super().__init__()
        self.parameters = parameters
        self.learning_rate = mindspore.Parameter(
            mindspore.Tensor(LEARNING_RATE, mindspore.float32), "rate", False
        )
        self.descend = ops.ApplyGradientDescent()

    def construct(self, gradients: Any) -> Any:
        done = True
        for index in range(len(self.parameters)):
            done = ops.depend(
                done, self.descend(self.parameters[index], self.learning_rate, gradients[index])
            )
        return done


class TrainingStep(nn.Cell):
    """A training step, in graph mode one program.

    It returns the loss before its update, when the update is done.
    """

    def __init__(self, loss: Any, parameters: Any, update: Any, clip: float) -> None:
        super().__init__()
        self.of_loss = mindspore.value_and_grad(loss, None, parameters)
        self.update, self.clip = update, clip

    def construct(self, inputs: Any, labels: Any) -> Any:
        loss, gradients = self.of_loss(inputs, labels)
        if self.clip:
            gradients = ops.clip_by_global_norm(gradients, self.clip)
        return ops.depend(loss, self.update(gradients))


def _square(value: Any) -> Any:
    return value * value


class MindSporeAdapter(EveryFamily):
    """Drives MindSpore.

    Settings: ``update``, "sgd" (default: ``nn.SGD``) or "descent": one operator for each parameter,
    in place.
    """

    further_axes = ("task",)
    out_of_memory = ("memory isn't enough", "memory failed")

    def set_up(self) -> None:
        self.how_to_update = self.chosen("update", "sgd", "descent")
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        mindspore.set_device("CPU")

    def refuses(self, network: Network) -> str:
        # The launch has bound this process already.
        cpus = len(os.sched_getaffinity(0))
        if self.cell.threads not in (0, cpus):
            text = (
                "threads %d, CPUs %d: MindSpore has no thread setting that works on the CPU; use "
                "--affinity bound"
            )
            return text % (self.cell.threads, cpus)
        family = network.family
        if isinstance(family, Elman):
            return reason_against(1, family.steps)
        if isinstance(family, Recurrent) and family.cell != "lstm":
            return reason_against(family.layers, family.steps)
        return ""

    def _build(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> Any:
        self.family = network.family
        self.network = model = MindSporeNetwork(network.family)
        model.set_train(not self.cell.infers)
        for name, parameter in model.parameters_and_names():
            parameter.name = (
                name  # layers made alike name theirs alike, which the graph does not take
            )
        self.trainable: Dict[str, Any] = model.w
        load(self.trainable, weights)
        self.inputs, self.labels = map(mindspore.Tensor, laid_out(self.family, batch))
        return model

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        model = self._build(network, weights, batch)
        parameters = mindspore.ParameterTuple(self.trainable.values())
        in_place = self.how_to_update == "descent"
        self.update = Descent(parameters) if in_place else nn.SGD(parameters, LEARNING_RATE)
        criterion = LOSSES[self.family.loss]()

        def loss(inputs: Any, labels: Any) -> Any:
            return criterion(model(inputs), labels)

        self.loss = mindspore.Tensor(0.0, mindspore.float32)  # to wait for before the first step
        self.train = TrainingStep(loss, parameters, self.update, self.family.clip)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        model = self._build(network, weights, batch)
        for name, value in statistics.items():
            layer, _, part = name.rpartition(".")
            held = getattr(model.layers[layer], "moving_" + part)
            held.set_data(mindspore.Tensor(value.copy()))
        self.loss = mindspore.Tensor(0.0, mindspore.float32)

    def infer(self) -> None:
        self.result = self.loss = self.network(self.inputs)

    def show(self, batch: Batch) -> None:
        self.inputs, self.labels = map(mindspore.Tensor, laid_out(self.family, batch))

    def outputs(self) -> np.ndarray:
        return by_example(self.family, self.result.asnumpy(), self.cell.known_batch_size)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy the weights into the parameters; the mini-batch is made anew.

        Plain SGD keeps nothing else.
        """
        load(self.trainable, weights)
        self.inputs, self.labels = map(mindspore.Tensor, laid_out(self.family, batch))

    def step(self) -> None:
        self.loss = self.train(self.inputs, self.labels)

    def synchronize(self) -> None:
        # which the graph gives after the update; MindSpore has no other way on the CPU
        self.loss.asnumpy()

    def set_learning_rate(self, rate: float) -> None:
        self.update.learning_rate.set_data(mindspore.Tensor(rate, mindspore.float32))

    def last_loss(self) -> float:
        return float(self.loss.asnumpy())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, parameter in self.trainable.items():
            yield name, parameter.asnumpy()

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "mindspore",
            "version": mindspore.__version__,
            "onednn_max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", "oneDNN's own choice"),
            "execution": "graph",
            "recurrence": "fused" if getattr(self.family, "cell", "") == "lstm" else "unrolled",
            "optimizer": None if self.cell.infers else type(self.update).__name__,
            "image_layout": "NCHW",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        gpu = bool(mindspore.hal.is_available("GPU"))
        slope = float(mindspore.grad(_square)(mindspore.Tensor(3.0, mindspore.float32)).asnumpy())
        return {
            "gpu": (gpu, "mindspore.hal.is_available('GPU') is %s" % gpu),
            "automatic_gradients": slope_found(slope),
        }

    def multiply(self, size: int) -> Callable[[], object]:
        left, right = [mindspore.Tensor(factor) for factor in factors(size)]

        def product(left: Any, right: Any) -> Any:
            return ops.matmul(left, right)

        compiled = mindspore.jit(product)
        return lambda: compiled(left, right).asnumpy()


ADAPTER = MindSporeAdapter
