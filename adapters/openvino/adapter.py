"""OpenVINO on the CPU: trained networks only.

The graph is the ONNX graph that ONNX Runtime's rows infer with.
"""

from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import onnx
import openvino

from ..base import Adapter, factors
from ..families import CELLS
from ..launch.batches import Batch, by_example, in_rows
from ..libraries import onnx_graphs, profiles
from ..libraries.onnx_graphs import add_product, inference_model, refuses_steps
from ..libraries.profiles import Calls
from ..networks import Network
from ..protocol import Profile

#: OpenVINO's names of element types.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


class OpenvinoGraph(onnx_graphs.OnnxGraph):
    """A graph of operators that OpenVINO reads."""

    operator_set = 17
    ir_version = 8


class OpenVinoAdapter(Adapter):
    """Drives one inference request of a compiled model.

    Settings: ``hint``, what the model is compiled for, "LATENCY" (default) or "THROUGHPUT". The
    arithmetic is what the cell's precision says: OpenVINO's own choice on processors with bfloat16
    is bfloat16.
    """

    families = (*Adapter.families, "elman")
    cells = tuple(CELLS)
    one_hot = True
    further_axes = ("task",)
    precisions = tuple(PRECISIONS)
    out_of_memory = ("std::bad_alloc", "bad allocation", "Failed to allocate")

    def set_up(self) -> None:
        self.core = openvino.Core()
        self.hint = self.chosen("hint", "LATENCY", "THROUGHPUT")
        self.compiled: Any = None

    def options(self) -> Dict[str, Any]:
        """Return the options of a compiled model."""
        options: Dict[str, Any] = {
            "PERFORMANCE_HINT": self.hint,
            "INFERENCE_PRECISION_HINT": PRECISIONS[self.cell.precision],
            "NUM_STREAMS": "1",
        }
        if self.cell.threads:
            options["INFERENCE_NUM_THREADS"] = str(self.cell.threads)
        # The launch's own affinity decides which CPUs its threads use.
        options["ENABLE_CPU_PINNING"] = "NO"
        return options

    def refuses(self, network: Network) -> str:
        if not self.cell.infers:
            return "task training: OpenVINO runs trained networks, and trains none"
        return refuses_steps(network.family)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.network = network
        model, _ = inference_model(OpenvinoGraph(), network, len(batch.inputs), weights, statistics)
        self.read = self.core.read_model(model.SerializeToString())
        self.compiled = self.core.compile_model(self.read, "CPU", self.options())
        self.request = self.compiled.create_infer_request()
        # The request reads this array: nothing is copied within a call.
        self.shown = np.ascontiguousarray(in_rows(network.family, batch, np.int64)[0])
        self.request.set_input_tensor(openvino.Tensor(self.shown, shared_memory=True))

    def infer(self) -> None:
        self.request.infer()

    def show(self, batch: Batch) -> None:
        self.shown[...] = in_rows(self.network.family, batch, np.int64)[0]

    def outputs(self) -> np.ndarray:
        outputs = np.array(self.request.get_output_tensor().data)
        return by_example(self.network.family, outputs, self.cell.known_batch_size)

    def effective_threads(self) -> Optional[int]:
        if self.compiled is None:
            return None
        return int(self.compiled.get_property("INFERENCE_NUM_THREADS"))

    def describe(self) -> Dict[str, Any]:
        described: Dict[str, Any] = {
            "framework": "openvino",
            "version": openvino.__version__.partition("-")[0],
            "build": openvino.get_version(),
            "onnx": onnx.__version__,
            "operator_set": OpenvinoGraph.operator_set,
            "hint": self.hint,
            "recurrence": "operators LSTM, GRU and RNN",
        }
        if self.compiled is not None:
            names = (
                "INFERENCE_PRECISION_HINT",
                "NUM_STREAMS",
                "SCHEDULING_CORE_TYPE",
                "ENABLE_HYPER_THREADING",
            )
            described.update(
                (name.lower(), str(self.compiled.get_property(name))) for name in names
            )
        return described

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        devices = self.core.available_devices
        return {
            "gpu": ("GPU" in devices, "available_devices: %s" % ", ".join(devices)),
            "automatic_gradients": (False, "it runs trained networks"),
        }

    def profile(self, steps: int) -> Profile:
        """Run this many calls of a model that is compiled once more.

        It counts the time of each of its nodes.
        """
        calls: List[Calls] = []
        kept = self.request
        compiled = self.core.compile_model(
            self.read, "CPU", {**self.options(), "PERF_COUNT": "YES"}
        )
        self.request = compiled.create_infer_request()
        self.request.set_input_tensor(openvino.Tensor(self.shown, shared_memory=True))

        def step() -> None:
            self.infer()
            for node in self.request.profiling_info:
                calls.append(Calls(node.node_type, False, node.real_time.total_seconds(), 1))

        try:
            profiles.run(self.infer, self.synchronize, profiles.WARMUP)
            seconds = profiles.run(step, self.synchronize, steps)
        finally:
            self.request = kept
        return profiles.profile("OpenVINO's performance counts", steps, seconds, calls)

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        graph = add_product(OpenvinoGraph(), size)
        read = self.core.read_model(graph.model().SerializeToString())
        request = self.core.compile_model(read, "CPU", self.options()).create_infer_request()
        arrays = factors(size)
        for place, array in enumerate(arrays):
            request.set_input_tensor(place, openvino.Tensor(array, shared_memory=True))

        def product(arrays: Any = arrays) -> object:
            # The request reads the arrays, which nothing else keeps.
            return request.infer()

        return product


ADAPTER = OpenVinoAdapter
