"""TensorFlow on the CPU and on CUDA GPUs: the whole training step is one graph.

Settings of a mode (framework.toml lists those measured to be best on the CPU):

``compile``
    XLA compiles the graph (default false: TensorFlow's own kernels, run one after another). With
    several workers, it compiles only the loss and gradients of each.
``frozen``
    In inference, whether weights are constants of the graph (default false).
``recurrence``
    The form of recurrent layers, one of ``networks.RECURRENCES``: "loop" (default) or "unrolled".
"""

from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.util import _pywrap_util_port

from ..base import ONE_PROCESS, SAMPLING, EveryFamily
from ..families import LEARNING_RATE
from ..launch.batches import Batch, by_example
from ..launch.feeds import Feed
from ..networks import Network
from . import devices, sampling
from .networks import RECURRENCES, UPDATES, TensorFlowNetwork, loaded, place, training_step


class TensorFlowAdapter(EveryFamily):
    """An adapter that trains with tf.function, compiled by XLA or not.

    Several workers run under a MirroredStrategy.
    """

    families = (*EveryFamily.families, "lif", *SAMPLING)
    data_parallel = ONE_PROCESS
    further_axes = ("task",)
    feeds = True
    capabilities = staticmethod(devices.capabilities)
    is_out_of_memory = staticmethod(devices.is_out_of_memory)
    profile = devices.take_profile
    refuses_gpu = devices.refusal
    device_name = staticmethod(devices.name)
    reset_device_peak_memory = staticmethod(devices.reset_peak_memory)
    device_peak_memory = staticmethod(devices.peak_memory_bytes)
    device_probe = staticmethod(devices.probe)

    def set_up(self) -> None:
        # OMP_NUM_THREADS has no effect, and intra-op alone leaves an inter-op pool as large as the
        # machine. Each of several workers on the CPU has its own pool. Those on GPUs share the
        # host's.
        threads = self.cell.threads if self.cell.on_cpu else self.cell.all_threads
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(self.cell.world_size)
        self._compile = bool(self.settings.get("compile", False))
        self._recurrence = self.chosen("recurrence", *RECURRENCES)
        if not self.cell.on_cpu:
            wait = devices.synchronize if self.cell.world_size == 1 else devices.synchronize_all
            self.synchronize = wait  # type: ignore[method-assign]
        elif self.cell.world_size > 1:
            devices.set_up_cpu(self.cell.world_size)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        if not self.cell.on_cpu:
            devices.set_up(self.cell.precision)
        if not network.family.trains:
            put: Any = tf.constant if self.cell.on_cpu else devices.constant
            sampling.sampler(network.family, put, self._compile).drive(self, weights, batch)
            return
        self._network = network
        if self.cell.world_size > 1:
            self._workers = devices.MirroredWorkers(self.cell)
            with self._workers.scope():
                model = self._build(weights)
            step = self._workers.training_step(model, self._rate, self._compile)
            compiled = False
        else:
            model = self._build(weights)
            step = training_step(model, self._rate, self.chosen("updates", *UPDATES))
            compiled = self._compile
        self._model = model
        self._batch = self._placed(batch)
        function = tf.function(step, jit_compile=compiled, autograph=False)
        self._step = function.get_concrete_function(*self._batch)
        self._loss = tf.constant(float("nan"))

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        if not self.cell.on_cpu:
            devices.set_up(self.cell.precision)
        self._network = network
        self._model = self._build(weights)
        self._model.statistics = {name: tf.constant(value) for name, value in statistics.items()}
        self._batch = self._placed(batch)
        function = tf.function(self._model.scores, jit_compile=self._compile, autograph=False)
        self._forward = function.get_concrete_function(self._batch[0])
        if self.settings.get("frozen", False):
            self._forward = convert_variables_to_constants_v2(self._forward)

    def infer(self) -> None:
        self._result = self._forward(self._batch[0])

    def show(self, batch: Batch) -> None:
        self._batch = self._placed(batch)

    def outputs(self) -> np.ndarray:
        # A function without variables returns a list.
        result = self._result
        if isinstance(result, (list, tuple)):
            result = result[0]
        return by_example(self._network.family, result.numpy(), self.cell.known_batch_size)

    def _build(self, weights: Dict[str, np.ndarray]) -> TensorFlowNetwork:
        self._rate = tf.Variable(LEARNING_RATE, trainable=False, dtype=tf.float32)
        return TensorFlowNetwork(self._network, weights, self._recurrence)

    def _placed(self, batch: Batch) -> Tuple[Any, Any]:
        if self.cell.world_size > 1:
            return self._workers.split(self._network, batch)
        inputs, labels = place(self._network, batch)
        if self.cell.on_cpu:
            return inputs, labels
        return devices.placed(inputs), devices.placed(labels)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        self._model.assign(weights)
        self._batch = self._placed(batch)

    def hand_over(self, batch: Batch) -> Tuple[Any, Any]:
        return place(self._network, batch)

    def take(self, ready: Tuple[Any, Any]) -> None:
        self._batch = ready

    def load(self, feed: Feed) -> Iterator[Any]:
        return loaded(feed, self.cell.loader_workers)

    def step(self) -> None:
        self._loss = self._step(*self._batch)

    def set_learning_rate(self, rate: float) -> None:
        self._rate.assign(rate)

    def last_loss(self) -> float:
        if self.cell.world_size > 1:
            return self._workers.mean(self._loss)
        return float(self._loss.numpy())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        return self._model.canonical()

    def effective_threads(self) -> Optional[int]:
        pools = self.cell.world_size if self.cell.on_cpu else 1  # each worker on the CPU has one
        return int(tf.config.threading.get_intra_op_parallelism_threads()) * pools

    def describe(self) -> Dict[str, Any]:
        build_info = tf.sysconfig.get_build_info()
        execution = "one tf.function"
        if self._compile and self.cell.world_size == 1:
            execution += ", compiled by XLA"
        elif self._compile:
            execution += ", gradients compiled by XLA"
        described: Dict[str, Any] = {
            "framework": "tensorflow",
            "version": tf.version.VERSION,
            "git_version": tf.version.GIT_VERSION,
            "compiler": tf.version.COMPILER_VERSION,
            "cuda_build": bool(build_info.get("is_cuda_build", False)),
            "execution": execution,
            "recurrence": self._recurrence,
            "image_layout": "NHWC",
            "intra_op_threads": int(tf.config.threading.get_intra_op_parallelism_threads()),
            "inter_op_threads": int(tf.config.threading.get_inter_op_parallelism_threads()),
            "onednn_enabled": bool(_pywrap_util_port.IsMklEnabled()),
            "blas": "oneDNN where it is enabled, Eigen elsewhere",
            "graph_optimizer": tf.config.optimizer.get_experimental_options(),
        }
        if self.cell.world_size > 1:
            described["data_parallel"] = devices.describe_workers(self.cell.on_cpu)
        if not self.cell.on_cpu:
            described["gpu"] = devices.describe_gpu()
        return described

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left = tf.random.stateless_uniform([size, size], seed=[1, 2])
        right = tf.random.stateless_uniform([size, size], seed=[3, 4])

        def product() -> Any:
            result = tf.linalg.matmul(left, right)
            if not self.cell.on_cpu:  # where eager operations are synchronous
                devices.synchronize()
            return result

        return product


ADAPTER = TensorFlowAdapter
