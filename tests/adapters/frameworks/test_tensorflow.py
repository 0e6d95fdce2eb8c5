"""What is particular to TensorFlow, shown by the guest in TensorFlow's own interpreter."""

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "tensorflow"


def test_a_gpu_is_refused_in_tensorflows_own_terms(guest: Guest) -> None:
    output = guest("""
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
    asked.check_reasons(output, words)
    assert "--python tensorflow=" in output[3][1]
    assert "compute capability 7.5 (it has sm_80, sm_90, compute_90)" in output[5][1]


def test_too_few_gpus_for_the_workers_are_refused(guest: Guest) -> None:
    output = guest("""
        built = {"is_cuda_build": True, "cuda_version": "12.5", "cuda_compute_capabilities": ["sm_80"]}
        tf.sysconfig.get_build_info = lambda: built
        capabilities = {"first": (8, 0), "second": (8, 6), "old": (7, 5)}
        tf.config.experimental.get_device_details = lambda gpu: {"compute_capability": capabilities[gpu]}
        cell = Cell("tensorflow", "tensorflow", "function", "small-dense", "cuda:0", 1, 4, world_size=2)
        answer = []
        for there in (["first"], ["first", "second"], ["first", "old"]):
            tf.config.list_physical_devices = lambda kind=None: there
            answer.append(ADAPTER(cell, {}, "unused").supports(SMALL["small-dense"]))
    """)
    asked.check_reasons(
        output, ["each worker needs its own GPU, and TensorFlow 2.", "", "compute capability 7.5"]
    )


def test_late_updates_wait_for_every_product_that_reads_a_weight(guest: Guest) -> None:
    """TensorFlow copies a weight before its update if an operator still has to read it."""
    unordered = guest("""
        answer = {}
        for updates in ("early", "last"):
            graph = prepared("small-dense", updates=updates)._step.graph
            products = {operator.name for operator in graph.get_operations() if operator.type == "MatMul"}
            answer[updates] = 0
            for update in graph.get_operations():
                if update.type != "ResourceApplyGradientDescent":
                    continue
                before, left = set(), [update]
                while left:
                    operator = left.pop()
                    for earlier in [tensor.op for tensor in operator.inputs] + list(operator.control_inputs):
                        if earlier.name not in before:
                            before.add(earlier.name)
                            left.append(earlier)
                answer[updates] += len(products - before)
        answer["products"] = len(products)
    """)
    assert unordered["products"] > 2
    assert unordered["early"] > 0
    assert unordered["last"] == 0
