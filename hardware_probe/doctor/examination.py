"""The doctor: what on this machine harms measurement, and how to fix it. It changes nothing by itself.

`gather_settings` and `take_sample` (in `facts`) collect the facts, `diagnose` judges them. Randomised addresses
are left out on purpose: each launch has its own layout, and launches are the unit of statistics.
"""

import dataclasses
from collections.abc import Iterable
from itertools import chain

from dlbench.hardware_probe.doctor import frequency, limits, load, memory
from dlbench.hardware_probe.doctor.facts import Facts, Sample, Settings, gather_settings, take_sample
from dlbench.hardware_probe.doctor.findings import Finding, Remedy, Severity

__all__ = [
    "Facts",
    "Finding",
    "Remedy",
    "Sample",
    "Settings",
    "Severity",
    "diagnose",
    "faults",
    "gather_settings",
    "take_sample",
]


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Judge the facts: every finding, the worst first, and of one severity in the order of the checks.

    What happens just now comes before the settings: it is what most often spoils a number.
    """
    return _sorted(chain(load.findings(facts), _of_settings(facts)), facts.settings)


def faults(settings: Settings) -> tuple[Finding, ...]:
    """Judge the settings alone, which takes no time: what `diagnose` finds but what is fine and what runs just now."""
    found = _sorted(_of_settings(Facts(settings, None)), settings)
    return tuple(each for each in found if each.severity is not Severity.FINE)


def _sorted(findings: Iterable[Finding], settings: Settings) -> tuple[Finding, ...]:
    order = list(Severity)
    if settings.cpu.virtualisation.container:
        findings = map(_from_within, findings)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def _from_within(finding: Finding) -> Finding:
    """A container sees the kernel's settings and cannot change them."""
    if finding.remedy is None or not finding.remedy.needs_root:
        return finding
    advice = f"{finding.remedy.advice} To be done on the container's host."
    return dataclasses.replace(finding, remedy=dataclasses.replace(finding.remedy, advice=advice))


def _of_settings(facts: Facts) -> Iterable[Finding]:
    yield from limits.findings(facts.settings)
    yield from frequency.findings(facts.settings, facts.sample)
    yield from memory.findings(facts.settings)
