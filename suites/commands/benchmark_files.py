"""Files of pytest-benchmark where a command takes a stored run: read into memory, and stored
nowhere.
"""

import os.path
from pathlib import Path

from dlbench.reports.pytest_benchmark.imported import Imported, read, runs_of, without_copies
from dlbench.reports.results.storage.database import begins_as_json, begins_as_store

from ..display.screen import say
from ..errors import UsageError
from ..run import preparation


def files_meant(word: str) -> list[str]:
    """Return the JSON files that a word names, one or several with commas between; none where it
    names no such file.
    """
    is_file = os.path.isfile  # False for a word too long for a name, where a Path raises
    files = [word] if is_file(word) else word.split(",")
    return files if all(is_file(file) and _is_no_store(file) for file in files) else []


def _is_no_store(name: str) -> bool:
    """Tell whether a file is JSON, or has the name of such a file: one in UTF-16 or compressed is
    refused as that.
    """
    if begins_as_json(name):
        return True
    return ".json" in Path(name).suffixes and not begins_as_store(name)


def run_of_files(files: list[str]) -> Imported:
    """Return the run of these files, each a launch of it; raises UsageError for several runs, and
    FileError.
    """
    contents, left_out = without_copies([read(file) for file in files])
    for sentence in left_out:
        say(sentence)
    runs = runs_of(contents, preparation.version(), one_run=True)
    if len(runs) != 1:
        what = f"hold {len(runs)} runs" if runs else "have no benchmark"
        raise UsageError(
            f"{', '.join(files)} {what}. Read the files into a store (`dlbench import FILE --store "
            "STORE`), and compare two of its runs."
        )
    return runs[0]
