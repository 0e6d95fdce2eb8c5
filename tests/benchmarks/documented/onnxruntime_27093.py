"""onnxruntime#27093: ReduceL1 of float32 over the first axis takes 1.25 times as long."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 2
MODEL = """<ir_version: 8, opset_import: ["": 18]>
reduce (float[2, 64, 56, 56] data) => (float[1, 64, 56, 56] norm)
<int64[1] axes = {0}> {
    norm = ReduceL1<keepdims = 1>(data, axes)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    inputs = {"data": rng.standard_normal((BATCH_SIZE, 64, 56, 56), np.float32)}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
