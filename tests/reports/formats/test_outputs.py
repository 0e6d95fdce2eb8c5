"""Where reports may be written, and what they never write over."""

import os
import sqlite3
from pathlib import Path

import pytest

from dlbench.reports.formats.outputs import why_unwritable
from dlbench.reports.formats.pictures import DotPanel, Dots, dots_to_picture


def test_a_new_file_and_an_earlier_report_may_be_written(tmp_path: Path) -> None:
    assert why_unwritable(tmp_path / "new.html") == ""
    for content in (b"", b"<html>", b"SQLite format 3 is what it tells of"):
        (tmp_path / "old.html").write_bytes(content)
        assert why_unwritable(tmp_path / "old.html") == ""


@pytest.mark.parametrize("name", ["s.sqlite", "s.html"])
def test_a_store_is_never_written_over_whatever_its_name(tmp_path: Path, name: str) -> None:
    with sqlite3.connect(tmp_path / name) as database:
        database.execute("CREATE TABLE records (id INTEGER)")
    before = (tmp_path / name).read_bytes()
    assert why_unwritable(tmp_path / name) == "it is a store of results. Name another file"
    assert (tmp_path / name).read_bytes() == before


def test_a_held_or_packed_store_is_not_written_over_either(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.svg", isolation_level=None) as database:
        database.execute("CREATE TABLE records (id INTEGER)")
        database.execute("BEGIN EXCLUSIVE")
        assert why_unwritable(tmp_path / "s.svg").startswith("it is a store")
    (tmp_path / "store.sqlite.xz").write_bytes(b"\xfd7zXZ\0")
    assert why_unwritable(tmp_path / "store.sqlite.xz").startswith("it is a store")


def test_folders_devices_and_pipes_are_refused_and_a_link_is_followed(tmp_path: Path) -> None:
    assert why_unwritable(tmp_path) == "it is a folder. Name a file"
    assert why_unwritable(tmp_path / "none" / "r.html") == "there is no folder none"
    os.mkfifo(tmp_path / "pipe.html")
    for path in (tmp_path / "pipe.html", Path("/dev/null")):
        assert why_unwritable(path) == "it is a device, a pipe or a socket. Name a file"
    (tmp_path / "link.svg").symlink_to(tmp_path / "target.svg")
    assert why_unwritable(tmp_path / "link.svg") == ""
    (written,) = dots_to_picture(
        [Dots("", "", (DotPanel("", ("a",), {("a", "1"): (1.0, None, None)}),))],
        tmp_path / "link.svg",
    )
    assert written.is_symlink()
    assert (tmp_path / "target.svg").read_text().startswith("<?xml")
    (tmp_path / "elsewhere.svg").symlink_to("/dev/full")
    assert "device" in why_unwritable(tmp_path / "elsewhere.svg")


def test_names_that_no_file_can_have_and_folders_that_take_no_file_are_refused(
    tmp_path: Path,
) -> None:
    assert why_unwritable(tmp_path / ("x" * 300)) == "File name too long"
    assert why_unwritable(Path("/proc/report.md")) == "proc is not a folder that you may write to"
    (tmp_path / "circle.md").symlink_to(tmp_path / "circle.md")
    assert why_unwritable(tmp_path / "circle.md")
