"""PaddlePaddle's dynamic graph on the CPU, which computes synchronously.

PaddlePaddle's layouts are the canonical ones (convolution OIHW, images NCHW, LSTM gates input,
forget, cell, output) but for dense weights, which it holds as (inputs, outputs). Recurrent
networks' tokens and labels are time-major.
"""

import ctypes
import itertools
import json
import os
import re
import tempfile
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional

from ..base import Adapter, EveryFamily, factors, slope_found
from ..families import LEARNING_RATE, Attention, Elman, Family, Layer
from ..launch.batches import Batch, by_example, laid_out
from ..launch.feeds import Feed, check_shared_memory
from ..libraries import blas, profiles
from ..libraries.profiles import MICROSECONDS, Calls, Span
from ..libraries.walks import LayerFunctions
from ..networks import Network
from ..protocol import Profile

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.SimpleRNN}


class PaddleNetwork(LayerFunctions, nn.Layer):
    """A network of PaddlePaddle's layers, to rows of logits or outputs."""

    attributes = {"gamma": "weight", "beta": "bias"}
    stack_parts = ("weight_ih_l%d", "weight_hh_l%d", "bias_ih_l%d", "bias_hh_l%d")
    activations = {"sigmoid": functional.sigmoid, "relu": functional.relu, "tanh": functional.tanh}
    keep = nn.Layer.add_sublayer
    make_dense = staticmethod(nn.Linear)
    make_embedding = staticmethod(nn.Embedding)
    pool = staticmethod(functional.max_pool2d)
    gelu = staticmethod(partial(functional.gelu, approximate=True))

    def __init__(self, family: Family) -> None:
        nn.Layer.__init__(self)
        LayerFunctions.__init__(self, family)
        if family.kind == "recurrent":
            self.stack = _stack(family)
            # The second biases stay zero by being left out of the update: the kernel needs their
            # gradients.
            for second in self.hold_stack():
                second.set_value(np.zeros(second.shape, np.float32))

    def forward(self, inputs: Any) -> Any:
        return self.scores(inputs)

    def make_convolution(self, spec: Layer) -> Any:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride, spec.padding
        return nn.Conv2D(*sizes, bias_attr=False if spec.norm else None)

    def make_batch_norm(self, name: str, channels: int) -> Any:
        return nn.BatchNorm2D(channels, epsilon=self.family.epsilon)

    def make_layer_norm(self, width: int) -> Any:
        return nn.LayerNorm(width, self.family.epsilon)

    def flatten(self, values: Any) -> Any:
        return values.flatten(1)

    def pixel_mean(self, values: Any) -> Any:
        return functional.adaptive_avg_pool2d(values, 1).flatten(1)

    def rows(self, values: Any) -> Any:
        return values.reshape([-1, values.shape[-1]])

    def stacked(self, values: Any) -> Any:
        return self.stack(values)[0]

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.dense(name + "qkv", values).reshape([batch, steps, 3, self.family.heads, -1])
        mixed = functional.scaled_dot_product_attention(*parts.unbind(2), is_causal=True)
        return mixed.reshape([batch, steps, width])


def _stack(family: Any) -> Any:
    """Return the recurrent layers, from a zero state."""
    if isinstance(family, Elman):
        return nn.SimpleRNN(
            family.inputs, family.hidden, time_major=True, activation=family.activation
        )
    return CELLS[family.cell](family.width, family.hidden, family.layers, time_major=True)


def is_turned(name: str, value: np.ndarray) -> bool:
    """Tell whether the parameter is a dense weight, which is held as (inputs, outputs)."""
    return (
        value.ndim == 2
        and name.endswith(".weight")
        and name not in ("embedding.weight", "position.weight")
    )


def load(parameters: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters."""
    for name, parameter in parameters.items():
        value = weights[name]
        parameter.set_value(np.ascontiguousarray(value.T) if is_turned(name, value) else value)


def _threads(library: str, function: str) -> Optional[int]:
    path = os.path.join(paddle.__path__[0], "libs", library)
    return int(getattr(ctypes.CDLL(path), function)()) if os.path.exists(path) else None


def openmp_threads() -> Optional[int]:
    """Return the threads of a parallel region of PaddlePaddle's own OpenMP loops.

    It is None on a build without them.
    """
    return _threads("libiomp5.so", "omp_get_max_threads")


def mkl_threads() -> Optional[int]:
    """Return the threads of a product of Intel's MKL (MKLML); None on a build without it."""
    return _threads("libmklml_intel.so", "MKL_Get_Max_Threads")


PROFILER = "paddle.profiler"
#: "matmul_grad kernel launch[49.374 ms]"; on the CPU it is the kernel.
_KERNEL = re.compile(r"(.+?) kernel launch\[.*\]")


def take_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under the profiler."""
    recorder = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=lambda ready: None
    )
    with recorder:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    with tempfile.TemporaryDirectory(prefix="paddle-", dir=adapter.cache_directory) as directory:
        path = os.path.join(directory, "trace.json")
        recorder.export(path, "json")
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    return profiles.profile(PROFILER, steps, seconds, profiled_calls(events))


def profiled_calls(events: List[Dict[str, Any]]) -> Iterator[Calls]:
    """Yield the calls of each kernel.

    The trace's other events wrap them: layers, gradient nodes, Python.
    """
    of_threads: Dict[str, List[Span]] = {}
    for event in events:
        match = _KERNEL.fullmatch(event["name"]) if event.get("ph") == "X" else None
        if match:
            span = (match.group(1), float(event["ts"]), float(event["dur"]))
            of_threads.setdefault(str(event.get("tid")), []).append(span)
    for spans in of_threads.values():
        for name, duration in profiles.self_durations(spans):
            yield Calls(name, False, duration * MICROSECONDS, 1)


LOSSES = {"cross_entropy": functional.cross_entropy, "squares": functional.mse_loss}


class PaddleAdapter(EveryFamily):
    """Drives PaddlePaddle.

    Setting: ``widest_kernels`` (default false) has MKL use the widest kernels of the processor, see
    ``libraries/blas``.
    """

    profile = take_profile
    further_axes = ("task",)
    feeds = True

    def set_up(self) -> None:
        self._widest = bool(self.settings.get("widest_kernels", False))
        if self._widest:
            blas.take_widest_mkl_kernels()
        paddle.device.set_device("cpu")

    def refuses(self, network: Network) -> str:
        if self._widest and mkl_threads() is None:
            return "the setting widest_kernels: this build of PaddlePaddle computes without MKL"
        family = network.family
        if isinstance(family, Elman) and (family.activation == "sigmoid" or family.alpha != 1.0):
            return "PaddlePaddle's SimpleRNN has no sigmoid and no leaky units"
        if isinstance(family, Attention) and family.epsilon > 1e-3:
            return (
                "epsilon %g: PaddlePaddle's layer normalisation takes 0.001 at most"
                % family.epsilon
            )
        return ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.layer = PaddleNetwork(self.family)
        load(self.layer.w, weights)
        # The layer's, not the optimizer's: gradients of parameters that are not updated would add
        # up.
        self.with_gradients = [
            parameter for parameter in self.layer.parameters() if not parameter.stop_gradient
        ]
        self.take(self.hand_over(batch))
        clip = network.family.clip
        self.optimizer = paddle.optimizer.SGD(
            LEARNING_RATE,
            parameters=list(self.layer.w.values()),
            grad_clip=nn.ClipGradByGlobalNorm(clip) if clip else None,
        )
        self.criterion = LOSSES[network.family.loss]

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.family = network.family
        self.layer = PaddleNetwork(self.family)
        load(self.layer.w, weights)
        buffers = {"mean": "_mean", "variance": "_variance"}
        for name, value in statistics.items():
            layer, _, kind = name.rpartition(".")
            getattr(self.layer.layers[layer], buffers[kind]).set_value(value)
        self.layer.eval()
        self.take(self.hand_over(batch))

    def infer(self) -> None:
        with paddle.no_grad():
            self.result = self.layer(self.inputs)

    def show(self, batch: Batch) -> None:
        self.inputs.set_value(laid_out(self.family, batch, np.int64)[0])

    def outputs(self) -> np.ndarray:
        return by_example(self.family, self.result.numpy(), self.cell.known_batch_size)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy them into the existing tensors.

        Gradients were cleared, and plain SGD keeps nothing.
        """
        load(self.layer.w, weights)
        for tensor, array in zip(
            (self.inputs, self.labels), laid_out(self.family, batch, np.int64)
        ):
            tensor.set_value(array)

    def hand_over(self, batch: Batch) -> List[Any]:
        return [
            paddle.to_tensor(array)
            for array in laid_out(self.family, batch, np.int64, copied=False)
        ]

    def take(self, ready: List[Any]) -> None:
        self.inputs, self.labels = ready

    def load(self, feed: Feed) -> Iterator[Any]:
        """Load by PaddlePaddle's own loader, in processes.

        Without any it still reads ahead in a thread.
        """
        check_shared_memory(feed, self.cell.loader_workers)
        yield from paddle.io.DataLoader(
            feed,
            batch_sampler=([number] for number in itertools.count()),
            collate_fn=lambda batches: list(
                laid_out(self.family, batches[0], np.int64, copied=False)
            ),
            num_workers=self.cell.loader_workers,
        )

    def step(self) -> None:
        self.loss = self.criterion(self.layer(self.inputs), self.labels)
        self.loss.backward()
        self.optimizer.step()
        for parameter in self.with_gradients:
            parameter.clear_gradient(False)

    def set_learning_rate(self, rate: float) -> None:
        self.optimizer.set_lr(rate)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, parameter in self.layer.w.items():
            value = parameter.numpy()
            yield name, value.T if is_turned(name, value) else value

    def effective_threads(self) -> Optional[int]:
        # MKL computes products, OpenMP PaddlePaddle's own loops.
        return max(
            (count for count in (mkl_threads(), openmp_threads()) if count is not None),
            default=None,
        )

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "paddle",
            "version": paddle.__version__,
            "commit": paddle.version.commit,
            "blas": "MKL (MKLML)" if paddle.version.mkl() == "ON" else "OpenBLAS",
            "mkl_threads": mkl_threads(),
            "openmp_threads": openmp_threads(),
            "mkl_kernels": blas.mkl_kernels_setting(),
            "onednn_built_in": bool(paddle.base.core.is_compiled_with_mkldnn()),
            "compiler_built_in": bool(paddle.is_compiled_with_cinn()),
            "allocator": paddle.get_flags("FLAGS_allocator_strategy")["FLAGS_allocator_strategy"],
            "execution": "dynamic graph",
            "recurrence": "fused",
            "optimizer": "paddle.optimizer.SGD",
            "image_layout": "NCHW",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        gpu = bool(paddle.is_compiled_with_cuda() or paddle.is_compiled_with_rocm())
        value = paddle.to_tensor(3.0, stop_gradient=False)
        (value * value).backward()
        several = bool(paddle.distributed.is_available())
        return {
            "gpu": (
                gpu,
                "paddle.is_compiled_with_cuda() or paddle.is_compiled_with_rocm() is %s" % gpu,
            ),
            "automatic_gradients": slope_found(float(value.grad)),
            "several_processes": (several, "paddle.distributed.is_available() is %s" % several),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = map(paddle.to_tensor, factors(size))
        return lambda: paddle.matmul(left, right)


ADAPTER = PaddleAdapter
