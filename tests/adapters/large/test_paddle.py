"""What is particular to PaddlePaddle, shown by the guest in PaddlePaddle's own interpreter."""

from pathlib import Path

import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "paddle"


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
