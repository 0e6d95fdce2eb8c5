"""ONNX graphs that can be differentiated: a tape of their forward nodes, and the shape of every value."""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from onnx import helper, numpy_helper, shape_inference

from ..libraries import onnx_graphs

Shape = Tuple[int, ...]


class Graph(onnx_graphs.Graph):
    """A graph whose ``tape`` has the nodes that ``gradients.backward`` goes through.

    These are the graph's, but for what ``as_one`` gathered.
    """

    # Of 2024, and understood by every ONNX Runtime since 1.20; later sets change no operator that is used here.
    operator_set = 21
    ir_version = 10

    def __init__(self, element: Any = np.float32) -> None:
        super().__init__(element)
        self.tape: List[Any] = []

    def scalar(self, value: float) -> str:
        """Return a constant of the graph's element type, without axes."""
        return self.constant("scalar:%r" % value, np.array(value, dtype=self.element))

    def several(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Sequence[str]:
        """Add a node with several outputs, to the tape as well."""
        super().several(operator, inputs, outputs, **attributes)
        self.tape.append(self.nodes[-1])
        return outputs

    def as_one(self, start: int, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Let the nodes on the tape from ``start`` on be one operation there, with a gradient of its own."""
        del self.tape[start:]
        self.tape.append(helper.make_node(name, list(inputs), list(outputs)))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Add a change of shape, which copies nothing."""
        return self.node("Reshape", [value, self.integers(*shape)])

    def zeros(self, shape: Sequence[int]) -> str:
        """Add zeros that are made anew at every step, so that an operator may write into them."""
        zero = numpy_helper.from_array(np.zeros(1, dtype=self.element))
        return self.node("ConstantOfShape", [self.integers(*shape)], value=zero)

    def shapes(self) -> Dict[str, Shape]:
        """Return the shape of every value that the graph has by now, by ONNX's own inference."""
        inferred = shape_inference.infer_shapes(self.model(), check_type=True, strict_mode=True, data_prop=True).graph
        found: Dict[str, Shape] = {}
        for value in list(inferred.input) + list(inferred.value_info) + list(inferred.output):
            found[value.name] = tuple(side.dim_value for side in value.type.tensor_type.shape.dim)
        for constant in inferred.initializer:
            found[constant.name] = tuple(constant.dims)
        return found
