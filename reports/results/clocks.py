"""The two clocks of a launch: its samples, and the host's clock around them.

Where the samples add up to less, work may be hidden between them, and the launch is implausible.
On a busy machine an honest launch looks so too, since other programs run between its samples. Then
the clocks decide nothing: such a launch is left out, and not accused. Only the turns of a launch
show how much others used, so launches made one after the other are judged strictly.
"""

from collections.abc import Sequence

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.outcome import HostObservation, Outcome, TurnObservation

# The host's clock may show this much more than the samples, and as much as guest and host waited
# for a CPU, up to a second: the time between samples, and the host's own waking up.
_CLOCK_SHARE, _CLOCK_SECONDS, _WAITING_SECONDS = 0.15, 0.25, 1.0
# The samples may show this much more than the host's clock.
_MORE_SHARE, _MORE_SECONDS = 0.02, 0.01
BUSY_CPUS = 0.5
"""CPUs that other programs use at least where they may be the cause."""
TICK_SECONDS = 0.03
"""CPU time is counted in ticks of 0.01 s for each process. A few of them prove nothing."""


def seconds_of_samples(outcome: Outcome) -> float:
    """Return the sum of a launch's samples, with those that were found to be warm-up."""
    nanoseconds = sum(outcome.samples_ns)
    dropped = outcome.observed_steps() // outcome.steps_per_sample - len(outcome.samples_ns)
    if dropped > 0:
        nanoseconds += sum(outcome.warmup_ns[-dropped:]) * outcome.steps_per_sample
    return nanoseconds * 1e-9


def clocks_differ(outcome: Outcome) -> bool:
    """Tell whether the samples add up to something else than the host's clock shows."""
    outside = outcome.outside
    if outside is None:
        return False
    claimed = seconds_of_samples(outcome)
    seen = outside.timed_seconds
    waiting = min(outside.timed_waiting_seconds, _WAITING_SECONDS)
    least = seen * (1 - _CLOCK_SHARE) - _CLOCK_SECONDS - waiting
    most = seen * (1 + _MORE_SHARE) + _MORE_SECONDS
    return not least <= claimed <= most


def others_in_turns(turns: Sequence[TurnObservation]) -> tuple[float | None, float]:
    """Return the CPU seconds of other programs in the turns that tell, and these turns' seconds."""
    telling = [turn for turn in turns if turn.busy_seconds is not None]
    if not telling:
        return None, 0.0
    busy = sum(turn.busy_seconds or 0.0 for turn in telling)
    own = sum(turn.cpu_seconds for turn in telling)
    return max(0.0, busy - own), sum(turn.seconds for turn in telling)


def cpus_of_others(outside: HostObservation) -> float:
    """Return how many CPUs other programs used in a launch's turns, 0 where that is not known."""
    others, seconds = others_in_turns(outside.turns)
    return others / seconds if others and seconds else 0.0


def others_explain_clocks(cell: Cell, outcome: Outcome) -> bool:
    """Tell whether the clocks differ, and other programs may be the cause.

    They used CPUs in the launch's turns, and the launch itself used no more CPU time than its
    threads have in its samples: nothing was computed between them.
    """
    outside = outcome.outside
    if outside is None or not clocks_differ(outcome):
        return False
    claimed = seconds_of_samples(outcome)
    threads = cell.all_threads or len(outcome.cpus or ()) or 1
    own_most = claimed * threads + TICK_SECONDS
    return (
        claimed < outside.timed_seconds
        and cpus_of_others(outside) >= BUSY_CPUS
        and outside.timed_cpu_seconds <= own_most
    )
