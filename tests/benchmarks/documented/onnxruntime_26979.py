"""onnxruntime#26979: Div of large int32 arrays takes 1.41 times as long since 1.22.0."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 2
MODEL = """<ir_version: 8, opset_import: ["": 14]>
div (int32[2, 64, 56, 56] left, int32[2, 64, 56, 56] right) => (int32[2, 64, 56, 56] quotient) {
    quotient = Div(left, right)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    shape = BATCH_SIZE, 64, 56, 56
    inputs = {name: rng.integers(1, 1000, shape, np.int32) for name in ("left", "right")}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
