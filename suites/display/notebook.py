"""Progress in a notebook: one output of text that grows, and a last line that is redrawn."""

import io
import sys
from typing import Any

_MOST_LINES = 40
"""Lines shown; the earlier ones are counted."""


def is_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook, which can redraw an output."""
    shell = sys.modules.get("IPython")
    made = shell.get_ipython() if shell is not None else None
    return type(made).__name__ == "ZMQInteractiveShell"


class NotebookOutput(io.TextIOBase):
    """A stream whose text is one output of the cell that is running."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._unfinished = ""
        self._status = ""
        self._handle: Any = None

    def writable(self) -> bool:
        """Return True: it is there to be written to."""
        return True

    def write(self, text: str) -> int:
        """Add text, and show whole lines."""
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        if lines:
            self._lines += lines
            self._show()
        return len(text)

    def draw(self, line: str) -> None:
        """Redraw the last line; an empty one disappears."""
        self._status = line
        self._show()

    def _show(self) -> None:
        from IPython.display import display

        hidden = len(self._lines) - _MOST_LINES
        shown = [f"... {hidden} earlier lines"] if hidden > 0 else []
        shown += self._lines[-_MOST_LINES:]
        if self._status:
            shown.append(self._status)
        bundle = {"text/plain": "\n".join(shown)}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
