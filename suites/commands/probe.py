"""`dlbench probe` and `dlbench doctor`: this machine's parts, ceilings and disturbances."""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from rich.text import Text

from dlbench.adapters.launch.evidence import fault_seconds
from dlbench.hardware_probe import ProbeError, describe, measure, probe
from dlbench.hardware_probe.doctor import Finding, Severity, diagnose, gather_facts, take_sample
from dlbench.reports.results.conclusion import Conclusion, conclusion_data
from dlbench.reports.results.naming import counted
from dlbench.reports.results.safe_text import visible

from ..display.screen import out, print_json, say, show, table
from ..errors import UsageError
from ..planning import values
from ..run import preparation
from ..run.launcher import guest_environment
from ..run.quiet import measuring
from . import options
from .options import flag, option, takes

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
_WIDTH = 80
_NARROWEST = 20


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options of `dlbench doctor`."""

    as_json: Annotated[bool, options.JSON] = False


@takes(DoctorOptions)
def doctor_command(given: DoctorOptions) -> None:
    """Find what harms measurements on this machine, and say how to fix it. Changes nothing.

    For some seconds, observes other programs and how well identical work repeats; then checks the
    settings of CPU and memory. The exit code is 0 whatever it finds, and 3 if no temporary file can
    be written. To fail a script, read the verdict from --json.

    Examples:

    - `dlbench doctor`
    - `dlbench doctor --json | jq .verdict`
    """
    facts = gather_facts(variables=os.environ, passed_on=guest_environment({}))
    try:
        # The doctor must not disturb a measurement, nor report one as another program.
        with measuring(say):
            say(f"observing this machine for some seconds ({READINGS} readings)")
            facts = replace(facts, sample=take_sample(READINGS), fault_seconds=fault_seconds())
    except (UsageError, ProbeError) as error:
        reason = str(error)
        if isinstance(error, UsageError):
            reason = reason.partition(",")[0]
        facts = replace(facts, no_sample=reason)
    findings = diagnose(facts)
    if not given.as_json:
        show_findings(findings)
        return
    severities = [finding.severity for finding in findings]
    readings = facts.sample.readings if facts.sample else ()
    content = {
        "counts": {str(severity): severities.count(severity) for severity in Severity},
        "findings": [finding.to_dict() for finding in findings],
        "readings": [reading.to_dict() for reading in readings],
    }
    print_json(conclusion_data("doctor", conclusion_of(severities), content))


_VERDICTS = {
    Severity.HARMS: "harms",
    Severity.MAY_HARM: "may harm",
    Severity.UNKNOWN: "unknown",
    Severity.FINE: "fine",
}


def conclusion_of(severities: Sequence[Severity]) -> Conclusion:
    """Return the worst of the findings in a word, and the counts in a sentence."""
    worst = next((severity for severity in Severity if severity in severities), Severity.FINE)
    summary = _summary(severities.count(Severity.HARMS), severities.count(Severity.MAY_HARM))
    return Conclusion(_VERDICTS[worst], summary)


def show_findings(findings: tuple[Finding, ...]) -> None:
    """Print a summary, and the findings by severity, each harmful one with a remedy."""
    width = max(_NARROWEST, min(_WIDTH, out.width))
    findings_by_severity: dict[Severity, list[Finding]] = {severity: [] for severity in Severity}
    for finding in findings:
        findings_by_severity[finding.severity].append(finding)
    harms = len(findings_by_severity[Severity.HARMS])
    may_harm = len(findings_by_severity[Severity.MAY_HARM])
    _print(_summary(harms, may_harm), width)
    for severity, findings_of_severity in findings_by_severity.items():
        for number, finding in enumerate(findings_of_severity):
            if number == 0 or finding.advice:
                out.print()
            if number == 0:
                out.print(Text(_HEADINGS[severity], style=_COLOURS.get(severity, "bold")))
            _print_finding(finding, width)


def _summary(harms: int, may_harm: int) -> str:
    """Return in a sentence how many findings harm measurement, and how many may."""
    if not harms and not may_harm:
        return "Nothing found on this machine that harms measurement."
    parts = []
    if harms:
        parts.append(f"{counted(harms, 'thing harms', 'things harm')} measurement")
    if may_harm and harms:
        parts.append(f"{may_harm} may")
    elif may_harm:
        parts.append(f"{counted(may_harm, 'thing')} may harm measurement")
    return f"On this machine {' and '.join(parts)}. Nothing was changed."


def _print_finding(finding: Finding, width: int) -> None:
    _print(f"{finding.title}: {finding.seen}", width, 2, hanging=2, bold=len(finding.title))
    if not finding.advice:
        return
    _print(finding.why, width, 4)
    root = " Needs root." if finding.needs_root else ""
    _print(f"-> {finding.advice}{root}", width, 4, hanging=3)
    if finding.command:
        for line in folded(visible(finding.command), width - 9):
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
    r"""Return a command in several lines: each but the last ends in a backslash."""
    lines = textwrap.wrap(
        command, width - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """The options of `dlbench probe`."""

    as_json: Annotated[bool, options.JSON] = False
    ceilings: Annotated[
        bool, flag("--ceilings", "Also measure GEMM rate and memory bandwidth.")
    ] = False
    threads: Annotated[
        str | None,
        option(
            "--threads",
            "With --ceilings: at these counts (default 1,cores,cpus).",
            metavar="COUNTS",
        ),
    ] = None


@takes(ProbeOptions)
def probe_command(given: ProbeOptions) -> None:
    """Describe this machine and, with --ceilings, measure its ceilings.

    A ceiling measured while other programs used the CPUs is marked with "?". `dlbench run` discards
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
                ceiling.threads: ceiling.doubt for ceiling in measured.measured if ceiling.doubt
            }
        print_json(content)
        return
    table("Machine", ["", ""], [[label, value] for label, value in describe(machine)])
    if measured is not None:
        show()
        rows = []
        for ceiling in measured.measured:
            mark = "?" if ceiling.doubt else ""
            gemm = f"{ceiling.gemm_flops_per_second / 1e9:.1f}"
            bandwidth = f"{ceiling.bandwidth_bytes_per_second / 1e9:.1f}"
            rows.append([f"{ceiling.threads}{mark}", gemm, bandwidth])
        table("Ceilings", ["threads", "GEMM GFLOP/s", "memory GB/s"], rows)
        for ceiling in measured.measured:
            if ceiling.doubt:
                threads = counted(ceiling.threads, "thread")
                show(f"? {threads}: too low to be a ceiling, {ceiling.doubt}")
