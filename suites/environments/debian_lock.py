"""Rewrites a framework's debian.lock from the lists of the Debian mirror.

python -m dlbench.suites.environments.debian_lock caffe
"""

import sys
import tempfile
from pathlib import Path

from ..errors import DlbenchError
from ..planning.framework import Framework, find
from .debian import Client


def write_lock(framework: Framework, kind: str = "amd64") -> int:
    """Write a framework's lock from the mirror's lists; return how many packages it names."""
    debian = framework.debian
    assert debian is not None
    with tempfile.TemporaryDirectory() as folder:
        client = Client(Path(folder), debian.release, kind, Path(folder, "log"))
        client.update()
        lines = client.lock_lines(list(debian.packages), debian.dependencies)
    needs = " and all they need" if debian.dependencies else ", these alone"
    header = (
        f"# Debian {debian.release}: {' '.join(debian.packages)}{needs}.\n"
        f"# Written by: python -m dlbench.suites.environments.debian_lock {framework.name}\n"
        "# package  version  architecture  bytes  SHA-256\n"
    )
    (framework.directory / debian.lock).write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


if __name__ == "__main__":
    try:
        for given in map(find, sys.argv[1:]):
            if given.debian is None:
                sys.exit(f"{given.name} needs no Debian packages")
            print(f"{given.directory / given.debian.lock}: {write_lock(given)} packages")
    except DlbenchError as failure:
        sys.exit(str(failure))
