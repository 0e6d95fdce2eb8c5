"""The words of the axis ``tuning``: which settings are in force.

A row's settings (``[tuning.NAME]`` in its ``framework.toml``) make it faster than its framework as
installed. ``installed`` has none of them, ``tuned`` has all. ``installed+a+b`` has these alone,
``tuned-a`` all others.

Launch settings (``suites/definitions/launch_settings.toml``) concern how a process is started,
whatever the framework. They are in force only where they are named: ``installed+jemalloc``,
``tuned+jemalloc-a``.
"""

import re
from typing import Collection, List, Sequence, Tuple

from .protocol import INSTALLED, TUNED, UNKNOWN

#: A plan's word for: as installed, tuned, each setting alone, and all but each.
EACH = "each"
#: A plan's word for: tuned, and tuned with each launch setting that is possible on the machine.
LAUNCH = "launch"
SWEEPS = (EACH, LAUNCH)
_ADDED = r"((?:\+[a-z][a-z0-9_]*)*)"
_LEFT_OUT = r"((?:-[a-z][a-z0-9_]*)*)"
_WORD = re.compile("(?:%s%s|%s%s%s)" % (INSTALLED, _ADDED, TUNED, _ADDED, _LEFT_OUT))


def _parts(word: str) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """Return the settings that a word adds and those that it leaves out.

    Raises ValueError for an unknown word.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        forms = "%s, %s, %s+NAME, %s-NAME, %s+NAME" % (INSTALLED, TUNED, INSTALLED, TUNED, TUNED)
        raise ValueError("%r is not one of %s" % (word[:60], forms))
    added = match.group(1) or match.group(2) or ""
    left_out = match.group(3) or ""
    return tuple(added.split("+")[1:]), tuple(left_out.split("-")[1:])


def named(word: str) -> Tuple[str, ...]:
    """Return the settings that a word names; raises ValueError for an unknown word."""
    added, left_out = _parts(word)
    return added + left_out


def in_force(word: str, names: Sequence[str]) -> Tuple[str, ...]:
    """Return the settings in force: first those of the row in their order, then launch settings.

    ``names`` are the row's. Every other name that the word adds is a launch setting. None are known
    to be in force where another program measured. Raises ValueError for a word that has no meaning.
    """
    if word == UNKNOWN:
        return ()
    added, left_out = _parts(word)
    if word.startswith(INSTALLED):
        row_settings = [name for name in names if name in added]
    else:
        row_settings = [name for name in names if name not in left_out]
    launch_settings = sorted(set(added) - set(names))
    return tuple(row_settings + launch_settings)


def written(chosen: Collection[str], names: Sequence[str]) -> str:
    """Return the one word for these settings, where ``names`` are the row's.

    Equal choices have equal words. It is the shorter word, and of two equally short ones that which
    begins with ``installed``. A row without settings is ``tuned``.
    """
    on = [name for name in names if name in chosen]
    off = [name for name in names if name not in chosen]
    launch_settings = sorted(set(chosen) - set(names))
    if off and len(on) <= len(off):
        return "+".join([INSTALLED] + on + launch_settings)
    tuned = "+".join([TUNED] + launch_settings)
    return "-".join([tuned] + off)


def sweep_words(names: Sequence[str]) -> Tuple[str, ...]:
    """Return the words of `EACH` for a row with these settings, each choice once.

    A row without settings has none.
    """
    if not names:
        return ()
    choices: List[Collection[str]] = [()]
    for name in names:
        choices.append([name])
    for left_out in names:
        choices.append([name for name in names if name != left_out])
    choices.append(names)
    words = [written(chosen, names) for chosen in choices]
    return tuple(dict.fromkeys(words))
