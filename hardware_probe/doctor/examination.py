"""The doctor: what on this machine harms measurement, and how to mend it. It changes nothing by itself.

`gather_settings` and `take_sample` (in `facts`) collect the facts, `diagnose` judges them. Randomised addresses
are left out on purpose: each launch has its own layout, and launches are the unit of statistics.
"""

import dataclasses
from collections.abc import Iterable

from dlbench.hardware_probe.doctor import frequency, limits, load, memory
from dlbench.hardware_probe.doctor.facts import Facts, Sample, Settings, gather_settings, take_sample
from dlbench.hardware_probe.doctor.findings import Finding, Remedy, Severity

__all__ = ["Facts", "Finding", "Remedy", "Sample", "Settings", "Severity", "diagnose", "gather_settings", "take_sample"]


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Judge the facts: every finding, the worst first, and of one severity in the order of the checks."""
    order = list(Severity)
    findings = _findings(facts)
    if facts.settings.cpu.virtualisation.container:
        findings = map(_from_within, findings)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def _from_within(finding: Finding) -> Finding:
    """A container sees the kernel's settings and cannot change them."""
    if finding.remedy is None or not finding.remedy.needs_root:
        return finding
    advice = f"{finding.remedy.advice} To be done on the container's host."
    return dataclasses.replace(finding, remedy=dataclasses.replace(finding.remedy, advice=advice))


def _findings(facts: Facts) -> Iterable[Finding]:
    # What happens now first: it is what most often spoils a number.
    yield from load.findings(facts)
    yield from limits.findings(facts.settings)
    yield from frequency.findings(facts.settings, facts.sample)
    yield from memory.findings(facts.settings)
