"""ONNX Runtime as everybody installs it, training all the same: a whole step is one ordinary ONNX graph."""

import importlib.util
import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import onnx
import onnxruntime

from ..base import Adapter
from ..families import LEARNING_RATE
from ..launch.batches import Batch
from ..networks import Network
from ..protocol import Cell, Profile
from . import devices, graph, networks, profile

#: What ONNX Runtime calls its execution providers that run on no GPU.
_CPU_PROVIDERS = ("CPUExecutionProvider", "AzureExecutionProvider")


class OnnxAdapter(Adapter):
    """Drives one inference session whose graph is a training step.

    The parameters live in two sets of buffers: a step reads one and writes the other, so nothing is copied.

    Settings:

    ``rate_in_product``  the learning rate multiplies a factor of a gradient that is a matrix product (default true),
        or the gradient
    ``spin``  whether waiting threads spin: "always", "never", or "within_cores" (default), which is as long as this
        process may use as many CPUs as it asks for threads
    ``optimization``  ONNX Runtime's graph optimisation level: "all" (default), "extended", "basic" or "none"
    ``memory_pattern``, ``memory_arena``  ONNX Runtime's planning and pooling of memory (default true)
    """

    families = ("feedforward", "convolutional", "residual", "recurrent")

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        onnxruntime.set_default_logger_severity(3)
        self.options = self._session_options()
        self._run_options = devices.run_options(cell)

    def _session_options(self) -> Any:
        options = onnxruntime.SessionOptions()
        if self.cell.threads:
            options.intra_op_num_threads = self.cell.threads
            options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        level = self.settings.get("optimization", "all")
        names = {"all": "ALL", "extended": "EXTENDED", "basic": "BASIC", "none": "DISABLE_ALL"}
        prefix = "ORT_" if level == "none" else "ORT_ENABLE_"
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, prefix + names[level])
        options.enable_mem_pattern = bool(self.settings.get("memory_pattern", True))
        options.enable_cpu_mem_arena = bool(self.settings.get("memory_arena", True))
        options.log_severity_level = 3
        if not self._spins():
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options

    def _spins(self) -> bool:
        spin = self.settings.get("spin", "within_cores")
        if spin == "within_cores":
            return self.cell.threads <= len(os.sched_getaffinity(0))
        return bool(spin == "always")

    def _rate_in_product(self) -> bool:
        return bool(self.settings.get("rate_in_product", True))

    def supports(self, network: Network) -> Tuple[bool, str]:
        """Decline, on a GPU, what this build cannot do."""
        if self.cell.on_cpu:
            return super().supports(network)
        reason = devices.refusal(self.cell)
        return not reason, reason

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Generate the graph, load it, and bind both sets of parameters, the mini-batch and the learning rate."""
        self.network = network
        self.batch_size = len(batch.inputs)
        # On the CPU these lie on their NumPy arrays: nothing is copied, here or in the step.
        self.rate = np.array(LEARNING_RATE, dtype=np.float32)
        self.mini_batch = networks.feed(network, batch)
        self.given = dict(zip(("inputs", "labels"), [self._value_of(array) for array in self.mini_batch]))
        self.given[networks.LEARNING_RATE] = self._value_of(self.rate)
        self.loss = self._buffer([])
        self._allocate(weights)
        self._open_session(self.options)
        self.current = 0

    def _value_of(self, array: np.ndarray) -> Any:
        """Return an array where the graph runs: on the CPU the array itself, on a GPU a copy."""
        return onnxruntime.OrtValue.ortvalue_from_numpy(array, *devices.home(self.cell))

    def _buffer(self, shape: List[int]) -> Any:
        """Return a float32 buffer where the graph runs, with nothing in it yet."""
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, *devices.home(self.cell))

    def _open_session(self, options: Any) -> Any:
        """Make and return the session that steps run in, and bind the buffers that there are."""
        model = networks.training_graph(self.network, self.batch_size, self._rate_in_product()).SerializeToString()
        self.session = onnxruntime.InferenceSession(model, options, devices.providers(self.cell))
        self.bindings = [self._bind(source, 1 - source) for source in (0, 1)]
        return self.session

    def _allocate(self, weights: Dict[str, np.ndarray]) -> None:
        """Make both sets of parameters and copy the weights into the first."""
        self.sets: List[Dict[str, Any]] = [{}, {}]
        for name in networks.parameter_names(self.network):
            for values in self.sets:
                values[name] = self._buffer(list(weights[name].shape))
            initial = networks.from_canonical(self.network, name, weights[name])
            self.sets[0][name].update_inplace(np.ascontiguousarray(initial))

    def _bind(self, source: int, target: int) -> Any:
        """Return the binding of a step from one set of parameters to the other."""
        binding = self.session.io_binding()
        for name, value in self.given.items():
            binding.bind_ortvalue_input(name, value)
        for name in networks.parameter_names(self.network):
            binding.bind_ortvalue_input(name, self.sets[source][name])
            binding.bind_ortvalue_output(networks.updated_name(name), self.sets[target][name])
        binding.bind_ortvalue_output(networks.LOSS, self.loss)
        return binding

    def step(self) -> None:
        """Run the graph from the current parameters into the other set, which then is the current one."""
        self.session.run_with_iobinding(self.bindings[self.current], self._run_options)
        self.current = 1 - self.current

    def synchronize(self) -> None:
        """Wait for the GPU; on the CPU a step is done when it returns."""
        if not self.cell.on_cpu:
            self.bindings[1 - self.current].synchronize_outputs()

    def set_learning_rate(self, rate: float) -> None:
        """Set the rate, an input of the graph."""
        self.rate[...] = rate
        if not self.cell.on_cpu:
            self.given[networks.LEARNING_RATE].update_inplace(self.rate)

    def last_loss(self) -> float:
        """Read the loss that the last step left."""
        return float(self.loss.numpy())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield a copy of each parameter."""
        for name, value in self.sets[self.current].items():
            yield name, networks.to_canonical(self.network, name, value.numpy())

    def effective_threads(self) -> Optional[int]:
        """Return the size of the session's pool, the calling thread included, as its options hold it.

        None for ONNX Runtime's own choice: it tells nobody what it chose.
        """
        session = getattr(self, "session", None)
        threads = (session.get_session_options() if session else self.options).intra_op_num_threads
        return int(threads) or None

    def describe(self) -> Dict[str, Any]:
        """Return versions and session options; on the CPU the matrix products are ONNX Runtime's own (MLAS)."""
        options = self.options
        described = {
            "framework": "onnxruntime",
            "version": onnxruntime.__version__,
            "onnx": onnx.__version__,
            "build": onnxruntime.get_build_info(),
            "blas": "MLAS" if self.cell.on_cpu else "cuBLAS",
            "operator_set": graph.OPERATOR_SET,
            "execution": "one graph of forward, loss, backward and update; parameters in two sets of bound buffers",
            "rate_in_product": self._rate_in_product(),
            "intra_op_num_threads": options.intra_op_num_threads,
            "inter_op_num_threads": options.inter_op_num_threads,
            "execution_mode": options.execution_mode.name,
            "graph_optimization_level": options.graph_optimization_level.name,
            "memory_pattern": options.enable_mem_pattern,
            "memory_arena": options.enable_cpu_mem_arena,
            "allow_spinning": self._spins(),
        }
        described.update(devices.describe(getattr(self, "session", None)))
        return described

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask the package which execution providers it has, and for its training and collective operations."""
        providers = onnxruntime.get_available_providers()
        training = importlib.util.find_spec("onnxruntime.training") is not None
        return {
            "gpu": (
                any(provider not in _CPU_PROVIDERS for provider in providers),
                "get_available_providers: %s" % ", ".join(providers),
            ),
            "automatic_gradients": (training, "the package %s onnxruntime.training" % ("has" if training else "lacks")),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a product of two inputs, so that neither is packed beforehand."""
        model = networks.product(size).SerializeToString()
        session = onnxruntime.InferenceSession(model, self._session_options(), devices.providers(self.cell))
        binding = session.io_binding()
        arrays = [np.random.RandomState(0).rand(size, size).astype(np.float32) for _ in "ab"]
        for name, array in zip("ab", arrays):
            binding.bind_ortvalue_input(name, self._value_of(array))
        binding.bind_ortvalue_output("c", self._buffer([size, size]))

        def product(arrays: List[np.ndarray] = arrays) -> object:
            # On the CPU the values bound lie on the arrays, which nothing else keeps.
            return session.run_with_iobinding(binding)

        return product

    def profile(self, steps: int) -> Optional[Profile]:
        """Run so many steps in a second session, which profiles; None on a GPU, where it times starts alone."""
        if not self.cell.on_cpu:
            return None
        kept = self.session, self.bindings
        try:
            return profile.take(self, self._open_session, self._session_options(), steps)
        finally:
            self.session, self.bindings = kept

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise ONNX Runtime's arena (its message alone tells) and the C++ library."""
        if isinstance(error, MemoryError):
            return True
        signs = ("Failed to allocate memory", "std::bad_alloc", "bad allocation", "CUDA failure 2", "ALLOC_FAILED")
        return any(sign in str(error) for sign in signs)


ADAPTER = OnnxAdapter
