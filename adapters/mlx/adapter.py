"""MLX on the CPU: the training step as one compiled function of the parameters.

It returns them updated. Images are held as (batch, height, width, channels) and convolution weights
as (outputs, height, width, inputs), the only layout of MLX's convolutions. Everything else is held
in canonical layout, but mini-batches of recurrent networks, which are turned to time-major.
"""

import ctypes
import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import mlx.core as mx
import numpy as np
from mlx import nn

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE, Family, Layer
from ..launch.batches import Batch, by_example, laid_out
from ..launch.evidence import read_file
from ..libraries import blas, software
from ..libraries.walks import Functions, Turn
from ..networks import Network

HELD = (0, 2, 3, 1)  # canonical axes of images and convolution weights in the order they are held
CANONICAL = (0, 3, 1, 2)  # and back


def held(value: np.ndarray) -> Any:
    """Return an array of MLX's own that holds a copy, images and convolution weights turned."""
    return mx.array(np.ascontiguousarray(value.transpose(HELD)) if value.ndim == 4 else value)


def canonical(value: Any) -> np.ndarray:
    """Return a held parameter as NumPy array in canonical layout."""
    array = np.array(value)
    return array.transpose(CANONICAL) if array.ndim == 4 else array


class MlxFunctions(Functions):
    """Networks by mlx.core and mlx.nn."""

    activations = {"sigmoid": mx.sigmoid, "relu": nn.relu, "tanh": mx.tanh}
    gelu = staticmethod(nn.gelu_approx)

    def dense(self, name: str, values: Any) -> Any:
        # As MLX's own ``Linear`` computes it.
        return mx.addmm(self.w[name + ".bias"], values, self.w[name + ".weight"].T)

    def convolution(self, spec: Layer, values: Any) -> Any:
        values = mx.conv2d(values, self.w[spec.name + ".weight"], spec.stride, spec.padding)
        return values if spec.norm else values + self.w[spec.name + ".bias"]

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return nn.MaxPool2d(kernel, stride, padding)(values)

    def flatten(self, values: Any) -> Any:
        return values.transpose(CANONICAL).reshape(values.shape[0], -1)

    def norm(self, name: str, values: Any) -> Any:
        layer = nn.BatchNorm(
            values.shape[-1], self.family.epsilon, track_running_stats=bool(self.statistics)
        )
        layer.weight = self.w[name + ".gamma"]
        layer.bias = self.w[name + ".beta"]
        if self.statistics:
            layer.running_mean = self.statistics[name + ".mean"]
            layer.running_var = self.statistics[name + ".variance"]
            layer.eval()
        return layer(values)

    def pixel_mean(self, values: Any) -> Any:
        return mx.mean(values, axis=(1, 2))

    def split(self, values: Any, count: int) -> Any:
        return mx.split(values, count, axis=-1)

    def product(self, name: str, output: Any) -> Any:
        return self.sums(name, self.w[name + ".hidden_bias"], output)

    def sums(self, name: str, share: Any, output: Any) -> Any:
        return mx.addmm(share, output, self.hidden_weight)

    def over_steps(self, name: str, values: Any, turn: Turn, states: int) -> Any:
        self.hidden_weight = self.w[name + ".hidden_weight"].T
        zero = mx.zeros((values.shape[1], self.family.hidden))
        shares = mx.addmm(self.w[name + ".bias"], values, self.w[name + ".input_weight"].T)
        split = (mx.squeeze(share, 0) for share in mx.split(shares, len(shares)))
        return mx.stack(self.step_by_step(turn, (zero,) * states, split))

    def layer_norm(self, name: str, values: Any) -> Any:
        return mx.fast.layer_norm(
            values, self.w[name + ".gamma"], self.w[name + ".beta"], self.family.epsilon
        )

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        heads = self.family.heads
        parts = mx.split(self.dense(name + "qkv", values), 3, axis=-1)
        query, key, value = [
            part.reshape(batch, steps, heads, -1).transpose(0, 2, 1, 3) for part in parts
        ]
        scale = (width // heads) ** -0.5
        mixed = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask="causal")
        return mixed.transpose(0, 2, 1, 3).reshape(batch, steps, width)


def mean_loss(family: Family) -> Callable[[Dict[str, Any], Any, Any], Any]:
    """Return the family's mean loss of a mini-batch.

    It is a function of parameters, inputs and labels.
    """
    compared = nn.losses.mse_loss if family.loss == "squares" else nn.losses.cross_entropy
    return lambda w, inputs, labels: compared(
        MlxFunctions(family, w).scores(inputs), labels, reduction="mean"
    )


def place(family: Family, batch: Batch) -> Tuple[Any, Any]:
    """Return a copy of the mini-batch as the losses read it.

    Labels are in rows, time-major where the family is so.
    """
    inputs, labels = laid_out(family, batch)
    return held(inputs), held(labels)


COMPILER = "g++"


class MlxAdapter(EveryFamily):
    """Drives MLX.

    Setting: ``blas``, "openblas": an OpenBLAS must have been loaded into the process before MLX.
    Otherwise products are by netlib's reference BLAS in MLX's wheel, which has one thread.

    When memory runs out, MLX raises no exception: its process ends with a segmentation fault.
    """

    further_axes = ("task",)

    def set_up(self) -> None:
        self.blas = self.chosen("blas", "", "openblas")
        self.preloaded = ctypes.CDLL(None)  # all that is in the process
        if self.cell.threads:
            blas.set_openblas_threads(self.preloaded, self.cell.threads)
        self.compiler, self.reason = software.compiler(COMPILER)
        # MLX caches compiled code here, by its own version and not the compiler's.
        kept = os.path.join(
            os.path.abspath(self.cache_directory), "compiled-" + software.mark(self.compiler)
        )
        os.makedirs(kept, exist_ok=True)
        os.environ["TMPDIR"] = kept
        mx.set_default_device(mx.cpu)

    def refuses(self, network: Network) -> str:
        if self.blas and blas.openblas_threads(self.preloaded) is None:
            return (
                "the setting openblas: no OpenBLAS was loaded before MLX (LD_PRELOAD); use "
                "--tuning installed"
            )
        return (
            self.reason
            and "mx.compile fuses operations with g++, and %s; install g++" % self.reason
        )

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.weights: Dict[str, Any] = {}
        self.train = mx.compile(training_step(self.family))
        self.reset(weights, batch)
        self.set_learning_rate(LEARNING_RATE)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.family = network.family
        self.weights = {name: held(value) for name, value in weights.items()}
        self.statistics = {name: mx.array(value) for name, value in statistics.items()}
        self.forward = mx.compile(forward_pass(self.family))
        self.show(batch)

    def infer(self) -> None:
        self.result = self.forward(self.weights, self.statistics, self.batch[0])
        mx.eval(self.result)

    def show(self, batch: Batch) -> None:
        self.batch = place(self.family, batch)

    def outputs(self) -> np.ndarray:
        return by_example(self.family, np.array(self.result), self.cell.known_batch_size)

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
            "blas": blas.describe_openblas(self.preloaded)
            or {"name": _reference_blas(), "threads": 1},
            "compiler": self.compiler,
            "image_layout": "NHWC",
            "recurrence": "unrolled",
            "execution": "mx.compile of the whole %s"
            % ("forward pass" if self.cell.infers else "step"),
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        gpu = bool(mx.is_available(mx.gpu))
        together = bool(mx.distributed.is_available())
        slope = float(mx.grad(lambda value: value * value)(mx.array(3.0)).item())
        return {
            "gpu": (gpu, "mlx.core.is_available(gpu) is %s" % gpu),
            "automatic_gradients": slope_found(slope),
            "several_processes": (together, "mlx.core.distributed.is_available() is %s" % together),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = [mx.array(factor) for factor in factors(size)]

        def product() -> object:
            result = left @ right
            mx.eval(result)
            return result

        return product


def forward_pass(family: Family) -> Callable[[Dict[str, Any], Dict[str, Any], Any], Any]:
    """Return the function from parameters, running statistics and inputs to outputs."""

    def forward(weights: Dict[str, Any], statistics: Dict[str, Any], inputs: Any) -> Any:
        functions = MlxFunctions(family, weights)
        functions.statistics = statistics
        return functions.scores(inputs)

    return forward


def training_step(family: Family) -> Callable[..., Tuple[Dict[str, Any], Any]]:
    """Return the function of one training step.

    It takes (parameters, rate, inputs, labels) and returns (updated parameters, loss).
    """
    differentiated = mx.value_and_grad(mean_loss(family))

    def step(
        weights: Dict[str, Any], rate: Any, inputs: Any, labels: Any
    ) -> Tuple[Dict[str, Any], Any]:
        loss, gradients = differentiated(weights, inputs, labels)
        if family.clip:
            norm = mx.sqrt(sum(mx.sum(mx.square(gradient)) for gradient in gradients.values()))
            rate = rate * mx.minimum(1.0, family.clip / norm)
        return {name: value - rate * gradients[name] for name, value in weights.items()}, loss

    return step


def _reference_blas() -> str:
    """Return the file name, and so the release, of the BLAS in MLX's wheel."""
    lines = (read_file("/proc/self/maps") or "").splitlines()
    return (
        ", ".join(
            sorted({os.path.basename(line.split()[-1]) for line in lines if "/libblas" in line})
        )
        or "unknown"
    )


ADAPTER = MlxAdapter
