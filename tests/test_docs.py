"""The documentation: its pages can be reached, its links lead somewhere, and it stays short.

These tests need no Sphinx. `.ci/run` builds the site, in which a warning is an error.
"""

import ast
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("suites", "adapters", "hardware_probe", "reports", "tests")
PARTS = ("tutorials", "how-to", "questions", "reference", "explanation")
WORDS = 25_000
"""All Markdown of the repository together has at most so many words, as `wc -w` counts them."""
_CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def documents() -> list[Path]:
    """Return every Markdown file that belongs to the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("this is not a clone: git does not list its files")
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file()]


def generated() -> set[str]:
    """Return the names of the reference pages that are made from the code."""
    source = (ROOT / ".docs" / "generate.py").read_text(encoding="utf-8")
    (pages,) = re.findall(r"^PAGES.*? = (\{.*?^\})", source, re.MULTILINE | re.DOTALL)
    names = {key.value for key in ast.parse(pages, mode="eval").body.keys}
    from dlbench.suites import cli

    return names | {f"commands/{name}" for name in cli.COMMANDS}


@cache
def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    text = document.read_text(encoding="utf-8")
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    result: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = 0
        while (f"{slug}-{count}" if count else slug) in result:
            count += 1
        result.add(f"{slug}-{count}" if count else slug)
    return result


def broken(document: Path, pages_made: set[str]) -> list[str]:
    """Return the relative links of a document that lead nowhere."""
    wrong = []
    for target in _LINK.findall(_CODE.sub("", document.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        folder = document.parent
        if folder.name == ".docs":  # its pages are those of all rooms, as in the site
            made_page = name.removeprefix("reference/").removesuffix(".md") in pages_made
            if made_page or any((ROOT / room / "docs" / name).is_file() for room in ROOMS):
                continue
        path = Path(os.path.normpath(folder / name)) if name else document
        page = str(path.relative_to(ROOT)).partition("/reference/")[2].removesuffix(".md")
        if {"docs", ".docs"} & set(path.parts) and page in pages_made:
            continue
        is_page = path.suffix == ".md"
        if not path.exists() or (anchor and is_page and anchor not in anchors(path)):
            wrong.append(f"{document.relative_to(ROOT)}: {target}")
    return wrong


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    pages_made = generated()
    assert not [link for document in documents() for link in broken(document, pages_made)]


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "# A page\n\n## Its part\n\n[1](#its-part) [2](#other) [3](no.md) [4](reference/axes.md)\n"
        "[5](https://example.org) `[6](code.md)` [7](page.md#a-page)\n"
    )
    assert [link.split(": ")[1] for link in broken(page, {"axes"})] == ["#other", "no.md"]


def test_every_page_is_in_a_part_that_the_index_lists() -> None:
    index = (ROOT / ".docs" / "index.md").read_text(encoding="utf-8")
    assert all(re.search(rf"^{part}/\*$", index, re.MULTILINE) for part in PARTS[1:])
    names: dict[str, Path] = {}
    for page in sorted(path for room in ROOMS for path in (ROOT / room / "docs").rglob("*.md")):
        part, *name_parts = page.relative_to(page.parents[1]).parts
        assert part in PARTS, f"{page} is in no part of the documentation"
        assert re.fullmatch(r"[a-z0-9-]+\.md", page.name), f"{page} is not named in kebab-case"
        name = "/".join([part, *name_parts])
        assert name not in names, f"{page} and {names[name]} would be one page"
        names[name] = page
        if part == "tutorials":  # in an order of their own
            assert re.search(rf"^{name.removesuffix('.md')}$", index, re.MULTILINE)
        titles = re.findall(r"^# .+$", _CODE.sub("", page.read_text("utf-8")), re.MULTILINE)
        assert len(titles) == 1, f"{page} has {len(titles)} titles"
    assert not {f"reference/{name}.md" for name in generated()} & set(names)


def test_the_documentation_stays_short() -> None:
    words = 0
    for path in documents():
        words += len(path.read_text(encoding="utf-8").split())
    print(f"{words} words of Markdown")
    assert words <= WORDS
