"""Small text files of ``/proc`` and ``/sys``, and dataclasses as JSON.

Each function takes a path under a root that the caller chooses, so that tests can feed recorded
trees. Such files are absent, unreadable or empty on some machine or other: the answer is then None
or an empty tuple, never an exception.
"""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

ROOT = Path("/")


def read_text(path: Path) -> str | None:
    """Return the stripped text of a file, or None where it cannot be read or is empty.

    NUL bytes, which end every string of a device tree, are removed.
    """
    try:
        # Not only "no such file": sysfs answers EINVAL, ENODEV, EACCES or EIO for attributes a
        # driver lacks.
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.replace("\0", " ").strip() or None


def read_int(path: Path) -> int | None:
    """Return the integer in a file, or None."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def parse_cpu_list(text: str | None) -> tuple[int, ...]:
    """Return the numbers in the kernel's list format, ascending: ``"0-2,8"`` is ``(0, 1, 2, 8)``.

    Unreadable text gives an empty tuple.
    """
    if not text:
        return ()
    numbers: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            numbers.update(range(int(first), int(last or first) + 1))
    except ValueError:
        return ()
    return tuple(sorted(numbers))


def parse_size(text: str | None) -> int | None:
    """Return the bytes of a size as sysfs writes it: ``"48K"`` is 49152; None for other texts."""
    if not text:
        return None
    factor = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1].upper(), 1)
    digits = text if factor == 1 else text[:-1]
    if not digits.isdecimal():
        return None
    return int(digits) * factor


def parse_fields(lines: Iterable[str], separator: str = ":") -> dict[str, str]:
    """Return ``key: value`` lines as a dictionary.

    Of equal keys the first counts, and other lines are left out.
    """
    fields: dict[str, str] = {}
    for line in lines:
        key, has_separator, value = line.partition(separator)
        if has_separator:
            fields.setdefault(key.strip(), value.strip())
    return fields


def selected_option(text: str | None) -> str | None:
    """Return the choice in brackets of a sysfs setting: of ``"always [madvise]"`` ``"madvise"``."""
    if not text or "[" not in text:
        return None
    return text.partition("[")[2].partition("]")[0] or None


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class JsonRecord:
    """A frozen dataclass that can be written as JSON and read back."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record in JSON's types."""
        kind: Any = type(self)
        record: dict[str, Any] = _adapter(kind).dump_python(self, mode="json")
        return record

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Self:
        """Read a record that `to_dict` wrote; unknown keys are ignored.

        Raises ValueError (pydantic's ValidationError), which names every missing or wrong field.
        """
        kind: Any = cls
        value: Self = _adapter(kind).validate_python(record)
        return value
