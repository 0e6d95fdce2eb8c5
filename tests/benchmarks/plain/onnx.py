"""Fully connected benchmark networks in ONNX Runtime, trained already."""

import onnxruntime
from plain import graphs

MODES = ("graph",)


def infer(arguments, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = onnxruntime.InferenceSession(
        graphs.fully_connected(arguments), options, ["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_output("y")
    return lambda: session.run_with_iobinding(binding), None
