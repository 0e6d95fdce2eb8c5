"""Adapters outside the package that compute nothing, as a user may have them."""

from pathlib import Path

ABOUT = """
name = "{name}"
title = "Mine"
summary = "made up by a test"
environment = "host"
computes = false
"""
MODES = """
[modes.only]
default = true
summary = "the one mode"
"""
# What a launch needs to end well; a test puts its own lines in front of the last.
ADAPTER = """
import os, sys, time
import numpy as np
from ..base import Adapter
from ..launch.batches import initial_weights

class Mine(Adapter):
    computes = False
    parity_reason = "it computes nothing"
    def prepare(self, network, weights, batch): self.held = {name: value.copy() for name, value in weights.items()}
    def reset(self, weights, batch): self.prepare(None, weights, batch)
    def set_learning_rate(self, rate): pass
    def step(self):
        for value in self.held.values(): value += 1
    def last_loss(self): return 1.0
    def parameters(self): return iter(self.held.items())
    def describe(self): return {"framework": "mine", "version": "1"}
"""


def write_adapter(folder: Path, more: str = "", name: str = "mine", modes: str = MODES) -> Path:
    """Write an adapter whose class has these lines more; return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "framework.toml").write_text(ABOUT.format(name=name) + modes)
    indented = "\n".join("    " + line for line in more.splitlines())
    (folder / "adapter.py").write_text(f"{ADAPTER}{indented}\n\nADAPTER = Mine\n")
    return folder
