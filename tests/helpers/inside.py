"""Statements carried out inside a framework's own interpreter, with the guest's modules and small networks at hand."""

import json
import os
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# The guest's start-up (a private package name, adapters/ off sys.path) and small networks to work on.
PREAMBLE = """
import importlib.util, json, os, sys, types
package = types.ModuleType("guest")
package.__path__ = [{adapters!r}]
sys.modules["guest"] = package
import numpy as np
from guest import networks
from guest.launch import batches, parity
from guest.protocol import Cell
specification = importlib.util.spec_from_file_location("small_networks", {small!r})
small = importlib.util.module_from_spec(specification)
specification.loader.exec_module(small)
SMALL = small.small_networks(networks)
from guest.{folder}.adapter import ADAPTER

def make(name, threads=1, batch_size=4, cache={cache!r}, mode={mode!r}, device="cpu", precision="float32",
         placement="resident", **settings):
    cell = Cell({name!r}, {folder!r}, mode, name, device, threads, batch_size, precision, placement)
    return ADAPTER(cell, settings, cache)

def prepared(name, **options):
    adapter, network = make(name, **options), SMALL[name]
    adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
    adapter.set_learning_rate(0.1)
    return adapter
"""

Guest = Callable[..., Any]


def guest_of(
    interpreter: Path, scratch: Path, name: str, folder: str, mode: str, imports: str = "", **always: str
) -> Guest:
    """Return a function that runs statements in the interpreter and returns what they bind to ``answer``.

    ``imports`` are statements put before them, ``always`` environment variables of every call.
    """

    def run(statements: str, **variables: str) -> Any:
        target = scratch / "answer.json"
        preamble = PREAMBLE.format(
            adapters=str(ROOT / "adapters"),
            small=str(ROOT / "tests" / "helpers" / "small_networks.py"),
            cache=str(scratch / "cache"),
            name=name,
            folder=folder,
            mode=mode,
        )
        # Left at once: a framework's pools may take their time at an interpreter's end.
        ending = (f"json.dump(answer, open({str(target)!r}, 'w'))", "os._exit(0)")
        done = subprocess.run(
            [str(interpreter), "-I", "-c", "\n".join((preamble, imports, textwrap.dedent(statements), *ending))],
            env={**os.environ, **always, **variables},
            capture_output=True,
            text=True,
            timeout=540,
        )
        assert target.exists(), done.stderr[-3000:]
        return json.loads(target.read_text())

    return run


def check_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    """Give every small network its weights and read them back; what is given must be copied, not kept."""
    different = guest("""
        answer = []
        for name, network in SMALL.items():
            adapter = make(name)
            weights = batches.initial_weights(network)
            original = {key: value.copy() for key, value in weights.items()}
            adapter.prepare(network, weights, batches.mini_batch(network, 4))
            # The worker drops the weights it gave.
            for value in weights.values():
                value[...] = 7
            returned = dict(adapter.parameters())
            answer += [name + ": names"] if set(returned) != set(original) else []
            answer += [name + ": " + key for key in original if not np.array_equal(returned[key], original[key])]
    """)
    assert different == []
