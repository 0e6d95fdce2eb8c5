"""Which NVML is asked about GPUs: the driver's, through pynvml, or a stand-in.

A stand-in plays drivers and GPUs that a machine does not have, so that all that is done with GPUs can be tried without
one. The variable DLBENCH_NVML names it: `module:attribute`, or a path to a Python file with an object `nvml` in it. It
has pynvml's functions; one that it lacks counts as missing from the driver.
"""

import functools
import importlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pynvml

VARIABLE = "DLBENCH_NVML"
_IN_A_FILE = "nvml"


def in_use() -> Any:
    """The NVML to ask: pynvml's module or the stand-in. Raises nothing.

    A stand-in that cannot be loaded is an NVML whose `nvmlInit` fails with the reason, as that of a broken driver does.
    """
    text = os.environ.get(VARIABLE, "")
    return _stand_in(text) if text else pynvml


class _Unusable:
    """An NVML that does not start."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def nvmlInit(self) -> None:  # noqa: N802
        """Say why."""
        raise RuntimeError(self._reason)


@functools.cache  # one object for a process: a stand-in may remember what it was asked
def _stand_in(text: str) -> Any:
    try:
        if text.endswith(".py"):
            return getattr(_module_in(Path(text)), _IN_A_FILE)
        module, _, attribute = text.partition(":")
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's own code raises
        said = " ".join(str(error).split()) or type(error).__name__
        return _Unusable(f"{VARIABLE}={text} cannot be used: {said}")


def _module_in(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlbench_nvml_stand_in", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(answer: Any) -> str | None:
    """Return an answer that is text, which older bindings give as bytes; None where there was none."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    return None if answer is None else str(answer)
