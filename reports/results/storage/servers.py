"""A store on a PostgreSQL server: its URL, connecting, and the server's refusals with a remedy.

No name that is shown holds a password.
"""

import random
import sys
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from dlbench.reports.results.errors import StoreError

_POSTGRESQL = "postgresql"
_DRIVER = "postgresql+psycopg"
_SETTINGS: dict[str, str | int] = {
    "application_name": "dlbench",
    "client_encoding": "utf8",
    "connect_timeout": 10,
    # A machine that vanished says nothing: after half a minute it counts as away.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""Settings of libpq, where the URL has no others."""
_WAIT_SECONDS = 30.0
"""The wait for a place on a full server, at most."""
_PAUSE_SECONDS = (0.1, 1.0)
"""The shortest and the longest pause in it."""
_LOCK = 0x646C62656E6368
"""The number of the lock that writers of many rows take; "dlbench" in ASCII."""
_LOCK_MILLISECONDS = 30_000
"""A table that another program holds for longer counts as a server that is away."""


def is_url(target: str) -> bool:
    """Tell whether a store's name is a URL rather than a file."""
    return "://" in target


def is_served(target: str) -> bool:
    """Tell whether a store's name is the URL of one on a server."""
    return is_url(target) and target.partition("://")[0].partition("+")[0] != "sqlite"


def parsed(target: str) -> sa.URL:
    """Return the URL, with psycopg where it names no driver.

    Raises StoreError, which repeats nothing of it.
    """
    try:
        url = sa.make_url(target)
    except (ArgumentError, ValueError) as error:
        raise _not_understood(error) from error
    if "@" in (url.host or ""):
        raise StoreError(
            "The store's URL contains more than one @; write %40 for an @ in the password."
        )
    return url.set(drivername=_DRIVER) if url.drivername in (_POSTGRESQL, "postgres") else url


def public(url: sa.URL) -> str:
    """Return the URL without any password, as it may be shown and typed."""
    options = {name: value for name, value in url.query.items() if "password" not in name.lower()}
    shown = sa.URL.create(
        url.drivername, url.username, None, url.host, url.port, url.database, options
    )
    return shown.render_as_string(hide_password=False)


def has_password(target: str) -> bool:
    """Tell whether a store's name is a URL that holds a secret.

    Raises StoreError for one that cannot be understood.
    """
    if not is_served(target):
        return False
    url = parsed(target)
    return url.password is not None or any("password" in name.lower() for name in url.query)


def without_password(word: str) -> str:
    """Return a word of a command line as it may be shown: the URL of a database without secrets."""
    before, equals, after = "", "", word
    if word.startswith("--"):
        before, equals, after = word.partition("=")
    if not is_served(after) or not after.startswith(_POSTGRESQL[:8]):
        return word
    try:
        return f"{before}{equals}{public(parsed(after))}"
    except StoreError:
        return f"{before}{equals}{after.partition('://')[0]}://..."


def engine_of(url: sa.URL) -> sa.Engine:
    """Return an engine, which connects at its first use; raises StoreError without a driver."""
    served = url.get_backend_name() == _POSTGRESQL
    settings: dict[str, str | int] = {}
    if served:
        settings = {name: value for name, value in _SETTINGS.items() if name not in url.query}
    try:
        # A connection that was idle while the server restarted is replaced when it is used again.
        engine = sa.create_engine(
            url, pool_pre_ping=True, hide_parameters=True, connect_args=settings
        )
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise _not_understood(error) from error
    except ImportError as error:  # psycopg without a libpq is no missing module
        if not served:
            raise StoreError(
                "A store is a file or a PostgreSQL database: postgresql+psycopg://..."
            ) from error
        package = "psycopg[binary]" if url.drivername == _DRIVER else error.name
        raise StoreError(
            f"The store's database needs the Python package {package}; install it beside dlbench: "
            f"{sys.executable} -m pip install '{package}'."
        ) from error
    sa.event.listen(engine, "do_connect", _connected)
    return engine


def _connected(dialect: sa.Dialect, record: Any, arguments: Any, settings: Any) -> Any:
    """Connect; where the server has no place wait for one: many jobs may begin in one second."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return dialect.connect(*arguments, **settings)
        except Exception as error:
            full = is_of_server(error) and _meaning(error)[0] is _FULL
            if not full or time.monotonic() > until:
                raise
        time.sleep(random.uniform(*_PAUSE_SECONDS))  # not all at the same time again


def lock(connection: sa.Connection) -> None:
    """Lock the database against other writers that lock, until this transaction ends.

    SQLite always does.
    """
    if connection.dialect.name == _POSTGRESQL:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def _not_understood(error: Exception) -> StoreError:
    return StoreError(
        "The store's URL cannot be understood; write a file name, or a URL such as "
        f"postgresql+psycopg://USER@HOST/DATABASE ({type(error).__name__})."
    )


_ROLE = (
    "refuses this user ({text}); check the user, and its password in ~/.pgpass, PGPASSWORD or "
    "the URL, or ask the server's administrator."
)
_RIGHTS = (
    "does not allow this user to do that ({text}); ask the database's owner for: USAGE and "
    "CREATE on the schema to make a store; SELECT, INSERT, UPDATE and DELETE on its tables and "
    "USAGE on their sequences to write; SELECT to read."
)
_GONE = "cannot be reached ({text}); check that the server runs, and its host and port."
_FULL = "accepts no further connections ({text}); close others, or raise its limit."
_LONG = (
    "cannot store this text or number ({text}); use shorter names, or choose a file with --store."
)

_BY_STATE = (
    (("42501",), _RIGHTS),
    (("28",), _ROLE),
    (("25006",), "can only be read ({text}); name the server that accepts writes."),
    (("53300", "53400"), _FULL),
    (("53", "58"), "could not be written ({text}); make room on its server. Its content is kept."),
    (("08", "57"), _GONE),
    (("22",), _LONG),
    (("40", "55"), "is held by another program ({text}); run the command again."),
    (
        ("42P01", "42703"),
        "is damaged ({text}); restore it from a copy, or choose another database with --store.",
    ),
)
"""By the beginning of an SQLSTATE (PostgreSQL's documentation, appendix A)."""

# A connection that is refused has no SQLSTATE: only the server's words tell why, if they are
# English.
_BY_WORDS = (
    (
        ("database", "does not exist"),
        (
            "does not exist ({text}); make the database (`createdb NAME` on the server), or "
            "correct its name."
        ),
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


def remedy(cause: Any) -> str:
    """Return the end of a line: a server's refusal (an error of psycopg) and the remedy."""
    meaning, text = _meaning(cause)
    if meaning is None:
        meaning = "cannot be used ({text}); check it, or choose another with --store."
    return meaning.replace("{text}", text)


def _meaning(cause: Any) -> tuple[str | None, str]:
    """Return the meaning of a refusal, and the server's own words in one line.

    The meaning is None where it is unknown.
    """
    message = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    # Lines with a tab are hints, such as "LINE 1".
    lines = [line for line in message.splitlines() if not line.startswith("\t")]
    text = " ".join(" ".join(lines).split())
    state = cause.sqlstate or ""
    if state:
        for states, meaning in _BY_STATE:
            if state.startswith(states):
                return meaning, text
        return None, text
    for parts, meaning in _BY_WORDS:
        if all(part in text for part in parts):
            return meaning, text
    return _GONE, text
