"""The user's own adapters and training steps, outside dlbench.

    dlbench run quick --adapter my_framework=path/to/folder
    DLBENCH_ADAPTERS=my_framework=path/to/folder:other=another/folder
    [project.entry-points."dlbench.adapters"]        in an installed package's pyproject.toml
    my_framework = "my_package.dlbench_adapter"      the package that is the adapter's folder

The folder has the form of an adapter's folder in ``adapters/``;
adapters/docs/how-to/add-a-framework.md says how to write one. An unusable adapter is an error if
this command names it. Those in the variable and in packages, which apply to every command, are left
out with a warning.

    dlbench run threads --step train_step.py --python ~/venv/bin/python
"""

import ast
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path

from dlbench.adapters.families.own import LOSS_TOLERANCE, Own
from dlbench.adapters.networks import USUAL_BATCH_SIZE

from ..display.screen import complain
from ..errors import UsageError
from . import framework, networks
from .axes import option_of
from .framework import Framework, Mode
from .networks import LARGEST_BATCH
from .plan import Plan
from .settings import lacking
from .suite import ProtocolSection, Suite

GROUP = "dlbench.adapters"
VARIABLE = "DLBENCH_ADAPTERS"
_ADAPTER_NAME = re.compile(r"[a-z][a-z0-9_]*")
_warned: set[str] = set()


def read_adapter(text: str, where: str) -> Framework:
    """Return the framework meant by "my_framework=path/to/folder"; raises UsageError."""
    name, equals, path = text.partition("=")
    if not equals or not path or not _ADAPTER_NAME.fullmatch(name):
        raise UsageError(
            f"{where} {text!r} cannot be read. Write NAME=FOLDER, the name in lower case, digits "
            "and underscores, for example my_framework=adapters/my_framework."
        )
    folder = _resolved(path, where)
    for file in ("framework.toml", "adapter.py"):
        if not (folder / file).is_file():
            raise UsageError(
                f"{where}: {folder} has no {file}. See adapters/docs/how-to/add-a-framework.md for "
                "what it must hold."
            )
    described = framework.read(folder / "framework.toml")
    if described.name != name:
        raise UsageError(
            f"{where}: {folder}/framework.toml describes {described.name!r}, not {name!r}. Use one "
            "name."
        )
    if name in framework.shipped():
        raise UsageError(
            f"{where}: {name} is the name of a framework that dlbench has. Choose another in "
            f"{folder}."
        )
    return described


def register_adapters(texts: list[str] | None) -> list[str] | None:
    """Add the adapters of the command line, of DLBENCH_ADAPTERS and of installed packages.

    A callback for typer: returns its argument. Raises UsageError for the first unusable one on the
    command line. Each unusable one of the others is left out, with one line on stderr.
    """
    for adapter in _package_adapters():
        framework.add(adapter)
    for text in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            framework.add(read_adapter(text, VARIABLE))
        except UsageError as error:
            _warn(str(error))
    for text in texts or []:
        framework.add(read_adapter(text, "--adapter"))
    return texts


def _warn(words: str) -> None:
    line = " ".join(f"{words} It is left out.".split())
    if line not in _warned:  # a command registers more than once
        _warned.add(line)
        complain(line)


def _package_adapters() -> list[Framework]:
    """Return the adapters that installed packages declare, without importing any."""
    adapters: dict[str, Framework] = {}
    packages: dict[str, str] = {}
    try:
        points = list(importlib.metadata.entry_points(group=GROUP))
    except Exception as error:  # a broken package must not end this command
        _warn(
            f"The adapters of installed packages cannot be listed: {type(error).__name__}: {error}."
        )
        return []
    for point in points:
        name = point.name
        where = f"The installed package's entry point {name}"
        try:
            package = point.dist.name if point.dist else "?"
            if name in adapters:
                raise UsageError(
                    f"The installed package {package} has an adapter {name}, as the package "
                    f"{packages[name]} has."
                )
            adapters[name] = read_adapter(f"{name}={_folder(point, where)}", where)
            packages[name] = package
        except UsageError as error:
            _warn(str(error))
        except Exception as error:  # as above
            _warn(f"{where} cannot be used: {type(error).__name__}: {error}.")
    return list(adapters.values())


def _folder(point: EntryPoint, where: str) -> Path:
    """Return the folder of the package that an entry point names, without importing a package."""
    top, *rest = point.module.split(".")
    if point.dist is not None:
        installed = Path(str(point.dist.locate_file("/".join((top, *rest)))))
        if installed.is_dir():
            return installed
    # The files of an editable installation are elsewhere. Only a name with a dot would import a
    # package: the one before the dot.
    spec = importlib.util.find_spec(top)
    places = spec.submodule_search_locations if spec else None
    for place in places or []:
        folder = Path(place, *rest)
        if folder.is_dir():
            return folder
    raise UsageError(
        f"{where} names {point.module}, which is not an installed package. Reinstall or remove it."
    )


_STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


MAXIMUM_WARMUP_STEPS = 30
"""The longest warm-up of an unknown step, in samples."""


def searching(protocol: ProtocolSection) -> ProtocolSection:
    """Return a suite's protocol with a search for the end of the warm-up.

    Suites of known networks may omit it.
    """
    longest = max(protocol.maximum_warmup_steps, MAXIMUM_WARMUP_STEPS)
    return protocol.model_copy(update={"maximum_warmup_steps": longest})


@dataclass(frozen=True)
class OwnSteps:
    """The user's own steps in a command."""

    names: tuple[str, ...]
    loss_tolerance: float = LOSS_TOLERANCE

    def instead_of(self, suite: Suite) -> Suite:
        """Return the suite with these steps in the place of its networks and frameworks.

        Each file is work of its own, unless it says that it is a variant of another.
        """
        works = tuple(dict.fromkeys(framework.find(name).work for name in self.names))
        changed: dict[str, object] = {
            "networks": works,
            "frameworks": self.names,
            "network": tuple({"name": work, "family": Own.name} for work in works),
            "grid": (),
        }
        changed["protocol"] = searching(suite.protocol)
        changed.update(batch_sizes={}, cpu_batch_sizes={}, settings={})
        kept = {key: getattr(suite, key) for key in Suite.model_fields}
        return Suite.model_construct(**{**kept, **changed})

    def tolerated(self, plan: Plan) -> Plan:
        """Return the plan with the tolerance that was asked for."""
        networks = {}
        for name, network in plan.networks.items():
            recipe = network.parity._replace(loss_tolerance=self.loss_tolerance)
            networks[name] = network._replace(parity=recipe)
        return replace(plan, networks=networks)


def name_of(text: str, option: str = "--step") -> str:
    """Return the row's name that a file gives; raises UsageError where it cannot be one."""
    path = Path(text)
    if path.suffix != ".py" or not _STEP_NAME.fullmatch(path.stem):
        raise UsageError(
            f"{option} {text[:60]!r} is not a Python file that can be imported. Name it with "
            "letters, digits and underscores, as in train_step.py."
        )
    if path.stem in framework.shipped():
        raise UsageError(
            f"{option} {text}: {path.stem} is the name of a framework of dlbench. Rename the file."
        )
    if path.stem in networks.shipped():
        raise UsageError(
            f"{option} {text}: {path.stem} is the name of a network of dlbench. Rename the file."
        )
    return path.stem


def read_step(text: str, option: str = "--step") -> Framework:
    """Return a framework that runs this file; raises UsageError for a missing file."""
    name = name_of(text, option)
    path = _resolved(text, option)
    if not path.is_file():
        raise UsageError(
            f"{option}: there is no file {text}. `dlbench new step {text}` writes one to start "
            "from."
        )
    declared = declarations(path)
    ours = framework.shipped()["step"]
    mode = Mode(summary=ours.modes["file"].summary, default=True, settings={"file": str(path)})
    tuning = {name: setting for name, setting in ours.tuning.items() if not lacking(name)}
    changed = {
        "name": name,
        "title": name,
        "summary": f"the step in {path.name}",
        "hidden": False,
        "tuning": tuning,
        "file": path,
        "modes": {"file": mode},
        "helpers": helpers_of(declared, text, option),
        "work": work_of(declared, text, option),
        "batch_size": batch_size_of(declared, path, text, option),
    }
    return ours.model_copy(update=changed)


HELPERS = "HELPERS"
"""The constant of a file with the number of its threads or processes that load data."""
_MOST_HELPERS = 1024


def declarations(path: Path) -> dict[str, object]:
    """Return the constants that a file assigns at its top level, by name.

    The file is read and not run. One that cannot be read or parsed declares nothing: its launch
    says why.
    """
    tree = _tree(path)
    if tree is None:
        return {}
    constants: dict[str, object] = {}
    for statement in tree.body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        if statement.value is None:  # an annotation alone
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                constants[target.id] = _constant(statement.value)
    return constants


def _constant(node: ast.expr) -> object:
    """Return the value of a literal; an `ast.expr` as it is where it must be computed."""
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return node
    return value


def helpers_of(declared: dict[str, object], file: str, option: str = "--step") -> int:
    """Return how many threads or processes a file says load its data; raises UsageError."""
    value = declared.get(HELPERS, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_HELPERS:
        shown = ast.unparse(value) if isinstance(value, ast.expr) else repr(value)
        raise UsageError(
            f"{option} {file}: {HELPERS} is {shown[:40]}. Write a whole number, as in {HELPERS} = "
            "2: the threads or processes that load data beside those that compute."
        )
    return value


VARIANT_OF = "VARIANT_OF"
"""The constant of a file with the name of the file whose work it does in another way."""
BATCH_SIZE = "BATCH_SIZE"
"""The constant of a file with the examples of a mini-batch."""


def work_of(declared: dict[str, object], file: str, option: str = "--step") -> str:
    """Return the name of the work that a file does: its own, or the one that it names.

    Raises UsageError.
    """
    value = declared.get(VARIANT_OF, Path(file).stem)
    if not isinstance(value, str) or not _STEP_NAME.fullmatch(value) or value in networks.shipped():
        shown = ast.unparse(value) if isinstance(value, ast.expr) else repr(value)
        raise UsageError(
            f"{option} {file}: {VARIANT_OF} is {shown[:40]}. Write the name of the other file "
            f'without its suffix, as in {VARIANT_OF} = "train_step".'
        )
    return value


def batch_size_of(
    declared: dict[str, object], path: Path, file: str, option: str = "--step"
) -> int | None:
    """Return the examples of a file's mini-batch where no option gives them; None: unknown.

    A file that reads ``cell.batch_size`` gets dlbench's usual one. Raises UsageError for a constant
    that is not a size.
    """
    if BATCH_SIZE not in declared:
        return USUAL_BATCH_SIZE if _reads_batch_size(path) else None
    value = declared[BATCH_SIZE]
    if isinstance(value, ast.expr):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_BATCH:
        raise UsageError(
            f"{option} {file}: {BATCH_SIZE} is {value!r:.40}. Write a whole number, as in "
            f"{BATCH_SIZE} = 8: the examples of a mini-batch."
        )
    return value


def _reads_batch_size(path: Path) -> bool:
    """Tell whether a file reads ``cell.batch_size``.

    A loader's or a model's attribute of that name does not count. Where ``prepare`` hands ``cell``
    on, every variable or attribute of the same name is taken for it.
    """
    read = axes_read(path)
    if read is not None:
        return "batch_size" in read
    tree = _tree(path)
    if tree is None:
        return False
    names = {"cell"}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "prepare":
            names.update(argument.arg for argument in statement.args.args)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        owner = node.value
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        if node.attr == "batch_size" and name in names:
            return True
    return False


def _tree(path: Path) -> ast.Module | None:
    """Return the syntax of a file; None where it cannot be read or parsed."""
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


AXES_OF_A_FILE = {"batch_sizes": "batch_size", "precisions": "precision", "placements": "placement"}
"""Options that only the file itself can follow, and the attributes of ``cell`` that they need."""


def axes_read(path: Path) -> set[str] | None:
    """Return the attributes of ``cell`` that a file's ``prepare`` reads; None if not known.

    They are not known where ``prepare`` hands ``cell`` on, or is not a function of the file.
    """
    tree = _tree(path)
    if tree is None:
        return None
    functions = [function for function in _functions(tree) if function.name == "prepare"]
    if len(functions) != 1 or len(functions[0].args.args) != 1:
        return None
    cell = functions[0].args.args[0].arg
    uses = 0
    attributes: list[str] = []
    for node in ast.walk(functions[0]):
        if _is_name(node, cell):
            uses += 1
        elif isinstance(node, ast.Attribute) and _is_name(node.value, cell):
            attributes.append(node.attr)
    return set(attributes) if uses == len(attributes) else None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@dataclass(frozen=True)
class Description:
    """The facts that a file states about itself, and those that only it could state."""

    said: tuple[str, ...]
    unknown: tuple[str, ...]


def description(path: Path) -> Description:
    """Return the facts that a file states about itself."""
    declared = declarations(path)
    said = []
    unknown = []
    if HELPERS in declared:
        said.append(f"{HELPERS} = {helpers_of(declared, path.name)}")
    else:
        unknown.append(
            f"whether other threads or processes load its data ({HELPERS} = N; taken as none)"
        )
    batch_size = batch_size_of(declared, path, path.name)
    if batch_size is None:
        unknown.append(f"the examples of a mini-batch ({BATCH_SIZE} = N)")
    else:
        said.append(f"{batch_size} examples a mini-batch")
    tree = _tree(path)
    functions: set[str] = set()
    if tree is not None:
        functions = {function.name for function in _functions(tree)}
    if "synchronize" in functions:
        said.append("synchronize() waits for a step")
    else:
        unknown.append("whether a step goes on after its call (synchronize(); taken as no)")
    read = axes_read(path)
    if read is not None:
        attributes = ", ".join(f"cell.{axis}" for axis in sorted(read))
        said.append(f"prepare reads {attributes or 'nothing of cell'}")
    return Description(tuple(said), tuple(unknown))


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the functions at the top level of a file."""
    return [statement for statement in tree.body if isinstance(statement, ast.FunctionDef)]


def check_axes(name: str, given: Mapping[str, str | None]) -> None:
    """Raise UsageError for the option of an axis that the file of this name does not read.

    Its declared mini-batch size may be given: the commands that a page shows name it.
    """
    own_step = framework.find(name)
    read = None
    if own_step.file is not None:
        read = axes_read(own_step.file)
    for key, axis in AXES_OF_A_FILE.items():
        if key == "batch_sizes" and given[key] == str(own_step.batch_size):
            continue
        if given[key] is not None and read is not None and axis not in read:
            raise UsageError(
                f"{option_of(key)} changes nothing in {name}.py, which does not read cell.{axis}. "
                "Read it in prepare, or leave the option out."
            )


def _resolved(text: str, where: str) -> Path:
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{where}: {text[:60]} cannot be looked into: {error}.") from error
    return path


def register_steps(texts: list[str] | None) -> list[str] | None:
    """Add a row for each file; a callback for typer: returns its argument. Raises UsageError."""
    seen: dict[str, str] = {}
    for text in texts or []:
        made = read_step(text)
        if seen.setdefault(made.name, text) != text:
            raise UsageError(
                f"--step: {seen[made.name]} and {text} have the same name. Rename one of the files."
            )
        framework.add(made)
    return texts
