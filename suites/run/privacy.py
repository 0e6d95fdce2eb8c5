"""Keeps out of records who measured, on which host, the paths of their files, and any password.

A framework's messages and an adapter's answers name files. Of a file of the system (``/usr/lib/...``) the whole name is
kept, of one in the user's home folder what stands behind ``~``, of any other its last part alone.
"""

import getpass
import re
import socket
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dlbench.reports.formats.inert import without_credentials

_Value = TypeVar("_Value")

_SYSTEM = "bin|boot|dev|etc|lib|lib32|lib64|opt|proc|sbin|sys|usr"
_PART = r"[^/\s'\"<>|:;,()\[\]{}]"
_PATHS = (
    # A name in quotation marks may hold blanks.
    re.compile(rf"(?<=(['\"]))/(?!(?:{_SYSTEM})/)(?:[^/'\"\n]+/)+(?=[^/'\"\n]*\1)"),
    re.compile(rf"(?<![\w/.~>\-])/(?!/|(?:{_SYSTEM})/)(?:{_PART}+/)+(?={_PART}*)"),
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_COMMON_USERS = ("root", "nobody")
"""Names of users that identify no person."""


def private(text: str) -> str:
    """Return a text without private parts."""
    text = without_credentials(text)
    for pattern, word in _replacements(str(Path.home()), _user(), socket.gethostname()):
        text = pattern.sub(word, text)
    return text


def private_anywhere(value: _Value) -> _Value:
    """Return plain JSON types, or tuples of the launch's contract, with every text so, all the way down."""
    return _anywhere(value)  # type: ignore[no-any-return]


def private_value(name: str, value: str) -> str:
    """Return the value of an environment variable as a record keeps it."""
    return "***" if _SECRET.search(name) else private(value)


def _anywhere(value: Any) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Enum) else private(value)
    if isinstance(value, Mapping):
        return {key: _of_key(key, each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_anywhere, value))
    # The long lists are of numbers.
    return [_anywhere(each) for each in value] if isinstance(value, list) else value


def _of_key(key: str, value: Any) -> Any:
    if key == "variables" and isinstance(value, Mapping):
        return {name: private_value(name, each) if isinstance(each, str) else each for name, each in value.items()}
    return _anywhere(value)


@cache
def _replacements(home: str, user: str, host: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    found = [(re.compile(rf"{re.escape(home)}(?![\w.\-])"), "~")] if len(home) > 1 else []
    found += [(pattern, "<path>/") for pattern in _PATHS]
    if user and user not in _COMMON_USERS:
        found.append((re.compile(rf"(?<=/){re.escape(user)}(?![\w.\-])|(?<![\w.\-]){re.escape(user)}(?=@)"), "<user>"))
    # A plain word as a host's name may be the name of anything else, of a framework too.
    if re.search(r"[\d.\-]", host):
        found.append((re.compile(rf"(?<![\w.\-]){re.escape(host)}(?![\w\-])"), "<host>"))
    return tuple(found)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in a container
        return ""
