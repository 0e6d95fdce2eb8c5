"""A text to train character models on: symbols of a small alphabet, and what a record keeps of it."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..environments.folders import home, make_folder, written

Symbols = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Text:
    """A text as symbols from 0."""

    name: str
    """Where it comes from: "generated" or "corpus"; a user's file has no name in a record."""
    symbols: Symbols
    floor: float | None = None
    """Nats for a symbol that no model can do better than; None where nobody knows."""
    note: str = ""
    """What is to be said of how it was read."""

    @cached_property
    def digest(self) -> str:
        """What tells two texts apart."""
        return hashlib.sha256(self.symbols.tobytes()).hexdigest()[:16]

    def described(self) -> dict[str, Any]:
        """Return what a record keeps of it."""
        return {"name": self.name, "digest": self.digest, "symbols": len(self.symbols), "floor": self.floor}

    def file(self) -> Path:
        """Return the file that launches read, written where it is not there yet or is another's."""
        path = make_folder(home() / "texts") / f"{self.digest}.bin"
        if not (path.is_file() and path.read_bytes() == self.symbols.tobytes()):
            partial = path.with_name(f"{path.name}.{os.getpid()}.part")
            with written(path.parent):
                partial.write_bytes(self.symbols.tobytes())
                partial.replace(path)
        return path
