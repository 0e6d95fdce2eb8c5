"""Whether a new build still trains as the reference does: one launch of a small network of each family."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import Machine
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store

from ..commands.options import SessionOptions
from ..commands.plan import plan_of
from ..commands.run import HowToRun, carry_out
from ..planning import values
from ..planning.choices import Choices

_SUITE = Path(__file__).with_name("parity.toml")
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
    """Launch each mode of a framework with this interpreter once on each family, in a store of its own."""
    build = values.build(f"{name}={interpreter}", "--python")
    # MindSpore has no other setting of threads than the CPUs it is bound to: see the adapters' README.
    chosen = Choices({"frameworks": f"{name}:*", "devices": "cpu", "tuning": "tuned"}, builds=(build,))
    plan = plan_of(str(_SUITE), chosen, machine, None)
    with tempfile.TemporaryDirectory() as folder:
        session = SessionOptions(store_file=str(Path(folder, "parity.sqlite")), no_build=True)
        how = HowToRun(no_ceilings=True, no_quiet_gate=True)
        with Store.open(session.store_file, create=True) as store:
            run, _, _ = carry_out(plan, machine, store, session, how)
            last = {record.cell: record for record in store.records(run=run.id)}
    return Parity(tuple(last[cell] for cell in plan.cells if cell in last))
