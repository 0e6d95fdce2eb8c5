"""One line of a terminal that tells what goes on and vanishes at the end; nothing where the output is no terminal."""

import time
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

# A redraw costs about 2 ms of a core that may be measuring.
_REDRAW_SECONDS = 1.0


class StatusLine:
    """A context manager; outside it nothing is drawn."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._drawn_at = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def draw(self, line: str, at_once: bool = False) -> None:
        """Redraw the line, at most once a second unless it must be at once; a narrow terminal cuts off its end."""
        now = time.monotonic()
        if self._live is None or (not at_once and now - self._drawn_at < _REDRAW_SECONDS):
            return
        self._drawn_at = now
        self._live.update(Text(line, overflow="ellipsis", no_wrap=True), refresh=True)

    def print(self, line: str) -> None:
        """Print a line that stays."""
        self.console.print(Text(line), soft_wrap=True)
