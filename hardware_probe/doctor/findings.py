"""What a doctor says of a machine: findings, each with what was seen, why it matters and how to fix it."""

from dataclasses import dataclass
from enum import StrEnum

from dlbench.hardware_probe.records import JsonRecord


class Severity(StrEnum):
    """How much a finding harms measurement, the worst first."""

    HARMS = "harms"
    MAY_HARM = "may harm"
    UNKNOWN = "cannot tell"
    FINE = "fine"


@dataclass(frozen=True)
class Remedy:
    """How to mend it."""

    advice: str
    """One sentence; it introduces the command where there is one."""
    command: str | None = None
    """To be typed as it stands into a shell; None where no command mends it."""
    needs_root: bool = False
    """Whether that takes the administrator of the machine."""


@dataclass(frozen=True)
class Finding(JsonRecord):
    """One thing that was looked at."""

    name: str
    """Stable, for scripts: "governor", "cpu_quota", ..."""
    title: str
    severity: Severity
    seen: str
    """What was seen, with the number."""
    why: str
    """Why it matters to a measurement, in one sentence."""
    remedy: Remedy | None = None
    """None where nothing is to be mended."""
