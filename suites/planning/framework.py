"""The catalogue of frameworks, read from the ``framework.toml`` of each adapter folder.

The host knows a framework by this data alone. A new framework is a folder in adapters/ with such a
file.
"""

import datetime
import functools
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import Field, model_validator

import dlbench.adapters
from dlbench.adapters.protocol import INFERENCE, OUTSIDE
from dlbench.hardware_probe import probe_cpu

from ..errors import SuiteError, UsageError, unknown_name
from .settings import PRELOAD, LaunchSetting, OpenMP, Tuned, known_launch_settings, launch_setting
from .toml_files import TomlTable, parse_toml, read_text, validated

if TYPE_CHECKING:
    from dlbench.reports.results.published import Counterpart

GUEST_DIRECTORY = Path(dlbench.adapters.__path__[0]).resolve()
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_PLACEHOLDERS = ("threads", "environment", "openblas_kernels")
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_AVX2 = {"avx2", "fma"}


def openblas_kernels(present: frozenset[str]) -> str:
    """Return OPENBLAS_CORETYPE for these instruction sets; empty: let OpenBLAS choose.

    An OpenBLAS older than the processor does not know its model number and chooses outdated
    kernels.
    """
    if present >= _AVX512 | _AVX2:
        return "SkylakeX"
    return "Haswell" if present >= _AVX2 else ""


class Mode(TomlTable):
    """One execution mode of a framework: settings for its adapter, variables for its process.

    It has cells on its devices and for its families of networks only (none given: for all).
    """

    summary: str
    inference: str = ""  # the summary where a forward pass is something else; empty: the same
    default: bool = False
    settings: dict[str, Any] = {}
    variables: dict[str, str] = {}
    devices: tuple[Literal["cpu", "gpu"], ...] = ("cpu", "gpu")
    families: tuple[str, ...] = ()
    openmp: tuple[OpenMP, ...] = ()  # what it computes with, where that is not the framework's


def fits(table: Mode | Tuned, device: str, family: str) -> bool:
    """Tell whether a mode or setting is for this device and family of networks; "" is any."""
    if device and table.devices:
        kind = "cpu" if device == "cpu" else "gpu"
        if kind not in table.devices:
            return False
    return not family or not table.families or family in table.families


class Debian(TomlTable):
    """Packages of a Debian release, unpacked into the environment's folder ``debian``."""

    release: str  # "bullseye"
    packages: tuple[str, ...]  # what was asked for; the lock has these and everything they need
    lock: str = "debian.lock"
    dependencies: bool = True  # False: the packages named and no others; the machine has the rest
    links: dict[str, str] = {}  # symbolic link -> its target, both relative to the environment


class DatedRelease(TomlTable):
    """One release of a framework."""

    version: str
    date: datetime.date


class Project(TomlTable):
    """Facts about a framework's project, with their source."""

    licence: str
    source: str
    first_release: datetime.date | None = None
    releases: tuple[DatedRelease, ...] = ()  # the version of dlbench's environment among them


SettingName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Framework(TomlTable):
    """One framework as its adapter folder describes it."""

    name: str
    title: str
    summary: str
    # in adapters/; of an adapter outside dlbench "outside_" and its name, which is no folder of
    # ours
    folder: str
    directory: Path
    unavailable: str = ""  # why dlbench has no environment of it; the list keeps its row
    successor: str = ""  # the framework that stands for it where reports name it
    environment: Literal["own", "host"] = "own"
    # drives the project itself (the reference): not offered as a row of a matrix
    hidden: bool = False
    historic: bool = False  # a retired framework, from packages of its time
    large: bool = False  # more than a first look at dlbench should download
    # False for null: there is nothing to compare with another row or with a ceiling
    computes: bool = True
    python: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()  # to be found on PATH, else it is unavailable: "g++"
    # the OpenMP library that its modes compute with; empty: none, or it is not known
    openmp: tuple[OpenMP, ...] = ()
    # a script of this folder that becomes bin/python, where the interpreter is a package's
    interpreter: str = ""
    debian: Debian | None = None
    project: Project | None = None
    requirements: str = "requirements.lock"
    # of some of these Pythons another lock: a later release, which the others cannot have
    locks: dict[str, str] = {}
    # the packages that the locks are resolved from, its own first; empty: all in a lock
    packages: tuple[str, ...] = ()
    held: dict[str, str] = {}  # package -> why a refresh leaves its locked version
    imports: str = "numpy"
    download_megabytes: int = 0
    disk_megabytes: int = 0
    # the call that sets its threads in its own code, with {threads}, where no variable does
    threads_call: str = ""
    variables: dict[str, str] = {}
    modes: dict[str, Mode] = {}
    tuning: dict[SettingName, Tuned] = {}
    # launch settings that are in `tuning` too, and modes
    tuned_with: dict[SettingName, tuple[str, ...]] = {}
    alternatives: dict[SettingName, Tuned] = {}  # in force only when named, as launch settings are
    file: Path | None = None  # of a step of the user's own
    helpers: int = 0  # threads or processes that load its data, as that file says
    # the network that this file trains: its own name, or that of the file it is a variant of
    work: str = ""
    batch_size: int | None = None  # of that file; None: it does not say

    @model_validator(mode="after")
    def _check(self) -> "Framework":
        if not self.modes and not self.unavailable:
            raise ValueError("a framework needs at least one [modes.NAME]")
        settings = {**self.tuning, **self.alternatives}
        if len(settings) < len(self.tuning) + len(self.alternatives):
            raise ValueError("an alternative has the name of a setting in [tuning]")
        tables: tuple[Framework | Mode | Tuned, ...] = (
            self,
            *self.modes.values(),
            *settings.values(),
        )
        for table in tables:
            for name, value in table.variables.items():
                _check_placeholders(name, value)
        for name, tuned in settings.items():
            strange = next((mode for mode in tuned.modes if mode not in self.modes), None)
            if strange is not None:
                raise ValueError(f"the setting {name} is for the unknown mode {strange!r}")
            if not tuned.settings and not tuned.variables:
                raise ValueError(f"the setting {name} needs settings or variables")
        for package in self.packages:
            try:
                Requirement(package)
            except InvalidRequirement as error:
                raise ValueError(
                    f"packages: {package!r} is no requirement such as 'jax' or 'jax>=0.12'"
                ) from error
        for version in self.locks:
            if version not in self.python:
                raise ValueError(f"there is a lock for Python {version}, which is not among python")
        return self

    @property
    def on_request(self) -> bool:
        """Whether it is built and tested only where that is asked for."""
        return self.historic or self.large

    @property
    def default_mode(self) -> str:
        """The mode meant when none is named."""
        for name, mode in self.modes.items():
            if mode.default:
                return name
        return next(iter(self.modes), "")

    @property
    def outside(self) -> str | None:
        """The adapter's folder, as launches get it, where it lies outside dlbench; else None."""
        return None if self.directory.parent == GUEST_DIRECTORY else str(self.directory)

    @property
    def external(self) -> bool:
        """Whether it runs code of the user: dlbench's own comes with its version."""
        return self.outside is not None or self.file is not None

    @property
    def lock_file(self) -> Path:
        """The file of exact requirements."""
        return self.directory / self.requirements

    @property
    def by_lock(self) -> tuple["Framework", ...]:
        """The framework with each of its locks and its Pythons, in the order of ``python``."""
        pythons_by_lock: dict[str, tuple[str, ...]] = {}
        for version in self.python:
            lock = self.locks.get(version, self.requirements)
            pythons_by_lock[lock] = (*pythons_by_lock.get(lock, ()), version)
        if not self.python:
            pythons_by_lock[self.requirements] = ()
        variants = []
        for lock, pythons in pythons_by_lock.items():
            changed = {"requirements": lock, "python": pythons, "locks": {}}
            variants.append(self.model_copy(update=changed))
        return tuple(variants)

    @property
    def recipe_files(self) -> tuple[Path, ...]:
        """The files that define the environment: with one of them changed it is another one."""
        names = [] if self.interpreter else [self.requirements]
        if self.debian is not None:
            names.append(self.debian.lock)
        names.append(self.interpreter)
        return tuple(self.directory / name for name in names if name)

    def summary_of(self, mode: str, task: str) -> str:
        """Return what a mode does in training or inference."""
        table = self.modes[mode]
        if task == INFERENCE and table.inference:
            return table.inference
        return table.summary

    def tunable(
        self, mode: str, device: str = "", family: str = "", task: str = ""
    ) -> tuple[str, ...]:
        """Return the names of the settings for this mode, device, family and task, in their order.

        Without a device, a family or a task, those of any.
        """
        names = []
        for name, tuned in self.tuning.items():
            for_mode = not tuned.modes or mode in tuned.modes
            for_task = not tuned.tasks or task in ("", *tuned.tasks)
            if for_mode and for_task and fits(tuned, device, family):
                names.append(name)
        return tuple(names)

    def launchable(self, mode: str, device: str) -> tuple[str, ...]:
        """Return the settings for this mode and device that are in force only when named.

        They are the row's alternatives and the launch settings, whether these are possible on this
        machine or not.
        """
        names = []
        for name, alternative in self.alternatives.items():
            for_mode = not alternative.modes or mode in alternative.modes
            if for_mode and fits(alternative, device, ""):
                names.append(name)
        openmp: tuple[str, ...] = ()
        if mode in self.modes:
            openmp = self.modes[mode].openmp or self.openmp
        for name, setting in known_launch_settings().items():
            if name in self.tuning or not fits(setting, device, ""):
                continue
            if setting.openmp and not set(setting.openmp) & set(openmp):
                continue
            if setting.libraries and self.interpreter:
                continue  # a script, which starts with a C library of its own
            names.append(name)
        return tuple(names)

    def setting(self, name: str) -> Tuned:
        """Return a setting by name, one of this framework or one of every launch."""
        return self.tuning.get(name) or self.alternatives.get(name) or launch_setting(name)

    def bound_to_one_node(self, chosen: Iterable[str]) -> bool:
        """Tell whether one of these settings binds the process to the CPUs of one NUMA node."""
        for name in chosen:
            setting = self.setting(name)
            if isinstance(setting, LaunchSetting) and setting.one_node:
                return True
        return False

    def launch_settings(self, mode: str, chosen: Iterable[str] | None = None) -> dict[str, Any]:
        """Return the adapter's settings: the mode's, and those of the chosen settings.

        ``chosen`` is None for all of the row.
        """
        settings = dict(self.modes[mode].settings)
        if chosen is None:
            chosen = self.tunable(mode)
        for name in chosen:
            settings.update(self.setting(name).settings)
        return settings

    def launch_variables(
        self,
        mode: str,
        threads: int,
        environment: Path | None = None,
        chosen: Iterable[str] | None = None,
    ) -> dict[str, str]:
        """Return the environment variables of one launch, also those of the chosen settings.

        ``chosen`` is None for all settings of the row. A variable with a placeholder that has no
        value in this launch is left out. Zero threads mean the framework's own default: then no
        variable speaks of threads.
        """
        variables = {**self.variables, **self.modes[mode].variables}
        if chosen is None:
            chosen = self.tunable(mode)
        for name in chosen:
            more = self.setting(name).variables
            if PRELOAD in variables and PRELOAD in more:
                more = {**more, PRELOAD: f"{variables[PRELOAD]}:{more[PRELOAD]}"}
            variables.update(more)
        meanings = {
            "threads": str(threads or ""),
            "environment": str(environment or ""),
            "library": "",
        }
        if any("{openblas_kernels}" in value for value in variables.values()):
            meanings["openblas_kernels"] = openblas_kernels(frozenset(probe_cpu().instruction_sets))

        def meaning(match: re.Match[str]) -> str:
            return meanings[match[1]]

        filled_in = {}
        for name, value in variables.items():
            if all(meanings[placeholder] for placeholder in _PLACEHOLDER.findall(value)):
                filled_in[name] = _PLACEHOLDER.sub(meaning, value)
        return filled_in

    def thread_setting(self, mode: str, threads: int) -> str:
        """Return the call or the variables that set this thread count; empty where unknown."""
        if self.threads_call:
            return self.threads_call.replace("{threads}", str(threads))
        variables = {**self.variables, **self.modes[mode].variables}
        named = [f"{name}={threads}" for name, value in variables.items() if value == "{threads}"]
        return " ".join(named)


def _check_placeholders(name: str, value: str) -> None:
    for placeholder in _PLACEHOLDER.findall(value):
        if placeholder not in _PLACEHOLDERS:
            known = ", ".join(f"{{{word}}}" for word in _PLACEHOLDERS)
            raise ValueError(
                f"the variable {name} has the unknown placeholder {{{placeholder}}}. Known: {known}"
            )


def read(path: Path) -> Framework:
    """Return the framework that this framework.toml describes.

    Its folder is the adapter's identity in records. For an adapter outside dlbench the identity is
    made of the name, since the folder may have any name. Raises SuiteError naming file and key.
    """
    content = parse_toml(read_text(path), str(path))
    if isinstance(content.get("tuned_with"), dict):
        content["tuning"] = {
            **_tuned_settings(content["tuned_with"], path),
            **content.get("tuning", {}),
        }
    ours = path.parent.parent == GUEST_DIRECTORY
    folder = path.parent.name if ours else f"{OUTSIDE}{content.get('name')}"
    return validated({**content, "folder": folder, "directory": path.parent}, str(path), Framework)


def _tuned_settings(modes_by_name: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the launch settings of a framework's tuned rows, as tables of settings.

    Raises SuiteError.
    """
    tables = {}
    for name, modes in modes_by_name.items():
        if name not in known_launch_settings():
            unknown = unknown_name("launch setting", name, known_launch_settings())
            raise SuiteError(f"{path}, tuned_with: {unknown}")
        setting = known_launch_settings()[name]
        fields = {field: getattr(setting, field) for field in Tuned.model_fields}
        tables[name] = {**fields, "modes": modes}
    return tables


@functools.cache
def shipped() -> dict[str, Framework]:
    """Return the frameworks of dlbench itself, hidden ones too, in the order of their folders.

    A folder with an unusable framework.toml is included under the folder's name, unavailable for
    that reason: the others can be used.
    """
    frameworks: dict[str, Framework] = {}
    for path in sorted(GUEST_DIRECTORY.glob("*/framework.toml")):
        folder = path.parent
        try:
            framework = read(path)
            if framework.name in frameworks:
                other = frameworks[framework.name].directory
                raise SuiteError(f"{path} has the name of {other}. Choose another.")
        except SuiteError as error:
            named: dict[str, Any] = dict.fromkeys(("name", "title", "folder"), folder.name)
            summary = "its framework.toml cannot be used"
            framework = Framework(
                **named, directory=folder, summary=summary, unavailable=str(error)
            )
        frameworks[framework.name] = framework
    return frameworks


_added: dict[str, Framework] = {}


def add(framework: Framework) -> None:
    """Add a framework outside dlbench to the catalogue, for the life of this process."""
    _added[framework.name] = framework


def catalogue() -> dict[str, Framework]:
    """Return every framework by name, hidden ones and those added from outside too."""
    return {**shipped(), **_added}


def offered() -> dict[str, Framework]:
    """Return the frameworks a user can choose."""
    return {name: framework for name, framework in catalogue().items() if not framework.hidden}


def find(name: str) -> Framework:
    """Return the framework of this name; raises UsageError naming the nearest one."""
    known = catalogue()
    if name not in known:
        raise unknown_framework(name, offered())
    return known[name]


def unknown_framework(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown framework: the row of its package, else the nearest name."""
    row = row_of_package(name)
    if row is None:
        return unknown_name("framework", name, known)
    return UsageError(
        f"There is no framework named {name!r}. The package {name} is measured in the row "
        f"{row.name}."
    )


def row_of_package(package: str) -> Framework | None:
    """Return the framework of another name whose releases are this package's; None if none is."""
    for framework in offered().values():
        first = Requirement(framework.packages[0]).name if framework.packages else ""
        if first == package and framework.name != package and framework.environment == "own":
            return framework
    return None


def modes_meant(framework: Framework, wanted: str) -> tuple[str, ...]:
    """Return the modes that ``wanted`` names: "" the default one, "*" all, else one by its name."""
    # An unavailable framework keeps one row, with the reason.
    if wanted == "" or framework.unavailable:
        return (framework.default_mode,)
    if wanted == "*":
        return tuple(framework.modes)
    if wanted not in framework.modes:
        known = ", ".join(framework.modes)
        raise UsageError(
            f"{framework.name} has no mode {wanted!r}. It has: {known} (or * for all)."
        )
    return (wanted,)


def release_dates() -> dict[tuple[str, str], date]:
    """Return the dates of the catalogue's releases, by adapter (folder) and version."""
    dates = {}
    for framework in catalogue().values():
        if framework.project is not None:
            for release in framework.project.releases:
                dates[framework.folder, release.version] = release.date
    return dates


def counterparts_of_2016() -> "dict[str, Counterpart]":
    """Return the framework compared with each one of the 2016 paper: itself, or its successor."""
    from dlbench.reports.results.published import SHI2016, Counterpart, study

    known = catalogue()
    counterparts = {}
    for name, (catalogued, title) in study(SHI2016).frameworks.items():
        itself = known.get(catalogued) or known.get(name)
        entry = itself
        if itself is not None and itself.successor:
            entry = known.get(itself.successor)
        if entry is None or entry.unavailable:
            missing = itself.unavailable if itself is not None else ""
            reason = missing or "it is not in the list of frameworks"
            counterparts[name] = Counterpart("", title, reason)
        else:
            counterparts[name] = Counterpart(entry.folder, entry.title)
    return counterparts
