"""MindSpore on the CPU: forward, backward and update as one graph."""

import os
import re
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import mindspore
import numpy as np
from mindspore import nn, ops

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE, Elman, Recurrent
from ..launch.batches import Batch, laid_out
from ..networks import Network
from ..protocol import Cell
from .networks import build, load, reason_against

_OUT_OF_MEMORY = re.compile("memory isn't enough|[Aa]llocate ([a-z]+ )*memory failed")
LOSSES = {"cross_entropy": nn.CrossEntropyLoss, "squares": nn.MSELoss}


class Descent(nn.Cell):
    """The update of plain SGD, in place."""

    def __init__(self, parameters: Any) -> None:
        super().__init__()
        self.parameters = parameters
        self.learning_rate = mindspore.Parameter(mindspore.Tensor(LEARNING_RATE, mindspore.float32), "rate", False)
        self.descend = ops.ApplyGradientDescent()

    def construct(self, gradients: Any) -> Any:
        done = True
        for index in range(len(self.parameters)):
            done = ops.depend(done, self.descend(self.parameters[index], self.learning_rate, gradients[index]))
        return done


class Step(nn.Cell):
    """A training step, in graph mode one program: returns the loss before its update, when the update is done."""

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

    Settings: ``update``, "sgd" (default: ``nn.SGD``) or "descent": one operator for each parameter, in place.
    """

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        self.how_to_update = self.chosen("update", "sgd", "descent")
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        mindspore.set_device("CPU")

    def refuses(self, network: Network) -> str:
        # The launch has bound this process already.
        cpus = len(os.sched_getaffinity(0))
        if self.cell.threads not in (0, cpus):
            text = "threads %d, CPUs %d: MindSpore has no thread setting that works on the CPU; give --affinity bound"
            return text % (self.cell.threads, cpus)
        family = network.family
        if isinstance(family, Elman):
            return reason_against(1, family.steps)
        if isinstance(family, Recurrent) and family.cell != "lstm":
            return reason_against(family.layers, family.steps)
        return ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.network, self.trainable = model, _ = build(network, weights)
        self.inputs, self.labels = map(mindspore.Tensor, laid_out(self.family, batch))
        parameters = mindspore.ParameterTuple(self.trainable.values())
        in_place = self.how_to_update == "descent"
        self.update = Descent(parameters) if in_place else nn.SGD(parameters, LEARNING_RATE)
        criterion = LOSSES[self.family.loss]()

        def loss(inputs: Any, labels: Any) -> Any:
            return criterion(model(inputs), labels)

        self.loss = mindspore.Tensor(0.0, mindspore.float32)  # to wait for before the first step
        self.train = Step(loss, parameters, self.update, self.family.clip)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy the weights into the parameters, which plain SGD keeps nothing beside; the mini-batch is made anew."""
        load(self.trainable, weights)
        self.inputs, self.labels = map(mindspore.Tensor, laid_out(self.family, batch))

    def step(self) -> None:
        self.loss = self.train(self.inputs, self.labels)

    def synchronize(self) -> None:
        self.loss.asnumpy()  # which the graph gives after the update; MindSpore has no other way on the CPU

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
            "optimizer": type(self.update).__name__,
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
        left, right = [mindspore.Tensor(each) for each in factors(size)]

        def product(left: Any, right: Any) -> Any:
            return ops.matmul(left, right)

        compiled = mindspore.jit(product)
        return lambda: compiled(left, right).asnumpy()

    def is_out_of_memory(self, error: BaseException) -> bool:
        return super().is_out_of_memory(error) or bool(_OUT_OF_MEMORY.search(str(error)))


ADAPTER = MindSporeAdapter
