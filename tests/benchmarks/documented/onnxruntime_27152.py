"""onnxruntime#27152: Mod of float32 with fmod=1 takes 1.21 to 2.49 times as long."""

import numpy as np
import onnx
import onnxruntime

BATCH_SIZE = 2
MODEL = """<ir_version: 8, opset_import: ["": 13]>
mod (float[2, 64, 56, 56] left, float[2, 64, 56, 56] right) => (float[2, 64, 56, 56] rest) {
    rest = Mod<fmod = 1>(left, right)
}"""


def prepare(cell):
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cell.threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    shape = BATCH_SIZE, 64, 56, 56
    inputs = {name: rng.uniform(1, 9, shape).astype(np.float32) for name in ("left", "right")}

    def step():
        return session.run(None, inputs)[0]

    return step, lambda: float(np.abs(step()).mean())
