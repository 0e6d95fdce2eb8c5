"""`dlbench probe` and `dlbench doctor`: this machine's parts and ceilings, and what harms
measurements on it.
"""

import os
import textwrap
from dataclasses import replace
from typing import Any

from rich.text import Text

from dlbench.adapters.launch.evidence import fault_seconds
from dlbench.hardware_probe import ProbeError, describe, measure, probe
from dlbench.hardware_probe.doctor import Finding, Severity, diagnose, gather_facts, take_sample
from dlbench.reports.results.naming import counted
from dlbench.reports.results.safe_text import visible

from ..display.screen import out, print_json, say, show, table
from ..errors import UsageError
from ..planning import values
from ..run import preparation
from ..run.launcher import guest_environment
from ..run.quiet import measuring
from . import options
from .options import Given, flag, option, takes

READINGS = 5

_HEADINGS = {
    Severity.HARMS: "Harms measurement",
    Severity.MAY_HARM: "May harm",
    Severity.UNKNOWN: "Unknown",
    Severity.FINE: "Fine",
}
_COLOURS = {
    Severity.HARMS: "bold red",
    Severity.MAY_HARM: "bold yellow",
    Severity.FINE: "bold green",
}
_WIDTH, _NARROWEST = 80, 20


@takes({"as_json": options.JSON})
def doctor_command(given: Given) -> None:
    """Find what harms measurements on this machine, and say how to fix it; change nothing.

    For some seconds, observes other programs and how well identical work repeats; then checks the
    settings of CPU and memory. The exit code is 0 whatever it finds, and 3 if no temporary file can
    be written. To fail a script, read the counts from --json.

    Examples:

    - `dlbench doctor`
    - `dlbench doctor --json | jq .counts`
    """
    facts = gather_facts(variables=os.environ, passed_on=guest_environment({}))
    try:
        # The doctor must not disturb a measurement, nor report one as another program.
        with measuring(say):
            say(f"observing this machine for some seconds ({READINGS} readings)")
            facts = replace(facts, sample=take_sample(READINGS), fault_seconds=fault_seconds())
    except (UsageError, ProbeError) as error:
        words = str(error).partition(",")[0] if isinstance(error, UsageError) else str(error)
        facts = replace(facts, no_sample=words)
    findings = diagnose(facts)
    if given.as_json:
        print_json(
            {
                "counts": {
                    str(each): [finding.severity for finding in findings].count(each)
                    for each in Severity
                },
                "findings": [finding.to_dict() for finding in findings],
                "readings": [reading.to_dict() for reading in facts.sample.readings]
                if facts.sample
                else [],
            }
        )
    else:
        show_findings(findings)


def show_findings(findings: tuple[Finding, ...]) -> None:
    """Print a summary sentence, and the findings grouped by severity, each harmful one with a
    remedy.
    """
    width = max(_NARROWEST, min(_WIDTH, out.width))
    grouped = {
        severity: [each for each in findings if each.severity is severity] for severity in Severity
    }
    harms, may = len(grouped[Severity.HARMS]), len(grouped[Severity.MAY_HARM])
    parts = [f"{counted(harms, 'thing harms', 'things harm')} measurement"] if harms else []
    if may:
        parts.append(f"{may} may" if harms else f"{counted(may, 'thing')} may harm measurement")
    found = f"On this machine {' and '.join(parts)}. Nothing was changed."
    _print(found if parts else "Nothing found on this machine that harms measurement.", width)
    for severity, chosen in grouped.items():
        for number, finding in enumerate(chosen):
            if number == 0 or finding.advice:
                out.print()
            if number == 0:
                out.print(Text(_HEADINGS[severity], style=_COLOURS.get(severity, "bold")))
            _print(f"{finding.title}: {finding.seen}", width, 2, hanging=2, bold=len(finding.title))
            if finding.advice:
                _print(finding.why, width, 4)
                _print(
                    f"-> {finding.advice}{' Needs root.' if finding.needs_root else ''}",
                    width,
                    4,
                    hanging=3,
                )
                for line in folded(visible(finding.command), width - 9) if finding.command else ():
                    out.print(Text(" " * 9 + line, style="cyan"), soft_wrap=True)


def _print(text: str, width: int, indent: int = 0, hanging: int = 0, bold: int = 0) -> None:
    margin = " " * indent
    lines = textwrap.wrap(
        visible(text),
        width,
        initial_indent=margin,
        subsequent_indent=margin + " " * hanging,
        break_on_hyphens=False,
    )
    shown = Text("\n".join(lines))
    shown.stylize("bold", indent, indent + bold)
    out.print(shown, soft_wrap=True)


def folded(command: str, width: int) -> list[str]:
    r"""Return a command in lines that a shell still takes as one: each but the last ends in a
    backslash.
    """
    lines = textwrap.wrap(
        command, width - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


@takes(
    {
        "as_json": options.JSON,
        "ceilings": flag("--ceilings", "Also measure GEMM rate and memory bandwidth."),
        "threads": option(
            "--threads", "Thread counts to measure ceilings at (default 1,cores,cpus)."
        ),
    }
)
def probe_command(given: Given) -> None:
    """Describe this machine and, with --ceilings, measure its ceilings.

    A ceiling measured while other programs used the CPUs is marked with "?"; `run` does not keep
    it.

    Examples:

    - `dlbench probe --ceilings --threads 1,2,4`
    """
    machine = probe()
    if given.threads is not None and not given.ceilings:
        raise UsageError("--threads requires --ceilings. Add it, or leave --threads out.")
    measured = None
    if given.ceilings:
        counts = values.parse_counts(given.threads or "1,cores,cpus", preparation.capacity(machine))
        with measuring(say, wait=True):
            try:
                measured = measure(counts)
            except ProbeError as error:
                raise UsageError(str(error)) from error
    if given.as_json:
        content: dict[str, Any] = {"machine": machine.to_dict()}
        if measured is not None:
            content["ceilings"] = measured.to_dict()
            content["doubts"] = {
                each.threads: each.doubt for each in measured.measured if each.doubt
            }
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
                show(f"? {counted(each.threads, 'thread')}: too low to be a ceiling, {each.doubt}")
