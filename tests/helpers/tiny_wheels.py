"""Wheels of a made-up framework, a folder of them that is all of pip's index, and an adapter for it."""

import hashlib
import os
import sys
import sysconfig
import zipfile
from pathlib import Path

HOST = f"{sys.version_info[0]}.{sys.version_info[1]}"
ABOUT = f"""
name = "tiny"
title = "Tiny"
summary = "the reference under another name, at a rate that its package tells"
environment = "own"
python = ["{HOST}"]
packages = ["tiny"]
imports = "tiny"
download_megabytes = 1
disk_megabytes = 2

[modes.only]
default = true
summary = "the one mode"
"""
ADAPTER = """
from ..reference.adapter import ReferenceAdapter

class Tiny(ReferenceAdapter):
    def set_learning_rate(self, rate):
        import tiny
        super().set_learning_rate(rate * tiny.FACTOR)
    def describe(self):
        return {"framework": "tiny", "version": "1"}

ADAPTER = Tiny
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> Path:
    """Write a wheel of these files, and return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    information = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    return path


def tiny(folder: Path, version: str, factor: str = "1.0", requires: tuple[str, ...] = ("numpy",)) -> Path:
    """Write a wheel of the framework whose steps are so many times too large."""
    return wheel(folder, "tiny", version, {"tiny.py": f"FACTOR = {factor}\n"}, requires)


def numpy_of_the_tests(folder: Path) -> Path:
    """Write a wheel of NumPy that points to the NumPy of the tests' own interpreter: nothing is downloaded."""
    return wheel(folder, "numpy", "1.0", {"of_the_tests.pth": sysconfig.get_path("purelib") + "\n"})


def line(path: Path) -> str:
    """Return the line of a lock for a wheel."""
    name, version = path.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def adapter(folder: Path, lock: str, more: str = "") -> Path:
    """Write the adapter's folder with this lock, and return it; ``more`` goes to the end of framework.toml."""
    folder.mkdir()
    (folder / "framework.toml").write_text(ABOUT + more)
    (folder / "adapter.py").write_text(ADAPTER)
    (folder / "requirements.lock").write_text(lock)
    return folder


def of_pip(wheels: Path) -> dict[str, str]:
    """Return the variables with which pip knows these wheels and no index."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_CONSTRAINT": "",
        "PIP_EXTRA_INDEX_URL": "",
    }
