"""onnxruntime#27154: Einsum "nchw,c->nchw" of int64 takes 1.14 times as long since 1.23.0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

BATCH_SIZE = 2


def prepare(cell):
    shapes = {"images": [BATCH_SIZE, 64, 56, 56], "scales": [64]}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, shape)
        for name, shape in shapes.items()
    ]
    outputs = [helper.make_tensor_value_info("scaled", TensorProto.INT64, None)]
    node = helper.make_node("Einsum", list(shapes), ["scaled"], equation="nchw,c->nchw")
    graph = helper.make_graph([node], "einsum", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    given = {name: rng.integers(-100, 100, shape) for name, shape in shapes.items()}
    return lambda: session.run(None, given), lambda: float(
        np.abs(session.run(None, given)[0]).mean()
    )
