"""What a doctor says of a machine: findings, each with what was seen, why it matters and how to mend it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter


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
class Finding:
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

    def to_dict(self) -> dict[str, Any]:
        """The finding in JSON's types."""
        record: dict[str, Any] = _adapter.dump_python(self, mode="json")
        return record


_adapter: TypeAdapter[Finding] = TypeAdapter(Finding)
