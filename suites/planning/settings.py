"""Settings that may be in force in a launch or not (the axis ``tuning``): a row's, and those of any
launch.

A row's settings are in its ``framework.toml``, launch settings in
``definitions/launch_settings.toml``. This module checks whether the machine has what launch
settings need (a library, huge pages, NUMA nodes).
"""

import itertools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from dlbench.hardware_probe import probe_cpu
from dlbench.hardware_probe.memory import probe_memory

from ..errors import UsageError
from .toml_files import TomlTable, parse_toml

FILE = "launch_settings.toml"
PRELOAD = "LD_PRELOAD"
OpenMP = Literal["libgomp", "libiomp5"]


class Tuned(TomlTable):
    """A setting that makes rows faster than the framework is as installed.

    It means something in its modes, on its devices, for its families and tasks only (none given:
    everywhere).
    """

    replaces: str  # behaviour without it
    why: str
    costs: str = ""  # such as memory; empty: nothing known
    settings: dict[str, Any] = {}  # for the adapter, over the mode's
    variables: dict[str, str] = {}
    modes: tuple[str, ...] = ()
    devices: tuple[Literal["cpu", "gpu"], ...] = ()
    families: tuple[str, ...] = ()
    tasks: tuple[Literal["training", "inference"], ...] = ()


class LaunchSetting(Tuned):
    """A setting of how a process is started, for every framework that it means something to."""

    group: str = ""  # one of a group can be in force
    glibc_malloc: bool = (
        False  # for the malloc of this C library; several of these can be in force together
    )
    openmp: tuple[
        OpenMP, ...
    ] = ()  # for rows that compute with one of these OpenMP libraries; empty: for all
    libraries: tuple[str, ...] = ()  # file names: the first that is found is {library}
    package: str = ""  # that brings the library
    huge_pages: bool = False  # needs a kernel that gives huge pages only on request
    one_node: bool = False  # the process is bound to the CPUs of one NUMA node


@cache
def known_launch_settings() -> Mapping[str, LaunchSetting]:
    """Return the launch settings by name."""
    text = (resources.files("dlbench.suites") / "definitions" / FILE).read_text(encoding="utf-8")
    return TypeAdapter(dict[str, LaunchSetting]).validate_python(parse_toml(text, FILE))


@cache
def launch_setting(name: str) -> LaunchSetting:
    """Return a launch setting with its library as it was found here."""
    setting = known_launch_settings()[name]
    path = find_library(setting.libraries)
    if path is None:
        return setting
    variables = {
        key: value.replace("{library}", str(path)) for key, value in setting.variables.items()
    }
    return setting.model_copy(update={"variables": variables})


def find_library(names: Sequence[str]) -> Path | None:
    """Return the first of these shared libraries that is here; None where none is.

    It is looked for in the folders of LD_LIBRARY_PATH, in dlbench's own environment (where pip puts
    libraries), and where the system's loader looks.
    """
    folders = [
        Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each
    ]
    beside = (folder / name for name in names for folder in (*folders, Path(sys.prefix) / "lib"))
    of_system = (Path(path) for name in names if (path := _of_loader().get(name)))
    return next(
        (path.absolute() for path in itertools.chain(beside, of_system) if path.is_file()), None
    )


@cache
def _of_loader() -> dict[str, str]:
    """Return the 64-bit libraries that the system's loader knows, by name."""
    try:
        done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False)
    except OSError:
        return {}
    listed = re.findall(
        r"^\s+(\S+) \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)$", done.stdout, re.MULTILINE
    )
    return dict(reversed(listed))  # of two with one name the first counts


def c_library() -> str:
    """Return the name of the system's C library, as "glibc"; empty where it does not say."""
    return platform.libc_ver()[0]


@cache
def lacking(name: str) -> str:
    """Return why a launch setting is not possible on this machine, with what to do; empty where it
    is.

    Empty for a setting of a row too: it needs nothing but its framework.
    """
    setting = known_launch_settings().get(name)
    if setting is None:
        return ""
    if setting.libraries and find_library(setting.libraries) is None:
        return f"{setting.libraries[0]} is not installed; install {setting.package}"
    if setting.glibc_malloc and (library := c_library()) != "glibc":
        return (
            "it is for glibc's malloc, and the C library of this system is "
            f"{library or 'another one'}"
        )
    if setting.huge_pages and (now := probe_memory().transparent_huge_pages) != "madvise":
        return (
            f"/sys/kernel/mm/transparent_hugepage/enabled is {now or 'not there'}; set it to "
            "madvise"
        )
    if setting.one_node and probe_cpu().numa_nodes < 2:
        return "this machine has one NUMA node"
    return ""


def not_possible(names: Collection[str]) -> str:
    """Return which of these launch settings are not possible on this machine, and why; empty where
    all are.
    """
    return "; ".join(
        f"{name} ({why})"
        for name in known_launch_settings()
        if name in names and (why := lacking(name))
    )


def check_launch_settings(names: Iterable[str]) -> None:
    """Raise UsageError for launch settings that are not possible here, or not together; others are
    left alone.
    """
    known = known_launch_settings()
    chosen = {name: known[name] for name in names if name in known}
    for name in chosen:
        if why := lacking(name):
            raise UsageError(
                f"The launch setting {name} is not possible here: {why}, or leave {name} out of "
                "--tuning."
            )
    for (name, one), (other, two) in itertools.combinations(chosen.items(), 2):
        both = sorted((one.variables.keys() & two.variables.keys()) - {PRELOAD})
        why = f"both set {', '.join(both)}" if both else f"one {one.group} can be in force"
        of_one_malloc = one.glibc_malloc and two.glibc_malloc
        if both or (one.group and one.group == two.group and not of_one_malloc):
            raise UsageError(
                f"The launch settings {name} and {other} exclude each other: {why}. Leave one of "
                "them out."
            )
