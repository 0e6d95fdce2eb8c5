"""The user's own step: the file named by the setting ``file`` defines ``prepare(cell)``.

``prepare`` builds the training and returns a call without arguments that does one training step, or
a pair of that and a call that returns the loss of the last step. Where steps continue after their
call has returned (on a GPU, or in JAX), the file defines ``synchronize()`` too, which waits for
them. It is never called before the first step, when there may be nothing to wait for. ``cell`` has
``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.

Where ``cell.task`` is "inference", ``prepare`` returns a call that returns outputs: an array, a
tensor of any framework, or a list or a dictionary of them. Launches must agree on the outputs of
their first calls.
"""

import hashlib
import importlib.util
import inspect
import os
import sys
import traceback
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np

from ..base import Adapter, Explained
from ..launch.batches import Batch
from ..networks import Network
from . import profilers

_OFFERS = "a call that does one training step, or a pair of it and a call that returns the loss"
#: The variables with the folders of compilers' caches, and each one's name in the folder of
#: dlbench's own.
COMPILED = {
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
    "JAX_COMPILATION_CACHE_DIR": "jax",
}


class StepFileError(Explained):
    """The user's file breaks its contract; the text names the file and says how to mend it."""


def deferred(function: Any) -> str:
    """Return why a call of this function does no work; empty where it works.

    It may make a coroutine or a generator.
    """
    inner = getattr(function, "func", function)  # of functools.partial
    # an object's method may be asynchronous
    for called in (inner, getattr(inner, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(called):
            return (
                "is asynchronous (async def), so calling it does no work. Make it a plain function"
            )
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            return (
                "is a generator (it contains yield), so calling it does no work. Make it a plain "
                "function"
            )
    return ""


def unfinished(returned: Any) -> str:
    """Return why a step that returned this did no work; empty where it did."""
    if inspect.iscoroutine(returned):
        returned.close()  # or Python warns that it was never awaited
        return (
            "returned a coroutine, which does no work until it is awaited. Make the step a plain "
            "function"
        )
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        return (
            "returned a generator, which does no work until it is iterated over. Make the step a "
            "plain function"
        )
    return ""


_ROOT_MARKS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")


def repository_folders(folder: str) -> List[str]:
    """Return the folders with the packages of the repository in which a folder lies.

    These are its root, and ``src`` there.
    """
    root = folder
    while not any(os.path.exists(os.path.join(root, name)) for name in _ROOT_MARKS):
        parent = os.path.dirname(root)
        if parent == root:
            return []
        root = parent
    return [path for path in (root, os.path.join(root, "src")) if os.path.isdir(path)]


def missing_variable(error: BaseException) -> str:
    """Return the environment variable whose absence from ``os.environ`` is this error.

    It is empty for any other error.
    """
    if not isinstance(error, KeyError) or not error.args or not isinstance(error.args[0], str):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    # The module os is a part of newer interpreters, which have no file for it.
    if not frames or frames[-1].filename not in (os.__file__, "<frozen os>"):
        return ""
    return str(error.args[0])


def numbers_of(outputs: Any) -> List[np.ndarray]:
    """Return the arrays of outputs as float64, each flat.

    Those of a dictionary are in the order of its sorted keys. Raises TypeError for outputs without
    numbers.
    """
    if isinstance(outputs, dict):
        parts = [outputs[key] for key in sorted(outputs, key=str)]
        return _arrays_of_all(parts)
    is_sequence = isinstance(outputs, (list, tuple))
    if is_sequence and not all(isinstance(item, (int, float)) for item in outputs):
        return _arrays_of_all(outputs)
    if outputs is None or isinstance(outputs, (str, bytes)):
        raise TypeError("no numbers")
    if hasattr(outputs, "detach"):
        # NumPy has no bfloat16.
        outputs = outputs.detach().cpu().double()
    return [np.asarray(outputs).astype(np.float64).ravel()]


def _arrays_of_all(parts: Iterable[Any]) -> List[np.ndarray]:
    arrays: List[np.ndarray] = []
    for part in parts:
        arrays += numbers_of(part)
    return arrays


class OwnStep(Adapter):
    """An adapter of the calls that the file returns.

    Nothing is added around a training step. The outputs of inference are kept.
    """

    families = ("own",)
    further_axes = ("task",)

    def set_up(self) -> None:
        self.file = str(self.settings["file"])
        self.name = os.path.basename(self.file)
        self.settings["file"] = self.name  # this is stored, and its folder may name the user
        self.loss: Optional[Callable[[], Any]] = None
        self.content = b""
        self.module: Any = None
        self._begun = False
        self._wait: Optional[Callable[[], Any]] = None
        self._call: Callable[[], Any] = self.step
        self.result: Any = None
        self._share_compiled()

    def _share_compiled(self) -> None:
        """Let each launch use the programs that an earlier one compiled.

        The user or a cold start may forbid it. Programs for another number of threads are others:
        compilers divide the work when they compile.
        """
        threads = "gpu"
        if self.cell.on_cpu:
            threads = str(self.cell.threads or len(os.sched_getaffinity(0)))
        shared = os.path.join(os.path.abspath(self.cache_directory), "compiled-" + threads)
        for variable, folder in COMPILED.items():
            os.environ.setdefault(variable, os.path.join(shared, folder))
        # By default JAX keeps only programs that took a second to compile.
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        # PyTorch keeps compiled headers in the folder for temporary files, which each launch has
        # for itself: every launch would compile them anew, which takes longer than the kernels
        # that are kept would.
        os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")

    def import_modules(self) -> None:
        """Import the user's file, and with it the framework."""
        folder, name = os.path.split(self.file)
        with open(self.file, "rb") as file:
            self.content = file.read()
        sys.path.insert(0, folder)
        # Behind the installed packages, so that a package that is installed is never hidden.
        sys.path += repository_folders(folder)
        sys.dont_write_bytecode = True
        sys.argv[:] = [self.file]  # a file that reads arguments gets none
        # Under its name, so that processes that it starts can import it.
        module_name = os.path.splitext(name)[0]
        spec = importlib.util.spec_from_file_location(module_name, self.file)
        assert spec is not None
        assert spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = self.module
        self._run(spec.loader.exec_module, self.module)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call code of the file that must return: ending the process is an error like any other."""
        try:
            return function(*arguments)
        except SystemExit as error:
            where = self._where(error) or self.name + ": "
            text = where + "the file ended its process. It is given no arguments"
            raise StepFileError(text) from None

    def refuses_gpu(self) -> str:
        return ""

    def supports(self, network: Network) -> Tuple[bool, str]:
        return True, ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        prepare = getattr(self.module, "prepare", None)
        if not callable(prepare):
            raise StepFileError("%s defines no function prepare(cell)" % self.name)
        made = self._run(prepare, self.cell)
        step = made
        loss = None
        if isinstance(made, (tuple, list)) and len(made) == 2:
            step, loss = made
        if not callable(step) or not (loss is None or callable(loss)):
            raise StepFileError(
                "prepare() in %s returned %.80r, not %s" % (self.name, made, _OFFERS)
            )
        wait = getattr(self.module, "synchronize", None)
        if wait is not None and not callable(wait):
            raise StepFileError("synchronize in %s is %.80r, not a function" % (self.name, wait))
        for title, function in (("the step", step), ("the loss", loss), ("synchronize()", wait)):
            reason = deferred(function)
            if reason:
                raise StepFileError("%s of %s %s" % (title, self.name, reason))
        self.loss = loss
        self.has_loss = loss is not None
        self._wait = wait
        self.step = partial(self._first_step, step)  # type: ignore[method-assign]

    def _first_step(self, step: Callable[[], Any]) -> Any:
        """Run the first step.

        From the second on, the file's own functions are called without anything around them.
        """
        self._begun = True
        self._call = self.step = step  # type: ignore[method-assign]
        if self._wait is not None:
            self.synchronize = self._wait  # type: ignore[method-assign]
        returned = step()
        reason = unfinished(returned)
        if reason:
            raise StepFileError("the step of %s %s" % (self.name, reason))
        return returned

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.prepare(network, weights, batch)
        if self.loss is not None:
            words = (
                "prepare() in %s returned a function for the loss too. For inference return one "
                "that returns outputs"
            )
            raise StepFileError(words % self.name)
        self._call = self.step

    def infer(self) -> None:
        self.result = self._call()

    def outputs(self) -> np.ndarray:
        """Return all numbers of the last call's outputs, (1, 1, numbers)."""
        try:
            arrays = numbers_of(self.result)
        except (TypeError, ValueError):
            arrays = []
        if not arrays or not sum(array.size for array in arrays):
            words = (
                "the step of %s returned %s. For inference return its outputs: arrays, or a list "
                "or dictionary of them"
            )
            raise StepFileError(words % (self.name, _kind(self.result)))
        return np.concatenate(arrays)[None, None]

    def synchronize(self) -> None:
        """Wait for the first step.

        Before it there may be nothing that the file's own function can wait for.
        """
        if self._begun and self._wait is not None:
            self._wait()

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Do nothing: the host asks for no check of a step without reference."""

    def set_learning_rate(self, rate: float) -> None:
        """Ignore the rate, which is the file's."""

    def last_loss(self) -> float:
        assert self.loss is not None
        value = self.loss()
        shape = tuple(getattr(value, "shape", ()))
        if int(np.prod(shape)) != 1:
            words = (
                "the loss that %s returns has shape %s. Return one number, the mean over the "
                "mini-batch"
            )
            raise StepFileError(words % (self.name, list(shape)))
        try:
            # A tensor of one number, of whatever framework.
            return float(value)
        except (TypeError, ValueError):
            words = (
                "the loss that %s returns is %s, not a number. Return the mean loss of the last "
                "step"
            )
            raise StepFileError(words % (self.name, _kind(value))) from None

    def parameters(self) -> Any:
        return iter(())

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a product by NumPy; None on a GPU.

        It is not known which framework the file uses.
        """
        if not self.cell.on_cpu:
            return None
        left = np.random.RandomState(0).rand(size, size).astype(np.float32)
        right = np.random.RandomState(1).rand(size, size).astype(np.float32)
        result = np.empty_like(left)
        return lambda: np.matmul(left, right, out=result)

    def profile(self, steps: int) -> Any:
        """Run this many steps under a profiler.

        It is that of the framework that the file imported, otherwise Python's.
        """
        return profilers.take_profile(self, steps)

    def error_text(self, error: BaseException) -> str:
        """Return the error with its line in the file."""
        if isinstance(error, StepFileError):
            return str(error)
        if isinstance(error, SyntaxError) and error.filename == self.file:
            return "%s, line %s: SyntaxError: %s" % (self.name, error.lineno, error.msg)
        where = self._where(error)
        if not where:
            return str(error) if isinstance(error, TypeError) else ""
        variable = missing_variable(error)
        if variable:
            remedy = "--env %s passes on the shell's value, --env %s=VALUE sets one"
            remedy %= (variable, variable)
            return "%sthe step reads %s, which launches do not get: %s" % (where, variable, remedy)
        lines = str(error).strip().splitlines() or ["(no message)"]
        message = lines[0][:300]
        if isinstance(error, ImportError):
            message += " (to import from another folder: --env PYTHONPATH=FOLDER)"
        return "%s%s: %s" % (where, type(error).__name__, message)

    def _where(self, error: BaseException) -> str:
        """Return the error's last line in the file, as in "train.py, line 3: "; empty without."""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == self.file]
        if not lines:
            return ""
        return "%s, line %d: " % (self.name, lines[-1])

    def is_out_of_memory(self, error: BaseException) -> bool:
        names = ("OutOfMemoryError", "ResourceExhaustedError")
        return isinstance(error, MemoryError) or type(error).__name__ in names

    def describe(self) -> Dict[str, Any]:
        name = os.path.splitext(self.name)[0]
        return {
            "framework": name,
            "version": "file " + hashlib.sha256(self.content).hexdigest()[:12],
        }


def _kind(value: Any) -> str:
    """Return the type of a value in words: "None", "a dict"."""
    if value is None:
        return "None"
    name = type(value).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    return "%s %s" % (article, name)


ADAPTER = OwnStep
