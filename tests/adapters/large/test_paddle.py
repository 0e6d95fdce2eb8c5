"""What is particular to PaddlePaddle, shown by the guest in PaddlePaddle's own interpreter."""

from pathlib import Path

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "paddle"


@asked.of_every_framework(
    asked.reference(),
    asked.reference(widest_kernels=True),
    asked.one_bias("[getattr(adapter.built.layer.layers, 'bias_hh_l%d' % layer).numpy() for layer in range(2)]"),
    asked.threads_of_variables("paddle"),
    asked.rate(),
    asked.reset("[each.data_ptr() for each in [*adapter.built.layer.parameters(), adapter.inputs, adapter.labels]]"),
    asked.memory(
        {
            "paddle.zeros([1 << 14, 1 << 15]).numpy()": True,
            "np.empty(1 << 50)": True,
            "paddle.matmul(paddle.ones([3, 3]), paddle.ones([4, 4]))": False,
        },
        further_bytes=256 << 20,
    ),
    asked.capabilities(gpu=False, automatic_gradients=True, several_processes=True),
    asked.description(
        "commit blas execution optimizer",
        version="3.3.1",
        mkl_kernels="MKL's own choice",
        openmp_threads="1",
        mkl_threads="1",
    ),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


def test_gradients_are_cleared(guest: Guest) -> None:
    """Those that are not add up."""
    left = guest("""
        adapter = prepared("small-recurrent")
        adapter.step()
        answer = sum(value.grad is not None for value in adapter.built.layer.parameters())
    """)
    assert left == 0


def test_mkl_takes_the_kernels_it_is_told(guest: Guest) -> None:
    """Other kernels add up in another order: the last bits of a large product differ."""
    products = [
        guest(f"""
            make("small-dense", widest_kernels={widest}).supports(SMALL["small-dense"])
            random = np.random.RandomState(0)
            left, right = (paddle.to_tensor(random.rand(300, 300).astype("float32")) for _ in range(2))
            answer = paddle.matmul(left, right).numpy().ravel().tolist()
        """)
        for widest in (False, True)
    ]
    vendor = Path("/proc/cpuinfo").read_text()
    assert products[0] == pytest.approx(products[1], rel=1e-5)
    if "AuthenticAMD" in vendor and "avx2" in vendor:
        assert products[0] != products[1]
