"""What is particular to TensorFlow, shown by the guest in TensorFlow's own interpreter."""

from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "tensorflow"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"recurrence": "loop"}, {"inter_op": 2}, {"compile": True}, {"compile": True, "recurrence": "loop"}],
    ids=str,
)
def test_settings_do_not_change_the_mathematics(guest: Guest, settings: dict[str, Any]) -> None:
    asked.reference(**settings)(guest)


def test_padding_is_symmetric_whatever_the_stride(guest: Guest) -> None:
    layers = """
from guest.tensorflow.networks import convolve, max_pool
def convolved(image, weight, stride, padding):
    return [convolve(tf.constant(image), tf.constant(weight), stride, padding).numpy()]
def pooled(image, kernel, stride, padding):
    return [max_pool(tf.constant(image), kernel, stride, padding).numpy()]
"""
    asked.check_padding_is_symmetric(guest, layers)


def test_a_gpu_is_refused_in_tensorflows_own_terms(guest: Guest) -> None:
    said = guest("""
        def refused(device="cuda:0", **cell):
            return make("small-dense", device=device, **cell).supports(SMALL["small-dense"])
        answer = [refused("tpu:0"), refused(precision="bfloat16"), refused(placement="pinned")]
        built = {"is_cuda_build": False}
        tf.sysconfig.get_build_info = lambda: built
        answer.append(refused())
        built.update(is_cuda_build=True, cuda_version="12.5")
        built.update(cuda_compute_capabilities=["sm_80", "sm_90", "compute_90"])
        tf.config.list_physical_devices = lambda kind=None: []
        answer.append(refused())
        tf.config.list_physical_devices = lambda kind=None: ["GPU"]
        for capability in ((7, 5), (8, 6), (12, 0)):
            tf.config.experimental.get_device_details = lambda device: {"compute_capability": capability}
            answer.append(refused(precision="tf32"))
    """)
    words = [
        "tpu:0",
        "float32 and tf32 only",
        "placement pinned",
        "no CUDA code",
        "sees no GPU",
        "no kernels for",
        "",
        "",
    ]
    asked.check_reasons(said, words)
    assert "--python tensorflow=" in said[3][1]
    assert "compute capability 7.5 (it has sm_80, sm_90, compute_90)" in said[5][1]
