"""What is particular to MXNet, shown by the guest in MXNet's own interpreter."""

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "mxnet"


@asked.of_every_framework(
    asked.settings({"static": False}),
    asked.settings({"fused_norm": False}),
    asked.one_bias('[each.data().asnumpy() for each in adapter.block.collect_params(".*h2h_bias").values()]'),
    asked.threads_of_variables("mxnet"),
    asked.rate("id(adapter.block._cached_op)"),
    *(asked.reset("id(adapter.block._cached_op)", **settings) for settings in ({}, {"static": False})),
    asked.queue(),
    asked.memory(
        {
            "mx.nd.zeros((1 << 14, 1 << 15)).wait_to_read()": True,
            "mx.nd.dot(mx.nd.ones((3, 3)), mx.nd.ones((4, 4))).wait_to_read()": False,
        },
        further_bytes=256 << 20,
    ),
    asked.capabilities(gpu=False, automatic_gradients=True, several_processes=True),
    asked.description("features execution optimizer engine", version="1.9.1", dense_products="oneDNN", threads=1),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


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
