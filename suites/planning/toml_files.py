"""TOML files of a user's own: reading one, and what is wrong with it: key, what is wrong, what would be right."""

import difflib
import errno
import os
import tomllib
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import SuiteError

LARGEST_FILE = 10_000_000
"""Bytes; more than anyone writes by hand."""


class TomlTable(BaseModel):
    """A table of a TOML file, whose keys are the model's fields and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_Table = TypeVar("_Table", bound=BaseModel)


def read_text(path: Path) -> str:
    """Return a file's text in UTF-8; raises SuiteError, also for a pipe, which would be waited for without end."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EISDIR if path.is_dir() else errno.EINVAL, "it is not a file")
        if path.exists() and path.stat().st_size > LARGEST_FILE:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path} is not a text file in UTF-8.") from error
    except (OSError, ValueError) as error:
        raise SuiteError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Return the content of a TOML file; raises SuiteError naming ``where``."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{where} is not valid TOML: {error}.") from error


def validated(content: Mapping[str, Any], where: str, model: type[_Table]) -> _Table:
    """Return content as a model; raises SuiteError naming ``where``, the key, and the remedy."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise SuiteError(f"{where}, {sentence(error, model)}") from error
    except (RecursionError, ValueError) as error:
        raise SuiteError(f"{where} cannot be read: {error}.") from error


_A_LIST, _A_TABLE = 'a list, as in ["fcn5", "lstm32"]', "a table, as in [protocol]"
_MEANT: Mapping[str, str] = {
    "string": 'text in quotes, as in "torch"',
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "tuple": _A_LIST,
    "list": _A_LIST,
    "dict": _A_TABLE,
    "model": _A_TABLE,
    "date": "a date, as in 2026-03-01",
}
"""What a value must be, by what the name of pydantic's complaint begins with."""
_SAID: Mapping[str, str] = {
    "missing": "it is missing",
    "too_short": "it must not be empty",
    "string_too_short": "it must not be empty",
    "literal_error": "{value!r} is not one of {expected}",
    "string_pattern_mismatch": "{value!r} may hold letters, digits, '.', '_' and '-' only, and begins with a letter or "
    "digit",
    "finite_number": "it must be a finite number",
    "greater_than_equal": "{value!r} is out of range: it must be at least {ge:g}",
    "greater_than": "{value!r} is out of range: it must be more than {gt:g}",
    "less_than_equal": "{value!r} is out of range: it must be at most {le:g}",
    "less_than": "{value!r} is out of range: it must be less than {lt:g}",
}
"""By pydantic's name of the complaint, with its limits and the value."""
_TYPES = ("int", "str", "float", "bool")
_COUNTS = ("threads", "device_threads", "world_sizes")


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first complaint of a validation as "key NAME: what is wrong and what would be right.".

    A model whose file has other keys than the model has fields says which: its class method ``keys_in_file``.
    """
    first = error.errors()[0]
    place = list(first["loc"])
    if len(place) > 1 and place[-1] in _TYPES:  # of several types that are allowed each has its complaint
        place.pop()
    key = ".".join(str(part) for part in place) or "(the whole file)"
    said = " ".join(f"key {key}: {_what(first, place, model)}".split())
    return said if said.endswith("?") else f"{said}."


def _what(first: Any, place: list[Any], model: type[BaseModel]) -> str:
    kind, limits, value = first["type"], first.get("ctx", {}), first.get("input")
    if kind == "extra_forbidden":
        *above, strange = place
        known = sorted(_keys(model, above))
        shown = {
            key: f"{key!r} in [{'.'.join(map(str, [*above, t]))}]" for t in known for key in _keys(model, [*above, t])
        }
        shown |= {key: f"{key!r}" for key in known}
        near = difflib.get_close_matches(str(strange), shown, n=1, cutoff=0.6)
        return f"unknown key. Did you mean {shown[near[0]]}?" if near else f"unknown key. Known: {', '.join(known)}"
    if kind in _SAID:
        return _SAID[kind].format(value=value, **limits)
    if kind == "value_error":
        return str(first["msg"]).removeprefix("Value error, ")
    if place[-1] in _COUNTS:
        return f"{_shown(value)} is not a list of counts, as in [1, 2, 4]"
    meant = next((words for name, words in _MEANT.items() if kind.startswith(name)), "")
    return f"{_shown(value)} is not {meant}" if meant else str(first["msg"])


def _shown(value: object) -> str:
    """Return a value as TOML writes it, cut short."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value[:40]}"'
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else str(value)[:40]


def _keys(model: Any, place: list[Any]) -> set[str]:
    """Return the keys that a table of the file may have."""
    for part in place:
        if _is_model(model):
            field = model.model_fields.get(str(part))
            model = field.annotation if field else None
        else:
            model = (typing.get_args(model) or (None,))[-1 if isinstance(part, str) else 0]
        inner = next(filter(_is_model, typing.get_args(model)), None)
        if inner and typing.get_origin(model) not in (dict, tuple, list):
            model = inner
    if not _is_model(model):
        return set()
    keys: Callable[[], set[str]] | None = getattr(model, "keys_in_file", None)
    return keys() if keys else set(model.model_fields)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
