"""Handlers of signals, which commands set for their process and a test must not leave behind."""

import contextlib
import signal
from collections.abc import Iterator

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the handlers of this process afterwards."""
    handlers = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
