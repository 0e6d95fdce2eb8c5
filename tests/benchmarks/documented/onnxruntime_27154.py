"""onnxruntime#27154: Einsum "nchw,c->nchw" of int64 takes 1.14 times as long since 1.23.0."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 2
MODEL = """<ir_version: 8, opset_import: ["": 12]>
einsum (int64[2, 64, 56, 56] images, int64[64] scales) => (int64[2, 64, 56, 56] scaled) {
    scaled = Einsum<equation = "nchw,c->nchw">(images, scales)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    shapes = {"images": (BATCH_SIZE, 64, 56, 56), "scales": (64,)}
    inputs = {name: rng.integers(-100, 100, shape) for name, shape in shapes.items()}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
