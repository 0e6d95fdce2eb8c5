"""Where reports may be written, and what they never write over."""

import sqlite3
from pathlib import Path

import pytest

from dlbench.reports.formats.outputs import why_not


def test_a_new_file_and_an_earlier_report_may_be_written(tmp_path: Path) -> None:
    assert why_not(tmp_path / "new.html") == ""
    for content in (b"", b"<html>", b"SQLite format 3 is what it tells of"):
        (tmp_path / "old.html").write_bytes(content)
        assert why_not(tmp_path / "old.html") == ""


@pytest.mark.parametrize("name", ["s.sqlite", "s.html", "s.svg", "store of mine.json"])
def test_a_store_is_never_written_over_whatever_its_name(tmp_path: Path, name: str) -> None:
    with sqlite3.connect(tmp_path / name) as database:
        database.execute("CREATE TABLE records (id INTEGER)")
    before = (tmp_path / name).read_bytes()
    assert why_not(tmp_path / name) == "it is a store of results. Name another file"
    assert (tmp_path / name).read_bytes() == before


def test_a_store_that_somebody_else_holds_is_not_written_over_either(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.svg", isolation_level=None) as database:
        database.execute("CREATE TABLE records (id INTEGER)")
        database.execute("BEGIN EXCLUSIVE")
        assert why_not(tmp_path / "s.svg").startswith("it is a store")


def test_a_packed_store_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite.xz").write_bytes(b"\xfd7zXZ\0")
    assert why_not(tmp_path / "store.sqlite.xz").startswith("it is a store")


def test_folders_are_named(tmp_path: Path) -> None:
    assert why_not(tmp_path) == "it is a folder. Name a file"
    assert why_not(tmp_path / "none" / "r.html") == "none is not a folder that you may write to"
