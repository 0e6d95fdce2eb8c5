"""Hostile texts, stores and adapters made of them, and checks that a text is inert in its
format."""

import csv
import io
import json
import lzma
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from markdown_it import MarkdownIt
from processes import suite_of_null
from rich.cells import cell_len

from dlbench.reports.results.record import Record
from dlbench.reports.results.storage import schema
from dlbench.reports.results.storage.store import Store

STORES = Path(__file__).resolve().parents[1] / "goldens" / "stores"

HOSTILE = (
    "\x1b[2J\x1b[31mred",
    "\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;ZWNobyBoaQ==\x07",
    "\x9b31m\x9d0;title\x9c\x85\x84",
    "two\nlines\r\nand\rmore\x0b\x0c\u2028\u2029",
    "gate passed\b\b\b\b\b\bfailed\x7f",
    "=cmd|' /C calc'!A0",
    "+1+2",
    "-2+3",
    "@SUM(1)",
    "\t=1+1",
    "\uff1d1+1",
    r"\input{/etc/passwd}\write18{id}",
    r"[0.5ex]$x^2$ 100% & # _ ^^5c ~ {",
    "* } \\",
    "a|b\\|c`d`",
    (
        "![i](https://example.org/i.png)[l](javascript:alert(1))<https://example.org>www.example.org "
        "https://example.org"
    ),
    "# head\n- item\n1. one\n***",
    "1. one",
    "/close @all #1 !1",
    "---",
    "<script>alert(1)</script><!-- -->&lt;b&gt;",
    "<img src=x onerror=alert(1)>]]><![CDATA[",
    "&entity;\"'><svg onload=x>",
    "[red]x[/red][link=https://example.org]y[/link][/]:boom:",
    "\u202egnp.exe\u2066\u2069\u200f\u061c",
    "zero\u200bwidth\u200d\ufeff\u2060\U000e0041",
    "null\x00byte",
    "long" * 2500,
    "wide\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u4e2d\u6587" * 20,
    "e\u0301" + "\u0300\u0323" * 40,
    "\ue000\ufffe\U0010ffff",
    "$\\frac{1}{$",
)
SURROGATES = "half\ud800of\udfffa pair"
"""No column of a database holds it, and JSON does."""

_KEPT = {
    # What is compared with words of dlbench: anything else there is no record.
    *("status", "verdict", "side", "stage", "purpose", "moment", "family"),
    *("started", "finished", "applied", "what", "affinity"),
}
_LINKS = {"id": "run", "fingerprint": "machine"}
"""Under which names the same is known elsewhere."""


def hostile_store(folder: Path, name: str, turn: int) -> Path:
    """Write a copy of one of the kept stores to a folder, every text of which is hostile.

    A text becomes the same one wherever it stands under the same key; each number of a turn deals
    others out.
    """
    path = folder / f"{name}-{turn}.sqlite"
    path.write_bytes(lzma.decompress((STORES / f"{name}.sqlite.xz").read_bytes()))
    with Store.open(path):
        pass
    with sqlite3.connect(path) as database:
        tables = [
            row[0]
            for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in set(tables) - {"dlbench_schema"}:
            _rewrite(database, table, turn)
    return path


def _rewrite(database: sqlite3.Connection, table: str, turn: int) -> None:
    cursor = database.execute(f"SELECT rowid, * FROM {table}")
    names = [column[0] for column in cursor.description[1:]]
    for row, *values in cursor.fetchall():
        changed = [
            _column(table, name, value, turn) for name, value in zip(names, values, strict=True)
        ]
        if table == "records":
            record = Record.from_dict(json.loads(changed[names.index("content")]))
            changed[names.index("cell")] = schema.cell_key(record.machine, record.cell)
        assignments = ", ".join(f'"{name}" = ?' for name in names)
        database.execute(f"UPDATE {table} SET {assignments} WHERE rowid = ?", (*changed, row))


def _column(table: str, name: str, value: Any, turn: int) -> Any:
    if not isinstance(value, str):
        return value
    if name in ("content", "description"):
        return json.dumps(hostile(json.loads(value), turn), separators=(",", ":"))
    if name == "further":
        return value
    return hostile(value, turn, "run" if (table, name) == ("runs", "id") else name)


def hostile(value: Any, turn: int, key: str = "") -> Any:
    """Return plain JSON types with hostile texts for all texts that are free, all the way down."""
    if isinstance(value, Mapping):
        more = (
            {HOSTILE[turn % len(HOSTILE)]: SURROGATES, SURROGATES: "1"} if key == "software" else {}
        )
        return {name: hostile(item, turn, name) for name, item in value.items()} | more
    if isinstance(value, list):
        return [hostile(item, turn, key) for item in value]
    if not isinstance(value, str) or key in _KEPT or (not value and key != "reason"):
        return value
    if key == "device":
        return value if value == "cpu" else f"{value}{dealt(value, turn)}"
    return dealt(f"{_LINKS.get(key, key)}:{value}", turn) + value


def dealt(text: str, turn: int) -> str:
    """Return the hostile text that stands for this one."""
    return HOSTILE[(zlib.crc32(text.encode()) + turn) % len(HOSTILE)]


def texts_of(content: Any) -> list[str]:
    """Return every text in plain JSON types."""
    if isinstance(content, Mapping):
        return [text for pair in content.items() for part in pair for text in texts_of(part)]
    if isinstance(content, list):
        return [text for item in content for text in texts_of(item)]
    return [content] if isinstance(content, str) else []


ALL = " ".join(text for text in HOSTILE if len(text) < 1000)
ADAPTER = f"""
from ..base import Adapter

class Mine(Adapter):
    computes = False
    parity_reason = {ALL!r}
    def supports(self, network):
        return self.settings["able"], "" if self.settings["able"] else {ALL!r}
    def prepare(self, network, weights, batch): pass
    def set_learning_rate(self, rate): pass
    def step(self): pass
    def last_loss(self): return 1.0
    def parameters(self): return iter(())
    def describe(self):
        return dict.fromkeys(["framework", "version", "blas", "openmp", "execution", {ALL!r}], {ALL!r})

ADAPTER = Mine
"""


def toml(text: str) -> str:
    """Return a text as TOML has it."""
    return (
        json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").replace("\x85", "\\u0085")
    )


def write_hostile_adapter(folder: Path) -> str:
    """Write it to this folder, with a suite ``mine.toml`` of it beside it, and return the word for
    --adapter."""
    folder.mkdir()
    modes = "".join(
        f"[modes.{toml(word + ALL)}]\nsummary = {toml(ALL)}\nsettings = {{ able = {able} }}\n"
        for word, able in (("able", "true"), ("not", "false"))
    )
    about = f'name = "mine"\ntitle = {toml(ALL)}\nsummary = {toml(ALL)}\nenvironment = "host"\ncomputes = false\n{modes}'
    (folder / "framework.toml").write_text(about, encoding="utf-8")
    (folder / "adapter.py").write_text(ADAPTER, encoding="utf-8")
    suite = (
        suite_of_null().replace('"null"', '"mine:*"').replace("[settings.null]", "[settings.mine]")
    )
    (folder.parent / "mine.toml").write_text(
        suite.replace('"for tests"', toml(ALL)), encoding="utf-8"
    )
    return f"mine={folder}"


# Inert texts, by format.

WIDTH = 80

_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?( ?%)?|[+-]?(inf|nan)")
_TEX = re.compile(r"\\(?:[A-Za-z]+|.)|[{}&$#^_~%]|.", re.DOTALL)
_TEX_WORDS = {
    *(
        "begin",
        "end",
        "hline",
        "multicolumn",
        "textit",
        "textbf",
        "par",
        "noindent",
        "rule",
        "char",
        "ensuremath",
    ),
    *("pm", "textbackslash", "textasciitilde", "textasciicircum"),
}
_MARKDOWN = {
    *("inline", "text", "text_special", "paragraph", "heading", "strong", "softbreak"),
    *("bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td"),
}
_FOLDED = re.compile(
    r"(</details>|<details><summary>[\w :]+</summary>|<!-- dlbench (gate|compare) -->)\n?"
)
_ELEMENTS = """html head meta title link style body a header h1 h2 h3 h4 h5 h6 p nav ul ol li main section details
summary div table thead tbody tr th td span figure figcaption svg defs g path use text tspan clippath rect dialog footer
script em strong cite blockquote code pre hr br button template
b caption circle dd dl dt fieldset input label legend optgroup option output select"""
_HTML = set(_ELEMENTS.split())
_SVG_ACTIVE = {"script", "a", "foreignObject", "image", "animate", "set", "iframe", "handler"}


def check_seen(text: str) -> None:
    """Check that a text holds nothing but what can be seen, and ends of lines."""
    unseen = {character for character in set(text) - {"\n"} if not character.isprintable()}
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
            assert all(_FOLDED.fullmatch(line) for line in token.content.splitlines()), (
                token.content
            )
        elif kind == "code_block":
            assert token.content.startswith("dlbench "), token.content
        else:
            assert kind in _MARKDOWN, token
    text = re.sub(r"^    dlbench .*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"(?<!\\)://|www\.", text)
    assert not re.search(r"(?<!\\)(\\\\)*\$", text)
    widths: list[int] = []
    for line in text.split("\n"):
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
        else:
            assert len(set(widths)) <= 1, widths
            widths = []


def _tokens(tokens: Iterable[Any] | None) -> list[Any]:
    return [nested for token in tokens or () for nested in (token, *_tokens(token.children))]


def check_latex(text: str) -> None:
    check_seen(text)
    columns = 0
    for line in text.split("\n"):
        if line.startswith("%"):
            continue
        tokens = _TEX.findall(line)
        tokens_used = set(tokens)
        words = {token[1:] for token in tokens_used if re.fullmatch(r"\\[A-Za-z]+", token)}
        assert words <= _TEX_WORDS, (words - _TEX_WORDS, line)
        symbols = {token for token in tokens_used if re.fullmatch(r"\\[^A-Za-z]", token)}
        assert symbols <= {"\\\\", r"\&", r"\%", r"\$", r"\#", r"\_", r"\{", r"\}"}, symbols
        assert not {"$", "#", "^", "_", "~", "%"} & set(tokens), line
        printable = "–—‘’“”…→"  # noqa: RUF001
        assert not [token for token in tokens if ord(token[0]) > 0xFF and token not in printable], (
            line
        )
        assert tokens.count("{") == tokens.count("}"), line
        if match := re.match(r"\\begin\{tabular\}\{([lr]+)\}", line):
            columns = len(match[1])
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
    """Check that a page holds no element, attribute or address but those of its template and its
    pictures.

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
        attributes = dict(attrs)
        assert not {
            name
            for name in attributes
            if name.startswith("on") or name in ("style", "src", "srcset", "action")
        }
        href = attributes.get("href") or "#"
        href = "#" if href in self.pages else href
        assert href.startswith(("#", "https://", "data:,")), href
        assert tag != "script" or attributes.get("type") in (None, "application/json", "text/plain")


CHECKS: "dict[str, Callable[[str], None]]" = {
    "terminal": check_terminal,
    "markdown": check_markdown,
    "latex": check_latex,
    "csv": check_csv,
    "json": check_json,
    "junit": check_xml,
}
