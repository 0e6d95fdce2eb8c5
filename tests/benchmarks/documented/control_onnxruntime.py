"""A control: MatMul of float32, which onnxruntime#27153 says is not affected."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 3
MODEL = """<ir_version: 8, opset_import: ["": 13]>
matmul (float[3, 128, 256] left, float[256, 64] right) => (float[3, 128, 64] product) {
    product = MatMul(left, right)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    shapes = {"left": (BATCH_SIZE, 128, 256), "right": (256, 64)}
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
