"""Texts as records keep them: without the user, the host's name, paths of files, and any password.

The name of a system file (``/usr/lib/...``) is kept whole, that of one in the user's home folder
from ``~`` on, of any other only its last part.
"""

import getpass
import re
import socket
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from dlbench.reports.results.safe_text import without_credentials

from ..planning.variables import is_secret

_SYSTEM = "bin|boot|dev|etc|lib|lib32|lib64|opt|proc|sbin|sys|usr"
_PART = r"[^/\s'\"<>|:;,()\[\]{}]"
_PATHS = (
    # A name in quotation marks may hold blanks.
    re.compile(rf"(?<=(['\"]))/(?!(?:{_SYSTEM})/)(?:[^/'\"\n]+/)+(?=[^/'\"\n]*\1)"),
    re.compile(rf"(?<![\w/.~>\-])/(?!/|(?:{_SYSTEM})/)(?:{_PART}+/)+(?={_PART}*)"),
)
_COMMON_USERS = ("root", "nobody")
"""Names of users that identify no person."""


def private(text: str) -> str:
    """Return a text without private parts."""
    text = without_credentials(text)
    for pattern, word in _replacements(str(Path.home()), _user(), socket.gethostname()):
        text = pattern.sub(word, text)
    return text


def private_anywhere(value: Any) -> Any:
    """Return a value with every text made private at all depths.

    It consists of plain JSON types, or of tuples of the launch's contract.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return private(value)
    if isinstance(value, Mapping):
        return {key: _private_entry(key, content) for key, content in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(private_anywhere, value))
    if isinstance(value, list):  # the long ones are of numbers
        return [private_anywhere(item) for item in value]
    return value


def private_value(name: str, value: str) -> str:
    """Return the value of an environment variable as a record keeps it."""
    if is_secret(name):
        return "***"
    return private(value)


def recorded(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables as records keep them, by name."""
    return {name: private_value(name, value) for name, value in sorted(variables.items())}


def _private_entry(key: str, value: Any) -> Any:
    """Return the value of a key, which for "variables" are environment variables by name."""
    if key != "variables" or not isinstance(value, Mapping):
        return private_anywhere(value)
    variables = {}
    for name, content in value.items():
        if isinstance(content, str):
            content = private_value(name, content)
        variables[name] = content
    return variables


@cache
def _replacements(home: str, user: str, host: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the patterns of private parts, each with the word that replaces it."""
    replacements = []
    if len(home) > 1:
        replacements.append((re.compile(rf"{re.escape(home)}(?![\w.\-])"), "~"))
    replacements += [(pattern, "<path>/") for pattern in _PATHS]
    if user and user not in _COMMON_USERS:
        name = re.escape(user)
        pattern = re.compile(rf"(?<=/){name}(?![\w.\-])|(?<![\w.\-]){name}(?=@)")
        replacements.append((pattern, "<user>"))
    # A plain word as a host's name may be the name of anything else, of a framework too.
    if re.search(r"[\d.\-]", host):
        pattern = re.compile(rf"(?<![\w.\-]){re.escape(host)}(?![\w\-])")
        replacements.append((pattern, "<host>"))
    return tuple(replacements)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in a container
        return ""
