"""Jobs as shell scripts, one for each node: for a scheduler that dlbench does not know, or for hands."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from ...errors import FrameworkEnvironmentError, UsageError
from .scheduler import UNKNOWN, Seen, Wanted

_CANNOT_BE_ASKED = "its scheduler cannot be asked"


class Scripts:
    """A folder of scripts as a Scheduler; a handle is the script's path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return the names given; raises UsageError where there are none, or fewer than ``count``."""
        for name in named:
            if not self.usable(name):
                raise UsageError(f"{name!r} is no name of a node: use letters, digits and signs, without blanks.")
        pool = list(dict.fromkeys(named))
        if not pool or (count is not None and len(pool) < count):
            raise UsageError("Nobody can be asked which nodes there are: name each that is meant with --nodelist.")
        return pool[:count]

    def submit(self, wanted: Wanted) -> str:
        """Write the script of a job; one of the same number is replaced."""
        path = self._folder / f"job-{wanted.number}.sh"
        lines = (
            "#!/bin/sh",
            f"# Job {wanted.number} of a fleet of dlbench, for {f'node {wanted.node}' if wanted.node else 'any node'}.",
            "set -e",
            f"cd {shlex.quote(str(Path.cwd()))}",
            f"exec {shlex.join(wanted.command)}",
            "",
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines), encoding="utf-8")
            path.chmod(0o755)
        except OSError as error:
            raise FrameworkEnvironmentError(f"{path} could not be written: {error.strerror}.") from error
        return str(path)

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Tell of no job anything: only the store knows what it does."""
        return dict.fromkeys(handles, Seen(UNKNOWN, _CANNOT_BE_ASKED))

    def cancel(self, handles: Sequence[str]) -> None:
        """Raise UsageError: only the scheduler that runs the scripts can end them."""
        if handles:
            raise UsageError(
                f"Jobs by scripts cannot be ended from here: {_CANNOT_BE_ASKED}. End them with its own command."
            )

    def log(self, handle: str) -> Path | None:
        """Return None: the scheduler that runs the script decides."""
        return None

    def usable(self, node: str) -> bool:
        """Tell whether a name can be one of a node."""
        return bool(node) and node.isprintable() and not any(sign.isspace() for sign in node)
