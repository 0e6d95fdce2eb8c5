"""Kinds of flags: marks on a number, with their meaning. `flags` raises them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FlagKind:
    """A kind of flag: its name in JSON, its mark in a table, and what the mark means."""

    name: str
    symbol: str
    legend: str


@dataclass(frozen=True)
class Flag:
    """A flag raised on a cell, with the facts that raised it."""

    kind: FlagKind
    sentence: str


PARITY = FlagKind("parity", "!", "computed something other than the reference: not comparable")
PARITY_UNCHECKED = FlagKind(
    "parity_unchecked", "?", "not checked against the reference mathematics"
)
LOSS_NOT_FINITE = FlagKind("loss_not_finite", "x", "the loss after the timed steps is not finite")
LOSS_CONSTANT = FlagKind(
    "loss_constant", "=", "the loss is the same after every step: does the step train?"
)
ECC_ERRORS = FlagKind("ecc_errors", "m", "the GPU's memory had errors while it was measured")
THREADS_EXCEEDED = FlagKind("threads_exceeded", ">", "more threads worked than were asked for")
THREADS_UNUSED = FlagKind("threads_unused", "<", "fewer threads worked than were asked for")
CONTENDED = FlagKind("contended", "~", "disturbed: other programs used the CPUs")
SHARED_NODE = FlagKind(
    "shared_node", "s", "measured on a node of a fleet that the job did not have to itself"
)
THROTTLED = FlagKind(
    "throttled", "q", "the CPU quota throttled it: it allows less than one CPU a thread"
)
DEVICE_THROTTLED = FlagKind("device_throttled", "t", "heat or the power supply slowed the GPU down")
DEVICE_TIME = FlagKind(
    "device_time", "d", "the GPU's own clock and the wall clock differ by more than 2 %"
)
HOST_BOUND = FlagKind(
    "host_bound", "h", "the GPU waited for the host: it worked less than 80 % of the time"
)
NO_STEADY_STATE = FlagKind(
    "no_steady_state", "u", "no steady state: the samples still change after the longest warm-up"
)
MEMORY_STATES = FlagKind(
    "memory_states",
    "f",
    "its steps or launches got different amounts of memory anew: page faults explain differences",
)
OVER_CEILING = FlagKind(
    "over_ceiling", "^", "faster than the measured ceiling: one of the two is wrong"
)
NEAR_PEAK = FlagKind("near_peak", "p", "doubtful: above 90 % of the GPU's theoretical peak")
FAILED_LAUNCHES = FlagKind("failed_launches", "c", "some of its launches failed")
OTHER_ENVIRONMENT = FlagKind(
    "other_environment",
    "e",
    "measured with an older environment, or other variables, than the rest of its row",
)
SAMPLES_NOT_KEPT = FlagKind(
    "samples_not_kept", "k", "its samples were not kept: only their median is known, and its spread"
)
FEW_LAUNCHES = FlagKind(
    "few_launches", "'", "fewer than 3 launches: the interval covers variation within a launch only"
)

KINDS = tuple(kind for kind in globals().copy().values() if isinstance(kind, FlagKind))
"""All of them, in this order."""

ONCE_IS_ENOUGH = frozenset(
    {PARITY, PARITY_UNCHECKED, LOSS_NOT_FINITE, LOSS_CONSTANT, ECC_ERRORS, SAMPLES_NOT_KEPT}
)
"""Kinds of doubtful or unknown results, which count from one launch on. Those of noisy measurements
count from half of the launches on."""
