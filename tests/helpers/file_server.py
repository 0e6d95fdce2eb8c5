"""A server of a folder's files that can stall and notes what it was asked for."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.stalls and self.path.endswith(self.server.stalls):
            path = Path(self.translate_path(self.path))
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(path.read_bytes()[: path.stat().st_size // 2])
                self.wfile.flush()
                self.server.stalled.set()
                self.server.go_on.wait(60)
            return
        super().do_GET()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder; a file whose address ends with ``stalls`` stops after its first bytes."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(
            ("127.0.0.1", 0), lambda *arguments: _Handler(*arguments, directory=str(folder))
        )
        self.asked: list[str] = []
        self.stalls = ""
        self.stalled = threading.Event()
        self.go_on = threading.Event()

    @property
    def address(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def downloads(self) -> list[str]:
        """Return the names of the packages that were asked for."""
        return [Path(path).name for path in self.asked if path.endswith(".deb")]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a folder."""
    server = Server(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()
