"""onnxruntime#27115: Sign of int64 takes 1.23 to 1.26 times as long since 1.21.0."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 64
MODEL = """<ir_version: 8, opset_import: ["": 13]>
sign (int64[64, 128, 128] data) => (int64[64, 128, 128] sign) {
    sign = Sign(data)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {"data": np.random.default_rng(0).integers(-1000, 1000, (BATCH_SIZE, 128, 128))}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
