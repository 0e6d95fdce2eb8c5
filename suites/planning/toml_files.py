"""The user's TOML files: reading one, and errors that name the key, the fault and the remedy."""

import difflib
import errno
import os
import tomllib
import typing
from collections.abc import Mapping
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
    """Return a file's text in UTF-8; raises SuiteError, also for a pipe, which would block."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a file")
        if path.exists() and path.stat().st_size > LARGEST_FILE:
            raise ValueError(os.strerror(errno.EFBIG))
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path} is not a text file in UTF-8.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SuiteError(f"{path} cannot be read: {reason}.") from error


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


_A_LIST = 'a list, as in ["fcn5", "lstm32"]'
_A_TABLE = "a table, as in [protocol]"
_EXPECTED: Mapping[str, str] = {
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
"""The expected value, by the beginning of pydantic's error name."""
_COMPLAINTS: Mapping[str, str] = {
    "missing": "it is missing",
    "too_short": "it must not be empty",
    "string_too_short": "it must not be empty",
    "literal_error": "{value!r} is not one of {expected}",
    "string_pattern_mismatch": (
        "{value!r} may contain only letters, digits, '.', '_' and '-', and must begin with a "
        "letter or digit"
    ),
    "finite_number": "it must be a finite number",
    "greater_than_equal": "{value!r} is out of range: it must be at least {ge:g}",
    "greater_than": "{value!r} is out of range: it must be more than {gt:g}",
    "less_than_equal": "{value!r} is out of range: it must be at most {le:g}",
    "less_than": "{value!r} is out of range: it must be less than {lt:g}",
}
"""By pydantic's name of the complaint, with its limits and the value."""
_TYPES = ("int", "str", "float", "bool")
_COUNTS = ("threads", "device_threads", "world_sizes", "instances")


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first complaint of a validation: the key, the fault and the remedy."""
    first = error.errors()[0]
    place = list(first["loc"])
    # Of several types that are allowed each has its complaint.
    if len(place) > 1 and place[-1] in _TYPES:
        place.pop()
    key = ".".join(map(str, place)) or "(the whole file)"
    line = " ".join(f"key {key}: {_complaint(first, place, model)}".split())
    return line if line.endswith("?") else f"{line}."


def _complaint(first: Any, place: list[Any], model: type[BaseModel]) -> str:
    kind = first["type"]
    value = first.get("input")
    if kind == "extra_forbidden":
        return _unknown_key(str(place[-1]), _inner(model, place[:-1]))
    if kind in _COMPLAINTS:
        return _COMPLAINTS[kind].format(value=value, **first.get("ctx", {}))
    if kind == "value_error":
        return str(first["msg"]).removeprefix("Value error, ")
    if isinstance(value, bool):
        shown = str(value).lower()
    elif isinstance(value, str):
        shown = f'"{value[:40]}"'
    elif isinstance(value, dict):
        shown = "a table"
    elif isinstance(value, list):
        shown = "a list"
    else:
        shown = str(value)[:40]
    if place[-1] in _COUNTS:
        return f"{shown} is not a list of counts, as in [1, 2, 4]"
    for name, expected in _EXPECTED.items():
        if kind.startswith(name):
            return f"{shown} is not {expected}"
    return str(first["msg"])


def _unknown_key(key: str, model: type[BaseModel]) -> str:
    shown: dict[str, str] = {}
    for table, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            for name in annotation.model_fields:
                shown[name] = f"{name!r} in [{table}]"
    for name in model.model_fields:
        shown[name] = repr(name)
    near = difflib.get_close_matches(key, shown, n=1, cutoff=0.6)
    if near:
        return f"unknown key. Did you mean {shown[near[0]]}?"
    return f"unknown key. Known: {', '.join(sorted(model.model_fields))}"


def _inner(model: type[BaseModel], place: list[Any]) -> type[BaseModel]:
    """Return the model of a table inside another one."""
    for part in place:
        field = model.model_fields.get(part)
        if field is None:
            continue
        kinds = (field.annotation, *typing.get_args(field.annotation))
        model = next(
            kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)
        )
    return model
