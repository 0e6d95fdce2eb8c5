"""CNTK 2.7: one static graph, trained by CNTK's own ``Trainer`` and SGD learner."""

import ctypes
import os
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

# At import it warns of every Linux but Ubuntu 16.04, and of the GPU's libraries, which its CPU build never loads.
warnings.filterwarnings("ignore", module=r"cntk\.")

import cntk

from ..base import Adapter, factors, slope_found
from ..families import CELLS, LEARNING_RATE, Elman
from ..launch.batches import Batch
from ..libraries import blas
from ..networks import Network
from .networks import build, values_of


def loaded_libraries() -> List[str]:
    """Return the paths of the shared libraries in this process."""
    try:
        with open("/proc/self/maps", errors="replace") as file:
            paths = {line.split(None, 5)[-1].strip() for line in file}
    except OSError:
        return []
    return sorted(path for path in paths if ".so" in os.path.basename(path))


def describe_mkl() -> Dict[str, Any]:
    """Return the version and the threads of MKL; empty where it is not found.

    It does not report its kernels: its text on the processor is about the maker alone.
    """
    paths = [path for path in loaded_libraries() if os.path.basename(path).startswith("libmklml")]
    if not paths:
        return {}
    library = ctypes.CDLL(paths[0])
    version = (ctypes.c_int * 32)()  # MKL's ``MKLVersion``, which begins with major, minor and update
    library.MKL_Get_Version(ctypes.byref(version))
    return {"name": "mkl", "version": "%d.%d.%d" % tuple(version[:3]), "threads": int(library.MKL_Get_Max_Threads())}


class CntkAdapter(Adapter):
    """Drives CNTK, whose step on the CPU is over when its call returns.

    Setting: ``kernels`` ("mkl", the default, or "widest"): whether MKL takes the widest vector kernels that the
    processor runs, or chooses by its maker.
    """

    families = (*Adapter.families, "elman")
    cells = tuple(CELLS)
    one_hot = True

    def set_up(self) -> None:
        if self.settings.get("kernels", "mkl") == "widest":
            blas.take_widest_mkl_kernels()
        if self.cell.threads:
            # The only thread setting it honours, and that up to the CPUs present.
            cntk.cntk_py.set_max_num_cputhreads(self.cell.threads)

    def refuses(self, network: Network) -> str:
        family = network.family
        if isinstance(family, Elman) and family.clip:
            return "clip %g: CNTK's learners clip each parameter's gradient by itself" % family.clip
        if isinstance(family, Elman) and family.alpha != 1.0:
            return "alpha %g: CNTK's RNNStep has no leaky units" % family.alpha
        return ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        loss, self.trained, self.variables = build(network.family, weights)
        self.family = network.family
        self.arguments = dict(zip(self.variables, values_of(self.family, batch)))
        # Without a mini-batch size the rate is that of the mean gradient, whatever the mini-batch.
        rate = cntk.learning_parameter_schedule(LEARNING_RATE)
        self.learner = cntk.sgd([parameter for parameter, _, _ in self.trained.values()], rate)
        self.trainer = cntk.Trainer(None, (loss, None), [self.learner])

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy the weights into the parameters; the mini-batch is an argument of the trainer."""
        for name, (parameter, _, held) in self.trained.items():
            parameter.value = held(weights[name])
        self.arguments = dict(zip(self.variables, values_of(self.family, batch)))

    def step(self) -> None:
        self.trainer.train_minibatch(self.arguments)

    def set_learning_rate(self, rate: float) -> None:
        self.learner.reset_learning_rate(cntk.learning_parameter_schedule(rate))

    def last_loss(self) -> float:
        return float(self.trainer.previous_minibatch_loss_average)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, (parameter, canonical, _) in self.trained.items():
            yield name, canonical(parameter.value)

    def effective_threads(self) -> Optional[int]:
        return int(cntk.cntk_py.get_max_num_cputhreads())

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "cntk",
            "version": cntk.__version__,
            "blas": describe_mkl(),
            "kernels": blas.mkl_kernels_setting(),
            "execution": "static graph, Trainer.train_minibatch, mini-batch held as Value",
            "recurrence": "loop",
            "recurrent_layers": "layers.Recurrence of layers.LSTM or layers.RNNStep",
            "optimizer": "cntk.sgd",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        cuda = any("libcudart" in path or "libcublas" in path for path in loaded_libraries())
        variable = cntk.input_variable(1, needs_gradient=True)
        slope = float(np.ravel(cntk.square(variable).grad({variable: np.array([[3.0]], np.float32)}))[0])
        several = callable(getattr(cntk.train.distributed, "data_parallel_distributed_learner", None))
        return {
            "gpu": (cuda, "linked with %s" % ("CUDA" if cuda else "no CUDA library")),
            "automatic_gradients": slope_found(slope),
            "several_processes": (several, "data_parallel_distributed_learner looked up"),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left, right = factors(size)
        rows = cntk.input_variable(size)
        product = cntk.times(rows, cntk.Parameter((size, size), init=right))
        arguments, outputs = {rows: cntk.Value(left)}, [product.output]
        return lambda: product.forward(arguments, outputs, as_numpy=False)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "bad_alloc" in str(error))


ADAPTER = CntkAdapter
