"""The commit that a file of pytest-benchmark was made of, in words."""

from collections.abc import Mapping
from typing import Any

from dlbench.reports.results.safe_text import FIELD, one_line

SHORT = 10  # characters of a commit's id, as git shows them in large repositories
_NO_COMMIT = ("", "unversioned", "unknown")  # what pytest-benchmark writes outside a repository


def commit_id(commit_info: Mapping[str, Any]) -> str:
    """Return the whole id of the commit; empty where the file names none."""
    name = commit_info.get("id")
    return name if isinstance(name, str) and name not in _NO_COMMIT else ""


def commit_in_words(commit_info: Mapping[str, Any]) -> str:
    """Return a commit as "3f2a1c9b04 (main, modified)"; empty where the file names none."""
    name = commit_id(commit_info)
    if not name:
        return ""
    words = name[:SHORT]
    remarks = []
    branch = commit_info.get("branch")
    if isinstance(branch, str) and branch not in ("", "(unknown)", "(detached head)"):
        remarks.append(branch)
    if commit_info.get("dirty") is True:
        remarks.append("modified")
    if remarks:
        words += f" ({', '.join(remarks)})"
    return one_line(words, FIELD)
