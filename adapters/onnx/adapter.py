"""ONNX Runtime as everybody installs it, training all the same: a whole step is one ordinary ONNX graph."""

import importlib.util
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import onnxruntime

from ..families import LEARNING_RATE
from ..launch.batches import Batch
from ..libraries import onnx_profiles
from ..libraries.onnx_graphs import LOSS, feed, parameter_names, permute_gates
from ..libraries.onnx_sessions import SessionAdapter
from ..networks import Network
from ..protocol import Cell, Profile
from . import devices, networks
from .graph import Graph

#: What ONNX Runtime calls its execution providers that run on no GPU.
_CPU_PROVIDERS = ("CPUExecutionProvider", "AzureExecutionProvider")


class OnnxAdapter(SessionAdapter):
    """Drives one inference session whose graph is a training step.

    The parameters live in two sets of buffers: a step reads one and writes the other, so nothing is copied.

    Setting beside those of `SessionAdapter`: ``rate_in_product``: scale a factor of the weight-gradient product instead
    of the gradient (default false).
    """

    graph = Graph

    def __init__(self, cell: Cell, settings: Dict[str, Any], cache_directory: str) -> None:
        super().__init__(cell, settings, cache_directory)
        self._run_options = devices.run_options(cell)

    def _rate_in_product(self) -> bool:
        return bool(self.settings.get("rate_in_product", False))

    def refuses_gpu(self) -> str:
        """Decline what this build cannot do."""
        return devices.refusal(self.cell)

    def providers(self) -> List[Any]:
        """Return what runs a session's operators."""
        return devices.providers(self.cell)

    def value_of(self, array: np.ndarray) -> Any:
        """Return an array where the graph runs: on the CPU the array itself, on a GPU a copy."""
        return onnxruntime.OrtValue.ortvalue_from_numpy(array, *devices.home(self.cell))

    def buffer(self, shape: List[int]) -> Any:
        """Return a float32 buffer where the graph runs, with nothing in it yet."""
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, *devices.home(self.cell))

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Generate the graph, load it, and bind both sets of parameters, the mini-batch and the learning rate."""
        self.network = network
        self.batch_size = len(batch.inputs)
        # On the CPU these lie on their NumPy arrays: nothing is copied, here or in the step.
        self.rate = np.array(LEARNING_RATE, dtype=np.float32)
        self.mini_batch = [array.copy() for array in feed(network, batch)]
        self.given = dict(zip(("inputs", "labels"), [self.value_of(array) for array in self.mini_batch]))
        self.given[networks.LEARNING_RATE] = self.value_of(self.rate)
        self.loss = self.buffer([])
        shapes = {name: list(weights[name].shape) for name in parameter_names(network)}
        self.sets = [{name: self.buffer(shape) for name, shape in shapes.items()} for _ in range(2)]
        self._load(weights)
        self._open_session(self.options)

    def _open_session(self, options: Any) -> None:
        """Make the session that steps run in, and bind the buffers that there are."""
        model = networks.training_graph(self.network, self.batch_size, self._rate_in_product()).SerializeToString()
        self.session = onnxruntime.InferenceSession(model, options, self.providers())
        self.bindings = [self._bind(source, 1 - source) for source in (0, 1)]

    def _load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Copy the weights into the first set, which the next step reads; it writes the second."""
        for name, value in self.sets[0].items():
            value.update_inplace(np.ascontiguousarray(permute_gates(self.network, name, weights[name])))
        self.current = 0

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy weights and mini-batch into the buffers that are bound."""
        self.synchronize()
        self._load(weights)
        for name, array in zip(("inputs", "labels"), feed(self.network, batch)):
            self.given[name].update_inplace(array)

    def _bind(self, source: int, target: int) -> Any:
        """Return the binding of a step from one set of parameters to the other."""
        binding = self.session.io_binding()
        for name, value in self.given.items():
            binding.bind_ortvalue_input(name, value)
        for name in parameter_names(self.network):
            binding.bind_ortvalue_input(name, self.sets[source][name])
            binding.bind_ortvalue_output(networks.updated_name(name), self.sets[target][name])
        binding.bind_ortvalue_output(LOSS, self.loss)
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
            yield name, permute_gates(self.network, name, value.numpy())

    def describe(self) -> Dict[str, Any]:
        """Return versions, session options and execution providers."""
        described = dict(super().describe(), framework="onnxruntime", rate_in_product=self._rate_in_product())
        described["execution"] = (
            "one graph of forward, loss, backward and update; parameters in two sets of bound buffers"
        )
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

    def profile(self, steps: int) -> Optional[Profile]:
        """Run so many steps in a second session, which profiles; None on a GPU, where it times starts alone."""
        if not self.cell.on_cpu:
            return None
        kept = self.session, self.bindings
        try:
            return onnx_profiles.take(self, self._open_session, lambda: self.session.end_profiling(), steps)
        finally:
            self.session, self.bindings = kept


ADAPTER = OnnxAdapter
