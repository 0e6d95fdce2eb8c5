"""What makes a text inert in its format, by that format's own rules and parsers."""

import csv
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len

WIDTH = 80

_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?( ?%)?|[+-]?(inf|nan)")
_TEX = re.compile(r"\\(?:[A-Za-z]+|.)|[{}&$#^_~%]|.", re.DOTALL)
_TEX_WORDS = {
    *("begin", "end", "hline", "multicolumn", "textit", "textbf", "par", "noindent", "rule", "char", "ensuremath"),
    *("pm", "textbackslash", "textasciitilde", "textasciicircum"),
}
_MARKDOWN = {
    *("inline", "text", "text_special", "paragraph", "heading", "strong", "softbreak"),
    *("bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td"),
}
_FOLDED = re.compile(r"(</details>|<details><summary>[\w :]+</summary>)\n?")
_ELEMENTS = """html head meta title link style body a header h1 h2 h3 h4 h5 h6 p nav ul ol li main section details
summary div table thead tbody tr th td span figure figcaption svg defs g path use text tspan clippath rect dialog footer
script em strong cite blockquote code pre hr br button template
b caption circle dd dl dt fieldset input label legend optgroup option output select"""
_HTML = set(_ELEMENTS.split())
_SVG_ACTIVE = {"script", "a", "foreignObject", "image", "animate", "set", "iframe", "handler"}


def check_seen(text: str) -> None:
    """Check that a text holds nothing but what can be seen, and ends of lines."""
    unseen = {character for character in text if character != "\n" and not character.isprintable()}
    assert not unseen, unseen
    text.encode()


def check_terminal(text: str) -> None:
    check_seen(text)
    # A command to be copied stays whole.
    folded = (line for line in text.split("\n") if not line.strip().startswith("`dlbench "))
    wide = [line for line in folded if cell_len(line) > WIDTH]
    assert not wide, wide[0]


def check_json(text: str) -> None:
    check_seen(text)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    json.dumps(json.loads(text, parse_constant=refuse), ensure_ascii=False).encode()


def check_csv(text: str) -> None:
    check_seen(text)
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert len({len(row) for row in rows}) == 1
    for row in rows:
        for field in row:
            calculated = field[:1] in tuple("=+-@\uff1d\uff0b\uff0d\uff20\t\r\n") and len(field) > 1
            assert not calculated or _NUMBER.fullmatch(field), field


def check_markdown(text: str) -> None:
    check_seen(text)
    for token in _tokens(MarkdownIt("commonmark").enable("table").parse(text)):
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind == "html_block":
            assert all(_FOLDED.fullmatch(line) for line in token.content.splitlines()), token.content
        else:
            assert kind in _MARKDOWN, token
    assert not re.search(r"(?<!\\)://|www\.", text)
    assert not re.search(r"(?<!\\)(\\\\)*\$", text)
    widths: list[int] = []
    for line in text.split("\n"):
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
        else:
            assert len(set(widths)) <= 1, widths
            widths = []


def _tokens(tokens: "list[Token] | None") -> "list[Token]":
    return [each for token in tokens or () for each in (token, *_tokens(token.children))]


def check_latex(text: str) -> None:
    check_seen(text)
    columns = 0
    for line in text.split("\n"):
        if line.startswith("%"):
            continue
        tokens = _TEX.findall(line)
        words = {token[1:] for token in tokens if re.fullmatch(r"\\[A-Za-z]+", token)}
        assert words <= _TEX_WORDS, (words - _TEX_WORDS, line)
        symbols = {token for token in tokens if re.fullmatch(r"\\[^A-Za-z]", token)}
        assert symbols <= {"\\\\", r"\&", r"\%", r"\$", r"\#", r"\_", r"\{", r"\}"}, symbols
        assert not {"$", "#", "^", "_", "~", "%"} & set(tokens), line
        assert not [token for token in tokens if ord(token[0]) > 0xFF and token not in "–—‘’“”…→"], line  # noqa: RUF001
        assert tokens.count("{") == tokens.count("}"), line
        if found := re.match(r"\\begin\{tabular\}\{([lr]+)\}", line):
            columns = len(found[1])
        elif line.endswith(r"\\"):
            spanned = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert tokens.count("&") + 1 + spanned == columns, line
            assert not line.startswith(("[", "*")), line
        else:
            assert "&" not in tokens, line


def check_xml(text: str) -> None:
    check_seen(text)
    ElementTree.fromstring(text)


def check_svg(path: Path) -> None:
    for element in ElementTree.parse(path).iter():
        assert element.tag.rpartition("}")[2] not in _SVG_ACTIVE, element.tag
        check_seen("".join(element.itertext()))
        for name, value in element.attrib.items():
            plain = name.rpartition("}")[2].lower()
            assert not plain.startswith("on"), name
            assert plain != "href" or value.startswith("#"), value


def check_html(text: str, pages: frozenset[str] = frozenset()) -> None:
    """Check that a page holds no element, attribute or address but those of its template and its pictures.

    It may link to ``pages`` beside it.
    """
    check_seen(text)
    _Html(pages).feed(text)


class _Html(HTMLParser):
    def __init__(self, pages: frozenset[str]) -> None:
        super().__init__()
        self.pages = pages

    def handle_starttag(self, tag: str, attrs: "list[tuple[str, str | None]]") -> None:
        assert tag in _HTML, tag
        given = dict(attrs)
        assert not {name for name in given if name.startswith("on") or name in ("style", "src", "srcset", "action")}
        href = given.get("href") or "#"
        href = "#" if href in self.pages else href
        assert href.startswith(("#", "https://", "data:,")), href
        assert tag != "script" or given.get("type") in (None, "application/json", "text/plain")


CHECKS: "dict[str, Callable[[str], None]]" = {
    "terminal": check_terminal,
    "markdown": check_markdown,
    "latex": check_latex,
    "csv": check_csv,
    "json": check_json,
    "junit": check_xml,
}
