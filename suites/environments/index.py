"""Wheels on the package index, as pip sees it: its index settings, proxies, certificates and
passwords apply.

pip has no command that shows the upload time and the Pythons of a file, but the index's own answer
(the "simple" API) has both. So a small program requests it with pip's own session: another client
would lack pip's certificates, proxies and passwords.
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

        A wheel for any later Python was tested on those that existed when it was uploaded; newer
        ones count only with ``later``.
        """
        # A minor version means its last release: ">=3.7.1" does not exclude 3.7.
        if not self.requires.contains(f"{python}.99"):
            return False
        fitting = self.made_for & _tags(python)
        minor = int(python.partition(".")[2])
        made_for_it = any(
            each.interpreter == f"cp3{minor}" and each.abi != "abi3" for each in fitting
        )
        known_then = (
            self.uploaded is None or date(2011 + minor, 10, 1) <= self.uploaded
        )  # PEP 602: each October
        return made_for_it or (bool(fitting) and (later or known_then))


@cache
def _tags(python: str) -> frozenset[tags.Tag]:
    version = (3, int(python.partition(".")[2]))
    return frozenset(
        (*tags.cpython_tags(version), *tags.compatible_tags(version, f"cp3{version[1]}"))
    )


def wheels(names: Iterable[str]) -> dict[str, tuple[Wheel, ...]]:
    """Return the wheels of these packages on all indexes of pip's settings; none of an unknown
    package.

    Yanked wheels are left out. Each package is requested once per process. Raises
    IndexUnreachableError if a package has no wheel and an index could not be reached, and
    FrameworkEnvironmentError if pip cannot be used.
    """
    wanted = list(dict.fromkeys(str(canonicalize_name(name)) for name in names))
    if missing := [name for name in wanted if name not in _known]:
        pages, problems = _ask(missing)
        found: dict[str, dict[str, Wheel]] = {name: {} for name in missing}
        for name, kind, text in pages:
            found[name] = {each.file: each for each in read_page(name, kind, text)} | found[name]
        if problems and not all(found.values()):
            raise IndexUnreachableError(
                f"The package index could not be reached ({problems[0]}). {_CHECK}"
            )
        _known.update({name: tuple(of.values()) for name, of in found.items()})
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
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise FrameworkEnvironmentError(
            f"pip of {sys.executable} cannot be asked for the files of the package index: "
            f"{said[-1][:200]}. Install pip there, or upgrade it."
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
        with contextlib.suppress(
            LookupError, ValueError, TypeError
        ):  # an sdist, or a name that pip would not take
            project, version, _, made_for = parse_wheel_filename(file["filename"])
            requires = SpecifierSet(file.get("requires-python") or "")
            uploaded = (
                date.fromisoformat(file["upload-time"][:10]) if file.get("upload-time") else None
            )
            if project == name and file.get("yanked") in (None, False):
                yield Wheel(
                    file["filename"],
                    version,
                    made_for,
                    requires,
                    uploaded,
                    int(file.get("size") or 0),
                )


def _links(text: str) -> list[dict[str, Any]]:
    """Return the links of a page of HTML, as the JSON would have them."""
    found: list[dict[str, Any]] = []

    class Page(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "a":
                given = dict(attrs)
                name, requires = (
                    file_name(given.get("href") or ""),
                    given.get("data-requires-python"),
                )
                found.append(
                    {
                        "filename": name,
                        "requires-python": requires,
                        "yanked": "data-yanked" in given,
                    }
                )

    Page().feed(text)
    return found


def file_name(url: str) -> str:
    """Return the name of the file at an address."""
    return unquote(urlsplit(url).path).rpartition("/")[2]
