"""A process that has loaded the command, and pytest, once and forks for each call of one.

Loading takes ten times as long as most commands under test do. Each call still is a process of its
own with its own environment, folder and output; that `python -m dlbench.suites` starts is tested
where processes are started as such.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_serving: "list[subprocess.Popen[str]]" = []


def exit_code(end: SystemExit) -> int:
    """Return the exit code of a process that ends so."""
    if end.code is None:
        return 0
    return end.code if isinstance(end.code, int) else 1


def call(
    words: "tuple[str, ...]",
    folder: Path,
    variables: "dict[str, str]",
    output: Path,
    patience: float,
    program: str = "dlbench",
) -> int:
    """Run the command, or pytest, in a folder and return its exit code, as `subprocess` has it;
    raises TimeoutExpired.

    What it prints lies in the files ``out`` and ``err`` in the folder ``output``.
    """
    if not _serving or _serving[0].poll() is not None:
        _serving[:] = [
            subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        ]
    server = _serving[0]
    assert server.stdin is not None
    assert server.stdout is not None
    order = {"words": words, "folder": str(folder), "variables": variables, "output": str(output)}
    order |= {"patience": patience, "program": program}
    server.stdin.write(json.dumps(order) + "\n")
    server.stdin.flush()
    code = json.loads(server.stdout.readline())
    if code is None:
        raise subprocess.TimeoutExpired(list(words), patience)
    return int(code)


def _carry_out(order: "dict[str, object]", first: "Callable[[], None]") -> None:
    """Be the command; never returns."""
    import pytest

    from dlbench.suites import cli
    from dlbench.suites.display import screen

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order["variables"])  # type: ignore[call-overload]
    os.chdir(str(order["folder"]))
    for descriptor, name in ((1, "out"), (2, "err")):
        opened = os.open(Path(str(order["output"]), name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.closerange(3, 256)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    # Made when their module was loaded, for what was the terminal's width then.
    screen.out.__init__(highlight=False)  # type: ignore[misc]
    screen.err.__init__(stderr=True, highlight=False)  # type: ignore[misc]
    first()
    if order["program"] == "pytest":
        sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        raise SystemExit(pytest.main(order["words"]))  # type: ignore[arg-type]
    sys.argv = [str(Path(cli.__file__).with_name("__main__.py")), *order["words"]]  # type: ignore[misc]
    cli.main()


def fork(order: "dict[str, object]", first: "Callable[[], None]" = lambda: None) -> int:
    """Start the command in a fork of this process, which has loaded it, and return the fork's
    process number.

    ``first`` is called in it when all but the command itself is set up.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _carry_out(order, first)
    except SystemExit as end:
        code = exit_code(end)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 120
        os._exit(code)


def _serve() -> None:
    # Most of a command's time: its own modules, which it imports when it is called. They start no
    # threads of Python.
    import pytest  # noqa: F401

    from dlbench.suites import cli  # noqa: F401
    from dlbench.suites.commands import compare, plan, report, run  # noqa: F401
    from dlbench.suites.fleet import node  # noqa: F401

    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for line in orders:
        order = json.loads(line)
        print(json.dumps(_wait(fork(order), float(order["patience"]))), file=answers, flush=True)


def _wait(child: int, patience: float) -> "int | None":
    """Return the exit code, negative for a signal; None for a child that was ended after so many
    seconds."""

    def too_late(number: int, frame: object) -> None:
        os.kill(child, signal.SIGKILL)
        ended.append(True)

    ended: list[bool] = []
    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, patience)
    _, status = os.waitpid(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return None if ended else os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    # The folder of this file holds tests, and no module of the command may be found there.
    sys.path[:] = [
        entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent
    ]
    _serve()
