"""onnxruntime#27093: ReduceL1 of float32 over the first axis takes 1.25 times as long since
1.21.0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BATCH_SIZE = 2


def prepare(cell):
    shape = [BATCH_SIZE, 64, 56, 56]
    inputs = [helper.make_tensor_value_info("data", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("norm", TensorProto.FLOAT, None)]
    axes = numpy_helper.from_array(np.array([0], dtype=np.int64), "axes")
    node = helper.make_node("ReduceL1", ["data", "axes"], ["norm"], keepdims=1)
    graph = helper.make_graph([node], "reduce", inputs, outputs, [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {"data": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}
    return lambda: session.run(None, given), lambda: float(
        np.abs(session.run(None, given)[0]).mean()
    )
