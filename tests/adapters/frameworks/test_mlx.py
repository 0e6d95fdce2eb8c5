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
