"""A call of ONNX Runtime that leaves its threads to OMP_NUM_THREADS."""

import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

THREADS = 0


def prepare(cell):
    """Return one call of a network of four products of matrices."""
    random = numpy.random.default_rng(0)
    nodes, weights = [], []
    for layer in range(4):
        array = random.standard_normal((1024, 1024), dtype=numpy.float32) / 32
        weights.append(numpy_helper.from_array(array, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    ends = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [64, 1024]) for x in ("x0", "x4")]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    if THREADS:
        options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {"x0": random.standard_normal((64, 1024), dtype=numpy.float32)}

    return lambda: session.run(None, inputs)
