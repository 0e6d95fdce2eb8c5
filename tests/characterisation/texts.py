"""Print what dlbench says to people, with file and line: `python tests/characterisation/texts.py [FOLDER...]`.

To be read whole after a change of words: docstrings of commands, help, errors, printed lines, notes, and the summaries
and descriptions of TOML files. Of an f-string the values are shown as ``{...}``.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("suites", "reports", "hardware_probe", "adapters")
KEYS = ("summary", "title", "unavailable", "licence")
_TOML = re.compile(rf'^({"|".join(KEYS)})\s*=\s*"(.*)"', re.MULTILINE)


def said(node: ast.expr) -> str:
    """Return a text as it stands in the code; empty for what is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(said(part) if isinstance(part, ast.Constant) else "{...}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return said(node.left) + said(node.right)
    return ""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string of a module that a person may read."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner: set[int] = set()
    documented = {"commands", "report.py"} & set(path.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.BinOp):
            inner |= {id(each) for each in ast.walk(node)} - {id(node)}
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            # Docstrings are for developers, but for those of commands, which are their help.
            first = node.body[0]
            is_command = isinstance(node, ast.FunctionDef) and node.name.endswith(("_command", "env_build", "env_list"))
            if isinstance(first, ast.Expr) and not (documented and is_command):
                inner.add(id(first.value))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(id(node.value))  # remarks on fields
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and id(node) not in inner:
            text = " ".join(said(node).replace("\0", " ").split())
            if len(text.split()) > 2:  # names, keys and marks are no sentences
                yield node.lineno, text


def main(folders: list[str]) -> None:
    """Print the texts of these folders; of all rooms without any."""
    for folder in folders or ROOMS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in texts(path):
                print(f"{path.relative_to(ROOT)}:{line}: {text}")
        for path in sorted((ROOT / folder).rglob("*.toml")):
            content = path.read_text(encoding="utf-8")
            for found in _TOML.finditer(content):
                print(f"{path.relative_to(ROOT)}:{content.count(chr(10), 0, found.start()) + 1}: {found[2]}")


if __name__ == "__main__":
    main(sys.argv[1:])
