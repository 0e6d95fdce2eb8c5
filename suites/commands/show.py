"""`dlbench list` and `dlbench probe`: what there is to measure, and what this machine is."""

from typing import Annotated, Any

import typer

from dlbench.hardware_probe import describe, measure, probe

from .. import axes, session
from ..screen import out, print_json, table
from . import listing, options


def list_command(adapter: options.Adapter = None, as_json: options.Json = False) -> None:
    """List networks, frameworks with the state of their environments, and suites.

    Examples:

    - `dlbench list --json`
    """
    networks, frameworks, suites = listing.networks(), listing.frameworks(), listing.suites()
    if as_json:
        print_json({"networks": networks, "frameworks": frameworks, "suites": suites})
        return
    table(
        "Networks",
        ["name", "parameters", "mini-batch", "GFLOP a step", "what"],
        [
            [
                n["name"],
                f"{n['parameters'] / 1e6:.1f} M",
                str(n["batch_size"]),
                f"{n['gflop_per_step']:.1f}",
                n["summary"],
            ]
            for n in networks
        ],
    )
    out.print()
    table(
        "Frameworks",
        ["name", "modes", "state", "interpreter"],
        [[f["name"], ", ".join(f["modes"]), f["state"], f["python"] or "-"] for f in frameworks],
    )
    for each in frameworks:
        if each["state"] == "unavailable":
            out.print(f"{each['name']}: {each['reason']}", markup=False)
    out.print()
    table("Suites", ["name", "what"], [[s["name"], s["summary"]] for s in suites])


def probe_command(
    as_json: options.Json = False,
    ceilings: Annotated[bool, typer.Option("--ceilings", help="Measure GEMM rate and memory bandwidth too.")] = False,
    threads: Annotated[str, typer.Option(help="Thread counts of the ceilings.")] = "1,cores,cpus",
) -> None:
    """Say what this machine is and, with --ceilings, what it can do.

    Examples:

    - `dlbench probe --ceilings --threads 1,2,4`
    """
    machine = probe()
    measured = measure(axes.counts(threads, session.capacity(machine))) if ceilings else None
    if as_json:
        content: dict[str, Any] = {"machine": machine.to_dict()}
        if measured is not None:
            content["ceilings"] = measured.to_dict()
        print_json(content)
        return
    table("Machine", ["", ""], [[label, value] for label, value in describe(machine)])
    if measured is not None:
        out.print()
        table(
            "Ceilings",
            ["threads", "GEMM GFLOP/s", "memory GB/s"],
            [
                [
                    str(each.threads),
                    f"{each.gemm_flops_per_second / 1e9:.1f}",
                    f"{each.bandwidth_bytes_per_second / 1e9:.1f}",
                ]
                for each in measured.measured
            ],
        )
