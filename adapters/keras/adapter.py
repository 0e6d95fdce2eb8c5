"""Keras 3 on the backend named by KERAS_BACKEND: TensorFlow, JAX or PyTorch.

A functional model of Keras's own layers, compiled with Keras's own loss and SGD; the step is the trainer's own train
function, called with the resident mini-batch. What differs between backends is behind ``backends.Backend``.

Settings of a mode, each Keras's own default (framework.toml says what else was tried):

``data_format``  the order of the axes of images: "channels_last" (default) or "channels_first"
``jit_compile``  as of ``Model.compile``: "auto" (default), true or false
``unroll``  as of the recurrent layers (default false)
``use_cudnn``  as of the layer LSTM: "auto" (default) or false; on CPUs it only decides which of the backend's LSTM
    programs is taken
"""

import importlib
from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import keras
import numpy as np

from ..base import EveryFamily
from ..families import LEARNING_RATE, Elman
from ..launch.batches import Batch
from ..libraries.layouts import Layout
from ..networks import Network
from ..protocol import Cell, Profile
from . import backends
from .networks import BiasesLayout, Options, arrays, build

#: Where the profiler of each backend is.
PROFILERS = {"tensorflow": "..tensorflow.devices", "jax": "..jax.devices", "torch": "..pytorch.adapter"}
_LOOPS = {"jax": "scan"}  # what a recurrent layer of this backend is where it is not unrolled; else a loop
LOSSES: Dict[str, Callable[[], Any]] = {
    "cross_entropy": partial(keras.losses.SparseCategoricalCrossentropy, from_logits=True),
    "squares": keras.losses.MeanSquaredError,
}


class KerasAdapter(EveryFamily):
    """Trains a compiled Keras model by its train function."""

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        # A user's keras.json may say otherwise.
        keras.config.set_floatx("float32")
        self.backend = backends.load(cell.threads)
        self.options = Options(
            str(settings.get("data_format", "channels_last")),
            bool(settings.get("unroll", False)),
            settings.get("use_cudnn", "auto"),
        )
        known = self.backend.data_formats
        if self.options.data_format not in known:
            given = self.options.data_format, keras.config.backend(), " or ".join(known)
            raise ValueError("the setting data_format is %r; on %s's CPU it can be %s" % given)
        self.jit_compile = settings.get("jit_compile", "auto")

    def refuses(self, network: Network) -> str:
        leaky = isinstance(network.family, Elman) and network.family.alpha != 1.0
        return "alpha: Keras's SimpleRNN has no leaky units" if leaky else ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        built = build(network, len(batch.inputs), self.options)
        for name, (variable, layout) in built.parameters.items():
            variable.assign(self._held(layout, _given(name, layout, weights)))
        self.network = network
        self.layouts = {name: layout for name, (_, layout) in built.parameters.items()}
        self.variables = {name: variable for name, (variable, _) in built.parameters.items()}
        self.model = built.model
        self.model.compile(
            optimizer=keras.optimizers.SGD(learning_rate=LEARNING_RATE, global_clipnorm=network.family.clip or None),
            loss=LOSSES[network.family.loss](),
            jit_compile=self.jit_compile,
        )
        self.training = self.backend.training(self.model, *self._tensors(batch))

    def _held(self, layout: Layout, canonical: np.ndarray) -> Any:
        """Return a copy of a weight as the backend's tensor in the layout that is held."""
        copy = self.backend.tensor(layout.split(canonical))
        if layout.axes is None:
            return copy
        turned = keras.ops.transpose(copy, layout.axes)
        return keras.ops.reshape(turned, layout.joined(tuple(turned.shape)))

    def _tensors(self, batch: Batch) -> Tuple[Any, Any]:
        inputs, labels = arrays(self.network, batch, self.options)
        return self.backend.tensor(inputs), self.backend.tensor(labels)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Assign the variables; the mini-batch is an argument of the train function."""
        for name, variable in self.variables.items():
            self.training.assign(variable, self._held(self.layouts[name], _given(name, self.layouts[name], weights)))
        self.training.place(*self._tensors(batch))

    def step(self) -> None:
        """Call the train function; on JAX it returns before the work is done."""
        self.training.step()

    def synchronize(self) -> None:
        """Wait until the backend has finished."""
        self.training.synchronize()

    def set_learning_rate(self, rate: float) -> None:
        """Assign the optimiser's variable, which the train function reads."""
        self.training.set_learning_rate(rate)

    def last_loss(self) -> float:
        return self.training.loss()

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self.training.values(self.variables):
            layout = self.layouts[name]
            if isinstance(layout, BiasesLayout):
                first, second = layout.canonical(value)
                yield name, first
                yield layout.second, second
            else:
                yield name, layout.canonical(value)

    def effective_threads(self) -> Optional[int]:
        """Return the backend's word."""
        return self.backend.effective_threads()

    def describe(self) -> Dict[str, Any]:
        described = {
            "framework": "keras",
            "version": keras.__version__,
            "backend": keras.config.backend(),
            "execution": self.backend.execution,
            "jit_compile_asked": self.jit_compile,
            "image_layout": "NHWC" if self.options.data_format == "channels_last" else "NCHW",
            "unroll": self.options.unroll,
            "recurrence": "unrolled" if self.options.unroll else _LOOPS.get(keras.config.backend(), "loop"),
            "use_cudnn": self.options.use_cudnn,
            "optimizer": "keras.optimizers.SGD",
        }
        if hasattr(self, "model"):
            described["jit_compile"] = bool(self.model.jit_compile)
        described.update(self.backend.describe())
        return described

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        return self.backend.capabilities()

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a matrix product by the backend."""
        return self.backend.multiply(size)

    def profile(self, steps: int) -> Optional[Profile]:
        return importlib.import_module(PROFILERS[keras.config.backend()], __package__).take_profile(self, steps)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or self.backend.is_out_of_memory(error)


def _given(name: str, layout: Layout, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    value = weights[name]
    return np.stack((value, weights[layout.second])) if isinstance(layout, BiasesLayout) else value


ADAPTER = KerasAdapter
