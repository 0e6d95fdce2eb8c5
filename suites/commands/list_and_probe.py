"""`dlbench list` and `dlbench probe`: what there is to measure, and what this machine is."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dlbench.hardware_probe import CeilingError, describe, measure, probe

from ..display import listing
from ..display.screen import counted, print_json, say, show, table
from ..environments import row_interpreters
from ..errors import UsageError
from ..planning import values
from ..planning.framework import offered
from ..planning.values import Build
from ..run import capabilities, preparation
from ..run.launcher import ProcessLauncher
from ..run.machine_lock import measuring
from . import options


def _capabilities(frameworks: str, python: Sequence[str]) -> list[dict[str, Any]]:
    """Ask the frameworks that have an environment here, or an interpreter given, what they can do."""
    given = {build.framework.name: build for build in map(values.build, python)}
    for name, build in given.items():
        if build.name != name:
            raise UsageError(f"--python {build.name}:...: each framework is asked once here. Write {name}=PATH.")
    names = values.words(frameworks) if frameworks else list(given or offered())
    asked = [row.build.framework for row in values.rows(names, [])]
    if unasked := [name for name in given if name not in {each.name for each in asked}]:
        raise UsageError(f"--python is given for {', '.join(unasked)}, which --frameworks does not name.")
    machine = probe()
    builds = [given.get(each.name) or Build(each.name, each) for each in asked]
    # The tables say at their end what is left out.
    found = row_interpreters.prepare(builds, lambda line: None, build_missing=False)
    where = capabilities.place_of(machine)
    with measuring(say, wait=True):
        told = capabilities.of_all(asked, found, where, machine.cpu.effective_cpus, ProcessLauncher(), say)
    return listing.capabilities(told)


def _answer(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _show_capabilities(found: list[dict[str, Any]]) -> None:
    kinds = ("dense", "convolutional", "recurrent", "attention")
    answers = {"GPU": "gpu", "gradients": "automatic_gradients", "processes": "several_processes"}
    table(
        "What this build can do",
        ["name", "dense", "conv.", "recurrent", "attention", *answers, "modes"],
        [
            [
                each["name"],
                *(_answer(each["kinds"][kind]) for kind in kinds),
                *(_answer(each["answers"].get(key, {}).get("answer")) for key in answers.values()),
                ", ".join(each["modes"]),
            ]
            for each in found
            if not each["problem"]
        ],
    )
    show()
    table(
        "How a thread count is honoured, as the operating system saw it",
        ["name", "by default", "honoured through"],
        [
            [each["name"], str(each["threads"]["by_nothing"] or "-"), each["threads"]["words"]]
            for each in found
            if each["threads"]
        ],
    )
    show()
    table(
        "Projects",
        ["name", "here", "last release known", "first", "licence"],
        [
            [
                each["name"],
                each["version"] or "-",
                "{version}, {date}".format(**each["last_release"]) if each["last_release"] else "-",
                (each["first_release"] or "-")[:4],
                each["licence"] or "-",
            ]
            for each in found
        ],
    )
    show()
    show("--json shows how each answer was found. Of a framework with several modes only the default one was asked.")
    for each in found:
        if each["problem"]:
            show(f"{each['name']}: not asked. {each['problem']}", whole=True)


def list_command(
    with_capabilities: Annotated[
        bool,
        typer.Option(
            "--capabilities", help="Ask each framework that has an environment here what it can do (minutes, once)."
        ),
    ] = False,
    with_settings: Annotated[
        bool, typer.Option("--settings", help="Show what each framework's rows are tuned with, and what it costs.")
    ] = False,
    frameworks_asked: Annotated[
        str, typer.Option("--frameworks", help="With --capabilities: only these frameworks, comma-separated.")
    ] = "",
    adapter: options.Adapter = None,
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    """List networks, frameworks with the state of their environments, and suites.

    Examples:

    - `dlbench list --json`
    - `dlbench list --settings`
    - `dlbench list --capabilities --frameworks torch,jax`
    - `dlbench list --capabilities --python torch=/opt/nightly/bin/python`
    """
    for option, given in (("--frameworks", frameworks_asked), ("--python", python)):
        if given and not with_capabilities:
            raise UsageError(f"{option} goes with --capabilities. Add --capabilities, or leave {option} out.")
    if with_capabilities:
        told = _capabilities(frameworks_asked, python or ())
        if as_json:
            print_json(told)
        else:
            _show_capabilities(told)
        return
    networks, frameworks, suites = listing.networks(), listing.frameworks(), listing.suites()
    if as_json:
        print_json({"networks": networks, "frameworks": frameworks, "suites": suites})
        return
    if with_settings:
        _show_settings(frameworks)
        return
    _show_lists(networks, frameworks, suites)


def _show_settings(frameworks: list[dict[str, Any]]) -> None:
    for each in frameworks:
        for setting in each["settings"]:
            where = [f"{key} {', '.join(setting[key])}" for key in ("modes", "devices", "families") if setting[key]]
            show(f"{each['name']}, {setting['name']}{' (' + '; '.join(where) + ')' if where else ''}")
            given = {**setting["settings"], **setting["variables"]}
            for head, words in (
                ("instead of", setting["replaces"]),
                ("why", setting["why"]),
                ("costs", setting["costs"]),
                ("sets", ", ".join(f"{name}={value}" for name, value in given.items())),
            ):
                if words:
                    show(f"    {head}: {words}", whole=True)
    show()
    show("Rows are tuned unless --tuning says otherwise; `dlbench run tuning` measures what each setting is worth.")


def _show_lists(*lists: list[dict[str, Any]]) -> None:
    networks, frameworks, suites = lists
    table(
        "Networks",
        ["name", "family", "parameters", "mini-batch", "GFLOP a step", "what"],
        [
            [
                each["name"],
                each["family"],
                f"{each['parameters'] / 1e6:.1f} M",
                str(each["batch_size"]),
                f"{each['gflop_per_step']:.1f}",
                each["summary"],
            ]
            for each in networks
        ],
    )
    show()
    table(
        "Frameworks",
        ["name", "modes", "state", "interpreter"],
        [[each["name"], ", ".join(each["modes"]), each["state"], each["python"] or "-"] for each in frameworks],
    )
    for each in frameworks:
        if each["state"] == "unavailable":
            show(f"{each['name']}: {each['reason']}")
    show()
    table("Suites", ["name", "what"], [[each["name"], each["summary"]] for each in suites])


def probe_command(
    as_json: options.Json = False,
    ceilings: Annotated[bool, typer.Option("--ceilings", help="Measure GEMM rate and memory bandwidth too.")] = False,
    threads: Annotated[
        str | None, typer.Option("--threads", help="Thread counts of the ceilings (1,cores,cpus).")
    ] = None,
) -> None:
    """Say what this machine is and, with --ceilings, what it can do.

    A ceiling measured while other programs used the CPUs is marked with "?": `run` does not keep such a one.

    Examples:

    - `dlbench probe --ceilings --threads 1,2,4`
    """
    machine = probe()
    if threads is not None and not ceilings:
        raise UsageError("--threads is of the ceilings. Add --ceilings, or leave it out.")
    measured = None
    if ceilings:
        counts = values.counts(threads or "1,cores,cpus", preparation.capacity(machine))
        with measuring(say, wait=True):
            try:
                measured = measure(counts)
            except CeilingError as error:
                raise UsageError(f"The ceilings cannot be measured: {error}") from error
    if as_json:
        content: dict[str, Any] = {"machine": machine.to_dict()}
        if measured is not None:
            content["ceilings"] = measured.to_dict()
            content["doubts"] = {each.threads: each.doubt for each in measured.measured if each.doubt}
        print_json(content)
        return
    table("Machine", ["", ""], [[label, value] for label, value in describe(machine)])
    if measured is not None:
        show()
        table(
            "Ceilings",
            ["threads", "GEMM GFLOP/s", "memory GB/s"],
            [
                [
                    str(each.threads) + ("?" if each.doubt else ""),
                    f"{each.gemm_flops_per_second / 1e9:.1f}",
                    f"{each.bandwidth_bytes_per_second / 1e9:.1f}",
                ]
                for each in measured.measured
            ],
        )
        for each in measured.measured:
            if each.doubt:
                threads_said = counted(each.threads, "thread")
                show(f"? {threads_said}: too low to be a ceiling, {each.doubt}")
