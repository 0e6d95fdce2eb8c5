"""A control: MatMul of float32, which the thread of onnxruntime#27153 says is not affected."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

BATCH_SIZE = 3


def prepare(cell):
    shapes = {"left": [BATCH_SIZE, 128, 256], "right": [256, 64]}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    outputs = [helper.make_tensor_value_info("product", TensorProto.FLOAT, None)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", list(shapes), ["product"])], "matmul", inputs, outputs
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    return lambda: session.run(None, given), lambda: float(
        np.abs(session.run(None, given)[0]).mean()
    )
