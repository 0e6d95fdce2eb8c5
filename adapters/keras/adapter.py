"""Keras 3 on the backend named by KERAS_BACKEND: TensorFlow, JAX or PyTorch.

A functional model of Keras's own layers, compiled with Keras's own loss and SGD; the step is the
trainer's own train function, called with the resident mini-batch as ``train_on_batch`` calls it,
less the conversion of its arguments and results. Each backend has a subclass; the one in use alone
is imported.

Settings of a mode, each Keras's own default (framework.toml lists the alternatives tried):

``jit_compile``  as of ``Model.compile``: "auto" (default), true or false
``unroll``  as of the recurrent layers (default false)
"""

import itertools
from functools import partial
from importlib import import_module
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import keras
import numpy as np

from ..base import EveryFamily
from ..families import LEARNING_RATE, Elman
from ..launch.batches import Batch
from ..launch.feeds import Feed
from ..networks import Network
from ..protocol import Profile
from .networks import arrays, build

NAME = keras.config.backend()
if NAME == "jax":
    import jax
    import jax.numpy as jnp
    import jaxlib
elif NAME == "tensorflow":
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port
elif NAME == "torch":
    import torch

LOSSES: Dict[str, Callable[[], Any]] = {
    "cross_entropy": partial(keras.losses.SparseCategoricalCrossentropy, from_logits=True),
    "squares": keras.losses.MeanSquaredError,
}


class FeedDataset(keras.utils.PyDataset):
    """The mini-batches that a function makes by their numbers, without end."""

    num_batches = None

    def __init__(self, make: Callable[[int], Tuple[Any, Any]]) -> None:
        super().__init__()
        self.make = make

    def __getitem__(self, number: int) -> Tuple[Any, Any]:
        return self.make(number)


class KerasAdapter(EveryFamily):
    """An adapter that trains a compiled Keras model by its train function.

    A backend's subclass has ``tensor``, a copy of an array.
    """

    #: How the train function is called, for the description.
    execution = ""
    recurrence = "loop"
    feeds = True
    #: The module of the backend's own adapter with its profiler, capabilities and errors: Keras has
    #: none of these.
    backend = ""

    def set_up(self) -> None:
        # A user's keras.json may say otherwise.
        keras.config.set_floatx("float32")
        keras.config.set_image_data_format("channels_last")
        self.set_threads(self.cell.threads)
        self.unroll = bool(self.settings.get("unroll", False))
        self.jit_compile = self.settings.get("jit_compile", "auto")

    def set_threads(self, threads: int) -> None:
        """Set the number of threads, before any operation; 0 leaves the backend's default."""

    @property
    def own(self) -> Any:
        """The module ``backend``."""
        return import_module(self.backend, __package__)

    def refuses(self, network: Network) -> str:
        leaky = isinstance(network.family, Elman) and network.family.alpha != 1.0
        return "alpha: Keras's SimpleRNN has no leaky units" if leaky else ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self._build(network, weights, batch)
        self.model.compile(
            optimizer=keras.optimizers.SGD(
                learning_rate=LEARNING_RATE, global_clipnorm=network.family.clip or None
            ),
            loss=LOSSES[network.family.loss](),
            jit_compile=self.jit_compile,
        )
        self._place(batch)
        self.model.optimizer.build(self.model.trainable_variables)
        self.model.make_train_function()
        self.logs: Dict[str, Any] = {"loss": np.nan}

    def _build(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Build the model with these weights."""
        self.network = network
        self.model, functions = build(network, len(batch.inputs), self.unroll)
        self.held = functions.parameters
        self.moving = functions.moving
        for variable, value in self._values(weights):
            variable.assign(value)

    def _values(self, weights: Mapping[str, np.ndarray]) -> Iterator[Tuple[Any, Any]]:
        """Yield each variable with a copy of its weights in the layout that is held.

        The copy is the backend's tensor.
        """
        for name, (variable, layout) in self.held.items():
            given = [weights[canonical] for canonical in layout.names(name)]
            array = given[0] if len(given) == 1 else np.stack(given)
            copy = self.tensor(layout.split(array))
            if layout.axes is not None:
                turned = keras.ops.transpose(copy, layout.axes)
                copy = keras.ops.reshape(turned, layout.joined(tuple(turned.shape)))
            yield variable, copy

    def _place(self, batch: Batch) -> None:
        self.take(self.hand_over(batch))

    def hand_over(self, batch: Batch) -> Tuple[Any, Any]:
        inputs, labels = map(self.tensor, arrays(batch))
        return inputs, labels

    def take(self, ready: Tuple[Any, Any]) -> None:
        self.batch = ready
        self.batches = itertools.repeat(ready)

    def load(self, feed: Feed) -> Iterator[Any]:
        """Load by the queue behind Keras's ``fit``, with threads, as it has by default.

        They load two mini-batches ahead each.
        """
        workers = self.cell.loader_workers
        dataset = FeedDataset(lambda number: self.hand_over(feed[number]))
        if not workers:
            yield from map(dataset.make, itertools.count())
        # It has no public name.
        from keras.src.trainers.data_adapters.py_dataset_adapter import OrderedEnqueuer

        queue = OrderedEnqueuer(dataset, workers=workers, max_queue_size=2 * workers)
        queue.start()
        try:
            yield from queue.get()
        finally:
            queue.stop()

    def tensor(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Assign the variables; the mini-batch is an argument of the train function."""
        for variable, value in self._values(weights):
            self._assign(variable, value)
        self._place(batch)

    def _assign(self, variable: Any, value: Any) -> None:
        variable.assign(value)

    def step(self) -> None:
        self.model.reset_metrics()
        self.logs = self.model.train_function(self.batches)

    def set_learning_rate(self, rate: float) -> None:
        self.model.optimizer.learning_rate = rate

    def last_loss(self) -> float:
        """Return Keras's loss metric, a running mean.

        Each step starts it anew, as ``train_on_batch`` does.

        That takes some 0.02 to 0.09 ms, and is the only way to the loss of one step through the
        trainer.
        """
        return float(self.logs["loss"])

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, (variable, layout) in self.held.items():
            names = layout.names(name)
            canonical = layout.canonical(self._value(variable))
            yield from zip(names, [canonical] if len(names) == 1 else canonical)

    def _value(self, variable: Any) -> np.ndarray:
        return keras.ops.convert_to_numpy(variable.value)

    def describe(self) -> Dict[str, Any]:
        described = {
            "framework": "keras",
            "version": keras.__version__,
            "backend": NAME,
            "execution": self.execution,
            "jit_compile_setting": self.jit_compile,
            "image_layout": "NHWC",
            "unroll": self.unroll,
            "recurrence": "unrolled" if self.unroll else self.recurrence,
            "optimizer": "keras.optimizers.SGD",
        }
        if hasattr(self, "model"):
            described["jit_compile"] = bool(self.model.jit_compile)
        return described

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        return self.own.capabilities()

    def profile(self, steps: int) -> Optional[Profile]:
        return self.own.take_profile(self, steps)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return self.own.is_out_of_memory(error)


class OnJax(KerasAdapter):
    """Keras on JAX; its number of threads is that of NPROC at its start.

    Calls the train function, a pure function under jax.jit, from state to state, as ``Model.fit``
    does. The state is (trainable variables, others, the optimiser's, the metrics'); it stays
    outside the model, whose own variables are given up to the first step (``train_on_batch`` would
    put every array back at each step).
    """

    execution = (
        "Model.train_function, Model.train_step under jax.jit, state to state on resident arrays"
    )
    recurrence = "scan"
    backend = "..jax.devices"

    def tensor(self, array: np.ndarray) -> Any:
        # asarray may share the caller's memory.
        return jnp.array(array, copy=True)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        super().prepare(network, weights, batch)
        model, optimizer = self.model, self.model.optimizer
        self.places = {
            id(variable): place for place, variable in enumerate(model.trainable_variables)
        }
        self.rate = next(
            index
            for index, held in enumerate(optimizer.variables)
            if held is optimizer.learning_rate
        )
        groups = (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
            model.metrics_variables,
        )
        self.state = tuple([variable.value for variable in group] for group in groups)

    def step(self) -> None:
        weights, others, optimizer, metrics = self.state
        metrics = [jnp.zeros_like(held) for held in metrics]
        self.logs, self.state = self.model.train_function(
            (weights, others, optimizer, metrics), self.batches
        )

    def synchronize(self) -> None:
        jax.block_until_ready(self.state)

    def set_learning_rate(self, rate: float) -> None:
        held = self.state[2]
        held[self.rate] = jnp.asarray(rate, dtype=held[self.rate].dtype)

    def _assign(self, variable: Any, value: Any) -> None:
        self.state[0][self.places[id(variable)]] = value

    def _value(self, variable: Any) -> np.ndarray:
        return np.asarray(self.state[0][self.places[id(variable)]])

    def describe(self) -> Dict[str, Any]:
        return dict(
            super().describe(),
            backend_version=jax.__version__,
            jaxlib=jaxlib.__version__,
            platform_version=jax.devices()[0].client.platform_version,
            matmul_precision=str(jax.config.jax_default_matmul_precision),
            blas="XLA's own: Eigen and oneDNN",
        )

    def multiply(self, size: int) -> Callable[[], object]:
        left = jax.random.uniform(jax.random.key(1), (size, size))
        right = jax.random.uniform(jax.random.key(2), (size, size))
        return lambda: jnp.matmul(left, right).block_until_ready()


class OnTensorFlow(KerasAdapter):
    """Keras on TensorFlow; the train function is a tf.function."""

    execution = "Model.train_function, one tf.function, on resident tensors"
    backend = "..tensorflow.devices"
    further_axes = ("task",)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        """Make Keras's own predict function, a tf.function too, as ``Model.predict`` does."""
        self._build(network, weights, batch)
        for name, value in statistics.items():
            self.moving[name].assign(value)
        self.model.compile(jit_compile=self.jit_compile)
        self._place(batch)
        self.execution = "Model.predict_function, one tf.function, on resident tensors"
        self.model.make_predict_function()

    def infer(self) -> None:
        self.result = self.model.predict_function([self.batch])

    def show(self, batch: Batch) -> None:
        self._place(batch)

    def outputs(self) -> np.ndarray:
        outputs = np.asarray(self.result)
        return outputs.reshape(len(outputs), -1, outputs.shape[-1])

    def set_threads(self, threads: int) -> None:
        tf.config.set_visible_devices([], "GPU")
        if threads:
            # OMP_NUM_THREADS means nothing here, and intra-op alone leaves an inter-op pool as
            # large as the machine.
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)

    def tensor(self, array: np.ndarray) -> Any:
        return tf.constant(array)

    def effective_threads(self) -> Optional[int]:
        return int(tf.config.threading.get_intra_op_parallelism_threads()) or None

    def describe(self) -> Dict[str, Any]:
        return dict(
            super().describe(),
            backend_version=tf.version.VERSION,
            git_version=tf.version.GIT_VERSION,
            compiler=tf.version.COMPILER_VERSION,
            intra_op_threads=int(tf.config.threading.get_intra_op_parallelism_threads()),
            inter_op_threads=int(tf.config.threading.get_inter_op_parallelism_threads()),
            onednn_enabled=bool(_pywrap_util_port.IsMklEnabled()),
            blas="oneDNN where it is enabled, Eigen elsewhere",
        )

    def multiply(self, size: int) -> Callable[[], object]:
        left = tf.random.stateless_uniform([size, size], seed=[1, 2])
        right = tf.random.stateless_uniform([size, size], seed=[3, 4])
        return lambda: tf.linalg.matmul(left, right)


class OnTorch(KerasAdapter):
    """Keras on PyTorch."""

    execution = "Model.train_function on resident tensors"
    backend = "..pytorch.adapter"

    def set_threads(self, threads: int) -> None:
        self.own.set_threads(threads)

    def tensor(self, array: np.ndarray) -> Any:
        return torch.tensor(array)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        super().prepare(network, weights, batch)
        self.model.train()

    def step(self) -> None:
        self.model.reset_metrics()
        self.logs = self.model.train_function([self.batch])

    def effective_threads(self) -> Optional[int]:
        return int(torch.get_num_threads())

    def describe(self) -> Dict[str, Any]:
        described = dict(
            super().describe(),
            backend_version=torch.__version__,
            git_version=torch.version.git_version,
        )
        return dict(described, **self.own.describe_cpu())

    def multiply(self, size: int) -> Callable[[], object]:
        left = torch.rand(size, size)
        right = torch.rand(size, size)
        result = torch.empty(size, size)
        return lambda: torch.mm(left, right, out=result)


_BACKENDS = {"tensorflow": OnTensorFlow, "jax": OnJax, "torch": OnTorch}
if NAME not in _BACKENDS:
    raise ValueError(
        "Keras was started with the backend %s; this adapter drives %s"
        % (NAME, ", ".join(_BACKENDS))
    )
ADAPTER = _BACKENDS[NAME]
