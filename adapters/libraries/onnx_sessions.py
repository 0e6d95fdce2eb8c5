"""ONNX Runtime's sessions as both of its adapters drive them."""

import os
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import onnx
import onnxruntime

from ..base import Adapter, factors
from ..families import CELLS
from ..launch.batches import Batch, by_example, in_rows
from ..networks import Network
from ..protocol import Profile
from . import profiles
from .onnx_graphs import OUTPUTS, OnnxGraph, add_product, inference_model, refuses_steps

CPU = "CPUExecutionProvider"


class SessionAdapter(Adapter):
    """An adapter that makes sessions with the options of a mode.

    Setting: ``spin``, whether a pool's waiting threads spin: "always" (default), "never", or
    "within_cores", where this process may use as many CPUs as it has threads.
    """

    families = (*Adapter.families, "elman")
    cells = tuple(CELLS)
    one_hot = True
    further_axes = ("task",)
    out_of_memory = (
        "Failed to allocate memory",
        "std::bad_alloc",
        "bad allocation",
        "CUDA failure 2",
        "ALLOC_FAILED",
    )
    #: The graphs that this build understands.
    graph = OnnxGraph

    def set_up(self) -> None:
        onnxruntime.set_default_logger_severity(3)
        self.options = self.session_options()

    def refuses(self, network: Network) -> str:
        return refuses_steps(network.family)

    def session_options(self) -> Any:
        options = onnxruntime.SessionOptions()
        if self.cell.threads:
            options.intra_op_num_threads = self.cell.threads
            options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        spins = "1" if self._spins() else "0"
        options.add_session_config_entry("session.intra_op.allow_spinning", spins)
        return options

    def _spins(self) -> bool:
        spin = self.settings.get("spin", "always")
        if spin == "within_cores":
            return self.cell.threads <= len(os.sched_getaffinity(0))
        return bool(spin == "always")

    def providers(self) -> List[Any]:
        return [CPU]

    def value_of(self, array: np.ndarray) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)

    def buffer(self, shape: List[int]) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.network = network
        size = len(batch.inputs)
        model, shape = inference_model(self.graph(), network, size, weights, statistics)
        self.model = model.SerializeToString()
        self.result = self.buffer(list(shape))
        # On the CPU it lies on its NumPy array: nothing is copied, now or in the step.
        self.shown = in_rows(network.family, batch, np.int64)[0]
        self.given_inputs = self.value_of(self.shown)
        self._open_inference(self.options)

    def _open_inference(self, options: Any) -> None:
        self.session = onnxruntime.InferenceSession(self.model, options, self.providers())
        self.binding = self.session.io_binding()
        self.binding.bind_ortvalue_input("inputs", self.given_inputs)
        self.binding.bind_ortvalue_output(OUTPUTS, self.result)

    def profile_inference(self, steps: int) -> Profile:
        """Run this many calls of a further session of the same graph, which profiles them."""
        session = self.session
        binding = self.binding

        def close() -> None:
            self.session.end_profiling()

        try:
            return profiles.take_onnx_profile(self, self._open_inference, close, steps)
        finally:
            self.session = session
            self.binding = binding

    def infer(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def show(self, batch: Batch) -> None:
        self.given_inputs.update_inplace(in_rows(self.network.family, batch, np.int64)[0])

    def outputs(self) -> np.ndarray:
        return by_example(self.network.family, self.result.numpy(), self.cell.known_batch_size)

    def effective_threads(self) -> Optional[int]:
        """Return the size of a session's pool, the calling thread included.

        It is None for ONNX Runtime's own choice.
        """
        return int(self.options.intra_op_num_threads) or None

    def describe(self) -> Dict[str, Any]:
        options = self.options
        return {
            "version": onnxruntime.__version__,
            "onnx": onnx.__version__,
            "build": onnxruntime.get_build_info(),
            "blas": "MLAS" if self.cell.on_cpu else "cuBLAS",
            "operator_set": self.graph.operator_set,
            "recurrence": "unrolled",
            "intra_op_num_threads": options.intra_op_num_threads,
            "inter_op_num_threads": options.inter_op_num_threads,
            "execution_mode": options.execution_mode.name,
            "allow_spinning": self._spins(),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a product of two inputs, so that neither is packed beforehand."""
        model = add_product(self.graph(), size).model().SerializeToString()
        session = onnxruntime.InferenceSession(model, self.session_options(), self.providers())
        binding = session.io_binding()
        arrays = factors(size)
        for name, array in zip("ab", arrays):
            binding.bind_ortvalue_input(name, self.value_of(array))
        binding.bind_ortvalue_output("c", self.buffer([size, size]))

        def product(arrays: List[np.ndarray] = arrays) -> object:
            # On the CPU the values bound lie on the arrays, which nothing else keeps.
            return session.run_with_iobinding(binding)

        return product
