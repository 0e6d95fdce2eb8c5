"""Chainer 7.8: define-by-run on NumPy, or with Intel's iDeep (oneDNN) for the operations it has.

Weights are Chainer parameters in canonical layout, but for the LSTM's: ``chainer.functions.lstm``
takes the gates of one cell side by side, in the order candidate, input, forget, output. Chainer's
``n_step_lstm``, ``n_step_gru`` and ``n_step_rnn_tanh`` have other biases; here the inputs' products
of all steps are made at once.
"""

import ctypes
import os
from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import chainer
import chainer.functions as F  # noqa: N812 - Chainer's own convention
import numpy as np
from chainer.backends import cuda, intel64

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE, Layer
from ..launch.batches import Batch, by_example, in_rows
from ..libraries import blas
from ..libraries.walks import HIDDEN, Functions, State, Turn, gelu_by_tanh, unchanged
from ..networks import Network

# Positions of the canonical gates (input, forget, cell, output) in Chainer's order, and the other
# way round.
_TO_CHAINER = [2, 0, 1, 3]
_FROM_CHAINER = [1, 2, 0, 3]


def held(name: str, value: np.ndarray) -> np.ndarray:
    """Return a copy of a parameter as Chainer has it.

    An LSTM's gates, (4, hidden, ...), are side by side in each cell.
    """
    if not name.startswith("lstm"):
        return value.copy()
    gates = value.reshape((4, -1) + value.shape[1:])[_TO_CHAINER]
    return np.ascontiguousarray(gates.swapaxes(0, 1)).reshape(value.shape)


def canonical(name: str, value: np.ndarray) -> np.ndarray:
    """Undo ``held``."""
    if not name.startswith("lstm"):
        return value
    gates = value.reshape((-1, 4) + value.shape[1:]).swapaxes(0, 1)[_FROM_CHAINER]
    return np.ascontiguousarray(gates).reshape(value.shape)


class ChainerFunctions(Functions):
    """Networks by chainer.functions; values of steps are rows."""

    activations = {"relu": F.relu, "sigmoid": F.sigmoid, "tanh": F.tanh}
    gelu = staticmethod(partial(gelu_by_tanh, tanh=F.tanh))
    rows = staticmethod(unchanged)

    def dense(self, name: str, values: Any) -> Any:
        return F.linear(values, self.w[name + ".weight"], self.w[name + ".bias"])

    def convolution(self, spec: Layer, values: Any) -> Any:
        given = self.w[spec.name + ".weight"], self.w.get(spec.name + ".bias")
        return F.convolution_2d(values, *given, spec.stride, spec.padding)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return F.max_pooling_2d(values, kernel, stride, padding, cover_all=False)

    def flatten(self, values: Any) -> Any:
        return F.reshape(values, (len(values), -1))

    def norm(self, name: str, values: Any) -> Any:
        given = self.w[name + ".gamma"], self.w[name + ".beta"]
        if self.statistics:
            running = self.statistics[name + ".mean"], self.statistics[name + ".variance"]
            return F.fixed_batch_normalization(values, *given, *running, self.family.epsilon)
        return F.batch_normalization(values, *given, eps=self.family.epsilon)

    def pixel_mean(self, values: Any) -> Any:
        return F.reshape(F.average_pooling_2d(values, values.shape[2:]), values.shape[:2])

    def embedded(self, name: str, symbols: Any) -> Any:
        return F.embed_id(symbols, self.w[name + ".weight"])

    def product(self, name: str, output: Any) -> Any:
        return F.linear(output, self.w[name + ".hidden_weight"], self.w.get(name + ".hidden_bias"))

    def sums(self, name: str, share: Any, output: Any) -> Any:
        # The product of a zero state is nothing.
        return share if output is self.zero else share + self.product(name, output)

    def lstm(self, memory: Any, sums: Any) -> State:
        memory, output = F.lstm(memory, sums)
        return output, memory

    def gru(self, output: Any, share: Any, product: Any) -> Any:
        ours = F.split_axis(share, 3, 1)
        theirs = F.split_axis(product, 3, 1)
        reset = F.sigmoid(ours[0] + theirs[0])
        update = F.sigmoid(ours[1] + theirs[1])
        return F.linear_interpolate(update, output, F.tanh(ours[2] + reset * theirs[2]))

    def over_steps(self, name: str, values: Any, turn: Turn, states: int) -> Any:
        self.zero = np.zeros((len(values) // self.family.steps, self.family.hidden), np.float32)
        shares = F.linear(values, self.w[name + ".input_weight"], self.w[name + ".bias"])
        return F.concat(
            self.step_by_step(
                turn, (self.zero,) * states, F.split_axis(shares, self.family.steps, 0)
            ),
            0,
        )

    def positioned(self, tokens: Any) -> Any:
        shape = tokens.shape + (self.family.width,)
        values = self.embedded("embedding", tokens) + F.broadcast_to(
            self.w["position.weight"], shape
        )
        return F.reshape(values, (-1, self.family.width))

    def layer_norm(self, name: str, values: Any) -> Any:
        return F.layer_normalization(
            values, self.w[name + ".gamma"], self.w[name + ".beta"], self.family.epsilon
        )

    def attended(self, name: str, values: Any) -> Any:
        steps, heads, width = self.family.steps, self.family.heads, self.family.width
        parts = F.reshape(self.dense(name + "qkv", values), (-1, steps, 3, heads, width // heads))
        parts = F.transpose(parts, (2, 0, 3, 1, 4))
        query, key, value = parts[0], parts[1], parts[2]
        scores = F.matmul(query, key, transb=True) * (width // heads) ** -0.5
        mask = np.triu(np.full((steps, steps), HIDDEN, np.float32), 1)
        shares = F.softmax(scores + np.broadcast_to(mask, scores.shape), axis=3)
        return F.reshape(F.transpose(F.matmul(shares, value), (0, 2, 1, 3)), (-1, width))


def ideep_threads() -> Optional[int]:
    """Return the threads of iDeep's own OpenMP runtime; None where it has none."""
    import ideep4py

    runtime = os.path.join(os.path.dirname(ideep4py.__file__), "lib", "libiomp5.so")
    return int(ctypes.CDLL(runtime).omp_get_max_threads()) if os.path.exists(runtime) else None


LOSSES = {"cross_entropy": F.softmax_cross_entropy, "squares": F.mean_squared_error}


class ChainerAdapter(EveryFamily):
    """Drives Chainer.

    Settings: ``ideep``, weights become iDeep's arrays and ``use_ideep`` is "auto" (default false);
    ``kernels``, "widest" or "mkl" (default): iDeep's MKL takes the widest kernels that the
    processor runs, or its own choice.
    """

    further_axes = ("task",)

    def set_up(self) -> None:
        if self.cell.threads:
            blas.set_openblas_threads(blas.loaded_openblas_of_numpy(), self.cell.threads)
        self.ideep = bool(self.settings.get("ideep", False))
        if self.ideep and self.settings.get("kernels", "mkl") == "widest":
            blas.take_widest_mkl_kernels()
        chainer.config.use_ideep = "auto" if self.ideep else "never"

    def refuses(self, network: Network) -> str:
        lacking = self.ideep and not intel64.is_ideep_available()
        return "iDeep (ideep4py) cannot be loaded here" if lacking else ""

    def _build(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.by_name = {
            name: chainer.Parameter(held(name, value)) for name, value in weights.items()
        }
        self.model = chainer.Link()
        with self.model.init_scope():
            for name, parameter in self.by_name.items():
                setattr(self.model, name.replace(".", "_"), parameter)
        self.functions = ChainerFunctions(network.family, self.by_name)
        self.forward = self.functions.scores
        self.inputs, self.labels = in_rows(network.family, batch)
        if self.ideep:
            self.model.to_intel64()

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self._build(network, weights, batch)
        self.optimizer = chainer.optimizers.SGD(LEARNING_RATE).setup(self.model)
        if network.family.clip:
            self.optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(network.family.clip))
        self.criterion = LOSSES[network.family.loss]

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self._build(network, weights, batch)
        self.functions.statistics = statistics

    def infer(self) -> None:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            self.result = self.forward(self.inputs)

    def show(self, batch: Batch) -> None:
        self.inputs, self.labels = in_rows(self.family, batch)

    def outputs(self) -> np.ndarray:
        return by_example(self.family, np.array(self.result.array), self.cell.known_batch_size)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy the weights into the model, and the mini-batch.

        Gradients are made anew, and plain SGD keeps nothing.
        """
        for name, parameter in self.by_name.items():
            parameter.array[...] = held(name, weights[name])  # NumPy's or iDeep's
        self.inputs, self.labels = in_rows(self.family, batch)

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
        for name, parameter in self.by_name.items():
            yield name, canonical(name, np.array(parameter.array))

    def effective_threads(self) -> Optional[int]:
        if self.ideep:
            return ideep_threads()
        return blas.openblas_threads(blas.loaded_openblas_of_numpy())

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
