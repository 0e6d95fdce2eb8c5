"""What an adapter's code is, in twelve hex digits: what other code was found to do or measured is not the same."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ..planning.framework import GUEST_DIRECTORY, Framework

DIGEST = "adapter_digest"
"""In the software of a record made with an adapter outside dlbench: the digest of that adapter's code."""


def adapter_digest(framework: Framework) -> str:
    """Return what changes with the adapter's own code and description; of a step of the user's own, with its file."""
    if framework.file is not None:
        return hashlib.sha256(_content(framework.file) or b"").hexdigest()[:12]  # as its records have it
    folder = framework.directory
    return _digest(folder, [*folder.rglob("*.py"), folder / "framework.toml"])


def code_digest(framework: Framework) -> str:
    """Return what changes with the adapter's code and with the guest's around it."""
    guest = _digest(GUEST_DIRECTORY, GUEST_DIRECTORY.glob("*.py"))
    return f"{guest}-{adapter_digest(framework)}"


def _digest(folder: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = _content(path)
        if content is None:
            continue
        digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:12]


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # a link to nowhere, a folder of that name: nothing that a launch could import
        return None
