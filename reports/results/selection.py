"""Names on the command line: the known names that a list of words means.

A name is exact before it is a list or a pattern. Test ids are names too, and they hold brackets,
commas and stars.
"""

import difflib
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

_SIGNS_OF_A_PATTERN = "*?["
MOST_LISTED = 40
"""Known names that an error lists, at most."""


class Selection(NamedTuple):
    """The names that a list of words means, and the words that mean none."""

    names: tuple[str, ...]
    unknown: tuple[str, ...]


def names_meant(text: str, known: Iterable[str]) -> Selection:
    """Return the known names that a list of words means, in the order of the list.

    Commas separate words, and a word is a name or a pattern such as ``lstm*``. A name counts before
    a pattern, and as a whole before a list: ``test_c[1]`` is the benchmark of this name and never
    ``test_c1``, and ``test[1,2]`` is one word where a benchmark is called so. Where several known
    names begin at the same place of the list, the longest counts. The words that mean none are
    returned too.
    """
    names = dict.fromkeys(known)
    meant: dict[str, None] = {}
    unknown = []
    for word in words_of(text, names):
        matching = names_matching(word, names)
        meant.update(dict.fromkeys(matching))
        if not matching:
            unknown.append(word)
    return Selection(tuple(meant), tuple(unknown))


def words_of(text: str, known: Collection[str]) -> list[str]:
    """Split a list at its commas, but not within a known name, nor within a pattern's brackets."""
    parts = text.split(",")
    most = 1 + max((name.count(",") for name in known), default=0)
    words = []
    place = 0
    while place < len(parts):
        word, length = _known_word(parts[place : place + most], known)
        if not length:
            word, length = _other_word(parts[place:])
        if word:
            words.append(word)
        place += length
    return words


def _known_word(parts: Sequence[str], known: Collection[str]) -> tuple[str, int]:
    """Return the longest known name that these parts begin with, and its number of parts.

    The number is 0 where there is none.
    """
    for length in range(len(parts), 0, -1):
        word = ",".join(parts[:length])
        for form in (word, word.strip()):
            if form in known:
                return form, length
    return "", 0


def _other_word(parts: Sequence[str]) -> tuple[str, int]:
    """Return the first word up to a comma outside brackets, and its number of parts."""
    depth = 0
    for length, part in enumerate(parts, 1):
        depth += part.count("[") - part.count("]")
        if depth <= 0:
            return ",".join(parts[:length]).strip(), length
    return parts[0].strip(), 1


def names_matching(word: str, known: Collection[str]) -> list[str]:
    """Return the known name that this word is, else those that fit it as a pattern.

    Brackets of a pattern are those of names first (``test_c[*]``), and a set of characters where no
    name has them.
    """
    if word in known:
        return [word]
    if not any(sign in word for sign in _SIGNS_OF_A_PATTERN):
        return []
    literally = word.replace("[", "[[]")
    for pattern in (literally, word):
        matching = [name for name in known if fnmatchcase(name, pattern)]
        if matching:
            return matching
    return []


def suggestion(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return a sentence with the known names nearest to an unknown one, else with all of them."""
    names = sorted(known)
    longer = [known_name for known_name in names if known_name.startswith(f"{name}.")]
    near = difflib.get_close_matches(name, names, n=most, cutoff=0.6)
    if longer:
        near = longer[-most:]  # 0.4.38 for 0.4
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    listed = ", ".join(names[:MOST_LISTED])
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"There are: {listed}{more}."
