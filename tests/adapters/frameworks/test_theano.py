"""What is particular to Theano, shown by the guest in Theano's own interpreter."""

from collections.abc import Callable
from pathlib import Path

import pytest
from inside import Guest

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(guests: Callable[..., Guest], scratch: Path) -> Guest:
    """Give a function that runs statements in Theano's interpreter; what one test compiled, the next finds."""
    return guests("theano", scratch=scratch)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give one folder for the module: what one test compiled, the next finds."""
    return tmp_path_factory.mktemp("theano")


def test_products_go_to_the_openblas_of_numpys_wheel(guest: Guest) -> None:
    linked, operations = guest("""
        adapter = prepared("small-convolutional")
        adapter.step()
        from guest.theano import adapter as configuration
        name = os.path.basename(configuration.blas.openblas_of_numpy()).encode()
        paths = {line.split()[-1] for line in open("/proc/self/maps") if "compiledir" in line and ".so" in line}
        answer = sum(name in open(path, "rb").read() for path in paths), adapter._operations()
    """)
    assert linked >= 1
    # None is left to Python.
    assert {"CorrMM", "CorrMM_gradWeights", "CorrMM_gradInputs"} <= set(operations)
    assert not any(name.startswith("AbstractConv") for name in operations)
    assert "Dot" not in operations


def test_a_second_process_finds_most_of_what_the_first_compiled(guest: Guest, scratch: Path) -> None:
    """Most, because some of Theano's operations are compiled anew by each process (4 of 17 here)."""
    cache = scratch / "reused"
    statements = f"prepared('small-dense', cache={str(cache)!r}).step(); answer = None"
    guest(statements)
    first = set(cache.rglob("*.so"))
    guest(statements)
    second = set(cache.rglob("*.so"))
    assert first <= second
    assert len(second - first) < len(first) / 3
