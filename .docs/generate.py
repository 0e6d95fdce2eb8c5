"""Reference pages, written from the code when the documentation is built.

Each page is a function that returns Markdown; `PAGES` has them all. A page of the class `X` shows
the comments and docstrings of its fields, so nothing is said twice.
"""

import ast
import inspect
import json
import os
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

os.environ.update(COLUMNS="80", NO_COLOR="1", TERM="dumb")  # before Typer is imported

import typer
from typer.testing import CliRunner

import dlbench
from dlbench.adapters import axes, protocol
from dlbench.adapters.families import FAMILIES, LEARNING_RATE, Family, Own
from dlbench.adapters.families.family import Numbers
from dlbench.reports.results import outcome, record, statistics
from dlbench.reports.results.flag_kinds import KINDS
from dlbench.suites import cli
from dlbench.suites.planning import framework, networks, settings, suite
from dlbench.suites.planning.axes import AXIS_OPTIONS, PLAIN
from dlbench.suites.planning.toml_files import TomlTable

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / ".docs" / "generated" / "reference"
KEYS = ROOT / "reports" / "docs" / "reference" / "json-keys.toml"


def write_pages() -> None:
    """Write every page whose content has changed."""
    pages = {GENERATED / f"{name}.md": page() for name, page in PAGES.items()}
    for name in cli.COMMANDS:
        pages[GENERATED / "commands" / f"{name}.md"] = command_page(name)
    for path in set(GENERATED.rglob("*.md")) - set(pages):
        path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(field, line))} |" for line in lines) + "\n"


def field(value: object) -> str:
    """Return a value as a field of a table."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("``", "`")


def code(words: Iterable[object]) -> str:
    """Return words as code, with commas between them."""
    return ", ".join(f"`{word}`" for word in words)


def command_page(name: str) -> str:
    """Return the page of a command: its help, and that of each of its own commands."""
    app = cli.build_app(name)
    _, summary = cli.COMMANDS[name]
    lines = [f"# dlbench {name}", summary, shown_help(app, [name])]
    command: Any = typer.main.get_command(app)
    for part in getattr(command.commands[name], "commands", {}):
        lines += [f"## dlbench {name} {part}", shown_help(app, [name, part])]
    return "\n\n".join(lines) + "\n"


def shown_help(app: typer.Typer, words: list[str]) -> str:
    """Return the --help of a command, 80 columns wide, as a code block."""
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="dlbench")
    if result.exit_code != 0:
        raise RuntimeError(f"dlbench {' '.join(words)} --help failed: {result.output}")
    lines = [line.rstrip() for line in result.output.strip("\n").splitlines()]
    text = textwrap.dedent("\n".join(line for line in lines)).strip("\n")
    return f"```text\n{text}\n```"


def commands() -> str:
    """Return the list of commands."""
    rows = [(f"[{name}](commands/{name}.md)", text) for name, (_, text) in cli.COMMANDS.items()]
    toctree = "```{toctree}\n:glob:\n:hidden:\n\ncommands/*\n```\n"
    return f"# Commands\n\n{table(('dlbench', 'does'), rows)}\n{toctree}"


def suites() -> str:
    """Return the suites and networks that come with dlbench, and the keys of a suite file."""
    suite_rows = []
    for name, shown_suite in suite.shipped().items():
        frameworks = len(shown_suite.frameworks)
        launches = shown_suite.protocol.launches
        suite_rows.append(
            (f"`{name}`", shown_suite.summary, code(shown_suite.networks), frameworks, launches)
        )
    network_rows = []
    for name, network in networks.shipped().items():
        kind = type(network.family).__name__.lower()
        network_rows.append((f"`{name}`", kind, network.batch_size, network.summary))
    return "\n\n".join(
        (
            "# Suites and networks",
            "`dlbench run NAME` measures a suite, `dlbench plan NAME` shows its cells.",
            "## Suites",
            table(("suite", "summary", "networks", "frameworks", "launches"), suite_rows),
            "## Networks",
            table(("network", "family", "mini-batch", "summary"), network_rows),
            "## Keys of a suite file",
            "A suite is a TOML file. These are keys as well, with the words of their options "
            f"([axes](axes.md)): {code(option.key for option in PLAIN)}.",
            keys_table(suite.Suite),
            "## Keys of its table `[protocol]`",
            keys_table(suite.ProtocolSection),
            "## Families of networks",
            "Sampled machines are not trained. Other networks are trained with plain SGD at a "
            f"learning rate of {LEARNING_RATE}.",
            *(family_section(family) for name, family in FAMILIES.items() if name != Own.name),
        )
    )


def keys_table(owner: type[TomlTable]) -> str:
    """Return the keys of a TOML table with their default values."""
    rows = []
    for name, _, _, comment in fields_of(owner):
        known = owner.model_fields[name]
        shown = "required"
        if not known.is_required():
            empty = known.default in ("", (), {}) or isinstance(known.default, TomlTable)
            shown = "" if empty else f"`{json.dumps(known.default)}`"
        rows.append((f"`{name}`", shown, comment))
    return table(("key", "default", "meaning"), rows)


VALUES = {
    Numbers.whole: "whole number",
    Numbers.wholes: "list of whole numbers",
    Numbers.real: "number",
    Numbers.tables: "list of tables",
}


def family_section(family: type[Family]) -> str:
    """Return what a family of networks computes, and the table of its numbers."""
    comments = {name: comment for name, _, _, comment in fields_of(family)}
    rows = []
    for name, number in family.fields.items():
        words = number.keywords.get("known")
        value = code(words) if words else VALUES[number.func]
        usual = number.keywords.get("usual", "required")
        default = comments[name] if callable(usual) else usual
        rows.append((f"`{name}`", value, default))
    heads = ("number", "value", "default")
    text = f"```{{eval-rst}}\n{inspect.getdoc(family)}\n```"
    return f"### {family.name}\n\n{text}\n\n{table(heads, rows)}"


def frameworks() -> str:
    """Return the frameworks with their modes."""
    framework_rows = []
    mode_rows = []
    for name, entry in framework.offered().items():
        size = f"{entry.download_megabytes} MB" if entry.download_megabytes else ""
        pythons = [f"Python {version}" for version in entry.python[:1]]
        needs = ", ".join([*pythons, *entry.python[1:], *entry.programs])
        about = entry.unavailable or entry.summary
        versions = locked_versions(entry)
        framework_rows.append((f"`{name}`", entry.title, versions, about, needs, size))
        tuning = code(dict.fromkeys([*entry.tuning, *entry.tuned_with]))
        for mode, its in entry.modes.items():
            mode_rows.append((f"`{name}`", f"`{mode}`", its.summary, its.inference, tuning))
            tuning = ""
    return "\n\n".join(
        (
            "# Frameworks",
            "`dlbench list --capabilities` asks the builds on your machine. "
            "[What they refuse](rows.md).",
            table(
                ("name", "framework", "version", "what runs", "needs", "download"), framework_rows
            ),
            "## Modes",
            "The first mode is the default. A forward pass is named where it is not simply a part "
            "of the training step.",
            table(
                ("framework", "mode", "training step", "forward pass", "settings of tuned rows"),
                mode_rows,
            ),
        )
    )


def locked_versions(entry: framework.Framework) -> str:
    """Return the versions of a framework's own package in its locks."""
    if not entry.packages:
        return ""
    package = entry.packages[0].partition("[")[0]
    versions = []
    for lock in dict.fromkeys([*entry.locks.values(), entry.requirements]):
        text = (entry.directory / lock).read_text(encoding="utf-8")
        versions += re.findall(rf"^{re.escape(package)}==(\S+)", text, re.MULTILINE)
    return ", ".join(versions)


WITHOUT_OPTION = {
    "specification": "goes with `network`: digest of its numbers",
    "mode": "goes with `--frameworks`: `torch:compile`",
}


def axes_page() -> str:
    """Return the table of axes."""
    options = {option.axis: option for option in AXIS_OPTIONS}
    rows = []
    for axis in axes.AXES:
        option = options.get(axis.name)
        words = f"`{option.option}`: {option.help}" if option else WITHOUT_OPTION[axis.name]
        usual = "" if axis.usual is None else axes.word(axis.name, axis.usual)
        rows.append((f"`{axis.name}`", axis.role, f"`{usual}`" if usual else "", words))
    return (
        "# Axes\n\nAn axis is something in which cells can differ. Its role is its place in a "
        "matrix. Names leave out its usual value.\n\n"
        + table(("axis", "role", "usual value", "option"), rows)
    )


def launch_settings() -> str:
    """Return the launch settings with their variables."""
    parts = [
        "# Launch settings",
        "A launch setting changes how a process is started, whatever the framework: "
        "`--tuning tuned+NAME`. `dlbench list --settings` says what this machine lacks for each.",
    ]
    for name, setting in settings.known_launch_settings().items():
        needs = setting.package or ("glibc" if setting.glibc_malloc else "")
        facts = {
            "Why": setting.why,
            "Costs": setting.costs,
            "Replaces": setting.replaces,
            "Needs": needs,
        }
        parts += [
            f"## {name}",
            "\n".join(f"- {key}: {fact}" for key, fact in facts.items() if fact),
        ]
        if setting.variables:
            variables = "\n".join(f"{key}={value}" for key, value in setting.variables.items())
            parts.append(f"```text\n{variables}\n```")
    return "\n\n".join(parts) + "\n"


def adapter_contract() -> str:
    """Return the contract of an adapter, and the keys of framework.toml."""
    return "\n\n".join(
        (
            "# Contract of an adapter",
            "```{eval-rst}\n.. automodule:: dlbench.adapters.base\n\n"
            ".. autoclass:: dlbench.adapters.base.Adapter\n   :members:\n```",
            "## Keys of framework.toml",
            fields_table(framework.Framework),
            "## Keys of its tables `[modes.NAME]`",
            fields_table(framework.Mode),
            "## Keys of its tables `[tuning.NAME]`",
            fields_table(settings.Tuned),
        )
    )


def python() -> str:
    """Return the public Python API."""
    documented = ["# Python API", "Everything is loaded at its first use."]
    for name in sorted(dlbench.__all__):
        kind = "autoclass" if inspect.isclass(getattr(dlbench, name)) else "autofunction"
        members = "\n   :members:\n   :inherited-members:" if kind == "autoclass" else ""
        documented.append(f"```{{eval-rst}}\n.. {kind}:: dlbench.{name}{members}\n```")
    return "\n\n".join(documented)


def json_keys() -> str:
    """Return the keys of each report's JSON."""
    parts = ["# Keys of the JSON", "[Conventions](json.md) hold for all reports."]
    for chapter, keys in tomllib.loads(KEYS.read_text(encoding="utf-8")).items():
        parts.append(f"## {keys.pop('title', chapter)}")
        about = keys.pop("about", "")
        if about:
            parts.append(about)
        if keys:
            parts.append(table(("key", "meaning"), ((code(k.split()), v) for k, v in keys.items())))
    flags = ((f"`{kind.name}`", f"`{kind.symbol}`", kind.legend) for kind in KINDS)
    parts += ["## Flags", table(("name", "mark", "meaning"), flags)]
    return "\n\n".join(parts)


def json_records() -> str:
    """Return the fields of what a store keeps."""
    parts = ["# Fields of records", "A store keeps these as JSON ([the store](json.md#the-store))."]
    classes: tuple[type, ...] = (
        record.Run,
        record.Record,
        outcome.Outcome,
        protocol.Protocol,
        protocol.Parity,
        protocol.ThreadEvidence,
        protocol.Contention,
        protocol.SampleCounts,
        outcome.HostObservation,
        outcome.TurnObservation,
        outcome.HostFacts,
        protocol.DeviceEvidence,
        statistics.Summary,
        statistics.Estimate,
    )
    for documented in classes:
        about = inspect.getdoc(documented) or ""
        parts += [f"## {documented.__name__}", about.split("\n\n")[0], fields_table(documented)]
    return "\n\n".join(parts)


def fields_table(owner: type) -> str:
    """Return the fields of a class with their types and comments."""
    rows = []
    for name, kind, default, comment in fields_of(owner):
        rows.append((f"`{name}`", f"`{kind}`", f"`{default}`" if default else "", comment))
    return table(("field", "type", "default", "meaning"), rows)


def fields_of(owner: type) -> list[tuple[str, str, str, str]]:
    """Return name, type, default and comment of each field of a class.

    The comment is before the field, at its end, or a docstring after it.
    """
    source = textwrap.dedent(inspect.getsource(owner))
    lines = source.splitlines()
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    results = []
    for node, following in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or node.end_lineno is None:
            continue
        comment = [lines[node.end_lineno - 1][node.end_col_offset or 0 :].strip()]
        above = node.lineno - 2
        while lines[above].strip().startswith("#"):
            comment.insert(0, lines[above].strip())
            above -= 1
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            comment.append(str(following.value.value))
        text = " ".join(part.lstrip("#:, ") for part in comment)
        default = "" if node.value is None else ast.unparse(node.value)
        results.append((ast.unparse(node.target), ast.unparse(node.annotation), default, text))
    return results


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "suites": suites,
    "frameworks": frameworks,
    "axes": axes_page,
    "launch-settings": launch_settings,
    "adapter-contract": adapter_contract,
    "python": python,
    "json-keys": json_keys,
    "json-records": json_records,
}
