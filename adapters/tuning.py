"""The words of the axis ``tuning``: which of a row's settings are in force.

A row's settings (``[tuning.NAME]`` in its ``framework.toml``) make it faster than its framework as
installed. ``installed`` has none of them, ``tuned`` all; ``installed+a+b`` has these alone, ``tuned-a`` all others.
"""

import re
from typing import Collection, Sequence, Tuple

from .protocol import INSTALLED, TUNED

EACH = "each"
"""A plan's word for: as installed, tuned, each setting alone, and all but each."""
TUNABLE = "tunable"
"""The key of a record's software with the names of the row's settings there, in order."""
THREAD_SETTING = "thread_setting"
"""The key of a record's software with what sets its thread count: a variable of the environment, or a call."""
_WORD = re.compile(r"(%s((?:\+[a-z][a-z0-9_]*)*)|%s((?:-[a-z][a-z0-9_]*)*))" % (INSTALLED, TUNED))


def named(word: str) -> Tuple[str, ...]:
    """Return the settings that a word names; raises ValueError for an unknown word."""
    match = _WORD.fullmatch(word)
    if match is None:
        raise ValueError("%r is not one of %s, %s, %s+NAME, %s-NAME" % (word[:60], INSTALLED, TUNED, INSTALLED, TUNED))
    return tuple((match.group(2) or "").split("+")[1:]) + tuple((match.group(3) or "").split("-")[1:])


def in_force(word: str, names: Sequence[str]) -> Tuple[str, ...]:
    """Return which of a row's settings are in force, in their order; raises ValueError for an unknown word."""
    mentioned = named(word)
    if word.startswith(INSTALLED):
        return tuple(name for name in names if name in mentioned)
    return tuple(name for name in names if name not in mentioned)


def written(chosen: Collection[str], names: Sequence[str]) -> str:
    """Return the one word for these of a row's settings: equal choices have equal words.

    The shorter one; of two as short the one that begins with ``installed``. A row without settings is ``tuned``.
    """
    on = [name for name in names if name in chosen]
    off = [name for name in names if name not in chosen]
    if not off:
        return TUNED
    return "+".join([INSTALLED] + on) if len(on) <= len(off) else "-".join([TUNED] + off)


def each(names: Sequence[str]) -> Tuple[str, ...]:
    """Return the words of `EACH` for a row with these settings, each choice once; none where it has no settings."""
    if not names:
        return ()
    choices = [(), *((name,) for name in names), *(tuple(set(names) - {name}) for name in names), tuple(names)]
    return tuple(dict.fromkeys(written(chosen, names) for chosen in choices))
