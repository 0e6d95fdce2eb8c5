"""`dlbench list`: the networks, frameworks and suites there are, and each framework's
capabilities.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlbench.adapters.networks import digest_of, specification

from ..display.screen import print_json, say, show, table
from ..environments import environment
from ..environments.interpreters import name_of
from ..errors import FrameworkEnvironmentError, UsageError
from ..planning import networks, suite, values
from ..planning.framework import Framework, offered
from ..planning.settings import Tuned, known_launch_settings, lacking, launch_setting
from ..planning.values import Build
from ..run import capability_table
from . import options
from .options import Given, flag, option, takes

if TYPE_CHECKING:
    from ..run.capabilities import Capabilities


@takes(
    {
        "capabilities": flag(
            "--capabilities",
            "Ask each framework with an environment here what it can do (takes minutes, once).",
        ),
        "settings": flag(
            "--settings", "Show the settings that tune rows, the launch settings, and their costs."
        ),
        "frameworks": option(
            "--frameworks", "With --capabilities: only these frameworks, comma-separated."
        ),
        "against": option(
            "--against", "With --capabilities: compare with a published table, `gurari2021`."
        ),
        "adapter": options.ADAPTER,
        "python": options.PYTHON,
        "as_json": options.JSON,
    }
)
def list_command(given: Given) -> None:
    """List networks, frameworks with the state of their environments, and suites.

    Examples:

    - `dlbench list --json`
    - `dlbench list --settings`
    - `dlbench list --capabilities --frameworks torch,jax`
    - `dlbench list --capabilities --against gurari2021`
    - `dlbench list --capabilities --python torch=/opt/nightly/bin/python`
    """
    for name in ("frameworks", "python", "against"):
        if getattr(given, name) and not given.capabilities:
            raise UsageError(
                f"--{name} needs --capabilities. Add --capabilities, or leave --{name} out."
            )
    if given.capabilities:
        if given.against:
            values.one_of(given.against, "table of capabilities", (capability_table.NAME,))
        found = _capabilities(given.frameworks, given.python or ())
        shown = (
            [capability_table.beside(each) for each in found if not each["problem"]]
            if given.against
            else found
        )
        if given.as_json:
            print_json(shown)
            return
        (_show_against if given.against else _show_capabilities)(shown)
        for each in found:
            if each["problem"]:
                show(f"{each['name']}: not asked. {each['problem']}", whole=True)
        return
    frameworks = list_frameworks()
    if given.as_json:
        about = ("name", "summary", "frameworks", "threads")
        suites = [
            {
                **{name: getattr(each, name) for name in about},
                "networks": list(each.its_networks),
                "launches": each.protocol.launches,
            }
            for each in suite.shipped().values()
        ]
        print_json(
            {
                "networks": list_networks(),
                "frameworks": frameworks,
                "suites": suites,
                "launch_settings": list_launch_settings(),
            }
        )
    elif given.settings:
        _show_settings(frameworks)
    else:
        _show_lists(frameworks)


def list_networks() -> list[dict[str, Any]]:
    """Return each network with its parameters, mini-batch and FLOPs of a training step at that
    mini-batch.
    """
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
    """Return each launch setting with the reason why it is not possible here, empty where it is."""
    return [
        {"name": name, **launch_setting(name).model_dump(mode="json"), "lacking": lacking(name)}
        for name in known_launch_settings()
    ]


def _framework_row(framework: Framework) -> dict[str, Any]:
    located = environment.locate(framework)
    state, interpreter, reason = located.state, located.interpreter, located.reason
    version: str | None = None
    if interpreter:
        try:
            version = name_of(interpreter)
        except FrameworkEnvironmentError:
            reason = (
                f"The interpreter of its environment, {interpreter}, does not start. Rebuild it: "
                f"`dlbench env remove {framework.name}`, then `dlbench env build {framework.name}`."
            )
            state, interpreter = environment.State.UNAVAILABLE, None
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


def _show_settings(frameworks: list[dict[str, Any]]) -> None:
    for each in frameworks:
        for setting in each["settings"]:
            _show_setting(each["name"], setting)
    show()
    show(
        "Alternatives of a row, in force only when named (`--tuning tuned+NAME`, `--tuning launch` "
        "for each):"
    )
    for each in frameworks:
        for setting in each["alternatives"]:
            _show_setting(each["name"], setting)
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
    where = [f"{key} {', '.join(setting[key])}" for key in keys if setting.get(key)]
    show(f"{row}, {setting['name']}{' (' + '; '.join(where) + ')' if where else ''}")
    given = {**setting["settings"], **setting["variables"]}
    for head, words in (
        ("instead of", setting["replaces"]),
        ("why", setting["why"]),
        ("costs", setting["costs"]),
        ("sets", ", ".join(f"{name}={value}" for name, value in given.items())),
        ("not possible here", setting.get("lacking")),
    ):
        if words:
            show(f"    {head}: {words}", whole=True)


def _show_lists(frameworks: list[dict[str, Any]]) -> None:
    table(
        "Networks",
        ["name", "family", "parameters", "mini-batch", "GFLOP a step", "what"],
        [
            [
                *(
                    each["name"],
                    each["family"],
                    f"{each['parameters'] / 1e6:.1f} M",
                    str(each["batch_size"]),
                ),
                *(f"{each['gflop_per_step']:.1f}", each["summary"]),
            ]
            for each in list_networks()
        ],
    )
    show()
    table(
        "Frameworks",
        ["name", "modes", "state", "interpreter"],
        [
            [each["name"], ", ".join(each["modes"]), each["state"], each["python"] or "-"]
            for each in frameworks
        ],
    )
    for each in frameworks:
        if each["state"] == "unavailable":
            show(f"{each['name']}: {each['reason']}")
    show()
    table(
        "Suites", ["name", "what"], [[each.name, each.summary] for each in suite.shipped().values()]
    )


def _capabilities(frameworks: str | None, python: Sequence[str]) -> list[dict[str, Any]]:
    """Ask the frameworks with an environment here, or with a given interpreter, for their
    capabilities.
    """
    from dlbench.hardware_probe import probe

    from ..run import capabilities
    from ..run.launcher import launch_process
    from ..run.quiet import measuring

    given = {build.framework.name: build for build in map(values.build, python)}
    for name, build in given.items():
        if build.name != name:
            raise UsageError(
                f"--python {build.name}:...: each framework is asked once here. Write {name}=PATH."
            )
    names = values.words(frameworks) if frameworks else list(given or offered())
    asked = [row.build.framework for row in values.rows(names, [])]
    if unasked := set(given) - {each.name for each in asked}:
        raise UsageError(
            f"--python is given for {', '.join(sorted(unasked))}, which --frameworks does not name."
        )
    machine = probe()
    builds = [given.get(each.name) or Build(each.name, each) for each in asked]
    # Lines below the tables name the frameworks left out.
    sources = environment.prepare_sources(builds, lambda line: None, build_missing=False)
    where, cpus = capabilities.place_of(machine), machine.cpu.effective_cpus
    with measuring(say, wait=True):
        return [
            _capability_row(
                each, capabilities.probe(each, sources[each.name], where, cpus, launch_process, say)
            )
            for each in asked
        ]


def _show_capabilities(found: list[dict[str, Any]]) -> None:
    asked = [each for each in found if not each["problem"]]
    kinds = ("dense", "convolutional", "recurrent", "attention")
    answers = {"GPU": "gpu", "gradients": "automatic_gradients", "processes": "several_processes"}
    words = {None: "-", True: "yes", False: "no"}
    table(
        "What this build can do",
        ["name", "dense", "conv.", "recurrent", "attention", *answers, "modes"],
        [
            [
                each["name"],
                *(words[each["kinds"][kind]] for kind in kinds),
                *(words[each["answers"].get(key, {}).get("answer")] for key in answers.values()),
                ", ".join(each["modes"]),
            ]
            for each in asked
        ],
    )
    show()
    table(
        "How a thread count is honoured, as the operating system saw it",
        ["name", "by default", "honoured through"],
        [
            [each["name"], str(each["threads"]["by_nothing"] or "-"), each["threads"]["words"]]
            for each in asked
            if each["threads"]
        ],
    )
    show()
    table(
        "Projects",
        ["name", "here", "last release known", "first", "licence"],
        [
            [
                *(each["name"], each["version"] or "-"),
                "{version}, {date}".format(**each["last_release"]) if each["last_release"] else "-",
                *((each["first_release"] or "-")[:4], each["licence"] or "-"),
            ]
            for each in found
        ],
    )
    show()
    show("--json shows how each answer was found. Only each framework's default mode was probed.")


def _show_against(asked: list[dict[str, Any]]) -> None:
    """Show each build in the columns of the published table, and the differences."""
    for each in asked:
        rows = [
            [name, of["then"] or "-", of["here"], of["how"]] for name, of in each["columns"].items()
        ]
        title = each["title"] + ("" if each["software"] else ", not in the table of 2021")
        table(title, ["", "in 2021", "here", "how it was found out"], rows)
        show()
    differences = [line for each in asked for line in each["differences"]]
    show(
        "Differences from the table of 2021:"
        if differences
        else "No answer differs from the table of 2021."
    )
    for line in differences:
        show(f"- {line}")


def _capability_row(framework: Framework, answers: "Capabilities") -> dict[str, Any]:
    """Return a framework's answers, and its project's facts with their source."""
    project = framework.project
    newest = (
        max(project.releases, key=lambda release: release.date, default=None) if project else None
    )
    kinds: dict[str, list[bool]] = {}
    for network in networks.shipped().values():
        kinds.setdefault(network.family.kind, []).append(
            not answers.networks.get(network.name, "not asked")
        )
    return {
        "name": framework.name,
        "title": framework.title,
        "modes": {mode: about.summary for mode, about in framework.modes.items()},
        "problem": answers.problem,
        "version": answers.version,
        "networks": {
            each: {"supported": not reason, "reason": reason}
            for each, reason in answers.networks.items()
        },
        "kinds": {kind: None if answers.problem else all(able) for kind, able in kinds.items()},
        "answers": {
            key: {"answer": pair[0], "how": pair[1]} for key, pair in answers.answers.items()
        },
        "threads": answers.threads,
        "project": answers.project,
        "licence": project.licence if project else None,
        "first_release": str(project.first_release) if project and project.first_release else None,
        "last_release": {"version": newest.version, "date": str(newest.date)} if newest else None,
        "source": project.source if project else None,
    }
