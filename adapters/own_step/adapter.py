"""The user's own step: the file named by the setting ``file`` defines ``prepare(cell)``.

``prepare`` builds the training and returns a call without arguments that does one training step; or a pair of that and
a call that returns the loss of the last step. Where steps continue after their call has returned (on a GPU, or in JAX),
the file defines ``synchronize()`` too, which waits for them. ``cell`` has ``threads``, ``batch_size``, ``device``,
``precision`` and the other axes.
"""

import cProfile
import hashlib
import importlib.util
import os
import pstats
import sys
import traceback
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from ..base import Adapter
from ..launch.batches import Batch
from ..libraries import profiles
from ..libraries.profiles import Calls
from ..networks import Network
from ..protocol import Profile

PROFILER = "Python's cProfile"


def take_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under the profiler, which slows calls of Python."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
    finally:
        profiler.disable()
    functions: Dict[Tuple[str, int, str], Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # it exists
    return profiles.profile(PROFILER, steps, seconds, profiled_calls(functions))


def profiled_calls(functions: Dict[Tuple[str, int, str], Any]) -> Iterator[Calls]:
    """Yield each function with its own time; dlbench's own are left out."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for (file, line, function), (_, count, own, _, _) in functions.items():
        if not file.startswith(ours) and "_lsprof.Profiler" not in function:
            yield Calls(_name(file, line, function), False, own, count)


def _name(file: str, line: int, function: str) -> str:
    if file == "~":  # of C: "<built-in method torch._C._nn.linear>"
        return function.strip("<>").replace("built-in method ", "")
    return "%s (%s:%d)" % (function, os.path.basename(file), line)


_OFFERS = "a call that does one training step, or a pair of it and a call that returns the loss"


_OF_A_ROOT = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")


def repository_folders(folder: str) -> List[str]:
    """Return the folders that hold packages of the repository that a folder lies in: its root, and ``src`` there."""
    root = folder
    while not any(os.path.exists(os.path.join(root, name)) for name in _OF_A_ROOT):
        above = os.path.dirname(root)
        if above == root:
            return []
        root = above
    return [each for each in (root, os.path.join(root, "src")) if os.path.isdir(each)]


def missing_variable(error: BaseException) -> str:
    """Return the environment variable whose absence from ``os.environ`` is this error; empty for any other error."""
    if not isinstance(error, KeyError) or not error.args or not isinstance(error.args[0], str):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    # The module os is a part of newer interpreters, which have no file for it.
    of_os = bool(frames) and frames[-1].filename in (os.__file__, "<frozen os>")
    return error.args[0] if of_os else ""


class OwnStep(Adapter):
    """Calls what the file returns, and nothing around it."""

    families = ("own",)
    profile = take_profile

    def set_up(self) -> None:
        self.file = str(self.settings["file"])
        self.settings["file"] = os.path.basename(self.file)  # this is stored, and its folder may name the user
        self.loss: Optional[Callable[[], Any]] = None
        self.content = b""

    def refuses_gpu(self) -> str:
        return ""

    def supports(self, network: Network) -> Tuple[bool, str]:
        return True, ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        folder, name = os.path.split(self.file)
        with open(self.file, "rb") as file:
            self.content = file.read()
        sys.path.insert(0, folder)
        # Behind the installed packages, so that a package that is installed is never hidden.
        sys.path += repository_folders(folder)
        sys.dont_write_bytecode = True
        # Under its name, so that processes that it starts can import it.
        module_name = os.path.splitext(name)[0]
        spec = importlib.util.spec_from_file_location(module_name, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        prepare = getattr(module, "prepare", None)
        if not callable(prepare):
            raise TypeError("%s defines no function prepare(cell)" % name)
        made = prepare(self.cell)
        step, loss = made if isinstance(made, (tuple, list)) and len(made) == 2 else (made, None)
        if not callable(step) or not (loss is None or callable(loss)):
            raise TypeError("prepare() in %s returned %.80r, not %s" % (name, made, _OFFERS))
        wait = getattr(module, "synchronize", None)
        if wait is not None and not callable(wait):
            raise TypeError("synchronize in %s is %.80r, not a function" % (name, wait))
        self.step = step  # type: ignore[method-assign]
        self.loss = loss
        self.has_loss = loss is not None
        if wait is not None:
            self.synchronize = wait  # type: ignore[method-assign]

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Do nothing: the host asks for no check of a step without reference."""

    def set_learning_rate(self, rate: float) -> None:
        """Ignore the rate, which is the file's."""

    def last_loss(self) -> float:
        assert self.loss is not None
        value = self.loss()
        # A tensor of one number, of whatever framework.
        return float(value) if np.ndim(value) else value

    def parameters(self) -> Any:
        return iter(())

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a product by NumPy, as it is not known which framework the file uses; None on a GPU."""
        if not self.cell.on_cpu:
            return None
        left, right = (np.random.RandomState(seed).rand(size, size).astype(np.float32) for seed in (0, 1))
        result = np.empty_like(left)
        return lambda: np.matmul(left, right, out=result)

    def error_text(self, error: BaseException) -> str:
        """Return the error with its line in the file."""
        if isinstance(error, SyntaxError) and error.filename == self.file:
            return "%s, line %s: SyntaxError: %s" % (os.path.basename(self.file), error.lineno, error.msg)
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file]
        if not lines:
            return str(error) if isinstance(error, TypeError) else ""
        said = (str(error).strip().splitlines() or ["(no message)"])[0][:300]
        where = "%s, line %d" % (os.path.basename(self.file), lines[-1].lineno or 0)
        variable = missing_variable(error)
        if variable:
            way = "--env %s passes on the shell's value, --env %s=VALUE sets one" % (variable, variable)
            return "%s: the step reads %s, which launches do not get: %s" % (where, variable, way)
        if isinstance(error, ImportError):
            said += " (to import from another folder: --env PYTHONPATH=FOLDER)"
        return "%s: %s: %s" % (where, type(error).__name__, said)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "ResourceExhaustedError")

    def describe(self) -> Dict[str, Any]:
        name = os.path.splitext(os.path.basename(self.file))[0]
        return {"framework": name, "version": "file " + hashlib.sha256(self.content).hexdigest()[:12]}


ADAPTER = OwnStep
