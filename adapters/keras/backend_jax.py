"""Keras on JAX."""

from importlib import metadata
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from ..base import slope_told
from .backends import Backend, Training


class JaxTraining(Training):
    """Calls the train function, a pure function under jax.jit, from state to state, as ``Model.fit`` does.

    The state is (trainable variables, others, the optimiser's, the metrics'); it stays outside the model, whose own
    variables are given up to the first step (``train_on_batch`` would put every array back at each step).
    """

    def __init__(self, model: Any, inputs: Any, labels: Any) -> None:
        super().__init__(model, inputs, labels)
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
        """Wait for every array of the state."""
        jax.block_until_ready(self.state)

    def set_learning_rate(self, rate: float) -> None:
        """Replace the optimiser's variable in the state."""
        held = self.state[2]
        held[self.rate] = jnp.asarray(rate, dtype=held[self.rate].dtype)

    def assign(self, variable: Any, value: Any) -> None:
        """Replace the variable's value in the state; the buffer of the old one is given back."""
        self.state[0][self.places[id(variable)]] = value

    def values(self, variables: Dict[str, Any]) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield copies out of the state."""
        for name, variable in variables.items():
            yield name, np.asarray(self.state[0][self.places[id(variable)]])


class JaxBackend(Backend):
    """JAX in this process; its number of threads is that of NPROC at its start."""

    execution = "Model.train_function, Model.train_step under jax.jit, state to state on resident arrays"

    def tensor(self, array: np.ndarray) -> Any:
        """Copy the array."""
        # asarray may share the caller's memory.
        return jnp.array(array, copy=True)

    def training(self, model: Any, inputs: Any, labels: Any) -> Training:
        """Return the training step."""
        return JaxTraining(model, inputs, labels)

    def effective_threads(self) -> Optional[int]:
        """Return None: JAX has no word on the size of its pool."""
        return None

    def describe(self) -> Dict[str, Any]:
        """Name JAX's build."""
        return {
            "backend_version": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "platform_version": jax.devices()[0].client.platform_version,
            "matmul_precision": str(jax.config.jax_default_matmul_precision),
            "blas": "XLA's own: Eigen and oneDNN",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask the framework below Keras, which itself has neither gradients nor processes."""
        found = metadata.entry_points(group="jax_plugins")
        plugins = sorted(entry.name for entry in found if any(maker in entry.name for maker in ("cuda", "rocm")))
        slope = float(jax.grad(lambda value: value * value)(3.0))
        return {
            "gpu": (bool(plugins), "JAX's plugins for GPUs: %s" % (", ".join(plugins) or "none")),
            "automatic_gradients": slope_told(slope),
            "several_processes": (hasattr(jax.distributed, "initialize"), "jax.distributed.initialize looked up"),
        }

    def multiply(self, size: int) -> Callable[[], object]:
        """Multiply and wait."""
        left, right = (jax.random.uniform(jax.random.key(seed), (size, size)) for seed in (1, 2))
        return lambda: jnp.matmul(left, right).block_until_ready()

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise XLA's failed allocations by their status code."""
        return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


BACKEND = JaxBackend
