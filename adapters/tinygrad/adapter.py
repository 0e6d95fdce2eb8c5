"""tinygrad: the training step as one TinyJit, its kernels compiled from C by clang."""

import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np
from tinygrad import Device, Tensor, TinyJit, helpers, nn

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE
from ..launch.batches import Batch, laid_out
from ..libraries import software
from ..networks import Network
from ..protocol import Cell
from .networks import TinygradFunctions, fused, kept, mean_loss

GPUS = {"AMD", "CL", "CUDA", "HIP", "METAL", "NV", "QCOM", "WEBGPU"}  # among tinygrad's devices


class TinygradAdapter(EveryFamily):
    """Drives tinygrad.

    Setting: ``gates``, "fused" (default: tinygrad's own schedule) or "kept": in memory at each step.

    The first step runs uncaptured, the second is captured, and every further one replays the kernels of that one.
    """

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        self.gates = self.chosen("gates", "fused", "kept")
        self.compiler, reason = software.compiler(os.environ.get("CC", "clang"))
        self.reason = reason and "tinygrad compiles its kernels with clang, and " + reason
        # tinygrad's own cache knows a kernel by its source alone, not by the compiler.
        name = "kernels-%s.db" % software.mark(self.compiler)
        helpers.CACHEDB = os.path.join(os.path.abspath(cache_directory), name)

    def refuses(self, network: Network) -> str:
        return self.reason

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.weights = {name: _placed(value) for name, value in weights.items()}
        self.inputs, self.labels = [_placed(each).is_param_(False) for each in laid_out(self.family, batch)]
        self.optimizer = nn.optim.SGD(list(self.weights.values()), lr=LEARNING_RATE)
        gates = kept if self.gates == "kept" else fused

        def train() -> Tensor:
            self.optimizer.zero_grad()
            scores = TinygradFunctions(self.family, self.weights, gates).scores(self.inputs)
            loss = mean_loss(self.family, scores, self.labels).backward()
            if self.family.clip:
                self._clip()
            # Realized together: a loss that is realized after the update would be computed from the new weights.
            return loss.realize(*self.optimizer.schedule_step())

        self.train = TinyJit(train)

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
        return int(helpers.CPU_COUNT.value)  # of slices of a kernel, each computed by its own thread

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
            "execution": "TinyJit of the whole step",
            "optimizer": "tinygrad.nn.optim.SGD",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        gpus = sorted(set(Device._devices) & GPUS)
        answers = {"gpu": (bool(gpus), "tinygrad's devices: %s" % ", ".join(sorted(Device._devices)))}
        if not self.reason:
            value = Tensor([3.0])
            (value * value).sum().backward()
            answers["automatic_gradients"] = slope_found(float(value.grad.item()))
        return answers

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = [_placed(each) for each in factors(size)]
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
