"""Keras 3 on the backend named by KERAS_BACKEND: TensorFlow, JAX or PyTorch.

A functional model of Keras's own layers, compiled with Keras's own loss and SGD; the step is the trainer's own train
function, called with the resident mini-batch. What differs between backends is behind ``backends.Backend``.

Settings of a mode, each Keras's own default (framework.toml lists the alternatives tried):

``data_format``  the order of the axes of images: "channels_last" (default) or "channels_first"
``jit_compile``  as of ``Model.compile``: "auto" (default), true or false
``unroll``  as of the recurrent layers (default false)
``use_cudnn``  as of the layer LSTM: "auto" (default) or false; on CPUs it only decides which of the backend's LSTM
    programs is taken
"""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import keras
import numpy as np

from ..base import EveryFamily
from ..families import LEARNING_RATE, Elman
from ..launch.batches import Batch
from ..networks import Network
from ..protocol import Cell, Profile
from . import backends
from .networks import arrays, build

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
        self.options: Dict[str, Any] = {
            "data_format": str(settings.get("data_format", "channels_last")),
            "unroll": bool(settings.get("unroll", False)),
            "use_cudnn": settings.get("use_cudnn", "auto"),
        }
        known = self.backend.data_formats
        if self.options["data_format"] not in known:
            given = self.options["data_format"], keras.config.backend(), " or ".join(known)
            raise ValueError("the setting data_format is %r; on %s's CPU it can be %s" % given)
        self.jit_compile = settings.get("jit_compile", "auto")

    def refuses(self, network: Network) -> str:
        leaky = isinstance(network.family, Elman) and network.family.alpha != 1.0
        return "alpha: Keras's SimpleRNN has no leaky units" if leaky else ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.network = network
        self.model, self.held = build(network, len(batch.inputs), self.options)
        for variable, value in self._values(weights):
            variable.assign(value)
        self.model.compile(
            optimizer=keras.optimizers.SGD(learning_rate=LEARNING_RATE, global_clipnorm=network.family.clip or None),
            loss=LOSSES[network.family.loss](),
            jit_compile=self.jit_compile,
        )
        self.backend.start(self.model, *self._tensors(batch))

    def _values(self, weights: Mapping[str, np.ndarray]) -> Iterator[Tuple[Any, Any]]:
        """Yield each variable with a copy of its weights as the backend's tensor in the layout that is held."""
        for name, (variable, layout) in self.held.items():
            given = [weights[each] for each in layout.names(name)]
            copy = self.backend.tensor(layout.split(given[0] if len(given) == 1 else np.stack(given)))
            if layout.axes is not None:
                turned = keras.ops.transpose(copy, layout.axes)
                copy = keras.ops.reshape(turned, layout.joined(tuple(turned.shape)))
            yield variable, copy

    def _tensors(self, batch: Batch) -> Tuple[Any, ...]:
        return tuple(self.backend.tensor(each) for each in arrays(batch, self.options["data_format"]))

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Assign the variables; the mini-batch is an argument of the train function."""
        for variable, value in self._values(weights):
            self.backend.assign(variable, value)
        self.backend.place(*self._tensors(batch))

    def step(self) -> None:
        self.backend.step()

    def synchronize(self) -> None:
        self.backend.synchronize()

    def set_learning_rate(self, rate: float) -> None:
        self.backend.set_learning_rate(rate)

    def last_loss(self) -> float:
        return self.backend.loss()

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self.backend.values({name: variable for name, (variable, _) in self.held.items()}):
            layout = self.held[name][1]
            names, canonical = layout.names(name), layout.canonical(value)
            yield from zip(names, [canonical] if len(names) == 1 else canonical)

    def effective_threads(self) -> Optional[int]:
        return self.backend.effective_threads()

    def describe(self) -> Dict[str, Any]:
        loop = "scan" if keras.config.backend() == "jax" else "loop"
        described = {
            "framework": "keras",
            "version": keras.__version__,
            "backend": keras.config.backend(),
            "execution": self.backend.execution,
            "jit_compile_setting": self.jit_compile,
            "image_layout": "NHWC" if self.options["data_format"] == "channels_last" else "NCHW",
            "unroll": self.options["unroll"],
            "recurrence": "unrolled" if self.options["unroll"] else loop,
            "use_cudnn": self.options["use_cudnn"],
            "optimizer": "keras.optimizers.SGD",
        }
        if hasattr(self, "model"):
            described["jit_compile"] = bool(self.model.jit_compile)
        described.update(self.backend.describe())
        return described

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask the framework below Keras, which itself has neither gradients nor processes."""
        return self.backend.capabilities()

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        return self.backend.multiply(size)

    def profile(self, steps: int) -> Optional[Profile]:
        return self.backend.profile(self, steps)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or self.backend.is_out_of_memory(error)


ADAPTER = KerasAdapter
