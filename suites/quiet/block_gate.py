"""The quiet gate around a run's blocks: waits for quiet before each, looks again after it, keeps the readings.

Patience is limited, so that a run on a busy machine still ends: its disturbed launches are then marked, as the reports
show. Where the gate gave up several times in a row it only looks, until a reading is quiet again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlbench.hardware_probe.sentinel import Reading, SentinelError
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.store import Store

from .machine_lock import other_dlbench
from .waiting import RECORD_LENGTH, Gate, Verdict, Waited

PATIENCE_SECONDS = 15.0
"""Before a block, and before a disturbed launch is repeated."""
GIVE_UPS = 3
"""After waiting in vain so often in a row the gate waits no more."""
_WORTH_SAYING = 2.0  # seconds
_RUNS_LOOKED_AT = 20


def earlier_readings(store: Store, machine: str) -> list[Reading]:
    """Return the newest sentinel readings that a store holds of a machine (fingerprint), oldest first."""
    found: list[Reading] = []
    runs = [run for run in store.runs() if run.machine == machine]
    for run in reversed(runs[-_RUNS_LOOKED_AT:]):
        readings = []
        for _, _, content in store.sentinels(run.id):
            try:
                readings.append(Reading.from_dict(content))
            except ValueError:  # of another version
                continue
        found = readings + found
        if len(found) >= RECORD_LENGTH:
            break
    return found[-RECORD_LENGTH:]


def open_gate(store: Store, run: Run, report: Callable[[str], None]) -> "BlockGate":
    """Return the gate of a run, which knows this machine's readings in the store."""
    return BlockGate(Gate(earlier_readings(store, run.machine)), store, run.id, report)


@dataclass
class BlockGate:
    """The gate of one run. ``report`` takes lines for the log."""

    gate: Gate
    store: Store
    run: str
    report: Callable[[str], None]
    _broken: bool = False
    _just_seen: tuple[Reading, Verdict] | None = None

    def before(self, block: int, seconds_left: float | None = None) -> None:
        """Wait until the machine is quiet or patience ends, never longer than ``seconds_left``."""
        if self._just_seen is not None and self._just_seen[1].quiet:
            # Taken after the last block, a moment ago.
            self._keep(block, "before", *self._just_seen)
            return
        waited = self._wait(seconds_left)
        if waited is None:
            return
        verdicts = [Verdict(False)] * (len(waited.readings) - 1) + [waited.verdict]
        for reading, verdict in zip(waited.readings, verdicts, strict=True):
            self._keep(block, "before", reading, verdict)
        if not waited.verdict.quiet:
            after = f", waited {waited.seconds:.0f} s" if waited.seconds >= _WORTH_SAYING else ""
            another = other_dlbench()
            named = f", among them another {another}" if another else ""
            self.report(
                f"block {block + 1}: other programs are busy ({waited.verdict.reasons[0]}{named}){after}, "
                "measuring anyway: disturbed launches will be marked"
            )
        elif waited.seconds >= _WORTH_SAYING:
            self.report(f"block {block + 1}: waited {waited.seconds:.0f} s until other programs were quiet")

    def after(self, block: int) -> None:
        """Take a reading and wait for nothing."""
        waited = self._safely(self.gate.look)
        self._just_seen = None
        if waited is not None:
            self._just_seen = waited.readings[-1], waited.verdict
            self._keep(block, "after", *self._just_seen)

    def before_repeat(self) -> bool:
        """Wait before a disturbed launch is repeated; False where others are still busy and it is of no use."""
        waited = self._wait(None)
        return waited is not None and waited.verdict.quiet

    def _wait(self, seconds_left: float | None) -> Waited | None:
        patience = 0.0 if self.gate.waits_in_vain >= GIVE_UPS else PATIENCE_SECONDS
        self.gate.patience_seconds = patience if seconds_left is None else max(0.0, min(patience, seconds_left))
        return self._safely(self.gate.wait)

    def _safely(self, call: Callable[[], Waited]) -> Waited | None:
        """Without a sentinel a run goes on, as it would on a system that tells nothing of others."""
        if self._broken:
            return None
        try:
            return call()
        except SentinelError as error:
            self._broken = True
            self.report(f"no quiet gate: {error}")
            return None

    def _keep(self, block: int, moment: str, reading: Reading, verdict: Verdict) -> None:
        content: dict[str, Any] = {**reading.to_dict(), "quiet": verdict.quiet, "reasons": list(verdict.reasons)}
        self.store.add_sentinel(self.run, block, moment, content)
