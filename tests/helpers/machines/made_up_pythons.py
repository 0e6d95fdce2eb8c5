"""Interpreters that tests make up: shell scripts that answer as a Python would, and wheels of one module."""

import base64
import hashlib
import zipfile
from pathlib import Path

# Answers what dlbench asks of an interpreter; FAKE_* variables make it fail where a real one might.
_SCRIPT = """#!/bin/sh
case "$*" in
"-m venv --without-pip "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; exit ${{FAKE_BARE_VENV_EXIT:-0}} ;;
"-m venv "*)
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "venv: $FAKE_VENV_SAYS"
    if [ -n "$FAKE_VENV_HANGS" ]; then echo $$ > "$FAKE_VENV_HANGS"; exec sleep 600; fi
    exit ${{FAKE_VENV_EXIT:-0}} ;;
*"pip install"*) echo "$FAKE_PIP_SAYS"; exit ${{FAKE_PIP_EXIT:-0}} ;;
*) echo '{{"version": "{version}.1", "implementation": "FakePython", "distributions": {{"tiny": "1.0"}}, "missing":'
   echo "[$FAKE_MISSING]}}" ;;
esac
"""


def script(path: Path, text: str) -> Path:
    """Make an executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_python(path: Path, version: str) -> Path:
    """Make a script that answers as a Python of this minor version."""
    return script(path, _SCRIPT.format(version=version))


def make_wheel(folder: Path, module: str) -> Path:
    """Make a wheel, version 1.0, of one empty module."""
    information = f"{module}-1.0.dist-info"
    files = {
        f"{module}.py": "",
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    files[f"{information}/RECORD"] = "\n".join([*lines, f"{information}/RECORD,,"]) + "\n"
    wheel = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel
