"""MXNet 1.9: Gluon blocks hybridised into one static graph per direction.

They run on the asynchronous engine. Every block is hybridised with its loss inside, so that
forward, loss and backward are one static graph. MXNet's own layouts are the canonical ones (dense
(outputs, inputs), convolution OIHW, LSTM gates input, forget, cell, output), so parameters pass
unchanged; only recurrent data are turned to time-major, which the fused LSTM wants.
"""

import ctypes
import itertools
import json
import os
import tempfile
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import mxnet as mx
import mxnet.runtime  # MXNet 1.5 leaves it out of its own import
import numpy as np
from mxnet.base import _LIB
from mxnet.gluon import nn, rnn

from ..base import EveryFamily, slope_found
from ..families import LEARNING_RATE, Attention, Elman, Layer
from ..launch.batches import Batch, by_example, laid_out
from ..launch.feeds import Feed
from ..libraries import blas, gpus, profiles
from ..libraries.profiles import Calls
from ..libraries.walks import HIDDEN, LayerFunctions, gelu_by_tanh
from ..networks import Network
from ..protocol import Profile

CELLS = {"lstm": rnn.LSTM, "gru": rnn.GRU, "rnn": partial(rnn.RNN, activation="tanh")}


class GluonNetwork(LayerFunctions, mx.gluon.HybridBlock):
    """A network of Gluon's layers and its loss: inputs and labels to the mean loss, of shape (1,).

    Without labels it returns the rows of logits or outputs.

    ``F``, Gluon's own name, is MXNet's module of symbols; ``fused`` joins a batch normalisation and
    the ReLU behind it in one operator.
    """

    stack_parts = ("l%d_i2h_weight", "l%d_h2h_weight", "l%d_i2h_bias", "l%d_h2h_bias")

    def __init__(self, family: Any, fused: bool) -> None:
        mx.gluon.HybridBlock.__init__(self)
        inner = []
        if family.normalises:
            for block in family.bottlenecks:
                inner += [spec.norm for spec in block.body[:-1]]
        self.fused = [family.stem.norm, *inner] if fused and family.normalises else []
        LayerFunctions.__init__(self, family)
        if family.kind == "recurrent":
            self.stack = _stack(family)
            for second_bias in self.hold_stack():
                second_bias.grad_req = "null"
        if isinstance(family, Attention):
            # Gluon has no layer for attention, nor a block with the vectors of positions alone.
            mask = np.triu(np.full((1, family.steps, family.steps), HIDDEN, np.float32), 1)
            self.mask = self.params.get_constant("mask", mask)
            self.position = self.w["position.weight"] = self.layers["position"].weight

    def keep(self, name: str, layer: Any) -> None:
        self.register_child(layer, name)

    def hybrid_forward(  # Gluon passes F by this name
        self,
        F: Any,  # noqa: N803
        inputs: Any,
        labels: Any = None,
        **parameters: Any,
    ) -> Any:
        self.F, self.given = F, parameters
        scores = self.scores(inputs)
        if labels is None:
            return scores
        if self.family.loss == "squares":
            return F.mean(F.square(scores - labels))
        return F.mean(F.negative(F.pick(F.log_softmax(scores, axis=-1), labels, axis=-1)))

    def make_dense(self, inputs: int, outputs: int) -> Any:
        return nn.Dense(outputs, flatten=False, in_units=inputs)

    def make_convolution(self, spec: Layer) -> Any:
        sizes = spec.outputs, spec.kernel, spec.stride, spec.padding
        return nn.Conv2D(*sizes, use_bias=not spec.norm, in_channels=spec.inputs)

    def make_batch_norm(self, name: str, channels: int) -> Any:
        kind = nn.BatchNormReLU if name in self.fused else nn.BatchNorm
        return kind(epsilon=self.family.epsilon, in_channels=channels)

    def make_layer_norm(self, width: int) -> Any:
        return nn.LayerNorm(epsilon=self.family.epsilon, in_channels=width)

    def make_embedding(self, symbols: int, width: int) -> Any:
        return nn.Embedding(symbols, width)

    def activated(self, values: Any, activation: str) -> Any:
        return values if activation == "none" else self.F.Activation(values, act_type=activation)

    def unit_with_relu(self, spec: Layer, values: Any) -> Any:
        values = self.unit(spec, values)
        return values if self.fused else self.activated(values, "relu")

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        sizes = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (padding,) * 2}
        return self.F.Pooling(values, pool_type="max", **sizes)

    def flatten(self, values: Any) -> Any:
        return self.F.flatten(values)

    def pixel_mean(self, values: Any) -> Any:
        return self.F.flatten(self.F.Pooling(values, pool_type="avg", global_pool=True))

    def rows(self, values: Any) -> Any:
        return self.F.reshape(values, shape=(-3, 0))

    def stacked(self, values: Any) -> Any:
        return self.stack(values)

    def positioned(self, tokens: Any) -> Any:
        return self.F.broadcast_add(
            self.embedded("embedding", tokens), self.F.expand_dims(self.given["position"], 0)
        )

    def attended(self, name: str, values: Any) -> Any:
        # as Gluon has it
        F, heads, steps = self.F, self.family.heads, self.family.steps  # noqa: N806
        width = self.family.width // heads
        parts = F.reshape(self.dense(name + "qkv", values), shape=(0, 0, 3, heads, -1))
        parts = F.reshape(F.transpose(parts, axes=(2, 0, 3, 1, 4)), shape=(3, -1, steps, width))
        query, key, value = F.split(parts, num_outputs=3, axis=0, squeeze_axis=True)
        scores = F.batch_dot(query, key, transpose_b=True) * width**-0.5
        mixed = F.batch_dot(F.softmax(F.broadcast_add(scores, self.given["mask"]), axis=-1), value)
        return F.reshape(
            F.transpose(F.reshape(mixed, shape=(-1, heads, steps, width)), axes=(0, 2, 1, 3)),
            shape=(0, 0, -1),
        )

    def gelu(self, values: Any) -> Any:
        return gelu_by_tanh(values, self.F.tanh)


def _stack(family: Any) -> Any:
    """Return the recurrent layers, from a zero state."""
    if isinstance(family, Elman):
        return rnn.RNN(
            family.hidden, activation=family.activation, layout="TNC", input_size=family.inputs
        )
    return CELLS[family.cell](family.hidden, family.layers, layout="TNC", input_size=family.width)


def load(trainable: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters' own arrays."""
    for name, parameter in trainable.items():
        parameter.set_data(weights[name])


_CPU = (ctypes.c_int * 2)(
    1, 0
)  # MXNet's ``Context`` in its C interface: the device's type and number
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def worker_threads() -> Optional[int]:
    """Return the OpenMP threads of an operator on the engine's worker thread.

    MXNet's own settings reach only that thread (each thread has its own OpenMP limit), and Python
    has no call that returns them: so a function is pushed to the engine, as an operator would be,
    and looks there.
    """
    # A handle of the library finds symbols of the libraries it depends on too.
    if not hasattr(_LIB, "omp_get_max_threads") or not hasattr(_LIB, "MXEnginePushSync"):
        return None
    seen: List[int] = []

    def ask(_: Any) -> None:
        seen.append(int(_LIB.omp_get_max_threads()))

    callback = _CALLBACK(ask)
    status = _LIB.MXEnginePushSync(
        callback, None, None, ctypes.byref(_CPU), None, 0, None, 0, None, 0, b"threads"
    )
    mx.nd.waitall()  # the callback must outlive its call
    return seen[0] if status == 0 and seen else None


def describe_blas() -> Dict[str, Any]:
    """Return the BLAS that MXNet was built with, and OpenBLAS's own description."""
    features = [feature.name for feature in mx.runtime.feature_list() if feature.enabled]
    names = [name[len("BLAS_") :].lower() for name in features if name.startswith("BLAS_")]
    return dict(blas.describe_openblas(_LIB), **({"name": names[-1]} if names else {}))


PROFILER = "mxnet.profiler"
_MILLISECONDS = 1e-3


def take_profile(adapter: Any, steps: int) -> Profile:
    """Run this many steps under the profiler."""
    with tempfile.TemporaryDirectory(prefix="mxnet-", dir=adapter.cache_directory) as directory:
        mx.profiler.set_config(
            profile_symbolic=True,
            profile_imperative=True,
            profile_memory=False,
            profile_api=False,
            aggregate_stats=True,
            filename=os.path.join(directory, "profile.json"),
        )
        mx.profiler.set_state("run")
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        mx.profiler.set_state("stop")
        statistics = json.loads(mx.profiler.dumps(reset=True, format="json"))
    return profiles.profile(
        PROFILER, steps, seconds, profiled_calls(statistics, not adapter.cell.on_cpu)
    )


def profiled_calls(statistics: Dict[str, Any], on_device: bool) -> Iterator[Calls]:
    """Yield the calls of each operator of the aggregated statistics.

    Their times are milliseconds.
    """
    for name, row in statistics.get("Time", {}).get("operator", {}).items():
        yield Calls(name, on_device, float(row["Total"]) * _MILLISECONDS, float(row["Count"]))


UPDATES = {"trainer": "gluon.Trainer", "operator": "sgd_update, one operator for each parameter"}


class MxnetAdapter(EveryFamily):
    """Drives MXNet. ``step`` only queues the work; the engine's worker thread does it.

    Settings: ``static`` (default false) plans memory once for the whole graph; ``fused_norm``
    (default false) joins a batch normalisation and the ReLU behind it; ``update``, "trainer"
    (default) is ``gluon.Trainer``, "operator" one ``sgd_update`` for each parameter.
    """

    further_axes = ("task",)
    feeds = True
    effective_threads = staticmethod(worker_threads)
    out_of_memory = (
        "Failed to allocate CPU Memory",
        "std::bad_alloc",
        "out of memory",
        "ALLOC_FAILED",
    )

    def profile(self, steps: int) -> Profile:
        """Run this many steps under the profiler.

        A static graph runs its operators in bulk, and the profiler sees the bulk: they are run one
        by one here.
        """
        self.block.hybridize(forward_bulk_size=1, backward_bulk_size=1, **self.hybridized)
        profiles.run(self.step, self.synchronize, 2)  # the first one builds the graphs anew
        return take_profile(self, steps)

    def set_up(self) -> None:
        # A launch sees one GPU, so it is always MXNet's first.
        self.context = mx.cpu() if self.cell.on_cpu else mx.gpu(0)
        if not self.cell.on_cpu:
            # Before anything computes: CUDA's libraries read once whether float32 products may lose
            # bits as TF32.
            os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
        # The joint operator is oneDNN's, and came with MXNet 1.8.
        there = self.cell.on_cpu and hasattr(nn, "BatchNormReLU")
        self.fused_norm = bool(self.settings.get("fused_norm", False)) and there
        self.static = bool(self.settings.get("static", False))
        self.hybridized = {"static_alloc": self.static, "static_shape": self.static}
        self.rate = LEARNING_RATE
        self.update = self.chosen("update", "trainer", "operator")

    def refuses_gpu(self) -> str:
        version = "MXNet %s" % mx.__version__
        reason = gpus.refusal(self.cell, "MXNet", ("float32",))
        if reason:
            return reason
        if not mx.runtime.Features().is_enabled("CUDA"):
            words = "%s: this build was made without CUDA (its feature CUDA): %s"
            return words % (version, gpus.advice(self.cell))
        try:
            # Only a kernel that runs shows that the driver answers and that the build has kernels
            # for this GPU.
            mx.nd.ones((2,), ctx=self.context).asnumpy()
        except mx.base.MXNetError as error:
            return "%s cannot use the GPU: %s" % (version, gpus.first_line(error))
        return ""

    def refuses(self, network: Network) -> str:
        family = network.family
        lacking = isinstance(family, Elman) and (
            family.activation == "sigmoid" or family.alpha != 1.0
        )
        return "MXNet's operator RNN has no sigmoid and no leaky units" if lacking else ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.family = network.family
        self.block = GluonNetwork(network.family, self.fused_norm)
        # Zero: the frozen LSTM biases; BatchNorm sets its own running statistics.
        self.block.initialize(mx.init.Zero(), ctx=self.context)
        self.trainable = self.block.w
        load(self.trainable, weights)
        self.take(self.hand_over(batch))
        self.block.hybridize(**self.hybridized)
        self.weights_and_gradients = [
            (parameter.data(), parameter.grad()) for parameter in self.trainable.values()
        ]
        if self.update == "trainer":
            # Without a store of keys and values: there is one worker.
            parameters = list(self.trainable.values())
            self.trainer = mx.gluon.Trainer(
                parameters, "sgd", {"learning_rate": self.rate}, kvstore=None
            )

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.family = network.family
        self.block = GluonNetwork(network.family, self.fused_norm)
        self.block.initialize(mx.init.Zero(), ctx=self.context)
        load(self.block.w, weights)
        buffers = {"mean": "running_mean", "variance": "running_var"}
        for name, value in statistics.items():
            layer, _, kind = name.rpartition(".")
            getattr(self.block.layers[layer], buffers[kind]).set_data(value)
        self.take(self.hand_over(batch))
        self.block.hybridize(**self.hybridized)

    def infer(self) -> None:
        self.result = self.block(self.inputs)

    def show(self, batch: Batch) -> None:
        self.inputs[:] = laid_out(self.family, batch, np.float32)[0]

    def outputs(self) -> np.ndarray:
        return by_example(self.family, self.result.asnumpy(), self.cell.known_batch_size)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy them into the existing arrays, once the engine is done with these."""
        load(self.trainable, weights)
        self.inputs[:], self.labels[:] = laid_out(self.family, batch, np.float32)

    def hand_over(self, batch: Batch) -> List[Any]:
        # Labels too are floats: MXNet's pick takes indices of any type.
        arrays = laid_out(self.family, batch, np.float32, copied=False)
        return [mx.nd.array(array, ctx=self.context) for array in arrays]

    def take(self, ready: List[Any]) -> None:
        self.inputs, self.labels = ready

    def load(self, feed: Feed) -> Iterator[Any]:
        """Load by Gluon's own loader, with threads.

        Its processes would be forks of a process in which the engine's threads run.
        """
        yield from mx.gluon.data.DataLoader(
            feed,
            batch_sampler=([number] for number in itertools.count()),
            batchify_fn=lambda batches: self.hand_over(*batches),
            num_workers=self.cell.loader_workers,
            thread_pool=True,
        )

    def step(self) -> None:
        with mx.autograd.record():
            self.loss = self.block(self.inputs, self.labels)
        self.loss.backward()
        if self.family.clip:
            self._clip([gradient for _, gradient in self.weights_and_gradients])
        if self.update == "trainer":
            self.trainer.step(1)  # the loss is a mean already
            return
        for weight, gradient in self.weights_and_gradients:
            mx.nd.sgd_update(weight, gradient, out=weight, lr=self.rate, wd=0.0)

    def _clip(self, gradients: List[Any]) -> None:
        """Queue the scaling of all gradients by their norm.

        Gluon's clip_global_norm would wait for the norm.
        """
        squares = mx.nd.multi_sum_sq(*gradients, num_arrays=len(gradients))
        scale = mx.nd.minimum(self.family.clip * mx.nd.rsqrt(mx.nd.sum(squares)), 1.0)
        for gradient in gradients:
            mx.nd.broadcast_mul(gradient, scale.reshape((1,) * gradient.ndim), out=gradient)

    def synchronize(self) -> None:
        mx.nd.waitall()

    def set_learning_rate(self, rate: float) -> None:
        self.rate = rate
        if self.update == "trainer":
            self.trainer.set_learning_rate(rate)

    def last_loss(self) -> float:
        return float(self.loss.asscalar())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, parameter in self.trainable.items():
            yield name, parameter.data().asnumpy()

    def describe(self) -> Dict[str, Any]:
        products = (
            "oneDNN" if mx.runtime.Features().is_enabled("MKLDNN") else describe_blas().get("name")
        )
        return {
            "framework": "mxnet",
            "version": mx.__version__,
            "context": str(self.context),
            "features": sorted(
                feature.name for feature in mx.runtime.feature_list() if feature.enabled
            ),
            "dense_products": products if self.cell.on_cpu else "cuBLAS",
            "onednn_recurrent": os.environ.get("MXNET_USE_MKLDNN_RNN", "1") != "0",
            "engine": os.environ.get("MXNET_ENGINE_TYPE", "ThreadedEnginePerDevice"),
            "blas": describe_blas(),
            "recurrence": "fused",
            "execution": "hybridize(static_alloc=%s, static_shape=%s), loss in the graph"
            % ((self.static,) * 2),
            "optimizer": UPDATES[self.update],
            "fused_norm": self.fused_norm,
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        enabled = mx.runtime.Features()
        value = mx.nd.array([3.0])
        value.attach_grad()
        with mx.autograd.record():
            square = value * value
        square.backward()
        parameter_server = enabled.is_enabled("DIST_KVSTORE")
        return {
            "gpu": (enabled.is_enabled("CUDA"), "feature CUDA"),
            "automatic_gradients": slope_found(float(value.grad.asscalar())),
            "several_processes": (parameter_server, "feature DIST_KVSTORE"),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right, out = (
            mx.nd.random.uniform(-1, 1, shape=(size, size), ctx=self.context) for _ in range(3)
        )

        def product() -> None:
            # As in the networks, and faster than ``dot`` (OpenBLAS).
            mx.nd.FullyConnected(left, right, no_bias=True, num_hidden=size, flatten=False, out=out)
            out.wait_to_read()

        return product


ADAPTER = MxnetAdapter
