"""Wheels on the package index, as pip sees it: its index settings, proxies, certificates and passwords apply.

pip has no command that says when a file was uploaded and for which Pythons it is, and the index's own answer (the
"simple" API) has both. So a small program asks with pip's own session for it.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging import tags
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ..errors import FrameworkEnvironmentError, IndexUnreachableError

# Prints (name, type, text) of each page of these packages, and which pages could not be had.
_ASK = """
import json, sys
from pip._internal.commands import create_command

pages, problems = [], []
command = create_command("download")
with command.main_context():
    options, names = command.parse_args(["--no-input", "--retries", "1", *sys.argv[1:]])
    options.cache_dir = None
    session = command.get_default_session(options)
    accept = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01"
    for index in [] if options.no_index else [options.index_url, *options.extra_index_urls]:
        for name in names:
            url = index.rstrip("/") + "/" + name + "/" + ("index.html" if index.startswith("file:") else "")
            try:
                answer = session.get(url, headers={"Accept": accept})
                if answer.status_code == 200:
                    kind = answer.headers.get("Content-Type", "")
                    pages.append((name, kind, answer.content.decode("utf-8", "replace")))
                elif answer.status_code != 404:
                    problems.append("it answers %d" % answer.status_code)
            except Exception as error:
                problems.append(type(error).__name__)
print(json.dumps([pages, problems]))
"""
_PATIENCE = 600.0
_known: dict[str, tuple["Wheel", ...]] = {}


@dataclass(frozen=True)
class Wheel:
    """A wheel on the index."""

    file: str
    version: Version
    made_for: frozenset[tags.Tag]
    requires: SpecifierSet
    """Of Python."""
    uploaded: date | None
    """None where the index does not say."""
    size: int | None
    """Bytes; None where the index does not say."""

    def fits(self, python: str, later: bool = False) -> bool:
        """Return whether it is for this version of Python ("3.12") on this machine.

        A wheel for any later Python too was tried on those that there were when it was uploaded: others do only where
        ``later`` says so.
        """
        # Of a minor version its last release is meant: ">=3.7.1" is no reason against 3.7.
        if not self.requires.contains(f"{python}.99"):
            return False
        fitting = self.made_for & _tags(python)
        minor = int(python.partition(".")[2])
        made_for_it = any(each.interpreter == f"cp3{minor}" and each.abi != "abi3" for each in fitting)
        known_then = self.uploaded is None or date(2011 + minor, 10, 1) <= self.uploaded  # PEP 602: each October
        return made_for_it or (bool(fitting) and (later or known_then))


@cache
def _platforms() -> tuple[str, ...]:
    return tuple(tags.platform_tags())


@cache
def _tags(python: str) -> frozenset[tags.Tag]:
    version = (3, int(python.partition(".")[2]))
    of_all = tags.compatible_tags(version, f"cp3{version[1]}", _platforms())
    return frozenset((*tags.cpython_tags(version, platforms=_platforms()), *of_all))


def wheels(names: Iterable[str]) -> dict[str, tuple[Wheel, ...]]:
    """Return the wheels of these packages on all indexes of pip's settings; none of an unknown package.

    Left out are yanked ones and those of pre-releases. Each package is asked for once in a process. Raises
    IndexUnreachableError where one has no wheel and an index could not be reached, and FrameworkEnvironmentError where
    pip cannot be asked.
    """
    wanted = [str(canonicalize_name(name)) for name in names]
    missing = [name for name in dict.fromkeys(wanted) if name not in _known]
    if missing:
        pages, problems = _ask(missing)
        found: dict[str, dict[str, Wheel]] = {name: {} for name in missing}
        for name, kind, text in pages:
            for wheel in read_page(name, kind, text):
                found[name].setdefault(wheel.file, wheel)
        if problems and not all(found.values()):
            raise IndexUnreachableError(
                f"The package index could not be reached ({problems[0]}). Check the network and pip's index settings."
            )
        _known.update({name: tuple(of.values()) for name, of in found.items()})
    return {name: _known[name] for name in wanted}


def _ask(names: list[str]) -> tuple[list[tuple[str, str, str]], list[str]]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _ASK, *names],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        pages, problems = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise IndexUnreachableError(
            "The package index did not answer. Check the network and pip's index settings."
        ) from error
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise FrameworkEnvironmentError(
            f"pip of {sys.executable} cannot be asked for the files of the package index: {said[-1][:200]}. Install "
            "pip there, or upgrade it."
        ) from error
    return pages, problems


def read_page(name: str, kind: str, text: str) -> Iterator[Wheel]:
    """Yield the wheels of a page of the index, in JSON or HTML (PEP 503, 691 and 700)."""
    if "json" in kind:
        try:
            files = json.loads(text)["files"]
        except (ValueError, LookupError, TypeError) as error:
            raise FrameworkEnvironmentError(f"The package index's answer for {name} cannot be read.") from error
    else:
        page = _Page()
        page.feed(text)
        files = page.files
    for each in files:
        if (wheel := _wheel(name, each)) is not None:
            yield wheel


def _wheel(name: str, file: dict[str, Any]) -> Wheel | None:
    try:
        project, version, _, of = parse_wheel_filename(str(file["filename"]))
        requires = SpecifierSet(file.get("requires-python") or "")
        uploaded = date.fromisoformat(file["upload-time"][:10]) if file.get("upload-time") else None
    except (InvalidWheelFilename, InvalidSpecifier, LookupError, ValueError, TypeError):
        return None  # an sdist, or a name that pip would not take
    if project != name or version.is_prerelease or file.get("yanked") not in (None, False):
        return None
    size = file.get("size")
    return Wheel(str(file["filename"]), version, of, requires, uploaded, size if isinstance(size, int) else None)


class _Page(HTMLParser):
    """The links of a page, as the JSON would have them."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[dict[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            yanked = (given["data-yanked"] or True) if "data-yanked" in given else None
            self.files.append(
                {
                    "filename": file_name(given["href"] or ""),
                    "requires-python": given.get("data-requires-python"),
                    "yanked": yanked,
                }
            )


def file_name(url: str) -> str:
    """Return the name of the file at an address."""
    return unquote(urlsplit(url).path).rpartition("/")[2]
