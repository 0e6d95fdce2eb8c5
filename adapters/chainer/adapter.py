"""Chainer 7.8: define-by-run on NumPy, or with Intel's iDeep (oneDNN) for the operations it has."""

import ctypes
import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import chainer
import chainer.functions as F  # noqa: N812 - Chainer's own convention
import numpy as np
from chainer.backends import cuda, intel64

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE
from ..launch.batches import Batch
from ..libraries import blas
from ..networks import Network
from ..protocol import Cell
from .networks import ChainerFunctions, Model, arrays_of, from_chainer, has_gates


def ideep_threads() -> Optional[int]:
    """Return the threads of iDeep's own OpenMP runtime; None where it has none."""
    import ideep4py

    runtime = os.path.join(os.path.dirname(ideep4py.__file__), "lib", "libiomp5.so")
    return int(ctypes.CDLL(runtime).omp_get_max_threads()) if os.path.exists(runtime) else None


LOSSES = {"cross_entropy": F.softmax_cross_entropy, "squares": F.mean_squared_error}


class ChainerAdapter(EveryFamily):
    """Drives Chainer.

    Settings: ``ideep``, weights become iDeep's arrays and ``use_ideep`` is "auto" (default false); ``kernels``,
    "widest" or "mkl" (default): iDeep's MKL takes the widest kernels that the processor runs, or its own choice.
    """

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        if cell.threads:
            blas.set_openblas_threads(blas.loaded_openblas_of_numpy(), cell.threads)
        self.ideep = bool(settings.get("ideep", False))
        if self.ideep and settings.get("kernels", "mkl") == "widest":
            blas.take_widest_mkl_kernels()
        chainer.config.use_ideep = "auto" if self.ideep else "never"

    def refuses(self, network: Network) -> str:
        lacking = self.ideep and not intel64.is_ideep_available()
        return "iDeep (ideep4py) cannot be loaded here" if lacking else ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.model = Model(weights)
        self.forward = ChainerFunctions(network.family, self.model.by_name).scores
        self.inputs, self.labels = arrays_of(network.family, batch)
        if self.ideep:
            self.model.to_intel64()
        self.optimizer = chainer.optimizers.SGD(LEARNING_RATE).setup(self.model)
        if network.family.clip:
            self.optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(network.family.clip))
        self.criterion = LOSSES[network.family.loss]

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy the weights into the model, and the mini-batch; gradients are made anew, and plain SGD keeps nothing."""
        self.model.load(weights)
        self.inputs, self.labels = arrays_of(self.family, batch)

    def step(self) -> None:
        self.loss = self.criterion(self.forward(self.inputs), self.labels)
        self.model.cleargrads()
        self.loss.backward()
        self.optimizer.update()

    def set_learning_rate(self, rate: float) -> None:
        self.optimizer.lr = rate

    def last_loss(self) -> float:
        return float(self.loss.array)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, parameter in self.model.by_name.items():
            value = np.array(parameter.array)
            yield name, from_chainer(value) if has_gates(name) else value

    def effective_threads(self) -> Optional[int]:
        return ideep_threads() if self.ideep else blas.openblas_threads(blas.loaded_openblas_of_numpy())

    def describe(self) -> Dict[str, Any]:
        available = bool(intel64.is_ideep_available())
        return {
            "framework": "chainer",
            "version": chainer.__version__,
            "ideep_available": available,
            "ideep": intel64.ideep.__version__ if available else None,
            "use_ideep": chainer.config.use_ideep,
            "mkl_kernels": blas.mkl_kernels_setting() if self.ideep else None,
            "blas": blas.describe_openblas(blas.loaded_openblas_of_numpy()),
            "execution": "define-by-run",
            "recurrence": "loop",
            "optimizer": "chainer.optimizers.SGD",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        value = chainer.Variable(np.array(3, np.float32))
        (value * value).backward()
        try:
            import chainermn

            chainermn.create_communicator("naive")
            together = (True, "chainermn made a communicator")
        except Exception as error:  # the obstacle is the answer
            together = (False, "chainermn.create_communicator: %s" % error)
        return {
            "gpu": (bool(cuda.available), "chainer.backends.cuda.available is %s" % cuda.available),
            "automatic_gradients": slope_found(float(value.grad)),
            "several_processes": together,
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = factors(size)
        if self.ideep:
            operands = intel64.ideep.array(left), intel64.ideep.array(right), None  # no bias
            return lambda: intel64.ideep.linear.Forward(*operands)
        out = np.empty_like(left)
        return lambda: np.dot(left, right, out=out)


ADAPTER = ChainerAdapter
