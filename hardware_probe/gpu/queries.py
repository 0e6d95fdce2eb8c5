"""Asking NVML: a query that fails costs its own answer, and a GPU that is gone is an error."""

from collections.abc import Hashable, Sequence
from typing import Any

# NVML's numbers, part of its C interface, and so not asked of the binding handed in.
_NEVER_ANSWERED = frozenset({3, 4, 13})  # not supported, no permission, no such function in this driver
_GONE = frozenset({1, 9, 15, 16})  # uninitialised, driver not loaded, GPU is lost, GPU requires reset


class GpuGone(Exception):  # noqa: N818 - it is what happened
    """The GPU or its driver is no longer there."""


class Queries:
    """Asks NVML, and does not repeat what can never be answered; `notes` holds what went wrong otherwise, each once."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._never: set[Hashable] = set()
        self.notes: list[str] = []

    def ask(self, function: str, handle: Any, *arguments: Any) -> Any:
        """Return the answer, or None where there is none; raises GpuGone."""
        if handle is None or (function, arguments) in self._never:
            return None
        try:
            return getattr(self._nvml, function)(handle, *arguments)
        except Exception as error:
            # Besides NVMLError: AttributeError from a binding older than the function, a mismatch class of the
            # binding's own. Neither has a number, and both are for ever.
            code = getattr(error, "value", None)
            if code in _GONE:
                raise GpuGone(str(error)) from error
            if code is None or code in _NEVER_ANSWERED:
                self._never.add((function, arguments))
            elif (note := f"{function}: {error}") not in self.notes:
                self.notes.append(note)
            return None

    def first(self, functions: Sequence[str], handle: Any) -> Any:
        """Return the answer of the first of these functions that has one, or None; raises GpuGone."""
        return next((found for each in functions if (found := self.ask(each, handle)) is not None), None)
