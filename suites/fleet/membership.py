"""A run's part in a fleet: which job it is, where it goes on, on which node, and the heartbeat meanwhile."""

import contextlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine
from dlbench.reports.errors import DlbenchError, StoreError, in_one_line
from dlbench.reports.storage.hosts import Node
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.store import Store

from ..errors import UsageError
from ..planning.plan import Plan
from ..run import machine_lock
from ..storing import spools
from .heartbeat import Heartbeat
from .standing import DONE
from .whole_node import Occupation, gpus_given, lacking, name_of_node

Report = Callable[[str], None]


@dataclass
class Membership:
    """What a run has to do with a fleet; as it is here, nothing."""

    node: Callable[[], Node | None] = lambda: None
    """The node as it is now; None outside fleets."""
    go_on: str = ""
    """The command that goes on where this run ends early; empty: the run's own."""
    goes_on: str | None = None
    """The id of the run that it goes on with."""
    takes_over: tuple[Cell, ...] | None = None
    """The cells that another node of the same kind did not begin."""
    begun: Callable[[Run, int], None] = lambda run, launches: None
    """Takes the run once it is in the store, and how many launches it plans."""
    ending: str = field(default="it ended without a word", init=False)

    @property
    def nothing_is_left(self) -> bool:
        """Whether what it was to go on with has come to its end meanwhile."""
        return self.ending == DONE

    def narrowed(self, plan: Plan) -> Plan:
        """Return the plan with only those cells that are this run's to measure."""
        return plan if self.takes_over is None else replace(plan, cells=self.takes_over)

    def ends(self, launches_left: int) -> None:
        """Take how many launches are left at the end of the budget."""
        self.ending = DONE if launches_left == 0 else f"its budget was spent with {launches_left} launches left"


@contextlib.contextmanager
def joined(word: str | None, target: str, machine: Machine, report: Report) -> Iterator[Membership]:
    """Give a run its part in the fleet that `--job` names, FLEET/NUMBER; without one it has none.

    Its heartbeat and its ending are kept in the store. Raises UsageError for a job that is none, StoreError.
    """
    if word is None:
        yield Membership()
        return
    fleet, _, number = word.rpartition("/")
    if not fleet or not number.isdigit():
        raise UsageError(f"--job {word} names no job. `dlbench fleet run` gives it, as FLEET/NUMBER.")
    spools.deliver_before(target, report)  # what another job left here counts as measured
    with Store.open(target, create=False) as store:
        job = fleets.job(store, fleet, int(number))
        suite = next(each.suite for each in fleets.fleets(store) if each.id == fleet)
        run = fleets.left_by(fleets.jobs(store, fleet), job)
        left = store.run(run) if run else None
        name = name_of_node(job.node)
        # Of a job that is started again nothing of its first end counts.
        fleets.note(store, fleet, job.number, node=name, machine=machine.fingerprint, ending=None)
    part = _part(fleet, name, machine, report)
    part.go_on = f"dlbench fleet run {shlex.quote(suite)} --resume --fleet {fleet}"
    part.begun = lambda run, launches: _note(target, fleet, job.number, report, run=run.id, planned=launches)
    with Heartbeat(target, fleet, job.number):
        try:
            if left is not None:
                _share(part, left, target, name, machine)
            yield part
        except DlbenchError as error:
            part.ending = in_one_line(str(error))
            raise
        except BaseException as error:
            if part.ending != DONE:  # also when no cell gave a number
                part.ending = type(error).__name__
            raise
        finally:
            _note(target, fleet, job.number, report, ending=part.ending)


def _part(fleet: str, name: str, machine: Machine, report: Report) -> Membership:
    """Return the part of a job on this node, and say where the node is not its own alone."""
    occupation = Occupation(fleet, name, lacking(machine, gpus_given()))
    for reason in occupation.now().shared:
        report(f"node {name} is not this job's alone: {reason}; its records say so")
    if narrow := machine_lock.why_narrow(bool(machine.cpu.virtualisation.container)):
        report(narrow)
    return Membership(occupation.now)


def _share(part: Membership, left: Run, target: str, name: str, machine: Machine) -> None:
    """Give a run what another job left: on the same node all of it, on another the cells that were not begun."""
    if left.finished is not None:
        part.begun(left, len(left.plan) * left.launches)
        part.ending = DONE
        return
    there = left.node.name if left.node is not None else ""
    if there == name:
        part.goes_on = left.id
        return
    if left.machine != machine.fingerprint:
        raise UsageError(
            f"Node {name} is of another kind than {there} (fingerprints {machine.fingerprint} and {left.machine}), so "
            "it cannot take over its cells. Name a node of the same kind with --nodelist."
        )
    with Store.open(target, create=False) as store:
        part.takes_over = cells_not_begun(store, left)
    if not part.takes_over:
        part.ending = DONE


def cells_not_begun(store: Store, run: Run) -> tuple[Cell, ...]:
    """Return the cells of a run that have no record; raises StoreError."""
    begun = {record.cell for record in store.stream(run=run.id)}
    return tuple(cell for cell in run.plan if cell not in begun)


def _note(target: str, fleet: str, number: int, report: Report, **told: str | int) -> None:
    """Keep what is new of the job; a store that is away ends no run."""
    try:
        with Store.open(target, create=False) as store:
            fleets.note(store, fleet, number, **told)
    except StoreError as error:
        report(f"{error} What became of the job was not kept there.")
