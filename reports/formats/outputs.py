"""The files that reports, pages and plots may be written to."""

import errno
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path


def why_unwritable(path: Path) -> str:
    """Return why no file can be written to this path, in words; empty if one can.

    A store of results is never written over, whatever its name is.
    """
    try:
        path = path.resolve()  # a symbolic link is followed
        is_folder = path.is_dir()
        is_file = path.is_file()
        exists = path.exists()
    except (OSError, RuntimeError) as error:  # a name that is too long, links in a circle
        return str(getattr(error, "strerror", None) or error)
    folder = path.parent
    try:
        # Permissions do not tell: root has all of them, and some folders take no file.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return str(error.strerror)
        name = folder.name or str(folder)
        if not folder.exists():
            return f"there is no folder {name}"
        return f"{name} is not a folder that you may write to"
    if is_folder:
        return "it is a folder. Name a file"
    if exists and not is_file:
        return "it is a device, a pipe or a socket. Name a file"
    if is_file and (path.name.endswith(".sqlite.xz") or _may_be_a_database(path)):
        return "it is a store of results. Name another file"
    return ""


def _may_be_a_database(path: Path) -> bool:
    """Tell whether SQLite takes a file for a database, or cannot tell.

    To open it in another way would release this process's locks on it.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return bool(database.execute("PRAGMA schema_version").fetchone()[0])
    except sqlite3.Error as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
