"""Whether a new build still trains as the reference does: one launch of a small network of each family."""

from dataclasses import dataclass
from pathlib import Path

from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Machine
from dlbench.reports.storage.record import Record

from ..commands.plan import plan_of
from ..display.screen import StatusLine, err, say
from ..environments import row_interpreters
from ..launching.launcher import ProcessLauncher
from ..measuring import preparation
from ..measuring.attempts import Carrier
from ..planning import values
from ..planning.choices import Choices
from ..planning.plan import PlannedLaunch
from ..quiet.machine_lock import measuring

_SUITE = Path(__file__).with_name("parity.toml")
_LAUNCHES = 3
_GOOD = (Status.OK, Status.UNSUPPORTED)
COLUMNS = ("network", "mode", "status", "reason")


@dataclass(frozen=True)
class Parity:
    """What the launches gave: one record of each mode and family."""

    records: tuple[Record, ...]

    @property
    def reason(self) -> str:
        """Why the build does not pass; "": each launch agrees with the reference or is refused with a reason."""
        bad = [each for each in self.records if each.outcome.status not in _GOOD]
        if bad:
            first = bad[0]
            words = f"{first.cell.mode} {first.cell.network} {first.outcome.status.value}: {first.outcome.reason}"
            others = f" (and {len(bad) - 1} others)" if len(bad) > 1 else ""
            return f"{words.rstrip('.')}{others}"
        if not any(each.outcome.status is Status.OK for each in self.records):
            return "no network gave a number"
        return ""

    @property
    def lines(self) -> list[list[str]]:
        """The lines of a table."""
        return [
            [each.cell.network, each.cell.mode, each.outcome.status.value, each.outcome.reason] for each in self.records
        ]


def parity_of(name: str, interpreter: Path, machine: Machine) -> Parity:
    """Launch each mode of a framework with this interpreter once on each family; nothing of it is stored."""
    build = values.build(f"{name}={interpreter}", "--python")
    chosen = Choices({"frameworks": f"{name}:*", "devices": "cpu"}, builds=(build,))
    plan = plan_of(str(_SUITE), chosen, machine, None)
    sources = row_interpreters.prepare(plan.builds, say, build_missing=False)
    found: list[Record] = []
    with measuring(say, wait=True, computes=plan.computes), StatusLine(err) as status:
        reference = preparation.prepare_references(plan, machine, say)
        run = preparation.new_run(plan, machine)
        carrier = Carrier(plan, run, ProcessLauncher(), sources, reference, machine=machine)
        for number, cell in enumerate(plan.cells, start=1):
            status.draw(f"{name}: parity of {cell.mode} {cell.network}, {number} of {len(plan.cells)}")
            found.append(_launched(carrier, cell))
    return Parity(tuple(found))


def _launched(carrier: Carrier, cell: Cell) -> Record:
    """Return the record of a launch; of a few where other programs made its clock unlikely, which tells no parity."""
    for block in range(_LAUNCHES):
        (record,) = carrier.attempts(PlannedLaunch(cell, block), carrier.plan.protocol)
        if record.outcome.status is not Status.IMPLAUSIBLE:
            break
    return record
