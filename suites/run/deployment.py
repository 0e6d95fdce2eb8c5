"""`dlbench tune --write FILE`: the fastest way to run a network, as a file to paste from.

The file's name selects the form: a shell line, an env file, lines of a Dockerfile, or a Kubernetes
container. Comments state the gain, the remaining steps (settings of the program), and the command
that measures it again.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from dlbench.adapters.protocol import Cell

from ..errors import UsageError
from .search import VARIABLES, SearchResult, lines, recipe

_FORMS = (".sh", ".env", "Dockerfile", ".yaml", ".yml")


def _form(path: Path) -> str:
    return "Dockerfile" if "dockerfile" in path.name.lower() else path.suffix


def check_file(path: Path) -> None:
    """Raise UsageError if a file's name selects no form, or its folder is missing."""
    if _form(path) not in _FORMS:
        raise UsageError(
            f"--write {path}: the name must select a form. Name it FILE.sh (a shell line), "
            "FILE.env (an env file), Dockerfile (ENV lines) or FILE.yaml (a Kubernetes container)."
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--write {path}: there is no folder {path.parent}. Make it first.")


def variable_lines(path: Path, variables: Mapping[str, str], cell: Cell) -> list[str]:
    """Return lines that set these variables, in the form that the file's name selects."""
    form = _form(path)
    if form == ".sh":  # to be read by `. FILE`
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        return [f"export {words}"] if words else []
    if form == ".env":  # for `docker run --env-file`, which has no quoting
        return [f"{name}={value}" for name, value in variables.items()]
    if form == "Dockerfile":
        escaped = str.maketrans({"\\": "\\\\", '"': '\\"', "$": "\\$"})
        return [f'ENV {name}="{value.translate(escaped)}"' for name, value in variables.items()]
    return _kubernetes_lines(variables, cell)


def _kubernetes_lines(variables: Mapping[str, str], cell: Cell) -> list[str]:
    """Return lines of a container: the cell's quota or a CPU for each thread, and its variables."""
    content = []
    count = cell.cpu_quota or cell.all_threads
    if count:
        cpus = json.dumps({"cpu": f"{count:g}"})
        content += ["resources:", f"  requests: {cpus}", f"  limits: {cpus}"]
    if variables:
        content.append("env:")
    for name, value in variables.items():
        entry = json.dumps({"name": name, "value": value}, ensure_ascii=False)
        content.append(f"- {entry}")
    return content


def deployment(path: Path, result: SearchResult, command: str | None) -> str:
    """Return the content of the file of this name."""
    variables, _, _ = recipe(result)
    sentences = [line for line in lines(result, command) if not line.startswith(VARIABLES)]
    comments = [f"# {' '.join(line.split())}" for line in sentences]
    content = variable_lines(path, variables, result.best) or ["# There are no variables to set."]
    return "\n".join([*comments, *content, ""])
