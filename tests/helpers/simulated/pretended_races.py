"""Races of cells that take the seconds that a test says."""

from dataclasses import replace

import factory_of_records as make

from dlbench.adapters.protocol import Outcome, Status
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand
from dlbench.suites.planning.suite import load
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run.halving import Race, raced, starts


def plan(threads="1,2,4", frameworks="torch:*", tuning="installed,tuned,each"):
    choices = SuiteOverrides(networks="fcn5", frameworks=frameworks, threads=threads, tuning=tuning)
    return raced(expand(load("tuning"), choices, Capacity(4, 4), 1))


WRONG = Outcome(Status.PARITY_FAILED, "it computed something else")
UNLIKELY = Outcome(Status.IMPLAUSIBLE, "its clock and the host's differ", samples_ns=[1, 1, 1])


def to_beat(of, cores):
    return starts(of, cores)[0]


def run(of, seconds, failing=lambda cell, block: False, disturbed=lambda cell, block: False, begin=None, how=WRONG):
    """Carry out a race whose cells take these seconds in a block; return the race and its records."""
    begin = begin or starts(of, 4)
    race, records = Race(begin, of, []), []
    for block in range(of.launches):
        cells = [each.cell for each in of.block(block) if race.wants(each.cell, block)]
        for cell in race.in_order(cells, block, None):
            if not race.wants(cell, block):
                continue
            record = make.record([seconds(cell, block)] * 3, launch=block, **cell._asdict())
            if failing(cell, block):
                record = replace(record, outcome=how)
            elif disturbed(cell, block):
                record = replace(
                    record, outcome=record.outcome._replace(contention=make.contention(steal_seconds=20.0))
                )
            records.append(record)
            race.add(record)
    return race, records
