"""Theano 1.0.5: the whole training step as one function, compiled to C++ by g++."""

import importlib
import os
import shlex
import shutil
import sysconfig
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

from ..base import EveryFamily, factors, slope_found
from ..families import LEARNING_RATE
from ..launch.batches import Batch, by_example, in_rows
from ..libraries import blas
from ..networks import Network

# Theano's configuration, which it reads from the environment once, when it is imported.
#
# Without a BLAS at link time Theano falls back to NumPy's product from Python, and to a slow
# convolution. The OpenBLAS of NumPy's wheel is in the process anyway: the compiled code is linked
# to that one.

COMPILER = "g++"
# Seconds after which the lock of another, silent process is overridden. Theano renews its own lock
# whenever half of this has passed; the longest single compilation of these networks takes a fifth
# of it.
LOCK_TIMEOUT = 60


def configure(base_directory: str) -> None:
    """Set the environment that Theano's import reads; ignore a user's own .theanorc.

    Compiled code is kept under this directory.
    """
    os.makedirs(base_directory, exist_ok=True)
    os.environ["THEANORC"] = os.devnull
    chosen = [
        "floatX=float32",
        "device=cpu",
        "openmp=False",
        "cxx=%s" % (shutil.which(COMPILER) or ""),
        "base_compiledir=%s" % base_directory,
        "compile.timeout=%d" % LOCK_TIMEOUT,
        "compile.wait=1",
    ]
    library = blas.openblas_of_numpy()
    if library is not None:
        folder, name = os.path.split(library)
        chosen.append("blas.ldflags=-L%s -l:%s -Wl,-rpath,%s" % (folder, name, folder))
    # Theano splits the flags with shlex, at commas.
    os.environ["THEANO_FLAGS"] = ",".join(shlex.quote(flag) for flag in chosen)


def compiler_refusal() -> str:
    """Return why Theano cannot compile its code, and the remedy; empty where it can."""
    if shutil.which(COMPILER) is None:
        return "Theano compiles each network with g++, which is not found: install g++"
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        return "Theano compiles each network against Python's headers, and %s is missing" % header
    library = blas.openblas_of_numpy()
    if library is None:
        return (
            "NumPy includes no OpenBLAS to link to, and without one Theano computes its products "
            "through NumPy"
        )
    if len(library.split()) > 1:
        return "Theano cannot link to a library in a folder with a space in its name: %s" % library
    return ""


class TheanoAdapter(EveryFamily):
    """An adapter of Theano.

    Weights, mini-batch and learning rate are shared variables. The update is in the function.
    ``prepare`` compiles; the C++ modules are kept in the adapter's cache, so that a later launch
    optimises the graph again but recompiles only the few modules to which Theano gives no version.
    """

    further_axes = ("task",)

    def set_up(self) -> None:
        if self.cell.threads:
            blas.set_openblas_threads(blas.loaded_openblas_of_numpy(), self.cell.threads)
        self.reason = compiler_refusal()
        if not self.reason:
            configure(os.path.join(self.cache_directory, "compiled"))
            # Here, so that it is counted as import; not above, where the cache directory is not
            # known yet.
            importlib.import_module("theano")

    def refuses(self, network: Network) -> str:
        return self.reason

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        import theano

        from .networks import build

        loss, self.trainable, self.mini_batch = build(network.family, weights, batch)
        self.family = network.family
        self.rate = theano.shared(np.asarray(LEARNING_RATE, dtype=np.float32), name="rate")
        values = list(self.trainable.values())
        gradients = theano.grad(loss, values)
        if self.family.clip:
            norm = theano.tensor.sqrt(
                sum(theano.tensor.sqr(gradient).sum() for gradient in gradients)
            )
            scale = theano.tensor.minimum(np.float32(1.0), np.float32(self.family.clip) / norm)
            gradients = [gradient * scale for gradient in gradients]
        updates = [
            (value, value - self.rate * gradient) for value, gradient in zip(values, gradients)
        ]
        self.train = theano.function([], loss, updates=updates)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        import theano

        from .networks import build_inference

        outputs, self.shown = build_inference(network.family, weights, statistics, batch)
        self.family = network.family
        # The caller may have the outputs as they lie: nothing is copied.
        self.forward = theano.function([], theano.Out(outputs, borrow=True))

    def infer(self) -> None:
        self.result = self.forward()

    def show(self, batch: Batch) -> None:
        self.shown.set_value(in_rows(self.family, batch)[0], borrow=False)

    def outputs(self) -> np.ndarray:
        return by_example(self.family, np.array(self.result), self.cell.known_batch_size)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Store them in the shared variables, which the compiled function reads."""
        for name, parameter in self.trainable.items():
            parameter.set_value(weights[name], borrow=False)
        for held, value in zip(self.mini_batch, in_rows(self.family, batch)):
            held.set_value(value, borrow=False)

    def step(self) -> None:
        self.loss = self.train()

    def set_learning_rate(self, rate: float) -> None:
        self.rate.set_value(np.asarray(rate, dtype=np.float32))

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, parameter in self.trainable.items():
            yield name, parameter.get_value()

    def effective_threads(self) -> Optional[int]:
        # Nothing else here is parallel.
        return blas.openblas_threads(blas.loaded_openblas_of_numpy())

    def describe(self) -> Dict[str, Any]:
        import theano
        from theano.gof.cmodule import gcc_version_str

        return {
            "framework": "theano",
            "version": theano.__version__,
            "blas": blas.describe_openblas(blas.loaded_openblas_of_numpy()),
            "compiler": "g++ %s" % gcc_version_str,
            "compiler_flags": theano.config.gcc.cxxflags,
            "recurrence": "scan",
            "execution": "one function; mode %s, linker %s"
            % (theano.config.mode, theano.config.linker),
            "openmp": bool(theano.config.openmp),
            "operations": self._operations(),
        }

    def _operations(self) -> Dict[str, int]:
        """Count the operations of the compiled function that compute most.

        These are products, convolutions and loops.
        """
        counts: Dict[str, int] = {}
        function = getattr(self, "forward" if self.cell.infers else "train", None)
        for node in function.maker.fgraph.toposort() if function is not None else ():
            kind = type(node.op).__name__
            if kind.startswith(
                ("Gemm", "Dot", "CorrMM", "Scan", "Conv", "AbstractConv", "Pool", "MaxPool")
            ):
                counts[kind] = counts.get(kind, 0) + 1
        return counts

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        if self.reason:
            return {}
        import theano

        x = theano.tensor.fscalar()
        answers = {
            "automatic_gradients": slope_found(
                float(theano.grad(x * x, x).eval({x: np.float32(3)}))
            )
        }
        from theano import gpuarray

        library = gpuarray.pygpu
        pygpu = "no pygpu" if library is None else "pygpu %s" % library.__version__
        answers["gpu"] = (library is not None, "theano.gpuarray answers " + pygpu)
        return answers

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        import theano

        left, right, out = [theano.shared(factor) for factor in factors(size, 3)]
        # An update that scales the old value away is Gemm in place.
        rate = theano.shared(np.asarray(0.0, dtype=np.float32))
        product = rate * out + theano.tensor.dot(left, right)
        function: Callable[[], object] = theano.function([], [], updates=[(out, product)])
        return function


ADAPTER = TheanoAdapter
