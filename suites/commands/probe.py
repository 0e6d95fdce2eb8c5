"""`dlbench probe`: what this machine is, and what it can do."""

from typing import Any

from dlbench.hardware_probe import ProbeError, describe, measure, probe

from ..display.screen import counted, print_json, say, show, table
from ..errors import UsageError
from ..planning import values
from ..run import preparation
from ..run.quiet import measuring
from . import options
from .options import Given, flag, option, takes


@takes(
    {
        "as_json": options.JSON,
        "ceilings": flag("--ceilings", "Measure GEMM rate and memory bandwidth too."),
        "threads": option("--threads", "Thread counts of the ceilings (1,cores,cpus)."),
    }
)
def probe_command(given: Given) -> None:
    """Say what this machine is and, with --ceilings, what it can do.

    A ceiling measured while other programs used the CPUs is marked with "?": `run` does not keep such a one.

    Examples:

    - `dlbench probe --ceilings --threads 1,2,4`
    """
    machine = probe()
    if given.threads is not None and not given.ceilings:
        raise UsageError("--threads requires --ceilings. Add it, or leave --threads out.")
    measured = None
    if given.ceilings:
        counts = values.counts(given.threads or "1,cores,cpus", preparation.capacity(machine))
        with measuring(say, wait=True):
            try:
                measured = measure(counts)
            except ProbeError as error:
                raise UsageError(str(error)) from error
    if given.as_json:
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
