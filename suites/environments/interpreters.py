"""Python interpreters on this machine, inspected without importing a framework."""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from ..errors import FrameworkEnvironmentError
from .folders import exists, home, remembered

MANIFEST = "dlbench-environment.json"  # describes a built environment, in its folder
OLDEST, NEWEST = 7, 20
"""Minor versions of Python 3 that are looked for: pip resolves for no older one, and no newer one
is near."""

# Lists importable packages by the names of metadata folders: works from Python 3.6 on, and imports
# nothing.
_INSPECT = """
import importlib.util, json, os, platform, sys
distributions = {}
installed = "site-packages", "dist-packages"
folders = [folder for folder in sys.path if os.path.basename(folder) in installed]
for folder in sys.path:
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            if name.endswith((".dist-info", ".egg-info")):
                project, _, version = name.rpartition(".")[0].partition("-")
                distributions[project.lower().replace("_", "-")] = version.split("-py")[0]
wanted = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
for spec in wanted.values():
    folders += [str(folder) for folder in (spec and spec.submodule_search_locations) or ()]
print(json.dumps({
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "distributions": distributions,
    "prefix": sys.prefix,
    "executable": sys.executable or None,
    "folders": folders,
    "missing": [name for name in wanted if wanted[name] is None],
}))
"""


@dataclass(frozen=True)
class Inspection:
    """An interpreter's version and packages."""

    version: str
    implementation: str
    distributions: dict[str, str]
    missing: tuple[str, ...]
    prefix: Path | None = None  # the folder that its packages are in
    executable: Path | None = None
    folders: tuple[Path, ...] = ()
    """Folders that packages are imported from, and those of the modules asked for."""

    @property
    def name(self) -> str:
        """For example "CPython 3.11.7"."""
        return f"{self.implementation} {self.version}"


def inspect(interpreter: Path, modules: tuple[str, ...] = ()) -> Inspection:
    """Ask an interpreter for its version, its distributions and which of these modules it lacks.

    Raises FrameworkEnvironmentError when it is not a Python interpreter that starts.
    """
    try:
        answer = subprocess.run(
            [str(interpreter), "-I", "-c", _INSPECT, *modules],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        inspection = TypeAdapter(Inspection).validate_json(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise FrameworkEnvironmentError(
            f"{interpreter} is not a Python interpreter that starts. Give the path of its python "
            "executable; `dlbench env list` shows those of dlbench's environments."
        ) from error
    # No metadata folder of Python lists the Debian packages of an environment of dlbench.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        manifest = json.loads((interpreter.parent.parent / MANIFEST).read_text(encoding="utf-8"))
        debian = {f"debian {name}": version for name, version in manifest.get("debian", {}).items()}
        inspection = replace(inspection, distributions={**inspection.distributions, **debian})
    return inspection


def name_of(interpreter: Path) -> str:
    """Return the name of an interpreter ("CPython 3.11.7").

    It is started only where it changed since the last time. Raises FrameworkEnvironmentError when
    it is not a Python interpreter that starts.
    """
    stamp = ""
    with contextlib.suppress(OSError, ValueError):
        path = interpreter.resolve(strict=True)
        status = path.stat()
        stamp = f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    file = home() / "cache" / "interpreters.json"
    return remembered(file, str(interpreter), stamp, lambda: inspect(interpreter).name)


def _candidates(version: str) -> Iterator[Path]:
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{version}")
    # The shims of pyenv start slowly, and stand for the versions below.
    if on_path and Path(on_path).parent != pyenv / "shims":
        yield Path(on_path)
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    for folder, pattern in ((pyenv / "versions", f"{version}.*"), (uv, f"cpython-{version}*")):
        with contextlib.suppress(OSError):  # of another user
            for installation in sorted(folder.glob(pattern), reverse=True):
                yield installation / "bin" / f"python{version}"


@functools.cache
def find_python(version: str) -> Path | None:
    """Return an interpreter of this minor version ("3.11"); None if there is none.

    It is the one of this process, or from PATH, pyenv or uv.
    """
    for candidate in _candidates(version):
        with contextlib.suppress(FrameworkEnvironmentError):
            if exists(candidate) and f" {version}." in name_of(candidate):
                return candidate
    return None


def pythons_at_hand() -> dict[str, Path]:
    """Return an interpreter of every minor version on this machine, the newest first."""
    pythons: dict[str, Path] = {}
    for minor in range(NEWEST, OLDEST - 1, -1):
        interpreter = find_python(f"3.{minor}")
        if interpreter is not None:
            pythons[f"3.{minor}"] = interpreter
    return pythons
