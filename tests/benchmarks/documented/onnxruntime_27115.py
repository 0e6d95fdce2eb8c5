"""onnxruntime#27115: Sign of int64 takes 1.23 to 1.26 times as long since 1.21.0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

BATCH_SIZE = 64


def prepare(cell):
    shape = [BATCH_SIZE, 128, 128]
    inputs = [helper.make_tensor_value_info("data", TensorProto.INT64, shape)]
    outputs = [helper.make_tensor_value_info("sign", TensorProto.INT64, shape)]
    graph = helper.make_graph(
        [helper.make_node("Sign", ["data"], ["sign"])], "sign", inputs, outputs
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {"data": np.random.default_rng(0).integers(-1000, 1000, shape)}
    return lambda: session.run(None, given), lambda: float(
        np.abs(session.run(None, given)[0]).mean()
    )
