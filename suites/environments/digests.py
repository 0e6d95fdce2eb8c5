"""Digests of builds and adapters, in twelve hex digits, to recognise the code that was measured.

The digest of a build covers all files of the interpreter's package folders, shared libraries
included, the framework's own folder if it is elsewhere, its Debian packages, and the interpreter.
Files that differ between equal installations are left out (bytecode, notes of where and how a
package was installed), and so is dlbench. The digest is stored with the listing (paths, sizes,
times of change) that it was made of, so that a second look reads no file.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..planning.framework import GUEST_DIRECTORY, Framework
from ..planning.variables import is_secret
from .folders import file_digest, home, remembered
from .interpreters import Inspection

_BYTECODE = (".pyc", ".pyo")
_NOTES = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"})
"""In a ``.dist-info`` folder: they name paths of this installation, or who installed it."""
_OWN = ("dlbench", "__editable__.dlbench", "__editable___dlbench")
_DEBIAN = "debian"

_File = tuple[str, str, os.stat_result]
"""Its name below the folder it is found in, the same in every copy of it; its path; its status."""


def adapter_digest(framework: Framework) -> str:
    """Return a digest of the adapter's code and description; of a user's step, of its file."""
    if framework.file is not None:
        digest = hashlib.sha256(_content(framework.file) or b"")
        return digest.hexdigest()[:12]  # as its records have it
    folder = framework.directory
    return _digest(folder, [*folder.rglob("*.py"), folder / "framework.toml"])


def code_digest(framework: Framework) -> str:
    """Return a digest of the adapter's code and of the guest code around it."""
    guest = _digest(GUEST_DIRECTORY, GUEST_DIRECTORY.glob("*.py"))
    return f"{guest}-{adapter_digest(framework)}"


def build_digest(inspection: Inspection) -> str:
    """Return a digest of an interpreter and all files of its packages, wherever they are."""
    files = sorted(_files(inspection))
    listing = hashlib.sha256()
    for name, path, status in files:
        line = name, path, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        listing.update(repr(line).encode(errors="surrogateescape"))
    places = json.dumps([str(inspection.prefix), *map(str, inspection.folders)])
    place = hashlib.sha256(places.encode()).hexdigest()
    kept = home() / "cache" / "contents" / f"{place[:16]}.json"
    contents = remembered(kept, "contents", listing.hexdigest(), lambda: _read(files))
    distributions = sorted(inspection.distributions.items())
    packages = [package for package in distributions if package[0] != "dlbench"]
    content = json.dumps([inspection.name, packages, contents])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def add_variables(digest: str, variables: Mapping[str, str]) -> str:
    """Return a digest of a build and the environment variables of its launches.

    Without any, it is that of the build. A secret counts by its name alone, so that nothing about
    its value can be read from the digest.
    """
    if not digest or not variables:
        return digest
    values = [(name, "" if is_secret(name) else value) for name, value in sorted(variables.items())]
    content = json.dumps([digest, values]).encode(errors="surrogateescape")
    return hashlib.sha256(content).hexdigest()[:12]


def _digest(folder: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = _content(path)
        if content is not None:
            heading = f"{path.relative_to(folder)}\0{len(content)}\0"
            digest.update(heading.encode(errors="surrogateescape"))
            digest.update(content)
    return digest.hexdigest()[:12]


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # a link to nowhere, a folder of that name: nothing that a launch could import
        return None


def _files(inspection: Inspection) -> Iterator[_File]:
    if inspection.executable is not None:
        with contextlib.suppress(OSError):
            executable = inspection.executable.resolve()
            yield "python", str(executable), executable.stat()
    folders = list(dict.fromkeys(folder.resolve() for folder in inspection.folders))
    if inspection.prefix is not None:
        folders.append(inspection.prefix / _DEBIAN)
    for folder in folders:
        if not any(other in folder.parents for other in folders):
            yield from _files_of_folder(str(folder), folder.name)


def _files_of_folder(folder: str, name: str) -> Iterator[_File]:
    """Yield the files of a folder and the folders in it; links to folders are not followed."""
    try:
        entries = list(os.scandir(folder))
    except OSError:  # not there, or not for this user: nothing that a launch could import
        return
    for entry in entries:
        if entry.name.endswith(_BYTECODE) or entry.name == "__pycache__":
            continue
        if entry.name.startswith(_OWN):
            continue
        if name.endswith(".dist-info") and entry.name in _NOTES:
            continue
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                yield from _files_of_folder(entry.path, f"{name}/{entry.name}")
            elif entry.is_file():
                yield f"{name}/{entry.name}", entry.path, entry.stat()


def _read(files: list[_File]) -> str:
    digest = hashlib.sha256()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        digests = pool.map(_digest_of_file, files)
        for (name, _, _), digest_of_file in zip(files, digests, strict=True):
            digest.update(f"{name}\0{digest_of_file}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _digest_of_file(file: _File) -> str:
    _, path, _ = file
    try:
        return file_digest(Path(path))
    except OSError as error:
        return f"cannot be read: {error.errno}"
