"""onnxruntime#27076: ReduceMean of int64 over the channels takes 1.39 times as long since 1.21.0."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 2
MODEL = """<ir_version: 8, opset_import: ["": 18]>
reduce (int64[2, 64, 56, 56] data) => (int64[2, 1, 56, 56] mean)
<int64[1] axes = {1}> {
    mean = ReduceMean<keepdims = 1>(data, axes)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {"data": np.random.default_rng(0).integers(-1000, 1000, (BATCH_SIZE, 64, 56, 56))}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
