"""Wheels on the package index, as pip sees it.

pip's index settings, proxies, certificates and passwords apply. pip has no command that shows the
upload time and the Pythons of a file, but the index's own answer (the "simple" API) has both. So a
small program requests it with pip's own session: another client would lack pip's certificates,
proxies and passwords.
"""

import contextlib
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
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
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
    accept = (
        "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, "
        "text/html; q=0.01"
    )
    for index in [] if options.no_index else [options.index_url, *options.extra_index_urls]:
        for name in names:
            page = "index.html" if index.startswith("file:") else ""
            url = f"{index.rstrip('/')}/{name}/{page}"
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
_CHECK = "Check the network and pip's index settings."
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
    size: int
    """Bytes; 0 where the index does not say."""

    def fits(self, python: str, later: bool = False) -> bool:
        """Return whether it is for this version of Python ("3.12") on this machine.

        A wheel for any later Python was tested on those that existed when it was uploaded. Newer
        ones count only with ``later``.
        """
        # A minor version means its last release: ">=3.7.1" does not exclude 3.7.
        if not self.requires.contains(f"{python}.99"):
            return False
        fitting = self.made_for & _tags(python)
        minor = int(python.partition(".")[2])
        for tag in fitting:
            if tag.interpreter == f"cp3{minor}" and tag.abi != "abi3":
                return True
        released = date(2011 + minor, 10, 1)  # PEP 602: each October
        old_enough = self.uploaded is None or released <= self.uploaded
        return bool(fitting) and (later or old_enough)


@cache
def _tags(python: str) -> frozenset[tags.Tag]:
    minor = int(python.partition(".")[2])
    compatible = tags.compatible_tags((3, minor), f"cp3{minor}")
    return frozenset((*tags.cpython_tags((3, minor)), *compatible))


def wheels(names: Iterable[str]) -> dict[str, tuple[Wheel, ...]]:
    """Return the wheels of these packages on all indexes of pip's settings, by package.

    An unknown package has none, and yanked wheels are left out. Each package is requested once per
    process. Raises IndexUnreachableError if a package has no wheel and an index could not be
    reached, and FrameworkEnvironmentError if pip cannot be used.
    """
    wanted = list(dict.fromkeys(str(canonicalize_name(name)) for name in names))
    missing = [name for name in wanted if name not in _known]
    if missing:
        pages, problems = _ask(missing)
        by_file: dict[str, dict[str, Wheel]] = {name: {} for name in missing}
        for name, kind, text in pages:
            page = {wheel.file: wheel for wheel in read_page(name, kind, text)}
            by_file[name] = page | by_file[name]  # the first index with a file is the one used
        if problems and not all(by_file.values()):
            raise IndexUnreachableError(
                f"The package index could not be reached ({problems[0]}). {_CHECK}"
            )
        for name, files in by_file.items():
            _known[name] = tuple(files.values())
    return {name: _known[name] for name in wanted}


def _ask(names: list[str]) -> tuple[list[tuple[str, str, str]], list[str]]:
    command = [sys.executable, "-I", "-c", _ASK, *names]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        pages, problems = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise IndexUnreachableError(f"The package index did not answer. {_CHECK}") from error
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise FrameworkEnvironmentError(
            f"pip of {sys.executable} cannot be asked for the files of the package index: "
            f"{lines[-1][:200]}. Install pip there, or upgrade it."
        ) from error
    return pages, problems


def read_page(name: str, kind: str, text: str) -> Iterator[Wheel]:
    """Yield the wheels of a page of the index, in JSON or HTML (PEP 503, 691 and 700)."""
    try:
        files = json.loads(text)["files"] if "json" in kind else _links(text)
    except (ValueError, LookupError, TypeError) as error:
        raise FrameworkEnvironmentError(
            f"The package index's answer for {name} cannot be read."
        ) from error
    for file in files:
        # An sdist, or a name that pip would not take, raises one of these.
        with contextlib.suppress(LookupError, ValueError, TypeError):
            project, version, _, made_for = parse_wheel_filename(file["filename"])
            requires = SpecifierSet(file.get("requires-python") or "")
            uploaded = None
            if file.get("upload-time"):
                uploaded = date.fromisoformat(file["upload-time"][:10])
            if project == name and file.get("yanked") in (None, False):
                size = int(file.get("size") or 0)
                yield Wheel(file["filename"], version, made_for, requires, uploaded, size)


def _links(text: str) -> list[dict[str, Any]]:
    """Return the links of a page of HTML, in the form of the JSON."""
    links: list[dict[str, Any]] = []

    class Page(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "a":
                return
            given = dict(attrs)
            link = {
                "filename": file_name(given.get("href") or ""),
                "requires-python": given.get("data-requires-python"),
                "yanked": "data-yanked" in given,
            }
            links.append(link)

    Page().feed(text)
    return links


def file_name(url: str) -> str:
    """Return the name of the file at an address."""
    return unquote(urlsplit(url).path).rpartition("/")[2]
