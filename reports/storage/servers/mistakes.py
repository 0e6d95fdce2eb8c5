"""What a database server refuses, in words that name the remedy."""

from typing import Any

_ROLE = (
    "refuses this user ({text}); check the user, and its password in ~/.pgpass, PGPASSWORD or the URL, or ask the "
    "server's administrator."
)
_RIGHTS = (
    "lets this user not do that ({text}); let the database's owner grant it: USAGE and CREATE on the schema to make a "
    "store, SELECT, INSERT, UPDATE and DELETE on its tables, and USAGE on their sequences, to write, SELECT to read."
)
_GONE = "cannot be reached ({text}); check that the server runs, and its host and port."
_FULL = "takes no further connection ({text}); close others, or raise its limit."
_LONG = "cannot hold such a text or number ({text}); give shorter names, or choose a file with --store."

_BY_STATE = (
    (("42501",), _RIGHTS),
    (("28",), _ROLE),
    (("25006",), "can only be read ({text}); name the server that may be written to."),
    (("53300", "53400"), _FULL),
    (("53", "58"), "could not be written ({text}); make room on its server. What it held is kept."),
    (("08", "57"), _GONE),
    (("22",), _LONG),
    (("40", "55"), "is held by another program ({text}); run the command again."),
    (("42P01", "42703"), "is damaged ({text}); restore it from a copy, or choose another database with --store."),
)
"""By the beginning of an SQLSTATE (PostgreSQL's documentation, appendix A)."""

# A connection that is refused has no SQLSTATE: only the server's words tell why, if they are English.
_BY_WORDS = (
    (
        ("database", "does not exist"),
        "does not exist ({text}); make the database (`createdb NAME` on the server), or correct its name.",
    ),
    (("password",), _ROLE),
    (("role", "does not exist"), _ROLE),
    (("authentication failed",), _ROLE),
    (("pg_hba.conf",), _ROLE),
    (("invalid",), "cannot be used ({text}); correct its URL."),
    (("too many",), _FULL),
    (("connection slots",), _FULL),
)


def is_of_server(cause: Any) -> bool:
    """Tell whether a driver's error is one of PostgreSQL's."""
    return hasattr(cause, "sqlstate")


def is_full(cause: Any) -> bool:
    """Tell whether a server refused a connection because it has as many as it may."""
    return is_of_server(cause) and _meaning(cause)[0] is _FULL


def remedy(cause: Any) -> str:
    """Return what a server's refusal (an error of psycopg) means for the store, and what to do: the end of a line."""
    found, text = _meaning(cause)
    return (found or "cannot be used ({text}); check it, or choose another with --store.").replace("{text}", text)


def _meaning(cause: Any) -> tuple[str | None, str]:
    """Return what a refusal means, None where that is not known, and the server's own words in one line."""
    state = cause.sqlstate or ""
    told = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    lines = (line for line in told.splitlines() if not line.startswith("\t"))  # those are hints, such as "LINE 1"
    text = " ".join(" ".join(lines).split())
    if state:
        found = next((words for states, words in _BY_STATE if state.startswith(states)), None)
    else:
        found = next((words for parts, words in _BY_WORDS if all(part in text for part in parts)), _GONE)
    return found, text
