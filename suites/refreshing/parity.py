"""Whether a new build still trains as the reference does: one launch of a small network of each family.

What it refuses is launched with the old build too: a new one must do what the old one could.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dlbench.adapters.protocol import INSTALLED, TUNED, Cell, Status
from dlbench.hardware_probe import Machine
from dlbench.reports.storage.record import Record

from ..commands.plan import plan_of
from ..display.screen import StatusLine, counted, err, say
from ..environments import row_interpreters
from ..errors import FrameworkEnvironmentError
from ..planning import values
from ..planning.choices import Choices
from ..planning.plan import PlannedLaunch, narrow_to
from ..run import preparation
from ..run.launch import LaunchRunner
from ..run.launcher import ProcessLauncher
from ..run.machine_lock import measuring

_SUITE = Path(__file__).with_name("parity.toml")
_LAUNCHES = 3
_GOOD = (Status.OK, Status.UNSUPPORTED)
COLUMNS = ("network", "mode", "tuning", "status", "reason")


@dataclass(frozen=True)
class Parity:
    """What the launches gave: one record of each mode and family, as installed and tuned."""

    records: tuple[Record, ...]
    lost: frozenset[Cell] = field(default_factory=frozenset)
    """What is refused, although the old build can do it."""

    @property
    def reason(self) -> str:
        """Why the build does not pass; "": each launch agrees with the reference or is refused with a reason."""
        bad = [each for each in self.records if each.outcome.status not in _GOOD or each.cell in self.lost]
        if bad:
            first = bad[0]
            lost = ", which the old build can do" if first.cell in self.lost else ""
            status = f"{first.outcome.status.value}{lost}"
            cell = f"{first.cell.mode}, {first.cell.tuning}, {first.cell.network}"
            words = f"{cell} {status}: {first.outcome.reason}"
            others = f" (and {counted(len(bad) - 1, 'other')})" if len(bad) > 1 else ""
            return f"{words.rstrip('.')}{others}"
        if not any(each.outcome.status is Status.OK for each in self.records):
            return "no network gave a number"
        return ""

    @property
    def lines(self) -> list[list[str]]:
        """The lines of a table."""
        return [
            [each.cell.network, each.cell.mode, each.cell.tuning, each.outcome.status.value, each.outcome.reason]
            for each in self.records
        ]


def parity_of(name: str, interpreter: Path, old: Callable[[], Path], machine: Machine) -> Parity:
    """Launch each mode of a framework, as installed and tuned, once on each family; nothing of it is stored.

    ``old`` returns the old build's interpreter; it is asked for only where the new build refuses anything. Where it
    cannot be had, nobody knows what the old build could do.
    """
    records = _launches(name, interpreter, machine)
    refused = [each.cell for each in records if each.outcome.status is Status.UNSUPPORTED]
    before: list[Record] = []
    if refused:
        try:
            before = _launches(name, old(), machine, refused)
        except FrameworkEnvironmentError as error:
            say(f"{name}: whether the old build can do what the new one refuses is not known. {error}")
    return Parity(tuple(records), frozenset(each.cell for each in before if each.outcome.status is Status.OK))


def _launches(name: str, interpreter: Path, machine: Machine, cells: Iterable[Cell] | None = None) -> list[Record]:
    """Return a record of each of these cells, or of every one, with this interpreter."""
    build = values.build(f"{name}={interpreter}", "--python")
    words = {"frameworks": f"{name}:*", "devices": "cpu", "tuning": f"{INSTALLED},{TUNED}"}
    plan = plan_of(str(_SUITE), Choices(words, builds=(build,)), machine, None)
    if cells is not None:
        plan = narrow_to(plan, tuple(cells))
    sources = row_interpreters.prepare(plan.builds, say, build_missing=False)
    found: list[Record] = []
    with measuring(say, wait=True, computes=plan.computes), StatusLine(err) as status:
        reference = preparation.prepare_references(plan, machine, say)
        run = preparation.new_run(plan, machine)
        carrier = LaunchRunner(plan, run, ProcessLauncher(), sources, reference, machine=machine)
        for number, cell in enumerate(plan.cells, start=1):
            status.draw(f"{name}: parity of {cell.mode} {cell.network}, {number} of {len(plan.cells)}")
            found.append(_launched(carrier, cell))
    return found


def _launched(carrier: LaunchRunner, cell: Cell) -> Record:
    """Return the record of a launch; of a few where other programs made its clock unlikely, which tells no parity."""
    for block in range(_LAUNCHES):
        (record,) = carrier.attempts(PlannedLaunch(cell, block), carrier.plan.protocol)
        if record.outcome.status is not Status.IMPLAUSIBLE:
            break
    return record
