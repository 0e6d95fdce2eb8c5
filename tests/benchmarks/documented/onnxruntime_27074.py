"""onnxruntime#27074: Sigmoid of float64 takes 2.03 times as long since 1.21.0."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 2
MODEL = """<ir_version: 8, opset_import: ["": 13]>
sigmoid (double[2, 64, 56, 56] data) => (double[2, 64, 56, 56] answer) {
    answer = Sigmoid(data)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {"data": np.random.default_rng(0).standard_normal((BATCH_SIZE, 64, 56, 56))}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
