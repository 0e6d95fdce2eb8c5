"""The time that a command may spend on launches."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Budget:
    """Seconds for launches, from when the first one is made; None: no end."""

    seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    _began: float | None = field(default=None, init=False)

    def begin(self) -> None:
        """Let the time run from now on, if it does not yet."""
        if self._began is None:
            self._began = self.clock()

    def left(self) -> float | None:
        """Return the seconds that are left, negative once it is spent; None without an end."""
        if self.seconds is None or self._began is None:
            return self.seconds
        return self.seconds - (self.clock() - self._began)

    def has(self, seconds: float) -> bool:
        """Tell whether so many seconds are left."""
        left = self.left()
        return left is None or left >= seconds
