"""Rewrites a framework's debian.lock from the lists of the Debian mirror.

python -m dlbench.suites.environments.debian_lock caffe
"""

import sys
import tempfile
from pathlib import Path

from ..errors import DlbenchError
from ..planning.framework import find
from .debian import Client


def write_lock(name: str) -> str:
    """Write a framework's lock from the mirror's lists; return its path and number of packages."""
    framework = find(name)
    debian = framework.debian
    if debian is None:
        return f"{name} needs no Debian packages"
    with tempfile.TemporaryDirectory() as folder:
        client = Client(Path(folder), debian.release, "amd64", Path(folder, "log"))
        client.update()
        lines = client.lock_lines(list(debian.packages), debian.dependencies)
    scope = " and all they need" if debian.dependencies else ", these alone"
    header = (
        f"# Debian {debian.release}: {' '.join(debian.packages)}{scope}.\n"
        f"# Written by: python -m dlbench.suites.environments.debian_lock {framework.name}\n"
        "# package  version  architecture  bytes  SHA-256\n"
    )
    path = framework.directory / debian.lock
    path.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
    return f"{path}: {len(lines)} packages"


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            print(write_lock(name))
    except DlbenchError as failure:
        sys.exit(str(failure))
