"""Dataclasses that are stored as JSON."""

import functools
from typing import Any, Self

from pydantic import TypeAdapter


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class JsonRecord:
    """A frozen dataclass that can be written as JSON and read back."""

    def to_dict(self) -> dict[str, Any]:
        """The record in JSON's types."""
        kind: Any = type(self)
        record: dict[str, Any] = _adapter(kind).dump_python(self, mode="json")
        return record

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote; keys that this version does not know are passed over.

        Raises ValueError (pydantic's ValidationError), which names every missing or wrong field.
        """
        kind: Any = cls
        found: Self = _adapter(kind).validate_python(record)
        return found
