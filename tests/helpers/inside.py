"""Statements carried out inside a framework's own interpreter, with the guest's modules and small
networks at hand."""

import atexit
import json
import os
import selectors
import signal
import subprocess
import tempfile
import textwrap
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from known_networks import AS_JSON

ROOT = Path(__file__).resolve().parents[2]

# The guest's start-up (a private package name, adapters/ off sys.path) and small networks to work
# on.
PREAMBLE = """
import importlib.util, json, os, sys, types
package = types.ModuleType("guest")
package.__path__ = [{adapters!r}]
sys.modules["guest"] = package
import numpy as np
from guest import families, networks
from guest.launch import batches, parity
from guest.protocol import Cell
specification = importlib.util.spec_from_file_location("small_networks", {small!r})
small = importlib.util.module_from_spec(specification)
specification.loader.exec_module(small)
SMALL = small.small_networks(networks)
EVERY = dict(SMALL, **small.small_networks(networks, small.OF_FEW))
NETWORKS = {{name: networks.from_data(data) for name, data in json.loads({known!r}).items()}}
from guest.{folder}.adapter import ADAPTER

def make(name, threads=1, batch_size=4, cache=None, mode={mode!r}, device="cpu", precision="float32",
         placement="resident", loader_workers=0, **settings):
    cell = Cell({name!r}, {folder!r}, mode, name, device, threads, batch_size, precision, placement)
    cell = cell._replace(loader_workers=loader_workers)
    return ADAPTER(cell, settings, CACHE if cache is None else cache)

def built(**settings):
    # The variants of a family are for the conformance suite, but for the GRU, which has what no other layer has.
    variants = ("leaky-elman", "free-elman", "wide-recurrent", "one-hot-lstm", "one-hot-rnn")
    names = []
    for name in SMALL:
        if name in variants:
            continue
        adapter = make(name, **settings)
        if not adapter.refuses_family(SMALL[name]) and adapter.supports(SMALL[name])[0]:
            names.append(name)
    return names

def prepared(name, **options):
    adapter, network = make(name, **options), SMALL[name]
    adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
    adapter.set_learning_rate(0.1)
    return adapter

{imports}
"""

Guest = Callable[..., Any]
SECONDS_TO_ANSWER = 540.0


class Answering:
    """A framework's interpreter after its imports; it answers questions one by one, each in a fork
    of its own."""

    def __init__(self, interpreter: Path, beginning: str, environment: dict[str, str]) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(
            [str(interpreter), "-I", str(Path(__file__).with_name("answering.py"))],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,
        )
        self._send(beginning)

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _wait(self) -> None:
        """Return when the question is done; raise AssertionError with what was complained of where
        it never will be."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            ready = waiting.select(SECONDS_TO_ANSWER)
        if not ready or not self._process.stdout.readline():
            self.close()
            self._complaints.seek(0)
            raise AssertionError(
                f"no answer: {self._complaints.read()[-3000:].decode(errors='replace')}"
            )

    def ask(self, statements: str, scratch: Path) -> Any:
        """Return what the statements bind to ``answer``; raise AssertionError with what they wrote
        where they fail."""
        answer, errors = scratch / "answer.json", scratch / "errors.txt"
        answer.unlink(missing_ok=True)
        self._send({"statements": statements, "answer": str(answer), "errors": str(errors)})
        self._wait()
        assert answer.exists(), errors.read_text()[-3000:]
        return json.loads(answer.read_text())

    def alive(self) -> bool:
        """Tell whether it can be asked."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the interpreter and the question it is at."""
        if self.alive():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


#: The interpreters started, the one asked last at the end: a test file asks few, and each holds
#: memory.
_STARTED: "OrderedDict[Any, Answering]" = OrderedDict()
_KEPT = 2


def _started(interpreter: Path, beginning: str, environment: dict[str, str]) -> Answering:
    key = (interpreter, beginning, tuple(sorted(environment.items())))
    result = _STARTED.pop(key, None)
    if result is None or not result.alive():
        result = Answering(interpreter, beginning, environment)
    _STARTED[key] = result
    while len(_STARTED) > _KEPT:
        _STARTED.popitem(last=False)[1].close()
    return result


@atexit.register
def _close_all() -> None:
    while _STARTED:
        _STARTED.popitem()[1].close()


def guest_of(
    interpreter: Path,
    scratch: Path,
    name: str,
    folder: str,
    mode: str,
    imports: str = "",
    **always: str,
) -> Guest:
    """Return a function that runs statements in the interpreter and returns what they bind to
    ``answer``.

    ``imports`` are statements put before them, ``always`` environment variables of every call.
    Questions with the same imports and variables share one start of the interpreter; each has a
    process of its own, as after the imports.
    """
    beginning = PREAMBLE.format(
        adapters=str(ROOT / "adapters"),
        small=str(Path(__file__).with_name("small_networks.py")),
        known=AS_JSON,
        name=name,
        folder=folder,
        mode=mode,
        imports=textwrap.dedent(imports),
    )

    def run(statements: str, **variables: str) -> Any:
        environment = {**os.environ, **always, **variables}
        environment.pop("PYTEST_CURRENT_TEST", None)  # another in each test
        program = f"CACHE = {str(scratch / 'cache')!r}\n{textwrap.dedent(statements)}"
        return _started(interpreter, beginning, environment).ask(program, scratch)

    return run
