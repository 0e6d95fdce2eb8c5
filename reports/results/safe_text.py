r"""Untrusted texts, made inert: a name or a reason can neither command a terminal nor break tables.

A framework, an adapter, a store or a file may contain any text. All output (the formats of this
folder, pictures, the output of commands) shows it as this module does: white space of any kind
becomes a blank, any other invisible character (control characters, marks of direction, zero-width
characters, halves of surrogate pairs) is written as in Python, ``\x1b`` or ``\u202e``, and overlong
text ends in "...". Each format escapes the characters that have a meaning in it (``|``, ``$``,
``<``).
"""

import re
import sys

FIELD = 200
"""Most characters of a name or a table's field."""
LINE = 2000
"""Most characters of a line of text."""
WHOLE = sys.maxsize
"""The same of text that must not be cut."""
_END_OF_FIELD = 60

_CREDENTIALS = (
    # The user of a database, without a password, is no secret: it belongs to the name of a store.
    (re.compile(r"(?<=://)(?<!psycopg://)[^\s/@'\"]+@"), "***@"),
    (re.compile(r"(?<=psycopg://)[^\s/@:'\"]*:[^\s'\"]*@"), "***@"),
    (re.compile(r"(?<=password=)[^\s&'\"]+", re.IGNORECASE), "***"),
)


def without_credentials(text: str) -> str:
    """Return a text without the users and passwords of URLs."""
    if "://" in text:
        for pattern, word in _CREDENTIALS:
            text = pattern.sub(word, text)
    return text


def visible(text: str, most: int = LINE) -> str:
    """Return a text as one line of at most ``most`` characters, all of them visible.

    The user and password of a URL are left out.
    """
    text = without_credentials(text)
    if not text.isprintable():
        text = "".join(map(_visible_character, text[: most + 1]))
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _visible_character(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else written_out(character)


def visible_lines(text: str) -> str:
    """Return a text of several lines, each as `visible` has it."""
    return "\n".join(map(visible, text.split("\n")))


def one_line(text: str, most: int = LINE) -> str:
    """Return the same without blanks at the ends, and never more than one of them."""
    return " ".join(visible(text, most).split())


def table_field(text: str) -> str:
    """Return a table's field in one line.

    An overlong one keeps its end too, which names a test's parameters.
    """
    line = one_line(text)
    if len(line) <= FIELD:
        return line
    return f"{line[: FIELD - _END_OF_FIELD - 3]}...{line[-_END_OF_FIELD:]}"


def written_out(character: str) -> str:
    r"""Return a character as Python writes it where it cannot be shown, such as ``\x1b``."""
    return character.encode("unicode_escape").decode()


_SPELLED = {
    "±": "+/-",
    "\u2013": "-",
    "…": "...",
    "→": "->",
    "\xd7": "x",
    "★": "*",
    "µ": "u",
    "─": "-",
}


def spelled(text: str, encoding: str) -> str:
    """Return a text with our own marks in ASCII where this encoding has none of them: "+/-3%"."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_SPELLED.get(character, character) for character in text)
    return text


_UNSEEN_IN_JSON = re.compile(r"[^\n\x20-\x7e]")


def json_escaped(text: str) -> str:
    r"""Return JSON text with invisible characters as JSON writes them, ``\u001b``.

    It parses to the same. Halves of surrogate pairs, which a name from a command line may hold,
    have no place in JSON and are replaced.
    """
    return _UNSEEN_IN_JSON.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    if "\ud800" <= character <= "\udfff":
        return "\N{REPLACEMENT CHARACTER}"
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
