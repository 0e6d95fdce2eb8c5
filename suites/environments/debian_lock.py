"""Writes a framework's debian.lock anew from what the Debian mirror has now.

python -m dlbench.suites.environments.debian_lock caffe
"""

import sys
import tempfile
from pathlib import Path

from ..errors import DlbenchError
from ..planning.framework import Framework, find
from . import apt

_HEADER = """\
# Debian {release}: {packages}{needs}.
# Written by: python -m dlbench.suites.environments.debian_lock {name}
# package  version  architecture  bytes  SHA-256
"""


def write(framework: Framework, architecture: str = "amd64") -> int:
    """Write the lock; return how many packages it names. Raises FrameworkEnvironmentError where apt fails."""
    debian = framework.debian
    assert debian is not None
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        client = apt.Client(Path(folder), debian.release, architecture, log)
        client.update()
        wanted = list(debian.packages)
        found = client.describe(client.closure(wanted) if debian.dependencies else wanted)
    lines = [
        f"{each['Package']} {each['Version']} {each['Architecture']} {each['Size']} {each['SHA256']}\n"
        for each in found
    ]
    header = _HEADER.format(
        release=debian.release,
        packages=" ".join(wanted),
        needs=" and all they need" if debian.dependencies else ", these alone",
        name=framework.name,
    )
    (framework.directory / debian.lock).write_text(header + "".join(sorted(lines)), encoding="utf-8")
    return len(lines)


def main(names: list[str]) -> int:
    """Write the locks of these frameworks."""
    try:
        for name in names:
            framework = find(name)
            if framework.debian is None:
                print(f"{name} needs no Debian packages", file=sys.stderr)
                return 2
            print(f"{framework.directory / framework.debian.lock}: {write(framework)} packages")
    except DlbenchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0 if names else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
