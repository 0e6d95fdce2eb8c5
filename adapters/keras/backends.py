"""What the adapter asks of a Keras backend; one module ``backend_NAME.py`` for each answers."""

import importlib
import itertools
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import keras
import numpy as np

NAMES = ("tensorflow", "jax", "torch")


class Training:
    """The training step of a compiled model on a resident mini-batch, by the model's own train function."""

    def __init__(self, model: Any, inputs: Any, labels: Any) -> None:
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

    def step(self) -> None:
        """Carry out one training step; ``logs`` are what the train function returns."""
        raise NotImplementedError

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


class Backend:
    """One backend of Keras in this process."""

    #: How the train function is called, for the description.
    execution = ""
    #: The orders of an image's axes that its convolutions on the CPU compute with.
    data_formats: Tuple[str, ...] = ("channels_last", "channels_first")

    def __init__(self, threads: int) -> None:
        """Set the number of threads, before any operation; 0 leaves the backend's default."""

    def tensor(self, array: np.ndarray) -> Any:
        """Return a copy of the array as the backend's tensor."""
        raise NotImplementedError

    def training(self, model: Any, inputs: Any, labels: Any) -> Training:
        """Return the training step of this compiled model on these tensors."""
        raise NotImplementedError

    def effective_threads(self) -> Optional[int]:
        """Return the number of intra-op threads the backend says it uses; None where it does not say."""
        raise NotImplementedError

    def describe(self) -> Dict[str, Any]:
        """Return the backend's own versions, libraries and settings."""
        raise NotImplementedError

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Answer ``Adapter.capabilities``."""
        raise NotImplementedError

    def multiply(self, size: int) -> Callable[[], object]:
        """Return a call that does one synchronous float32 (size, size) matrix product by the backend."""
        raise NotImplementedError

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Tell whether this exception of the backend means that memory ran out."""
        raise NotImplementedError


def load(threads: int) -> Backend:
    """Return the backend that Keras was started with (KERAS_BACKEND); raises ValueError for any other than NAMES."""
    name = keras.config.backend()
    if name not in NAMES:
        raise ValueError("Keras was started with the backend %s; this adapter drives %s" % (name, ", ".join(NAMES)))
    module = importlib.import_module(".backend_" + name, __package__)
    return module.BACKEND(threads)
