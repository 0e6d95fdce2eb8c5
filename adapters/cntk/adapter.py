"""CNTK 2.7: one static graph, trained by CNTK's own ``Trainer`` and SGD learner."""

from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import cntk
import numpy as np

from ..base import Adapter, factors, slope_told
from ..families import CELLS, LEARNING_RATE, Elman
from ..launch.batches import Batch
from ..libraries import mkl_kernels
from ..networks import Network
from ..protocol import Cell
from . import libraries
from .networks import build, values_of


class CntkAdapter(Adapter):
    """Drives CNTK, whose step on the CPU is over when its call returns.

    Setting: ``kernels`` ("mkl", the default, or "widest"): whether MKL takes the widest vector kernels that the
    processor runs, or chooses by its maker.
    """

    families = (*Adapter.families, "elman")
    cells = tuple(CELLS)
    one_hot = True

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        if settings.get("kernels", "mkl") == "widest":
            mkl_kernels.take_widest()
        if cell.threads:
            # The only thread setting it honours, and that up to the CPUs present.
            cntk.cntk_py.set_max_num_cputhreads(cell.threads)

    def supports(self, network: Network) -> Tuple[bool, str]:
        """Decline, beside what every adapter declines, leaky units and gradients clipped together."""
        supported, reason = super().supports(network)
        family = network.family
        if supported and isinstance(family, Elman):
            if family.clip:
                return False, "clip %g: CNTK's learners clip each parameter's gradient by itself" % family.clip
            if family.alpha != 1.0:
                return False, "alpha %g: CNTK's RNNStep has no leaky units" % family.alpha
        return supported, reason

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Build the graph with these weights; the mini-batch becomes CNTK values."""
        built = build(network.family, weights)
        self.family, self.trained, self.variables = network.family, built.trained, built.variables
        self.arguments = dict(zip(self.variables, values_of(self.family, batch)))
        # Without a mini-batch size the rate is of the mean gradient, whatever the mini-batch.
        rate = cntk.learning_parameter_schedule(LEARNING_RATE)
        self.learner = cntk.sgd([item.parameter for item in built.trained.values()], rate)
        self.trainer = cntk.Trainer(None, (built.loss, None), [self.learner])

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy the weights into the parameters; the mini-batch is an argument of the trainer."""
        for name, item in self.trained.items():
            item.parameter.value = item.held(weights[name])
        self.arguments = dict(zip(self.variables, values_of(self.family, batch)))

    def step(self) -> None:
        """Run forward, loss, backward and update of one mini-batch."""
        self.trainer.train_minibatch(self.arguments)

    def set_learning_rate(self, rate: float) -> None:
        """Give the learner a new schedule of one rate; the graph has no part in it."""
        self.learner.reset_learning_rate(cntk.learning_parameter_schedule(rate))

    def last_loss(self) -> float:
        """Return the mean loss of the last step."""
        return float(self.trainer.previous_minibatch_loss_average)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield every trainable parameter."""
        for name, item in self.trained.items():
            yield name, item.canonical(item.parameter.value)

    def effective_threads(self) -> Optional[int]:
        """Return the OpenMP threads that CNTK gives its operations."""
        return int(cntk.cntk_py.get_max_num_cputhreads())

    def describe(self) -> Dict[str, Any]:
        """Return versions, libraries and execution settings."""
        return {
            "framework": "cntk",
            "version": cntk.__version__,
            "blas": libraries.mkl(),
            "kernels": mkl_kernels.asked_for(),
            "execution": "static graph, Trainer.train_minibatch, mini-batch held as Value",
            "recurrence": "loop",
            "recurrent_layers": "layers.Recurrence of layers.LSTM or layers.RNNStep",
            "optimizer": "cntk.sgd",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask CNTK for the libraries it is linked with, for a gradient and for its distributed learner."""
        cuda = any("libcudart" in path or "libcublas" in path for path in libraries.loaded())
        variable = cntk.input_variable(1, needs_gradient=True)
        slope = float(np.ravel(cntk.square(variable).grad({variable: np.array([[3.0]], np.float32)}))[0])
        several = callable(getattr(cntk.train.distributed, "data_parallel_distributed_learner", None))
        return {
            "gpu": (cuda, "linked with %s" % ("CUDA" if cuda else "no CUDA library")),
            "automatic_gradients": slope_told(slope),
            "several_processes": (
                several,
                "data_parallel_distributed_learner is %s" % ("there" if several else "missing"),
            ),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a product of a mini-batch with a parameter, as a dense layer makes it."""
        left, right = factors(size)
        rows = cntk.input_variable(size)
        product = cntk.times(rows, cntk.Parameter((size, size), init=right))
        arguments, outputs = {rows: cntk.Value(left)}, [product.output]
        return lambda: product.forward(arguments, outputs, as_numpy=False)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise a failed allocation, which comes as a RuntimeError with C++'s word for it."""
        return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "bad_alloc" in str(error))


ADAPTER = CntkAdapter
