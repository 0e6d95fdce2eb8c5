"""The ordinary ONNX Runtime, training all the same: a whole step is one ordinary ONNX graph."""

import importlib.util
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import onnxruntime

from ..families import LEARNING_RATE
from ..launch.batches import Batch, in_rows
from ..libraries import gpus, profiles
from ..libraries.onnx_graphs import LOSS, add_product, parameter_names, permute_gates
from ..libraries.onnx_sessions import CPU, SessionAdapter
from ..networks import Network
from ..protocol import Profile
from . import gradients
from .gradients import GradientGraph

CUDA = "CUDAExecutionProvider"
PRECISIONS = ("float32", "tf32")


#: ONNX Runtime's execution providers that run on no GPU.
_CPU_PROVIDERS = ("CPUExecutionProvider", "AzureExecutionProvider")


class OnnxAdapter(SessionAdapter):
    """An adapter of one inference session whose graph is a training step.

    The parameters are in two sets of buffers: a step reads one and writes the other, so nothing is
    copied.

    In addition to the settings of `SessionAdapter` there is ``rate_in_product``: scale a factor of
    the weight-gradient product instead of the gradient (default false).
    """

    graph = GradientGraph

    def set_up(self) -> None:
        super().set_up()
        # Of the buffers: a launch sees one GPU.
        self.memory = ("cpu", 0) if self.cell.on_cpu else ("cuda", 0)
        self.rate_in_product = bool(self.settings.get("rate_in_product", False))
        self._run_options: Any = None
        if not self.cell.on_cpu:  # there a step only starts, and ``synchronize`` waits for its end
            self._run_options = onnxruntime.RunOptions()
            self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def refuses_gpu(self) -> str:
        version = "ONNX Runtime %s" % onnxruntime.__version__
        reason = gpus.refusal(self.cell, "ONNX Runtime", PRECISIONS)
        if reason:
            return reason
        available = onnxruntime.get_available_providers()
        if CUDA not in available:
            words = "%s: this build has no %s (it has %s): %s"
            return words % (version, CUDA, ", ".join(available), gpus.advice(self.cell))
        model = add_product(GradientGraph(), 2).model().SerializeToString()
        # Where the provider cannot be loaded ONNX Runtime only logs it, and takes the CPU in its
        # place.
        try:
            loaded = onnxruntime.InferenceSession(model, providers=self.providers()).get_providers()
        except Exception as error:
            return "%s cannot use the GPU: %s" % (version, " ".join(str(error).split())[:300])
        words = (
            "%s has the %s and cannot load it: CUDA's or cuDNN's libraries, or the driver, are "
            "missing or too old"
        )
        return "" if CUDA in loaded else words % (version, CUDA)

    def providers(self) -> List[Any]:
        """Return a session's execution providers.

        On a GPU, operators without a kernel there stay on the CPU. TF32 is off but at the precision
        tf32. Convolutions are tried out once, as a step's shapes never change.
        """
        if self.cell.on_cpu:
            return [CPU]
        tf32 = "1" if self.cell.precision == "tf32" else "0"
        return [
            (CUDA, {"device_id": "0", "use_tf32": tf32, "cudnn_conv_algo_search": "EXHAUSTIVE"}),
            CPU,
        ]

    def value_of(self, array: np.ndarray) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array, *self.memory)

    def buffer(self, shape: List[int]) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, *self.memory)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self.network = network
        self.batch_size = len(batch.inputs)
        # On the CPU these lie on their NumPy arrays: nothing is copied, now or in the step.
        self.rate = np.array(LEARNING_RATE, dtype=np.float32)
        self.mini_batch = in_rows(network.family, batch, np.int64)
        inputs, labels = self.mini_batch
        self.given = {"inputs": self.value_of(inputs), "labels": self.value_of(labels)}
        self.given[gradients.LEARNING_RATE] = self.value_of(self.rate)
        self.loss = self.buffer([])
        shapes = {name: list(weights[name].shape) for name in parameter_names(network)}
        self.sets = [{name: self.buffer(shape) for name, shape in shapes.items()} for _ in range(2)]
        self._load(weights)
        self._open_session(self.options)

    def _open_session(self, options: Any) -> None:
        graph = gradients.training_graph(self.network, self.batch_size, self.rate_in_product)
        model = graph.SerializeToString()
        self.session = onnxruntime.InferenceSession(model, options, self.providers())
        self.bindings = [self._bind(source, 1 - source) for source in (0, 1)]

    def _load(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, value in self.sets[0].items():
            weight = permute_gates(self.network, name, weights[name])
            value.update_inplace(np.ascontiguousarray(weight))
        self.current = 0

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        self.synchronize()
        self._load(weights)
        for name, array in zip(("inputs", "labels"), in_rows(self.network.family, batch, np.int64)):
            self.given[name].update_inplace(array)

    def _bind(self, source: int, target: int) -> Any:
        """Return the binding of a step from one set of parameters to the other."""
        binding = self.session.io_binding()
        for name, value in self.given.items():
            binding.bind_ortvalue_input(name, value)
        for name in parameter_names(self.network):
            binding.bind_ortvalue_input(name, self.sets[source][name])
            binding.bind_ortvalue_output(gradients.updated_name(name), self.sets[target][name])
        binding.bind_ortvalue_output(LOSS, self.loss)
        return binding

    def step(self) -> None:
        self.session.run_with_iobinding(self.bindings[self.current], self._run_options)
        self.current = 1 - self.current

    def synchronize(self) -> None:
        if not self.cell.on_cpu and not self.cell.infers:  # else a step is done when it returns
            self.bindings[1 - self.current].synchronize_outputs()

    def set_learning_rate(self, rate: float) -> None:
        self.rate[...] = rate
        if not self.cell.on_cpu:
            self.given[gradients.LEARNING_RATE].update_inplace(self.rate)

    def last_loss(self) -> float:
        return float(self.loss.numpy())

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self.sets[self.current].items():
            yield name, permute_gates(self.network, name, value.numpy())

    def describe(self) -> Dict[str, Any]:
        described = dict(
            super().describe(), framework="onnxruntime", rate_in_product=self.rate_in_product
        )
        buffers = "parameters in two sets of bound buffers"
        described["execution"] = "one graph of forward, loss, backward and update; " + buffers
        if self.cell.infers:
            described.update(
                execution="one graph with its weights", recurrence="operators LSTM, GRU and RNN"
            )
        session = getattr(self, "session", None)
        if session is not None:
            described.update(
                providers=session.get_providers(), provider_options=session.get_provider_options()
            )
        return described

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        providers = onnxruntime.get_available_providers()
        training = importlib.util.find_spec("onnxruntime.training") is not None
        gpu = any(provider not in _CPU_PROVIDERS for provider in providers)
        return {
            "gpu": (gpu, "get_available_providers: %s" % ", ".join(providers)),
            "automatic_gradients": (
                training,
                "the package %s onnxruntime.training" % ("has" if training else "lacks"),
            ),
        }

    def profile(self, steps: int) -> Optional[Profile]:
        if not self.cell.on_cpu:
            return None
        if self.cell.infers:
            return self.profile_inference(steps)
        session = self.session
        bindings = self.bindings

        def close() -> None:
            self.session.end_profiling()

        try:
            return profiles.take_onnx_profile(self, self._open_session, close, steps)
        finally:
            self.session = session
            self.bindings = bindings


ADAPTER = OnnxAdapter
