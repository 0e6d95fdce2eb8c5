"""The words of the axis ``tuning``: which settings are in force.

A row's settings (``[tuning.NAME]`` in its ``framework.toml``) make it faster than its framework as
installed. ``installed`` has none of them, ``tuned`` all; ``installed+a+b`` has these alone,
``tuned-a`` all others.

Launch settings (``suites/definitions/launch_settings.toml``) concern how a process is started,
whatever the framework. They are in force only where they are named: ``installed+jemalloc``,
``tuned+jemalloc-a``.
"""

import re
from typing import Collection, Sequence, Tuple

from .protocol import INSTALLED, TUNED, UNKNOWN

EACH = "each"
"""A plan's word for: as installed, tuned, each setting alone, and all but each."""
LAUNCH = "launch"
"""A plan's word for: tuned, and tuned with each launch setting that is possible on the machine."""
SWEEPS = (EACH, LAUNCH)
TUNABLE = "tunable"
"""The key of a record's software with the names of the row's settings there, in order."""
THREAD_SETTING = "thread_setting"
"""The key of a record's software with what sets its thread count: a variable of the environment, or
a call."""
_ADDED, _LEFT_OUT = r"((?:\+[a-z][a-z0-9_]*)*)", r"((?:-[a-z][a-z0-9_]*)*)"
_WORD = re.compile("(?:%s%s|%s%s%s)" % (INSTALLED, _ADDED, TUNED, _ADDED, _LEFT_OUT))


def _parts(word: str) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """Return the settings that a word adds and those that it leaves out; raises ValueError for an
    unknown word.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        known = "%s, %s, %s+NAME, %s-NAME, %s+NAME" % (INSTALLED, TUNED, INSTALLED, TUNED, TUNED)
        raise ValueError("%r is not one of %s" % (word[:60], known))
    added = match.group(1) or match.group(2) or ""
    return tuple(added.split("+")[1:]), tuple((match.group(3) or "").split("-")[1:])


def named(word: str) -> Tuple[str, ...]:
    """Return the settings that a word names; raises ValueError for an unknown word."""
    added, left_out = _parts(word)
    return added + left_out


def in_force(word: str, names: Sequence[str]) -> Tuple[str, ...]:
    """Return which settings are in force: of those of the row in their order, then launch settings.

    ``names`` are the row's; every other name that the word adds is a launch setting. None are known
    to be in force where another program measured. Raises ValueError for a word that has no meaning.
    """
    if word == UNKNOWN:
        return ()
    added, left_out = _parts(word)
    of_row = [
        name
        for name in names
        if (name in added if word.startswith(INSTALLED) else name not in left_out)
    ]
    return tuple(of_row + sorted(set(added) - set(names)))


def written(chosen: Collection[str], names: Sequence[str]) -> str:
    """Return the one word for these settings, those of the row being ``names``: equal choices have
    equal words.

    The shorter one; of two as short the one that begins with ``installed``. A row without settings
    is ``tuned``.
    """
    on = [name for name in names if name in chosen]
    off = [name for name in names if name not in chosen]
    of_launch = sorted(set(chosen) - set(names))
    if off and len(on) <= len(off):
        return "+".join([INSTALLED] + on + of_launch)
    return "-".join(["+".join([TUNED] + of_launch)] + off)


def each(names: Sequence[str]) -> Tuple[str, ...]:
    """Return the words of `EACH` for a row with these settings, each choice once; none where it has
    no settings.
    """
    if not names:
        return ()
    choices = [
        (),
        *((name,) for name in names),
        *(tuple(set(names) - {name}) for name in names),
        tuple(names),
    ]
    return tuple(dict.fromkeys(written(chosen, names) for chosen in choices))
