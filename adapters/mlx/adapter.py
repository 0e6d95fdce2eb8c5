"""MLX on the CPU: the training step as one compiled function of the parameters, which returns them updated."""

import ctypes
import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import mlx.core as mx
import numpy as np

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE, Family
from ..launch.batches import Batch
from ..launch.evidence import read_file
from ..libraries import blas, software
from ..networks import Network
from ..protocol import Cell
from .networks import canonical, held, mean_loss, place

COMPILER = "g++"


class MlxAdapter(EveryFamily):
    """Drives MLX.

    Setting: ``blas``, "openblas": one must have been loaded into the process before MLX. Otherwise products are by
    netlib's reference BLAS in MLX's wheel, which has one thread.

    Where memory runs out MLX gives no exception: its process ends with a segmentation fault.
    """

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        self.blas = self.chosen("blas", "", "openblas")
        self.preloaded = ctypes.CDLL(None)  # all that is in the process
        if cell.threads:
            blas.set_openblas_threads(self.preloaded, cell.threads)
        self.compiler, self.reason = software.compiler(COMPILER)
        # MLX keeps compiled code here: it knows that by its own version, not by the compiler's.
        kept = os.path.join(os.path.abspath(cache_directory), "compiled-" + software.mark(self.compiler))
        os.makedirs(kept, exist_ok=True)
        os.environ["TMPDIR"] = kept
        mx.set_default_device(mx.cpu)

    def refuses(self, network: Network) -> str:
        if self.blas and blas.openblas_threads(self.preloaded) is None:
            return "the setting openblas: none was loaded before MLX (LD_PRELOAD); give --tuning installed"
        return self.reason and "mx.compile fuses operations with g++, and %s; install g++" % self.reason

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.weights: Dict[str, Any] = {}
        self.train = mx.compile(training_step(self.family))
        self.reset(weights, batch)
        self.set_learning_rate(LEARNING_RATE)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Put copies of them in place: all that the compiled function is given."""
        for name, value in weights.items():
            self.weights[name] = held(value)
        self.batch = place(self.family, batch)

    def step(self) -> None:
        self.weights, self.loss = self.train(self.weights, self.rate, *self.batch)
        mx.eval(self.weights, self.loss)

    def set_learning_rate(self, rate: float) -> None:
        self.rate = mx.array(rate, mx.float32)

    def last_loss(self) -> float:
        return float(self.loss.item())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self.weights.items():
            yield name, canonical(value)

    def effective_threads(self) -> Optional[int]:
        # Without OpenBLAS MLX's one thread computes everything.
        return blas.openblas_threads(self.preloaded) or 1

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "mlx",
            "version": mx.__version__,
            "device": str(mx.default_device()),
            "blas": blas.describe_openblas(self.preloaded) or {"name": _reference_blas(), "threads": 1},
            "compiler": self.compiler,
            "image_layout": "NHWC",
            "recurrence": "unrolled",
            "execution": "mx.compile of the whole step",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        gpu, together = bool(mx.is_available(mx.gpu)), bool(mx.distributed.is_available())
        slope = float(mx.grad(lambda value: value * value)(mx.array(3.0)).item())
        return {
            "gpu": (gpu, "mlx.core.is_available(gpu) is %s" % gpu),
            "automatic_gradients": slope_found(slope),
            "several_processes": (together, "mlx.core.distributed.is_available() is %s" % together),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = [mx.array(each) for each in factors(size)]

        def product() -> object:
            result = left @ right
            mx.eval(result)
            return result

        return product


def training_step(family: Family) -> Callable[..., Tuple[Dict[str, Any], Any]]:
    """Return the function of one training step: (parameters, rate, inputs, labels) to (updated parameters, loss)."""
    differentiated = mx.value_and_grad(mean_loss(family))

    def step(weights: Dict[str, Any], rate: Any, inputs: Any, labels: Any) -> Tuple[Dict[str, Any], Any]:
        loss, gradients = differentiated(weights, inputs, labels)
        if family.clip:
            norm = mx.sqrt(sum(mx.sum(mx.square(each)) for each in gradients.values()))
            rate = rate * mx.minimum(1.0, family.clip / norm)
        return {name: value - rate * gradients[name] for name, value in weights.items()}, loss

    return step


def _reference_blas() -> str:
    """Return the file name, and so the release, of the BLAS in MLX's wheel."""
    lines = (read_file("/proc/self/maps") or "").splitlines()
    return ", ".join(sorted({os.path.basename(line.split()[-1]) for line in lines if "/libblas" in line})) or "unknown"


ADAPTER = MlxAdapter
