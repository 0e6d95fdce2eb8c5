"""ONNX Runtime's on-device training: a training graph and an SGD graph over one set of parameters."""

import importlib.util
import os
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

# onnxruntime.training imports its mixed-precision optimisers for torch models, and they import torch: 700 MB that
# on-device training never calls. An empty module in their place is all that it takes to do without.
sys.modules.setdefault("onnxruntime.training.optim", types.ModuleType("onnxruntime.training.optim"))

import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnxruntime.training.api import CheckpointState, Module, Optimizer  # noqa: E402

from ..base import Adapter  # noqa: E402
from ..launch.batches import Batch  # noqa: E402
from ..networks import Network  # noqa: E402
from ..protocol import Cell, Profile  # noqa: E402
from . import artifacts, networks, profile  # noqa: E402


class OnnxRuntimeAdapter(Adapter):
    """Drives a training session and an optimizer session that share their parameters.

    Settings:

    ``fused_loss``  one operator for softmax and cross-entropy (default), or LogSoftmax and a gather
    ``spin``  whether a pool's waiting threads spin: "always", "never", or "within_cores" (default), which is as long
        as this process may use as many CPUs as it asks for threads
    """

    families = ("feedforward", "convolutional", "residual", "recurrent")

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        onnxruntime.set_default_logger_severity(3)
        self.options = self._session_options()

    def _session_options(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.cell.threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if self._spins() else "0")
        return options

    def _spins(self) -> bool:
        spin = self.settings.get("spin", "within_cores")
        if spin == "within_cores":
            return self.cell.threads <= len(os.sched_getaffinity(0))
        return bool(spin == "always")

    def supports(self, network: Network) -> Tuple[bool, str]:
        """Decline GPUs, and say which build this is."""
        if self.cell.on_cpu:
            return super().supports(network)
        words = "device %s: this ONNX Runtime %s has the execution providers %s, and is driven here on the CPU only"
        providers = ", ".join(onnxruntime.get_available_providers())
        return False, words % (self.cell.device, onnxruntime.__version__, providers)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Build the graphs, load them, and hand over weights and mini-batch."""
        self.network = network
        self.batch_size = len(batch.inputs)
        self._open_sessions(weights, self.options)
        # Each OrtValue lies on its NumPy array: no copy, here or in the step.
        self.inputs = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in networks.feed(network, batch)]
        self.loss: Any = None

    def _open_sessions(self, weights: Dict[str, np.ndarray], options: Any) -> None:
        """Make the sessions of a step, with parameters of these values."""
        fused_loss = bool(self.settings.get("fused_loss", True))
        model = networks.forward_model(self.network, self.batch_size, fused_loss)
        with artifacts.temporary_directory(self.cache_directory) as directory:
            files = artifacts.generate(model, directory)
            self.state = CheckpointState.load_checkpoint(files.checkpoint)
            self.module = Module(files.training_model, self.state, None, "cpu", options)
            self._load(weights)
            if options.enable_profiling:
                # Named by the second they began in, the profiles of both sessions would be one file.
                options.profile_file_prefix += "-update"
            # Only now: an optimizer that met a checkpoint without values would fault.
            self.optimizer = Optimizer(files.optimizer_model, self.module)

    def _load(self, weights: Dict[str, np.ndarray]) -> None:
        """Copy the weights into the parameters through one flat buffer, the way a nominal checkpoint takes them."""
        flat = np.concatenate(
            [
                networks.from_canonical(self.network, name, weights[name]).reshape(-1)
                for name in networks.parameter_names(self.network)
            ]
        )
        value = onnxruntime.OrtValue.ortvalue_from_numpy(flat)
        self.module.copy_buffer_to_parameters(value._ortvalue, trainable_only=False)

    def step(self) -> None:
        """Run the training graph, which leaves the gradients in their buffers, and the SGD graph."""
        self.loss = self.module(*self.inputs)
        self.optimizer.step()
        self.module.lazy_reset_grad()

    def set_learning_rate(self, rate: float) -> None:
        """Set the rate, an input of the SGD graph."""
        self.optimizer.set_learning_rate(rate)

    def last_loss(self) -> float:
        """Read the loss that the last step left."""
        return float(self.loss.numpy())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        """Yield a copy of each parameter."""
        for name in networks.parameter_names(self.network):
            yield name, networks.to_canonical(self.network, name, self.state.parameters[name].data)

    def effective_threads(self) -> Optional[int]:
        """Return the size of a session's pool, the calling thread included, as the session options hold it."""
        threads = self.options.intra_op_num_threads
        return int(threads)

    def describe(self) -> Dict[str, Any]:
        """Return versions and session options; the matrix products are ONNX Runtime's own (MLAS)."""
        options = self.options
        return {
            "framework": "onnxruntime-training-cpu",
            "version": onnxruntime.__version__,
            "onnx": onnx.__version__,
            "build": onnxruntime.get_build_info(),
            "blas": "MLAS",
            "operator_set": networks.OPERATOR_SET,
            "intra_op_num_threads": options.intra_op_num_threads,
            "inter_op_num_threads": options.inter_op_num_threads,
            "execution_mode": options.execution_mode.name,
            "graph_optimization_level": options.graph_optimization_level.name,
            "memory_pattern": options.enable_mem_pattern,
            "memory_arena": options.enable_cpu_mem_arena,
            "allow_spinning": self._spins(),
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        """Ask the package for its execution providers and for what derives a gradient graph."""
        providers = onnxruntime.get_available_providers()
        gradients = importlib.util.find_spec("onnxruntime.training.artifacts") is not None
        return {
            "gpu": (
                any(name.startswith(("CUDA", "ROCM", "MIGraphX", "Tensorrt")) for name in providers),
                "execution providers: %s" % ", ".join(providers),
            ),
            "automatic_gradients": (
                gradients,
                "onnxruntime.training.artifacts is %s" % ("there" if gradients else "missing"),
            ),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a product of two inputs, so that neither is packed beforehand."""
        session = onnxruntime.InferenceSession(
            networks.product(size).SerializeToString(), self._session_options(), ["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        arrays = [np.random.RandomState(0).rand(size, size).astype(np.float32) for _ in "ab"]
        for name, array in zip("ab", arrays):
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        output = onnxruntime.OrtValue.ortvalue_from_shape_and_type([size, size], np.float32)
        binding.bind_ortvalue_output("c", output)

        def product(arrays: List[np.ndarray] = arrays) -> object:
            # The values bound lie on the arrays, which nothing else keeps.
            return session.run_with_iobinding(binding)

        return product

    def profile(self, steps: int) -> Optional[Profile]:
        """Run so many steps in sessions of their own, which profile."""
        kept = self.state, self.module, self.optimizer
        weights = dict(self.parameters())

        def close_sessions() -> None:
            self.state, self.module, self.optimizer = kept

        try:
            return profile.take(
                self,
                lambda options: self._open_sessions(weights, options),
                close_sessions,
                self._session_options(),
                steps,
            )
        finally:
            close_sessions()

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise ONNX Runtime's arena (its message alone tells) and the C++ library."""
        if isinstance(error, MemoryError):
            return True
        text = str(error)
        return "Failed to allocate memory" in text or "std::bad_alloc" in text or "bad allocation" in text


ADAPTER = OnnxRuntimeAdapter
