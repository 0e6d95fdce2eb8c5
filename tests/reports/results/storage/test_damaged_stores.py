"""Stores that are damaged, full or not to be written: said in words, and nothing is lost."""

import multiprocessing
import os
import resource
import signal
import stat
from pathlib import Path

import factory_of_records as make
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kept_stores import fill
from properties import examples

from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.storage.store import Store

# No start of another interpreter; and another user may not be able to read this one's files.
FORK = multiprocessing.get_context("fork")


def write_until_the_limit(path: str, limit: int, answer: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    written = 0
    try:
        with Store.open(path) as store:
            for launch in range(1000):
                store.append(make.record(launch=launch))
                written += 1
    except StoreError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        Path(answer).write_text(f"{written} {error}")


@pytest.mark.parametrize(
    "limit",
    [1000, *(pytest.param(size, marks=pytest.mark.slow) for size in (30_000, 60_000, 100_000))],
)
def test_a_disk_that_takes_no_more_is_told_and_nothing_is_damaged(
    tmp_path: Path, path: Path, limit: int
) -> None:
    answer = tmp_path / "answer"
    writer = FORK.Process(target=write_until_the_limit, args=(str(path), limit, str(answer)))
    writer.start()
    writer.join()
    assert writer.exitcode == 0
    written, _, message = answer.read_text().partition(" ")
    assert "make room" in message
    assert "\n" not in message
    with Store.open(path) as store:
        assert [record.launch for record in store.records()] == list(range(int(written)))
        store.append(make.record())


def try_as_nobody(path: Path, create: bool, answer: "multiprocessing.SimpleQueue[str]") -> None:
    # Root may write anywhere; where the tests run as root this process gives up that right.
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        with Store.open(path, create) as store:
            answer.put(str(len(store.records())))
            store.append(make.record())
    except StoreError as error:
        answer.put(str(error))
    answer.put("")


def as_nobody(path: Path, create: bool) -> list[str]:
    answer = FORK.SimpleQueue()
    child = FORK.Process(target=try_as_nobody, args=(path, create, answer))
    child.start()
    output = list(iter(answer.get, ""))
    child.join()
    return output


def open_to_all(folder: Path) -> None:
    while folder != folder.parent and folder.stat().st_uid == os.geteuid():
        if folder.parent == Path(folder.anchor):
            break
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
        folder = folder.parent


def test_an_unwritable_folder_is_told_and_its_store_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    fill(folder / "results.sqlite", 3)
    open_to_all(folder)
    (folder / "results.sqlite").chmod(0o444)
    folder.chmod(0o555)
    try:
        assert "writable place" in as_nobody(folder / "new.sqlite", create=True)[0]
        count, message = as_nobody(folder / "results.sqlite", create=False)
        assert count == "3"
        assert "writable place" in message
        assert [path.name for path in folder.iterdir()] == ["results.sqlite"]
    finally:
        folder.chmod(0o755)


def use(path: Path) -> None:
    """Do everything that reads, then write; only a StoreError in one line may come of it."""
    for create in (False, True):
        try:
            with Store.open(path, create) as store:
                store.records()
                store.runs()
                store.machines()
                store.ceilings(make.MACHINE)
                store.newest()
                store.nights()
                store.append(make.record())
        except StoreError as refusal:
            message = str(refusal)
        else:
            continue
        assert "\n" not in message


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("image") / "results.sqlite"
    with Store.open(path) as store:
        store.begin_run(make.run())
        store.add_machine(make.MACHINE, make.MACHINE_DICT)
        store.save_ceilings(make.MACHINE, {"gemm": {}})
        for launch in range(5):
            store.append(make.record(launch=launch))
    return path.read_bytes()


fuzz = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzz
@given(content=st.binary(min_size=1, max_size=5000))
def test_random_files_are_refused_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "random"
    path.write_bytes(content)
    use(path)
    assert path.read_bytes() == content
    path.unlink()


@fuzz
@given(data=st.data())
def test_damaged_stores_are_refused_in_words(
    tmp_path: Path, image: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(image)
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(image) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=50))
        damaged[at : at + len(piece)] = piece
    length = data.draw(st.just(len(damaged)) | st.integers(1, len(damaged)))
    path = tmp_path / "damaged"
    for leftover in tmp_path.iterdir():
        leftover.unlink()
    path.write_bytes(damaged[:length])
    use(path)
