"""Keras on TensorFlow."""

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from ..base import slope_told
from .backends import Backend, Training


class TensorFlowTraining(Training):
    """Calls the train function, a tf.function, with tensors."""

    def step(self) -> None:
        """As ``train_on_batch`` does, less the conversion of its arguments and results."""
        self.model.reset_metrics()
        self.logs = self.model.train_function(self.batches)


class TensorFlowBackend(Backend):
    """TensorFlow in this process."""

    execution = "Model.train_function, one tf.function, on resident tensors"
    # channels_first has no kernel on CPUs; where TensorFlow's graph optimiser happens to turn it around, it computed
    # another update than the other backends in one of two small networks tried.
    data_formats = ("channels_last",)

    def __init__(self, threads: int) -> None:
        tf.config.set_visible_devices([], "GPU")
        if threads:
            # OMP_NUM_THREADS means nothing here, and intra-op alone leaves an inter-op pool as large as the machine.
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)

    def tensor(self, array: np.ndarray) -> Any:
        """Copy the array."""
        return tf.constant(array)

    def training(self, model: Any, inputs: Any, labels: Any) -> Training:
        """Return the training step."""
        return TensorFlowTraining(model, inputs, labels)

    def effective_threads(self) -> Optional[int]:
        """Return the size TensorFlow's context gives for its intra-op pool."""
        return int(tf.config.threading.get_intra_op_parallelism_threads()) or None

    def describe(self) -> Dict[str, Any]:
        """Name TensorFlow's build."""
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
        """Ask the framework below Keras, which itself has neither gradients nor processes."""
        value = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            square = value * value
        slope = float(tape.gradient(square, value))
        several = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
        return {
            "gpu": (bool(tf.test.is_built_with_gpu_support()), "tf.test.is_built_with_gpu_support()"),
            "automatic_gradients": slope_told(slope),
            "several_processes": (several is not None, "tf.distribute.MultiWorkerMirroredStrategy looked up"),
        }

    def multiply(self, size: int) -> Callable[[], object]:
        """Multiply eagerly, which is synchronous on the CPU."""
        left = tf.random.stateless_uniform([size, size], seed=[1, 2])
        right = tf.random.stateless_uniform([size, size], seed=[3, 4])
        return lambda: tf.linalg.matmul(left, right)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise TensorFlow's failed allocations."""
        return isinstance(error, tf.errors.ResourceExhaustedError)


BACKEND = TensorFlowBackend
