"""What tuning is worth, in one sentence a machine, for the head of a page."""

from dlbench.reports.naming import name_of
from dlbench.reports.tuning.analysis import FASTER, Tuning, verdict


def headline(found: Tuning) -> list[str]:
    """Return where all settings together help most, of what noise does not explain."""
    lines = []
    for machine in dict.fromkeys(row.machine for row in found.rows):
        compared = [(row.together.alone, row) for row in found.rows if row.machine == machine and row.together.alone]
        helped = [(ratio, row) for ratio, row in compared if verdict(ratio) == FASTER]
        if not helped:
            continue
        ratio, row = min(helped, key=lambda each: each[0].ratio)
        lines.append(
            f"{found.hosts[machine].name}: tuning makes {len(helped)} of {len(compared)} rows faster, most "
            f"{name_of(row.cell)}, to {ratio.ratio:.2f} of its time as installed ({ratio.low:.2f} to {ratio.high:.2f}, "
            f"{ratio.pairs} pairs)."
        )
    return lines
