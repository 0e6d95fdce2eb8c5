"""What is particular to MXNet, shown by the guest in MXNet's own interpreter."""

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "mxnet"


def test_a_gpu_is_refused_in_mxnets_own_terms(guest: Guest) -> None:
    said = guest("""
        from guest.mxnet import adapter as devices
        asked = [{"device": "rocm:0"}, {"precision": "tf32"}, {"placement": "pinned"}, {}]
        network = SMALL["small-dense"]
        answer = [list(make(network.name, **{"device": "cuda:0", **each}).supports(network)) for each in asked]
        # A build that says it has CUDA, on a machine where nothing answers.
        mx.runtime.Features.is_enabled = lambda self, name: True
        answer.append(list(make(network.name, device="cuda:0").supports(network)))
        answer.append([str(devices.context_of(Cell("mxnet", "mxnet", "hybrid", "fcn5", "cuda:0", 1, 4))),
                       os.environ["NVIDIA_TF32_OVERRIDE"]])
    """)
    words = [
        "device rocm:0: MXNet is driven here on the CPU and on CUDA GPUs only",
        "precision tf32",
        "placement pinned",
        "this build was made without CUDA",
        "cannot use the GPU: ",
    ]
    asked.check_reasons(said[:-1], words)
    assert "--python mxnet=" in said[3][1]
    assert said[-1] == ["gpu(0)", "0"]
