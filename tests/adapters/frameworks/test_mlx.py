"""What is particular to MLX, shown by the guest in MLX's own interpreter."""

from collections.abc import Callable
from pathlib import Path

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "mlx"


def test_openblas_is_refused_where_none_was_loaded(guests: Callable[..., Guest]) -> None:
    """As where an interpreter is brought, which has no environment to load a library from."""
    asking = (
        'answer = [make("small-dense", **each).supports(SMALL["small-dense"]) for each in ({}, {"blas": "openblas"})]'
    )
    asked.check_reasons(guests(FRAMEWORK, LD_PRELOAD="")(asking), ["", "none was loaded before MLX"])
    asked.check_reasons(guests(FRAMEWORK)(asking), ["", ""])


def test_a_preloaded_openblas_computes_the_products(guests: Callable[..., Guest]) -> None:
    """Several times as fast in CPU seconds, and its sums are added up in another order."""
    seconds, products = zip(
        *(
            guests(FRAMEWORK, **variables)("""
                import time
                random = np.random.RandomState(0)
                left, right = [mx.array(random.rand(600, 600).astype("float32")) for _ in range(2)]
                mx.eval(left @ right)
                began = time.process_time()
                product = left @ right
                mx.eval(product)
                answer = time.process_time() - began, np.array(product).ravel()[:500].tolist()
            """)
            for variables in ({"LD_PRELOAD": ""}, {})
        ),
        strict=True,
    )
    assert products[0] == pytest.approx(products[1], rel=1e-5)
    assert products[0] != products[1]
    assert seconds[0] > 2 * seconds[1]


def test_operations_are_fused_by_a_compiler_and_kept_for_the_next_process(guest: Guest, tmp_path: Path) -> None:
    program = """
        adapter = prepared("small-dense")
        adapter.step()
        answer = sorted((os.path.join(folder, name), os.path.getmtime(os.path.join(folder, name)))
                        for folder, _, names in os.walk(CACHE) for name in names if name.endswith(".so"))
    """
    kept = guest(program)
    assert kept
    assert all(Path(path).is_relative_to(tmp_path) for path, _ in kept)
    assert guest(program) == kept
