"""Keras's backends as the adapter drives them; the one in use alone is imported.

The training step is the model's own train function, called as ``train_on_batch`` does, less the conversion of its
arguments and results.
"""

import itertools
from importlib import import_module, metadata
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import keras
import numpy as np

from ..base import Adapter, slope_found
from ..protocol import Profile

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


class Backend:
    """A backend of Keras, and the training step of a compiled model on a resident mini-batch.

    ``step`` is one training step; ``logs`` are what the train function returns. ``describe`` names the backend's
    versions, libraries and settings.
    """

    #: How the train function is called, for the description.
    execution = ""
    #: The orders of an image's axes that its convolutions on the CPU compute with.
    data_formats: Tuple[str, ...] = ("channels_last", "channels_first")
    #: The module whose profiler serves this backend.
    profiler = ""

    def __init__(self, threads: int) -> None:
        """Set the number of threads, before any operation; 0 leaves the backend's default."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("the backend %s has no %s" % (NAME, name))

    def start(self, model: Any, inputs: Any, labels: Any) -> None:
        """Keep the model, whose variables have their values, and make its train function."""
        self.model = model
        self.place(inputs, labels)
        model.optimizer.build(model.trainable_variables)
        model.make_train_function()
        self.logs: Dict[str, Any] = {"loss": np.nan}

    def place(self, inputs: Any, labels: Any) -> None:
        """Train on these tensors from the next step on."""
        self.batch = (inputs, labels)
        self.batches = itertools.repeat(self.batch)

    def assign(self, variable: Any, value: Any) -> None:
        """Give one of the model's trainable variables another value."""
        variable.assign(value)

    def synchronize(self) -> None:
        """Wait until all steps are finished."""

    def set_learning_rate(self, rate: float) -> None:
        """Assign the optimiser's variable."""
        self.model.optimizer.learning_rate = rate

    def loss(self) -> float:
        """Return the last step's mean loss.

        It is Keras's loss metric, a running mean, which each step starts anew as ``train_on_batch`` does: some 0.02 to
        0.09 ms, and the only way to the loss of one step through the trainer.
        """
        return float(self.logs["loss"])

    def values(self, variables: Dict[str, Any]) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield the current value of each of the model's trainable variables under its key."""
        for name, variable in variables.items():
            yield name, keras.ops.convert_to_numpy(variable.value)

    def effective_threads(self) -> Optional[int]:
        """Return the number of intra-op threads the backend says it uses; None where it does not say."""
        return None

    def profile(self, adapter: Adapter, steps: int) -> Optional[Profile]:
        """Profile by the profiler of the backend's own adapter."""
        return import_module(self.profiler, __package__).take_profile(adapter, steps)


class JaxBackend(Backend):
    """JAX; its number of threads is that of NPROC at its start.

    Calls the train function, a pure function under jax.jit, from state to state, as ``Model.fit`` does. The state is
    (trainable variables, others, the optimiser's, the metrics'); it stays outside the model, whose own variables are
    given up to the first step (``train_on_batch`` would put every array back at each step).
    """

    execution = "Model.train_function, Model.train_step under jax.jit, state to state on resident arrays"
    profiler = "..jax.devices"

    def tensor(self, array: np.ndarray) -> Any:
        # asarray may share the caller's memory.
        return jnp.array(array, copy=True)

    def start(self, model: Any, inputs: Any, labels: Any) -> None:
        super().start(model, inputs, labels)
        optimizer = model.optimizer
        self.places = {id(variable): place for place, variable in enumerate(model.trainable_variables)}
        self.rate = next(index for index, held in enumerate(optimizer.variables) if held is optimizer.learning_rate)
        groups = model.trainable_variables, model.non_trainable_variables, optimizer.variables, model.metrics_variables
        self.state = tuple([variable.value for variable in group] for group in groups)

    def step(self) -> None:
        """Start one step from a metric of zero; the arrays of the state before it are given to it for reuse."""
        weights, others, optimizer, metrics = self.state
        metrics = [jnp.zeros_like(held) for held in metrics]
        self.logs, self.state = self.model.train_function((weights, others, optimizer, metrics), self.batches)

    def synchronize(self) -> None:
        jax.block_until_ready(self.state)

    def set_learning_rate(self, rate: float) -> None:
        held = self.state[2]
        held[self.rate] = jnp.asarray(rate, dtype=held[self.rate].dtype)

    def assign(self, variable: Any, value: Any) -> None:
        """Replace the variable's value in the state; the buffer of the old one is given back."""
        self.state[0][self.places[id(variable)]] = value

    def values(self, variables: Dict[str, Any]) -> Iterator[Tuple[str, np.ndarray]]:
        for name, variable in variables.items():
            yield name, np.asarray(self.state[0][self.places[id(variable)]])

    def describe(self) -> Dict[str, Any]:
        return {
            "backend_version": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "platform_version": jax.devices()[0].client.platform_version,
            "matmul_precision": str(jax.config.jax_default_matmul_precision),
            "blas": "XLA's own: Eigen and oneDNN",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        names = [entry.name for entry in metadata.entry_points(group="jax_plugins")]
        plugins = sorted(name for name in names if "cuda" in name or "rocm" in name)
        return {
            "gpu": (bool(plugins), "JAX's plugins for GPUs: %s" % (", ".join(plugins) or "none")),
            "automatic_gradients": slope_found(float(jax.grad(lambda value: value * value)(3.0))),
            "several_processes": (hasattr(jax.distributed, "initialize"), "jax.distributed.initialize looked up"),
        }

    def multiply(self, size: int) -> Callable[[], object]:
        left, right = (jax.random.uniform(jax.random.key(seed), (size, size)) for seed in (1, 2))
        return lambda: jnp.matmul(left, right).block_until_ready()

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


class TensorFlowBackend(Backend):
    """TensorFlow; the train function is a tf.function."""

    execution = "Model.train_function, one tf.function, on resident tensors"
    # channels_first has no kernel on CPUs; where TensorFlow's graph optimiser happens to turn it around, it computed
    # another update than the other backends in one of two small networks tried.
    data_formats = ("channels_last",)
    profiler = "..tensorflow.devices"

    def __init__(self, threads: int) -> None:
        tf.config.set_visible_devices([], "GPU")
        if threads:
            # OMP_NUM_THREADS means nothing here, and intra-op alone leaves an inter-op pool as large as the machine.
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)

    def tensor(self, array: np.ndarray) -> Any:
        return tf.constant(array)

    def step(self) -> None:
        self.model.reset_metrics()
        self.logs = self.model.train_function(self.batches)

    def effective_threads(self) -> Optional[int]:
        return int(tf.config.threading.get_intra_op_parallelism_threads()) or None

    def describe(self) -> Dict[str, Any]:
        return {
            "backend_version": tf.version.VERSION,
            "git_version": tf.version.GIT_VERSION,
            "compiler": tf.version.COMPILER_VERSION,
            "intra_op_threads": int(tf.config.threading.get_intra_op_parallelism_threads()),
            "inter_op_threads": int(tf.config.threading.get_inter_op_parallelism_threads()),
            "onednn_enabled": bool(_pywrap_util_port.IsMklEnabled()),
            "blas": "oneDNN where it is enabled, Eigen elsewhere",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        value = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            square = value * value
        several = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
        return {
            "gpu": (bool(tf.test.is_built_with_gpu_support()), "tf.test.is_built_with_gpu_support()"),
            "automatic_gradients": slope_found(float(tape.gradient(square, value))),
            "several_processes": (several is not None, "tf.distribute.MultiWorkerMirroredStrategy looked up"),
        }

    def multiply(self, size: int) -> Callable[[], object]:
        left, right = (tf.random.stateless_uniform([size, size], seed=seed) for seed in ([1, 2], [3, 4]))
        return lambda: tf.linalg.matmul(left, right)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, tf.errors.ResourceExhaustedError)


class TorchBackend(Backend):
    """PyTorch."""

    execution = "Model.train_function on resident tensors"
    profiler = "..pytorch.adapter"

    def __init__(self, threads: int) -> None:
        if threads:
            torch.set_num_threads(threads)
        # Nothing here runs operations side by side; the pool would only be threads without work.
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)

    def tensor(self, array: np.ndarray) -> Any:
        return torch.tensor(array)

    def start(self, model: Any, inputs: Any, labels: Any) -> None:
        super().start(model, inputs, labels)
        model.train()

    def step(self) -> None:
        self.model.reset_metrics()
        self.logs = self.model.train_function([self.batch])

    def effective_threads(self) -> Optional[int]:
        return int(torch.get_num_threads())

    def describe(self) -> Dict[str, Any]:
        mkldnn = torch.backends.mkldnn
        return {
            "backend_version": torch.__version__,
            "git_version": torch.version.git_version,
            "blas": "MKL" if torch.backends.mkl.is_available() else "not MKL",
            "onednn_enabled": bool(mkldnn.is_available() and mkldnn.enabled),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "intra_op_threads": torch.get_num_threads(),
            "inter_op_threads": torch.get_num_interop_threads(),
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        value = torch.tensor(3.0, requires_grad=True)
        (value * value).backward()
        return {
            "gpu": (bool(torch.backends.cuda.is_built()), "torch.backends.cuda.is_built()"),
            "automatic_gradients": slope_found(float(value.grad)),
            "several_processes": (torch.distributed.is_available(), "torch.distributed.is_available()"),
        }

    def multiply(self, size: int) -> Callable[[], object]:
        left, right, result = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
        return lambda: torch.mm(left, right, out=result)

    def is_out_of_memory(self, error: BaseException) -> bool:
        # The CPU allocator's failures are plain RuntimeErrors.
        signs = ("DefaultCPUAllocator: not enough memory", "DefaultCPUAllocator: can't allocate memory")
        failed = isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
        return failed or isinstance(error, torch.OutOfMemoryError)


BACKENDS = {"tensorflow": TensorFlowBackend, "jax": JaxBackend, "torch": TorchBackend}


def load(threads: int) -> Backend:
    """Return the backend that Keras was started with (KERAS_BACKEND); raises ValueError for any other than BACKENDS."""
    if NAME not in BACKENDS:
        raise ValueError("Keras was started with the backend %s; this adapter drives %s" % (NAME, ", ".join(BACKENDS)))
    return BACKENDS[NAME](threads)
