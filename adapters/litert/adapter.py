"""LiteRT (once TensorFlow Lite) on the CPU: trained networks only.

The adapter writes the graph.
"""

from importlib import metadata
from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from ..base import Adapter, factors
from ..families import CELLS
from ..launch.batches import Batch, by_example, in_rows
from ..networks import Network
from .graphs import inference_model, product_model, refuses_steps

#: The setting ``kernels``: XNNPACK's, as the interpreter chooses by default, or LiteRT's own.
_RESOLVERS = {
    "xnnpack": OpResolverType.AUTO,
    "own": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
}


class LiteRtAdapter(Adapter):
    """Drives one interpreter.

    Setting: ``kernels``, "xnnpack" (default) or "own".
    """

    families = (*Adapter.families, "elman")
    cells = tuple(CELLS)
    one_hot = True
    further_axes = ("task",)
    out_of_memory = ("std::bad_alloc", "Failed to allocate")

    def set_up(self) -> None:
        self.kernels = self.chosen("kernels", *_RESOLVERS)
        self.interpreter: Any = None

    def _interpreter(self, model: bytes) -> Any:
        options: Dict[str, Any] = {"num_threads": self.cell.threads} if self.cell.threads else {}
        made = Interpreter(
            model_content=model, experimental_op_resolver_type=_RESOLVERS[self.kernels], **options
        )
        made.allocate_tensors()
        return made

    def refuses(self, network: Network) -> str:
        if not self.cell.infers:
            return "task training: LiteRT runs trained networks, and trains none"
        return refuses_steps(network.family)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.network = network
        inputs = self._laid_out(batch)
        self.interpreter = self._interpreter(
            inference_model(network, weights, statistics, inputs.shape, str(inputs.dtype))
        )
        (self.input,) = self.interpreter.get_input_details()
        (self.output,) = self.interpreter.get_output_details()
        self.show(batch)

    def _laid_out(self, batch: Batch) -> np.ndarray:
        inputs = in_rows(self.network.family, batch)[0]
        return inputs.transpose(0, 2, 3, 1) if inputs.ndim == 4 else inputs

    def infer(self) -> None:
        self.interpreter.invoke()

    def show(self, batch: Batch) -> None:
        self.interpreter.set_tensor(self.input["index"], self._laid_out(batch))

    def outputs(self) -> np.ndarray:
        outputs = self.interpreter.get_tensor(self.output["index"])
        return by_example(self.network.family, outputs, self.cell.known_batch_size)

    def describe(self) -> Dict[str, Any]:
        return {
            "framework": "litert",
            "version": metadata.version("ai-edge-litert"),
            "kernels": self.kernels,
            "graph": "written by the adapter; batch normalisation folded into convolutions",
            "recurrence": "unrolled",
            "image_layout": "NHWC",
        }

    def capabilities(self) -> Dict[str, Tuple[bool, str]]:
        return {
            "gpu": (False, "the package's interpreter for Python computes on the CPU"),
            "automatic_gradients": (False, "it runs trained networks"),
        }

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        interpreter = self._interpreter(product_model(size))
        for details, array in zip(interpreter.get_input_details(), factors(size)):
            interpreter.set_tensor(details["index"], array)
        return interpreter.invoke


ADAPTER = LiteRtAdapter
