"""`dlbench list`: networks, frameworks and suites, and each framework's capabilities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from dlbench.adapters.networks import digest_of, specification

from ..display.screen import print_json, say, show, table
from ..environments import environment
from ..environments.interpreters import name_of
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning import networks, suite, values
from ..planning.axes import AXIS_OPTIONS, LIMITS
from ..planning.framework import Framework, offered
from ..planning.settings import Tuned, known_launch_settings, lacking, launch_setting
from ..planning.values import Build
from ..run import capability_table
from . import options
from .options import flag, option, takes

if TYPE_CHECKING:
    from ..run.capabilities import Capabilities


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """The options of `dlbench list`."""

    capabilities: Annotated[
        bool, flag("--capabilities", "Ask each framework what it can do (minutes, the first time).")
    ] = False
    settings: Annotated[
        bool, flag("--settings", "Show the settings that tune rows, and the launch settings.")
    ] = False
    frameworks: Annotated[
        str | None, option("--frameworks", "With --capabilities: only these frameworks.")
    ] = None
    against: Annotated[
        str | None, option("--against", "With --capabilities: compare with a table (`gurari2021`).")
    ] = None
    axes: Annotated[
        bool, flag("--axes", "Show the options of the axes, and every word that they take.")
    ] = False
    adapter: Annotated[list[str] | None, options.ADAPTER] = None
    python: Annotated[list[str] | None, options.PYTHON] = None
    as_json: Annotated[bool, options.JSON] = False


@takes(ListOptions)
def list_command(given: ListOptions) -> None:
    """List networks, frameworks with the state of their environments, and suites.

    Examples:

    - `dlbench list`
    - `dlbench list --axes`
    - `dlbench list --capabilities --frameworks torch,jax`
    """
    for name in ("frameworks", "python", "against"):
        if getattr(given, name) and not given.capabilities:
            raise UsageError(
                f"--{name} needs --capabilities. Add --capabilities, or leave --{name} out."
            )
    if given.capabilities:
        _list_capabilities(given)
        return
    if given.axes and not given.as_json:
        _show_axes()
        return
    frameworks = list_frameworks()
    if given.as_json:
        print_json(
            {
                "networks": list_networks(),
                "frameworks": frameworks,
                "suites": _list_suites(),
                "axes": list_axes(),
                "launch_settings": list_launch_settings(),
            }
        )
    elif given.settings:
        _show_settings(frameworks)
    else:
        _show_lists(frameworks)


def _list_capabilities(given: ListOptions) -> None:
    """Ask frameworks for their capabilities and show them, or how they differ from a table."""
    if given.against:
        values.one_of(given.against, "table of capabilities", (capability_table.NAME,))
    rows = _capabilities(given.frameworks, given.python or ())
    shown = rows
    if given.against:
        shown = [capability_table.compare(row) for row in rows if not row["problem"]]
    if given.as_json:
        print_json(shown)
        return
    if given.against:
        _show_against(shown)
    else:
        _show_capabilities(shown)
    for row in rows:
        if row["problem"]:
            show(f"{row['name']}: not asked. {row['problem']}", whole=True)


def _list_suites() -> list[dict[str, Any]]:
    """Return each suite with its networks and launches."""
    return [
        {
            "name": shipped.name,
            "summary": shipped.summary,
            "frameworks": shipped.frameworks,
            "threads": shipped.threads,
            "networks": list(shipped.its_networks),
            "launches": shipped.protocol.launches,
        }
        for shipped in suite.shipped().values()
    ]


def list_axes() -> list[dict[str, Any]]:
    """Return the option of each axis, with the words that it takes."""
    return [
        {"axis": axis.axis, "option": axis.option, "values": axis.details or axis.help}
        for axis in (*AXIS_OPTIONS, *LIMITS)
    ]


def list_networks() -> list[dict[str, Any]]:
    """Return each network with its parameters, mini-batch, and FLOPs of a training step at it."""
    return [
        {
            "name": network.name,
            "summary": network.summary,
            "batch_size": network.batch_size,
            "parameters": network.family.parameter_count(),
            "gflop_per_step": network.family.training_flops(network.known_batch_size) / 1e9,
            "specification": digest_of(network),
            **specification(network.family),
        }
        for network in networks.shipped().values()
    ]


def list_frameworks() -> list[dict[str, Any]]:
    """Return each framework with the state and interpreter of its environment."""
    return [_framework_row(framework) for framework in offered().values()]


def list_launch_settings() -> list[dict[str, Any]]:
    """Return each launch setting, with the reason if it is not possible on this machine."""
    return [
        {"name": name, **launch_setting(name).model_dump(mode="json"), "lacking": lacking(name)}
        for name in known_launch_settings()
    ]


def _framework_row(framework: Framework) -> dict[str, Any]:
    located = environment.locate(framework)
    state = located.state
    interpreter = located.interpreter
    reason = located.reason
    version: str | None = None
    if interpreter:
        try:
            version = name_of(interpreter)
        except FrameworkEnvironmentError:
            reason = (
                f"The interpreter of its environment, {interpreter}, does not start. Rebuild it: "
                f"`dlbench env remove {framework.name}`, then `dlbench env build {framework.name}`."
            )
            state = environment.State.UNAVAILABLE
            interpreter = None
    about = ("name", "title", "summary", "modes", "default_mode", "historic", "large", "successor")
    return {
        **{key: getattr(framework, key) for key in about},
        "modes": list(framework.modes),
        "settings": _settings(framework.tuning),
        "alternatives": _settings(framework.alternatives),
        "state": state.value,
        "interpreter": None if interpreter is None else str(interpreter),
        "python": version,
        "needs_python": list(framework.python),
        "download_megabytes": framework.download_megabytes,
        "reason": reason,
    }


def _settings(table: Mapping[str, Tuned]) -> list[dict[str, Any]]:
    return [{"name": name, **setting.model_dump(mode="json")} for name, setting in table.items()]


def _show_axes() -> None:
    """Print the options of the axes with every word that they take."""
    rows = [
        [f"{axis.option} {axis.metavar}", (axis.details or axis.help).replace("`", "")]
        for axis in (*AXIS_OPTIONS, *LIMITS)
    ]
    table("Options of the axes, and the words that they take", ["option", "values"], rows)


def _show_settings(frameworks: list[dict[str, Any]]) -> None:
    for framework in frameworks:
        for setting in framework["settings"]:
            _show_setting(framework["name"], setting)
    show()
    show(
        "Alternatives of a row, in force only when named (`--tuning tuned+NAME`, `--tuning launch` "
        "for each):"
    )
    for framework in frameworks:
        for setting in framework["alternatives"]:
            _show_setting(framework["name"], setting)
    show()
    show(
        "Launch settings, in force only when named (`--tuning tuned+NAME`, `--tuning launch` for "
        "each):"
    )
    for setting in list_launch_settings():
        _show_setting("any", setting)
    show()
    show(
        "Rows are tuned unless --tuning says otherwise; `dlbench run tuning` measures the effect "
        "of each setting."
    )


def _show_setting(row: str, setting: dict[str, Any]) -> None:
    keys = ("modes", "devices", "families", "openmp")
    limits = [f"{key} {', '.join(setting[key])}" for key in keys if setting.get(key)]
    where = f" ({'; '.join(limits)})" if limits else ""
    show(f"{row}, {setting['name']}{where}")
    assignments = {**setting["settings"], **setting["variables"]}
    details = {
        "instead of": setting["replaces"],
        "why": setting["why"],
        "costs": setting["costs"],
        "sets": ", ".join(f"{name}={value}" for name, value in assignments.items()),
        "not possible here": setting.get("lacking"),
    }
    for head, words in details.items():
        if words:
            show(f"    {head}: {words}", whole=True)


def _show_lists(frameworks: list[dict[str, Any]]) -> None:
    rows = []
    for network in list_networks():
        rows.append(
            [
                network["name"],
                network["family"],
                f"{network['parameters'] / 1e6:.1f} M",
                str(network["batch_size"]),
                f"{network['gflop_per_step']:.1f}",
                network["summary"],
            ]
        )
    headings = ["name", "family", "parameters", "mini-batch", "GFLOP a step", "what"]
    table("Networks", headings, rows)
    show()
    table(
        "Frameworks",
        ["name", "modes", "state", "interpreter"],
        [
            [row["name"], ", ".join(row["modes"]), row["state"], row["python"] or "-"]
            for row in frameworks
        ],
    )
    for row in frameworks:
        if row["state"] == "unavailable":
            show(f"{row['name']}: {row['reason']}")
    show()
    suites = [[shipped.name, shipped.summary] for shipped in suite.shipped().values()]
    table("Suites", ["name", "what"], suites)


def _capabilities(frameworks: str | None, python: Sequence[str]) -> list[dict[str, Any]]:
    """Ask the frameworks with an environment or a given interpreter for their capabilities."""
    from dlbench.hardware_probe import probe

    from ..run import capabilities
    from ..run.launcher import launch_process
    from ..run.quiet import measuring

    build_by_framework = {build.framework.name: build for build in map(values.build, python)}
    for name, build in build_by_framework.items():
        if build.name != name:
            raise UsageError(
                f"--python {build.name}:...: each framework is asked once. Write {name}=PATH."
            )
    names = values.words(frameworks) if frameworks else list(build_by_framework or offered())
    asked = [row.build.framework for row in values.rows(names, [])]
    unasked = set(build_by_framework) - {framework.name for framework in asked}
    if unasked:
        raise UsageError(
            f"--python is given for {', '.join(sorted(unasked))}, which --frameworks does not name."
        )
    machine = probe()
    builds = [
        build_by_framework.get(framework.name) or Build(framework.name, framework)
        for framework in asked
    ]
    # Lines below the tables name the frameworks left out.
    sources = environment.prepare_sources(builds, lambda line: None, build_missing=False)
    place = capabilities.machine_key(machine)
    cpus = machine.cpu.effective_cpus
    rows = []
    with measuring(say, wait=True):
        for framework in asked:
            source = sources[framework.name]
            answers = capabilities.probe(framework, source, place, cpus, launch_process, say)
            rows.append(_capability_row(framework, answers))
    return rows


def _show_capabilities(rows: list[dict[str, Any]]) -> None:
    asked = [row for row in rows if not row["problem"]]
    kinds = ("dense", "convolutional", "recurrent", "attention")
    answers = {"GPU": "gpu", "gradients": "automatic_gradients", "processes": "several_processes"}
    words = {None: "-", True: "yes", False: "no"}
    abilities = []
    thread_counts = []
    for row in asked:
        ability = [row["name"]]
        for kind in kinds:
            ability.append(words[row["kinds"][kind]])
        for key in answers.values():
            ability.append(words[row["answers"].get(key, {}).get("answer")])
        abilities.append([*ability, ", ".join(row["modes"])])
        threads = row["threads"]
        if threads:
            thread_counts.append([row["name"], str(threads["by_nothing"] or "-"), threads["words"]])
    table(
        "What this build can do",
        ["name", "dense", "conv.", "recurrent", "attention", *answers, "modes"],
        abilities,
    )
    show()
    table(
        "How a thread count is honoured, as the operating system saw it",
        ["name", "by default", "honoured through"],
        thread_counts,
    )
    show()
    table(
        "Projects",
        ["name", "here", "last release known", "first", "licence"],
        [_project_columns(row) for row in rows],
    )
    show()
    show("--json shows how each answer was found. Only each framework's default mode was probed.")


def _project_columns(row: dict[str, Any]) -> list[str]:
    last_release = "-"
    if row["last_release"]:
        last_release = f"{row['last_release']['version']}, {row['last_release']['date']}"
    first_year = row["first_release"][:4] if row["first_release"] else "-"
    return [row["name"], row["version"] or "-", last_release, first_year, row["licence"] or "-"]


def _show_against(asked: list[dict[str, Any]]) -> None:
    """Show each build in the columns of the published table, and the differences."""
    differences = []
    for framework in asked:
        rows = [
            [name, column["then"] or "-", column["here"], column["how"]]
            for name, column in framework["columns"].items()
        ]
        title = framework["title"]
        if not framework["software"]:
            title += ", not in the table of 2021"
        table(title, ["", "in 2021", "here", "how it was found out"], rows)
        show()
        differences += framework["differences"]
    if not differences:
        show("No answer differs from the table of 2021.")
        return
    show("Differences from the table of 2021:")
    for line in differences:
        show(f"- {line}")


def _capability_row(framework: Framework, answers: "Capabilities") -> dict[str, Any]:
    """Return a framework's answers, and its project's facts with their source."""
    project = framework.project
    licence = source = first_release = last_release = None
    if project:
        licence = project.licence
        source = project.source
        if project.first_release:
            first_release = str(project.first_release)
        newest = max(project.releases, key=lambda release: release.date, default=None)
        if newest:
            last_release = {"version": newest.version, "date": str(newest.date)}
    supported_by_kind: dict[str, list[bool]] = {}
    for network in networks.shipped().values():
        refusal = answers.networks.get(network.name, "not asked")
        supported_by_kind.setdefault(network.family.kind, []).append(not refusal)
    kinds = {}
    for kind, supported in supported_by_kind.items():
        kinds[kind] = None if answers.problem else all(supported)
    support = {}
    for name, reason in answers.networks.items():
        support[name] = {"supported": not reason, "reason": reason}
    facts = {}
    for key, (answer, how) in answers.answers.items():
        facts[key] = {"answer": answer, "how": how}
    return {
        "name": framework.name,
        "title": framework.title,
        "modes": {mode: about.summary for mode, about in framework.modes.items()},
        "problem": answers.problem,
        "version": answers.version,
        "networks": support,
        "kinds": kinds,
        "answers": facts,
        "threads": answers.threads,
        "project": answers.project,
        "licence": licence,
        "first_release": first_release,
        "last_release": last_release,
        "source": source,
    }
