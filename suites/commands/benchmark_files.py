"""Files of pytest-benchmark in place of a stored run: read into memory, and not stored."""

import os.path
from pathlib import Path

from dlbench.reports.pytest_benchmark.imported import Imported, read, runs_of, without_copies
from dlbench.reports.results.storage.database import begins_as_json, begins_as_store

from ..display.screen import say
from ..errors import UsageError
from ..run import preparation


def files_meant(word: str) -> list[str]:
    """Return the JSON files that a word names, one or several with commas between; else none."""
    is_file = os.path.isfile  # False for a word too long for a name, where a Path raises
    files = [word] if is_file(word) else word.split(",")
    if all(is_file(file) and _is_json(file) for file in files):
        return files
    return []


def _is_json(name: str) -> bool:
    """Tell whether a file is JSON by its content or its name.

    A JSON file that is compressed or in UTF-16 has the name alone, and is refused when it is read.
    """
    if begins_as_json(name):
        return True
    return ".json" in Path(name).suffixes and not begins_as_store(name)


def run_of_files(files: list[str]) -> Imported:
    """Return the run of these files, each a launch of it.

    Raises UsageError for several runs, and FileError.
    """
    contents, left_out = without_copies([read(file) for file in files])
    for sentence in left_out:
        say(sentence)
    runs = runs_of(contents, preparation.version(), one_run=True)
    if len(runs) != 1:
        content = f"hold {len(runs)} runs" if runs else "have no benchmark"
        raise UsageError(
            f"{', '.join(files)} {content}. Read the files into a store (`dlbench import FILE "
            "--store STORE`), and compare two of its runs."
        )
    return runs[0]
