"""Energy of the CPU packages, by the RAPL counters that Linux shows in ``/sys/class/powercap``.

A counter (``energy_uj``, microjoules) covers a whole package, of Intel's or, since Zen, AMD's CPUs:
the energy of every program on it. It grows about once a millisecond, and wraps to 0 beyond
``max_energy_range_uj`` (Linux, Documentation/power/powercap/powercap.rst). Virtual machines and
containers mostly show none, and since Linux 5.10 only root may read it, because it shows what other
programs compute (CVE-2020-8694). Parts of a package (``core``, ``dram``) are not added to it, nor
is ``psys``, which covers more than the CPU.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dlbench.hardware_probe.files import ROOT, read_int, read_text

SHORTEST_SECONDS = 0.1
"""A counter that grows once a millisecond shows the energy of such a time to 2 %."""
# No package draws more: in the time in which this power would use up a counter's range, it wraps at
# most once.
MOST_WATTS = 1000.0
_POWERCAP = "sys/class/powercap"
_NONE = "/sys/class/powercap has no CPU package; virtual machines and containers rarely show one"

Microjoules = Mapping[str, int]
"""The counter of each package."""


class PackageCounters:
    """The counters of this machine's packages, or of those in a tree recorded from another one."""

    def __init__(self, root: Path = ROOT) -> None:
        self._files: dict[str, Path] = {}
        self._ranges: dict[str, int] = {}
        # The same packages are there a second time as intel-rapl-mmio:0, and their parts as
        # intel-rapl:0:0.
        for zone in sorted((root / _POWERCAP).glob("intel-rapl:*")):
            name = read_text(zone / "name") or ""
            if name.startswith("package") and zone.name.count(":") == 1:
                self._files[name] = zone / "energy_uj"
                self._ranges[name] = read_int(zone / "max_energy_range_uj") or 0

    def read(self) -> Microjoules | str:
        """Return every package's counter, or the reason why none can be read."""
        counters = {}
        for name, file in self._files.items():
            try:
                counters[name] = int(file.read_text())
            except PermissionError:
                return (
                    f"only root may read the energy counter of {name}; to let every user, until "
                    "the next boot, run `sudo chmod a+r "
                    "/sys/class/powercap/intel-rapl:*/energy_uj`"
                )
            except (OSError, ValueError) as error:
                return f"the energy counter of {name} cannot be read: {error}"
        return counters or _NONE

    def spent(
        self, parts: Sequence[tuple[Microjoules | str, Microjoules | str]], seconds: float
    ) -> tuple[dict[str, float] | None, str]:
        """Return the joules of each package in some stretches of time, or None and the reason.

        ``parts`` has the readings before and after each stretch, ``seconds`` is how long all of
        them were together.
        """
        grown = dict.fromkeys(self._ranges, 0)
        for before, after in parts:
            if isinstance(before, str):
                return None, before
            if isinstance(after, str):
                return None, after
            for name, counter_range in self._ranges.items():
                growth = after[name] - before[name]
                if growth < 0:
                    growth += counter_range
                grown[name] += growth
        if seconds < SHORTEST_SECONDS:
            reason = (
                f"the timed steps lasted {seconds:.3f} s, too short for counters that grow once a "
                "millisecond"
            )
            return None, reason
        most_joules = MOST_WATTS * seconds / max(1, len(parts))
        for name, counter_range in self._ranges.items():
            if 0 < counter_range * 1e-6 < most_joules:
                reason = (
                    f"in {seconds:.0f} s the energy counter of {name} may have wrapped more than "
                    "once"
                )
                return None, reason
            if grown[name] <= 0:
                return None, f"the energy counter of {name} did not grow in {seconds:.1f} s"
        return {name: microjoules * 1e-6 for name, microjoules in grown.items()}, ""
