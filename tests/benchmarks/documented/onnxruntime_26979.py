"""onnxruntime#26979: Div of large int32 arrays takes 1.41 times as long since 1.22.0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

BATCH_SIZE = 2


def prepare(cell):
    shape = [BATCH_SIZE, 64, 56, 56]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32, shape)
        for name in ("dividend", "divisor")
    ]
    outputs = [helper.make_tensor_value_info("quotient", TensorProto.INT32, shape)]
    graph = helper.make_graph(
        [helper.make_node("Div", ["dividend", "divisor"], ["quotient"])], "div", inputs, outputs
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    given = {name: rng.integers(1, 1000, shape, dtype=np.int32) for name in ("dividend", "divisor")}
    return lambda: session.run(None, given), lambda: float(
        np.abs(session.run(None, given)[0]).mean()
    )
