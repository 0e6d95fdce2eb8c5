"""Settings that may be in force in a launch (the axis ``tuning``): a row's, and any launch's.

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

    It is for its modes, devices, families and tasks only (none given: for all).
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
    """A setting of how a process is started, for every framework that it affects."""

    group: str = ""  # one of a group can be in force
    # for the malloc of this C library; several of these can be in force together
    glibc_malloc: bool = False
    # for rows that compute with one of these OpenMP libraries; empty: for all
    openmp: tuple[OpenMP, ...] = ()
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
    """Return a launch setting with the path of its library on this machine."""
    setting = known_launch_settings()[name]
    path = find_library(setting.libraries)
    if path is None:
        return setting
    variables = {
        key: value.replace("{library}", str(path)) for key, value in setting.variables.items()
    }
    return setting.model_copy(update={"variables": variables})


def find_library(names: Sequence[str]) -> Path | None:
    """Return the first of these shared libraries that is on this machine; None if none is.

    It is looked for in the folders of LD_LIBRARY_PATH, in dlbench's own environment (where pip puts
    libraries), and where the system's loader looks.
    """
    given = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [Path(folder) for folder in given if folder]
    folders.append(Path(sys.prefix) / "lib")
    for name in names:
        for folder in folders:
            path = folder / name
            if path.is_file():
                return path.absolute()
    for name in names:
        path_of_loader = _loader_libraries().get(name)
        if path_of_loader and Path(path_of_loader).is_file():
            return Path(path_of_loader).absolute()
    return None


@cache
def _loader_libraries() -> dict[str, str]:
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
    """Return why a launch setting is not possible on this machine, with the remedy; else "".

    Empty for a setting of a row too: it needs nothing but its framework.
    """
    setting = known_launch_settings().get(name)
    if setting is None:
        return ""
    if setting.libraries and find_library(setting.libraries) is None:
        return f"{setting.libraries[0]} is not installed; install {setting.package}"
    if setting.glibc_malloc:
        library = c_library()
        if library != "glibc":
            return (
                "it is for glibc's malloc, and the C library of this system is "
                f"{library or 'another one'}"
            )
    if setting.huge_pages:
        huge_pages = probe_memory().transparent_huge_pages
        if huge_pages != "madvise":
            return (
                f"/sys/kernel/mm/transparent_hugepage/enabled is {huge_pages or 'not there'}; set "
                "it to madvise"
            )
    if setting.one_node and probe_cpu().numa_nodes < 2:
        return "this machine has one NUMA node"
    return ""


def not_possible(names: Collection[str]) -> str:
    """Return which of these launch settings this machine cannot have, and why; "" if it has all."""
    reasons = {name: lacking(name) for name in known_launch_settings() if name in names}
    return "; ".join(f"{name} ({why})" for name, why in reasons.items() if why)


def check_launch_settings(names: Iterable[str]) -> None:
    """Raise UsageError for launch settings that are not possible, or not together.

    Other settings are not checked.
    """
    known = known_launch_settings()
    chosen = {name: known[name] for name in names if name in known}
    for name in chosen:
        why = lacking(name)
        if why:
            raise UsageError(
                f"The launch setting {name} is not possible on this machine: {why}. Leave "
                f"{name} out of --tuning."
            )
    for (name, one), (other, two) in itertools.combinations(chosen.items(), 2):
        both_set = sorted((one.variables.keys() & two.variables.keys()) - {PRELOAD})
        same_group = bool(one.group) and one.group == two.group
        if both_set:
            why = f"both set {', '.join(both_set)}"
        elif same_group and not (one.glibc_malloc and two.glibc_malloc):
            why = f"one {one.group} can be in force"
        else:
            continue
        raise UsageError(
            f"The launch settings {name} and {other} exclude each other: {why}. Leave one of them "
            "out."
        )
