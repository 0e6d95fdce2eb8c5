"""An adapter of somebody else that is hostile wherever it may say something."""

import json
from pathlib import Path

from hostile_texts import HOSTILE
from suites_of_null import suite_of_null

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
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").replace("\x85", "\\u0085")


def write_hostile_adapter(folder: Path) -> str:
    """Write it to this folder, with a suite ``mine.toml`` of it beside it, and return the word for --adapter."""
    folder.mkdir()
    modes = "".join(
        f"[modes.{toml(word + ALL)}]\nsummary = {toml(ALL)}\nsettings = {{ able = {able} }}\n"
        for word, able in (("able", "true"), ("not", "false"))
    )
    about = (
        f'name = "mine"\ntitle = {toml(ALL)}\nsummary = {toml(ALL)}\nenvironment = "host"\ncomputes = false\n{modes}'
    )
    (folder / "framework.toml").write_text(about, encoding="utf-8")
    (folder / "adapter.py").write_text(ADAPTER, encoding="utf-8")
    suite = suite_of_null().replace('"null"', '"mine:*"').replace("[settings.null]", "[settings.mine]")
    (folder.parent / "mine.toml").write_text(suite.replace('"for tests"', toml(ALL)), encoding="utf-8")
    return f"mine={folder}"
