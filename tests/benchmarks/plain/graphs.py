"""The fully connected benchmark networks as ONNX models, for scripts that run trained networks."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def fully_connected(arguments):
    """Return the network with random weights as the bytes of a model; inputs and outputs are
    (batch, size)."""
    random = np.random.default_rng(1)
    nodes, weights = [], []
    name = "x"
    for number, (inputs, outputs) in enumerate(arguments.layers):
        w = random.standard_normal((inputs, outputs), dtype=np.float32) * np.float32(
            (inputs + outputs) ** -0.5
        )
        weights.append(numpy_helper.from_array(w, f"w{number}"))
        weights.append(numpy_helper.from_array(np.zeros(outputs, np.float32), f"b{number}"))
        last = number == len(arguments.layers) - 1
        result = "y" if last else f"z{number}"
        nodes.append(helper.make_node("Gemm", [name, f"w{number}", f"b{number}"], [result]))
        name = f"a{number}"
        if not last:
            nodes.append(helper.make_node("Sigmoid", [result], [name]))
    sizes = arguments.layers[0][0], arguments.layers[-1][1]
    x, y = [
        helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [arguments.batch, size])
        for tensor, size in zip("xy", sizes, strict=True)
    ]
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()
