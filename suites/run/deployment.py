"""`dlbench tune --write FILE`: the fastest way to run a network, as a file to paste from.

The file's name says what it is: a shell line, an env file, lines of a Dockerfile, or a container of Kubernetes.
Comments say what it gains, what else is to be done (settings of the program), and how to measure it again.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from dlbench.adapters.protocol import Cell

from ..errors import UsageError
from ..planning.plan import Plan
from .search import VARIABLES, SearchResult, lines, recipe


def _shell_line(variables: Mapping[str, str], cell: Cell) -> list[str]:
    """Return a line for a shell, to be read by `. FILE`."""
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return [f"export {words}"] if words else []


def _env_file(variables: Mapping[str, str], cell: Cell) -> list[str]:
    """Return lines for `docker run --env-file`, which knows no quotation marks."""
    return [f"{name}={value}" for name, value in variables.items()]


def _dockerfile(variables: Mapping[str, str], cell: Cell) -> list[str]:
    """Return instructions for a Dockerfile."""
    escaped = {ord(each): f"\\{each}" for each in '\\"$'}
    return [f'ENV {name}="{value.translate(escaped)}"' for name, value in variables.items()]


def _container(variables: Mapping[str, str], cell: Cell) -> list[str]:
    """Return resources and env of a container of Kubernetes: its quota, or a CPU for each thread."""
    count = cell.cpu_quota or cell.all_threads
    cpus = json.dumps({"cpu": f"{count:g}"})
    resources = ["resources:", f"  requests: {cpus}", f"  limits: {cpus}"] if count else []
    named = [json.dumps({"name": name, "value": value}, ensure_ascii=False) for name, value in variables.items()]
    return [*resources, *(["env:"] if named else []), *(f"- {each}" for each in named)]


_FORMS: dict[str, Callable[[Mapping[str, str], Cell], list[str]]] = {
    ".sh": _shell_line,
    ".env": _env_file,
    "Dockerfile": _dockerfile,
    ".yaml": _container,
    ".yml": _container,
}


def _form(path: Path) -> str:
    return "Dockerfile" if "dockerfile" in path.name.lower() else path.suffix


def check_file(path: Path) -> None:
    """Raise UsageError where a file's name does not say its form, or its folder is missing."""
    if _form(path) not in _FORMS:
        raise UsageError(
            f"--write {path}: the name must say what to write. Name it FILE.sh (a shell line), FILE.env (an env file), "
            "Dockerfile (ENV lines) or FILE.yaml (a container of Kubernetes)."
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--write {path}: there is no folder {path.parent}. Make it first.")


def written(path: Path, variables: Mapping[str, str], cell: Cell) -> list[str]:
    """Return lines that set these variables, in the form that the file's name says."""
    return _FORMS[_form(path)](variables, cell)


def deployment(path: Path, plan: Plan, found: SearchResult, command: str | None) -> str:
    """Return what the file of this name holds."""
    variables, _, _ = recipe(plan, found.best)
    sentences = [line for line in lines(plan, found, command) if not line.startswith(VARIABLES)]
    comments = [f"# {' '.join(line.split())}" for line in sentences]
    content = written(path, variables, found.best) or ["# There are no variables to set."]
    return "\n".join([*comments, *content, ""])
