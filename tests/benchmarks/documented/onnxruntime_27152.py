"""onnxruntime#27152: Mod of float32 with fmod=1 takes 1.21 to 2.49 times as long since 1.21.0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

BATCH_SIZE = 2


def prepare(cell):
    shape = [BATCH_SIZE, 64, 56, 56]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("left", "right")
    ]
    outputs = [helper.make_tensor_value_info("rest", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(
        [helper.make_node("Mod", ["left", "right"], ["rest"], fmod=1)], "mod", inputs, outputs
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    given = {name: rng.uniform(1.0, 9.0, shape).astype(np.float32) for name in ("left", "right")}
    return lambda: session.run(None, given), lambda: float(
        np.abs(session.run(None, given)[0]).mean()
    )
