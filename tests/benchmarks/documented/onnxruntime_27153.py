"""onnxruntime#27153: MatMul of int64 takes 1.7 to 2.4 times as long since 1.21.0."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 3
MODEL = """<ir_version: 8, opset_import: ["": 13]>
matmul (int64[3, 128, 256] left, int64[256, 64] right) => (int64[3, 128, 64] product) {
    product = MatMul(left, right)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    shapes = {"left": (BATCH_SIZE, 128, 256), "right": (256, 64)}
    inputs = {name: rng.integers(-100, 100, shape) for name, shape in shapes.items()}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
