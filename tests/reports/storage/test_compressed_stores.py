"""Stores packed by xz: they read as the files they were made of, and say so where they cannot be used."""

import lzma
from pathlib import Path

import factory_of_records as make
import pytest

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "a.sqlite") as store:
        store.begin_run(make.run())
        store.append(make.record())
    path = tmp_path / "a.sqlite.xz"
    path.write_bytes(lzma.compress((tmp_path / "a.sqlite").read_bytes()))
    return path


def test_a_packed_store_reads_as_the_file_it_was_made_of(packed: Path) -> None:
    assert Results.read([packed]) == Results.read([packed.with_suffix("")])
    assert [path.name for path in packed.parent.iterdir() if path.name.startswith("a.sqlite.xz")] == ["a.sqlite.xz"]


def test_nothing_is_written_to_a_packed_store(packed: Path) -> None:
    before = packed.read_bytes()
    with pytest.raises(StoreError, match="can only be read"):
        Store.open(packed)
    assert packed.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "words"), [(b"no archive", "cannot be unpacked"), (lzma.compress(b"other"), "holds no result store")]
)
def test_what_is_no_packed_store_says_so(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "b.sqlite.xz"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words):
        Store.open(path, create=False)
    path.write_bytes(lzma.compress(b"SQLite format 3\0" + bytes(5000))[:-20])
    with pytest.raises(StoreError, match="cannot be unpacked"):
        Store.open(path, create=False)
