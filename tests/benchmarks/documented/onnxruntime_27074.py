"""onnxruntime#27074: Sigmoid of float64 takes 2.03 times as long since 1.21.0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

BATCH_SIZE = 2


def prepare(cell):
    shape = [BATCH_SIZE, 64, 56, 56]
    inputs = [helper.make_tensor_value_info("data", TensorProto.DOUBLE, shape)]
    outputs = [helper.make_tensor_value_info("found", TensorProto.DOUBLE, shape)]
    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["data"], ["found"])], "sigmoid", inputs, outputs
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {"data": np.random.default_rng(0).standard_normal(shape)}
    return lambda: session.run(None, given), lambda: float(
        np.abs(session.run(None, given)[0]).mean()
    )
