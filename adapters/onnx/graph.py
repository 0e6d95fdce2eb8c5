"""An ONNX graph in the making: nodes, constants, inputs and outputs by name.

ONNX Runtime removes what is written down twice (constants, common subexpressions, dead nodes), so nothing here does.
"""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
from onnx import ModelProto, helper, numpy_helper, shape_inference

# Of 2024, and understood by every ONNX Runtime since 1.20; later sets change no operator that is used here.
OPERATOR_SET = 21
IR_VERSION = 10

Shape = Tuple[int, ...]


class Graph:
    """Collects a graph; each method that adds a node returns the name of what the node computes.

    ``tape`` has the nodes that ``gradients.backward`` goes through: the graph's, but for what ``as_one`` gathered.
    ``element`` is the element type of every value but indices: float32, or float64 to differentiate numerically.
    """

    def __init__(self, element: Any = np.float32) -> None:
        self.element = np.dtype(element)
        self.nodes: List[Any] = []
        self.tape: List[Any] = []
        self.constants: Dict[str, Any] = {}
        self.inputs: Dict[str, Any] = {}
        self.outputs: Dict[str, Any] = {}

    @property
    def element_type(self) -> int:
        """The element type by ONNX's number."""
        return int(helper.np_dtype_to_tensor_dtype(self.element))

    def input(self, name: str, shape: Sequence[int], dtype: Any = None) -> str:
        """Declare an input of the model, of the graph's element type unless one is given."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.element))
        self.inputs[name] = helper.make_tensor_value_info(name, kind, list(shape))
        return name

    def output(self, name: str, shape: Sequence[int]) -> str:
        """Declare a value as an output of the model."""
        self.outputs[name] = helper.make_tensor_value_info(name, self.element_type, list(shape))
        return name

    def integers(self, *values: int) -> str:
        """Return a constant of int64: axes, sizes, shapes."""
        name = "integers:" + ",".join(str(value) for value in values)
        return self.constant(name, np.array(values, dtype=np.int64))

    def scalar(self, value: float) -> str:
        """Return a constant of the graph's element type, without axes."""
        return self.constant("scalar:%r" % value, np.array(value, dtype=self.element))

    def constant(self, name: str, value: np.ndarray) -> str:
        """Put an array into the graph, once under each name."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node with one output (or whose first output alone is wanted), named by number unless told."""
        return self.several(operator, inputs, [output or "%s#%d" % (operator, len(self.nodes))], **attributes)[0]

    def several(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Sequence[str]:
        """Add a node with several outputs."""
        self.nodes.append(helper.make_node(operator, list(inputs), list(outputs), name=outputs[0], **attributes))
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

    def model(self) -> ModelProto:
        """Return the model as it stands."""
        graph = helper.make_graph(
            self.nodes,
            "training_step",
            list(self.inputs.values()),
            list(self.outputs.values()),
            list(self.constants.values()),
        )
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPERATOR_SET)])

    def shapes(self) -> Dict[str, Shape]:
        """Return the shape of every value that the graph has by now, by ONNX's own inference."""
        inferred = shape_inference.infer_shapes(self.model(), check_type=True, strict_mode=True, data_prop=True).graph
        found: Dict[str, Shape] = {}
        for value in list(inferred.input) + list(inferred.value_info) + list(inferred.output):
            found[value.name] = tuple(side.dim_value for side in value.type.tensor_type.shape.dim)
        for constant in inferred.initializer:
            found[constant.name] = tuple(constant.dims)
        return found
