"""What the command line narrows or overrides of a suite, as one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .axes import KEYS, option_of
from .values import Build

if TYPE_CHECKING:
    from .own_steps import OwnSteps

PROTOCOL_KEYS = ("launches", "interval", "cell_budget")


class Choices:
    """Words by key, as they were typed; a key that is absent is as the suite says."""

    def __init__(
        self,
        given: Mapping[str, str | None] | None = None,
        *,
        steps: int | None = None,
        builds: tuple[Build, ...] = (),
        joining: tuple[str, ...] = (),
        own: OwnSteps | None = None,
        **further: Any,
    ) -> None:
        """Take the words that are given; raises UsageError for empty ones.

        ``joining`` are frameworks that join the suite's rows where none are named: adapters given for this command.
        ``own`` are steps of the user's own, which take the place of the suite's networks and rows.
        """
        self.steps = steps
        self.builds = builds
        self.joining = joining
        self.own = own
        words = {**(given or {}), **further}
        self.words: Mapping[str, str] = {key: str(word) for key, word in words.items() if word is not None}
        unknown = set(words) - {*KEYS, *PROTOCOL_KEYS}
        if unknown:
            raise TypeError(f"no such choices: {sorted(unknown)}")
        for key, word in self.words.items():
            if not word.strip():
                raise UsageError(f"{option_of(key)} is empty. Give a value, or leave the option out.")

    def __getitem__(self, key: str) -> str:
        """Return the words of this key; empty where none were given."""
        return self.words.get(key, "")

    def but(self, **changed: Any) -> Choices:
        """Return these choices with some changed; None takes one away."""
        kept = {"steps": self.steps, "builds": self.builds, "joining": self.joining, "own": self.own, **self.words}
        return Choices(**{**kept, **changed})

    @property
    def narrows(self) -> bool:
        """Whether anything but builds and adapters was chosen."""
        return bool(self.words) or self.steps is not None or self.own is not None
