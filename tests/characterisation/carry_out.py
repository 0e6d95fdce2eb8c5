"""Carries out commands of `kept_commands.py` in one process, and tells what each printed.

It reads names of commands, a line each, and answers each with a line of JSON. Only the front of dlbench is used: its
entry point with the words of a command line, and files. Every command has a new folder with stores and inputs in it.
"""

import contextlib
import hashlib
import io
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kept_commands import COMMANDS, ON_GPUS, Words

HERE = Path(__file__).resolve().parent
FAKE_NVML = next(HERE.parent.rglob("fake_nvml.py"))
LONGEST, BEGINNING = 60_000, 250
"""Characters of an output that is kept whole, and lines that are kept of a longer one."""
OF_NOW = (
    (r"\d{8}T\d{6}-[0-9a-f]{6}", "<RUN>"),
    (r"(environment\W+)[0-9a-f]{12}", r"\1<ENVIRONMENT>"),
    (r'("machine(_name)?": )"[^"]*"', r'\1"<MACHINE>"'),
    (r"On [^.]*?CPUs?(, both\s+sides\s+in\s+one\s+session)?\.", r"On <MACHINE>\1."),
    (r"  \(\d+ s left\)", ""),
)
"""What differs where something is measured while it is told."""
NVML = {
    "no_gpu.py": "fake.FakeNvml()",
    "two_gpus.py": "fake.FakeNvml(fake.board(uuid='GPU-aaaa'), fake.board('NVIDIA H200', uuid='GPU-bbbb'))",
}


def make_room(folder: Path) -> None:
    """Unpack the stores, and copy the inputs, to where commands find them."""
    for packed in (*(HERE / "stores").iterdir(), *(HERE / "inputs").glob("*.xz")):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    for given in (HERE / "inputs").iterdir():
        if given.suffix != ".xz":
            shutil.copy(given, folder)


def variables(base: Path) -> dict[str, str]:
    """Return the environment of every command: nothing of this machine's but the path to programs."""
    for name, source in NVML.items():
        (base / name).write_text(
            "import importlib.util\n"
            f"spec = importlib.util.spec_from_file_location('fake_nvml', {str(FAKE_NVML)!r})\n"
            "fake = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(fake)\n"
            f"nvml = {source}\n"
        )
    home = base / "home"
    home.mkdir(exist_ok=True)
    return {
        **({"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}),
        # No other program is found: what frameworks need and lack is the same everywhere.
        **{
            "PATH": str(base / "no_programs"),
            "HOME": str(home),
            "DLBENCH_HOME": str(home / "dlbench"),
            "MPLCONFIGDIR": str(home),
        },
        **{"COLUMNS": "80", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
        "DLBENCH_NVML": str(base / "no_gpu.py"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def command(words: Words) -> tuple[int, str, str]:
    """Run one command line in this process: exit code, standard output, standard error."""
    from dlbench.suites.__main__ import main

    sys.argv = ["dlbench", *words]
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()


def plain(text: str, folder: Path, home: Path, name: str) -> str:
    """Return what a command of this name printed, without what is this machine's: paths, the version of Python."""
    for path, word in ((folder, "FOLDER"), (home, "HOME"), (Path(sys.executable), "PYTHON")):
        text = text.replace(str(path), f"<{word}>")
    if name.startswith(("list", "live")):
        text = re.sub(r"CPython \d+\.\d+\.[\w.+]*", "CPython <VERSION>", text)
    if name.startswith("list"):
        text = re.sub(r" {3,}", "  ", text)
    if name.startswith("live"):
        for pattern, word in OF_NOW:
            text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n" if text else ""


def shortened(text: str) -> str:
    """Return a very long text as its beginning, and a digest of the whole."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    lines = text.splitlines()
    return "\n".join([*lines[:BEGINNING], f"... {len(lines)} lines altogether, SHA-256 {digest}", ""])


def carry_out(name: str, base: Path) -> str:
    """Return all that the commands of this name print, as it is kept in `outputs`."""
    told = []
    with tempfile.TemporaryDirectory(dir=base) as made:
        folder = Path(made)
        for file in (base / "room").iterdir():
            os.link(file, folder / file.name)
        os.chdir(folder)
        os.environ["DLBENCH_NVML"] = str(base / ("two_gpus.py" if name in ON_GPUS else "no_gpu.py"))
        for words in COMMANDS[name]:
            code, out, err = command(words)
            shown = [plain(text, folder, base / "home", name) for text in (out, err)]
            told.append(
                f"$ dlbench {shlex.join(words)}\nexit code {code}\n--- stdout\n{shown[0]}--- stderr\n{shown[1]}"
            )
        os.chdir(base)
    return shortened("".join(told))


def serve() -> None:
    """Answer names of commands on standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="characterisation-") as made:
        base = Path(made).resolve()
        os.environ.update(told := variables(base))
        for name in set(os.environ) - set(told):
            del os.environ[name]
        (base / "room").mkdir()
        make_room(base / "room")
        for line in sys.stdin:
            print(json.dumps(carry_out(line.strip(), base)), file=answers, flush=True)


class Server:
    """A process that carries out commands, for tests and for recording."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.orders: IO[str] = process.stdin
        self.answers: IO[str] = process.stdout

    def carry_out(self, name: str) -> str:
        """Return what the commands of this name print now."""
        print(name, file=self.orders, flush=True)
        answer = self.answers.readline()
        if not answer:
            raise RuntimeError(f"the process that carries out commands ended at {name}")
        return str(json.loads(answer))


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Start such a process, and end it."""
    # Whatever the terminal is, libraries that look at it when they are loaded see the same.
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "DLBENCH_STORE", "PYTHONPATH"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, str(HERE / "carry_out.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield Server(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


if __name__ == "__main__":
    serve()
