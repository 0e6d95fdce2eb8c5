"""A PostgreSQL server of a test's own: in a folder of its own, on the loopback, as a user without
rights."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

OWNER = "owner"
_PATIENCE = 30.0


def programs() -> Path | None:
    """Return the folder of initdb and postgres, of the newest where there are several; None where
    there is none."""
    # Debian keeps them out of the path: only the newest's clients are for everybody.
    initdbs = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    result = str(initdbs[-1]) if initdbs else shutil.which("initdb")
    return Path(result).parent if result else None


class Server:
    """A server that can be stopped and started again; each `database` is a new one."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self._binaries = folder, binaries
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._as_somebody: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
        self._as_somebody["env"] = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(folder)}
        if os.getuid() == 0:  # as whom PostgreSQL refuses to run
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            self._as_somebody |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        # Sorted as people do, not by bytes: what the store's order rests on must not depend on it.
        sorted_by = ["--locale=C", "--locale-provider=icu", "--icu-locale=en-US", "--encoding=UTF8"]
        initdb = [
            binaries / "initdb",
            "-D",
            folder / "data",
            "-U",
            OWNER,
            "-A",
            "trust",
            "--no-sync",
            *sorted_by,
        ]
        subprocess.run(initdb, check=True, capture_output=True, **self._as_somebody)
        allowed = (
            "host all guarded 127.0.0.1/32 scram-sha-256",
            "host all all 127.0.0.1/32 trust",
            "",
        )
        (folder / "data" / "pg_hba.conf").write_text("\n".join(allowed))

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        settings |= {"shared_buffers": "16MB", "max_connections": "40", "autovacuum": "off"}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [
            self._binaries / "postgres",
            "-D",
            self.folder / "data",
            "-p",
            str(self.port),
            *words,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, **self._as_somebody
            )
        readiness_check = [
            self._binaries / "pg_isready",
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        deadline = time.monotonic() + _PATIENCE
        while subprocess.run(readiness_check).returncode != 0:
            ended = self._process.poll() is not None or time.monotonic() > deadline
            assert not ended, (self.folder / "log").read_text()
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it as an administrator does; with SIGQUIT as a machine that loses its power."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE)
            self._process = None

    def url(self, database: str, user: str = OWNER, password: str = "") -> str:
        login = f"{user}:{password}" if password else user
        return f"postgresql+psycopg://{login}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """Make a database and return its name; a server that a test left stopped is started."""
        if self._process is None:
            self.start()
        self._made += 1
        name = f"results_{self._made}"
        self.carry_out("CREATE DATABASE {name}", {"name": name})
        return name

    def carry_out(
        self, statement: str, names: Mapping[str, str] | None = None, database: str = "postgres"
    ) -> list[Any]:
        """Carry out a statement as the owner of all, each {name} in it replaced by an identifier;
        return its rows."""
        identifiers = {key: sql.Identifier(name) for key, name in (names or {}).items()}
        address = {"host": "127.0.0.1", "port": self.port, "user": OWNER, "dbname": database}
        with psycopg.connect(**address, autocommit=True) as connection:  # type: ignore[arg-type]
            answer = connection.execute(sql.SQL(statement).format(**identifiers))  # type: ignore[arg-type]
            return answer.fetchall() if answer.description else []


@contextlib.contextmanager
def server(binaries: Path) -> Iterator[Server]:
    """Make and start a server, and end it with all it holds."""
    with tempfile.TemporaryDirectory(
        prefix="dlbench-postgresql-", ignore_cleanup_errors=True
    ) as folder:
        started_server = Server(Path(folder), binaries)
        try:
            started_server.start()
            yield started_server
        finally:
            started_server.stop(signal.SIGQUIT)  # nothing of it is kept
