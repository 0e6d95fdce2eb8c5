"""What is particular to Theano, shown by the guest in Theano's own interpreter."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import asked_of_frameworks as asked
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


@asked.of_every_framework(
    asked.reference(),
    asked.rate("id(adapter.train)"),
    asked.reset("id(adapter.train)", only=["small-dense", "small-convolutional", "small-residual", "small-recurrent"]),
    asked.threads_of_cells(),
    asked.memory(
        {"fill(1 << 29)": True, "product()": False},
        """
adapter = prepared("small-dense")
adapter.step()
import theano
size = theano.tensor.lscalar()
fill = theano.function([size], theano.tensor.alloc(np.float32(1), size))
product = theano.function([], theano.tensor.dot(theano.shared(np.ones((3, 3), "f")), np.ones((4, 4), "f")))
""",
        256 << 20,
    ),
)
def test_it_answers_as_every_framework_does(guest: Guest, check: asked.Check) -> None:
    check(guest)


def test_products_go_to_the_openblas_of_numpys_wheel(guest: Guest) -> None:
    linked, operations = guest("""
        adapter = prepared("small-convolutional")
        adapter.step()
        from guest.theano import adapter as configuration
        name = os.path.basename(configuration.openblas_of_numpy()).encode()
        paths = {line.split()[-1] for line in open("/proc/self/maps") if "compiledir" in line and ".so" in line}
        answer = sum(name in open(path, "rb").read() for path in paths), adapter._operations()
    """)
    assert linked >= 1
    # None is left to Python.
    assert {"CorrMM", "CorrMM_gradWeights", "CorrMM_gradInputs"} <= set(operations)
    assert not any(name.startswith("AbstractConv") for name in operations)
    assert "Dot" not in operations


def test_the_dense_gradients_are_added_in_place_by_gemm(guest: Guest) -> None:
    operations = guest("""
        adapter = prepared("small-dense")
        answer = adapter._operations()
    """)
    assert operations.get("Gemm", 0) >= 2


@pytest.mark.parametrize("allow_gc", [True, False])
def test_the_setting_allow_gc_reaches_theano_and_a_users_theanorc_does_not(
    guest: Guest, scratch: Path, allow_gc: bool
) -> None:
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    (home / ".theanorc").write_text("[global]\nfloatX = float64\nopenmp = True\n")
    found = guest(
        f"""
        adapter = prepared("small-dense", allow_gc={allow_gc})
        import theano
        answer = theano.config.floatX, adapter.describe()["allow_gc"], adapter.describe()["openmp"]
        """,
        HOME=str(home),
    )
    assert found == ["float32", allow_gc, False]


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


def test_a_folder_with_blank_and_comma_holds_the_compiled_code(guest: Guest, scratch: Path) -> None:
    where = scratch / "a folder, with both"
    loss = guest(f"""
        adapter = prepared("small-dense", cache={str(where)!r})
        adapter.step()
        answer = adapter.last_loss()
    """)
    assert loss > 0
    assert list(where.rglob("*.so"))


def test_without_a_compiler_the_cell_is_unsupported_and_the_reason_says_what_to_do(guest: Guest, scratch: Path) -> None:
    supported, reason = guest(
        "answer = make('small-dense').supports(SMALL['small-dense'])", PATH=str(scratch / "nothing-here")
    )
    assert not supported
    assert "install g++" in reason


def _lock(scratch: Path, owner: str) -> Path:
    [compiled] = (scratch / "cache" / "compiled").iterdir()
    lock = compiled / "lock_dir"
    lock.mkdir()
    (lock / "lock").write_text(owner + "\n")
    return lock


def test_the_lock_of_a_process_that_was_killed_stops_nobody(guest: Guest, scratch: Path) -> None:
    guest("prepared('small-dense'); answer = None")
    ended = subprocess.Popen(["true"])
    ended.wait()
    lock = _lock(scratch, f"{ended.pid}_0123456789_{os.uname().nodename}")
    start = time.monotonic()
    guest("prepared('small-recurrent').step(); answer = None")
    assert not lock.exists()
    assert time.monotonic() - start < 60


def test_two_processes_compile_side_by_side(guests: Callable[..., Guest], tmp_path: Path) -> None:
    """Into one new folder; each waits for the other's lock, neither for ever."""
    from concurrent.futures import ThreadPoolExecutor

    def train(index: int) -> float:
        own = tmp_path / str(index)
        own.mkdir()
        guest = guests("theano", scratch=own, ASKED_BY=str(index))
        shared = str(tmp_path / "shared")
        return guest(f"""
            adapter = prepared("small-dense", cache={shared!r})
            adapter.step()
            answer = adapter.last_loss()
        """)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(train, range(2))
    assert first == second


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest("""
        adapter = prepared("small-recurrent")
        adapter.step()
        answer = adapter.describe()
    """)
    assert described["version"] == "1.0.5"
    assert described["blas"]["threads"] == 1
    assert described["operations"]["Scan"] == 4  # forward and backward of two layers
    assert {"compiler", "compiler_flags", "execution", "allow_gc", "openmp"} <= set(described)
