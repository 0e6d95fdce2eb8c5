"""The files that reports, pages and plots may be written to."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def why_unwritable(path: Path) -> str:
    """Return why no file of a report can be written to this path, in words; empty where one can.

    A store of results is never written over, whatever its name is.
    """
    path = path.resolve()  # a symbolic link is followed
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return f"{folder.name or folder} is not a folder that you may write to"
    if path.is_dir():
        return "it is a folder. Name a file"
    if path.exists() and not path.is_file():
        return "it is a device, a pipe or a socket. Name a file"
    if path.is_file() and (path.name.endswith(".sqlite.xz") or _may_be_a_database(path)):
        return "it is a store of results. Name another file"
    return ""


def _may_be_a_database(path: Path) -> bool:
    """Ask SQLite: to open the file otherwise would let go of this process's locks on it. In doubt it is one."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return bool(database.execute("PRAGMA schema_version").fetchone()[0])
    except sqlite3.Error as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
