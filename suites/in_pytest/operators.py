"""The operators that account for the difference of slower benchmarks, by profiled processes.

Both sides run in processes of their own that take turns, as launches do. An operator is named by
the same rule (`reports.results.operators`): its difference repeats over the pairs.
"""

from dlbench.adapters.protocol import Status, profile_from_dict
from dlbench.reports.pytest_benchmark.imported import imported_cell
from dlbench.reports.results.operators import FEWEST, MOST, StepDifference, compare_profiled
from dlbench.reports.results.outcome import Outcome

from .process import ProcessOutcome
from .processes import Processes, ProfiledPair

MOST_BENCHMARKS = 3
"""Slower benchmarks that are profiled."""


def slower_operators(processes: Processes, tests: list[str]) -> dict[str, StepDifference]:
    """Profile benchmarks that got slower; return the difference of each between the two sides."""
    profiled = tests[:MOST_BENCHMARKS]
    pairs: list[ProfiledPair] = []
    differences: dict[str, StepDifference] = {}
    for number in range(1, MOST + 1):
        pairs.append(processes.profile(number, profiled))
        differences = {test: difference_of(test, pairs) for test in profiled}
        undecided = []
        for difference in differences.values():
            if not difference.named and not difference.problem:
                undecided.append(difference)
        if number >= FEWEST and not undecided:
            break
    return differences


def difference_of(test: str, pairs: list[ProfiledPair]) -> StepDifference:
    """Return how the profiled calls of a benchmark differ between the two sides."""
    cell = imported_cell(test)._replace(device="cpu")
    baseline = []
    candidate = []
    for pair in pairs:
        before = pair.baseline.profiles.get(test)
        after = pair.candidate.profiles.get(test)
        if before is not None and after is not None:
            baseline.append(_outcome(before))
            candidate.append(_outcome(after))
    if baseline:
        return compare_profiled(cell, baseline, candidate)
    for side, outcome in (("baseline", pairs[-1].baseline), ("candidate", pairs[-1].candidate)):
        if test not in outcome.profiles:
            return StepDifference(cell, problem=_why_without_profile(side, test, outcome))
    return StepDifference(cell, problem="no pair of processes was profiled on both sides")


def _why_without_profile(side: str, test: str, outcome: ProcessOutcome) -> str:
    reason = outcome.failed.get(test, "")
    if reason:
        return f"it failed in a profiled process of the {side}: {reason}"
    return f"no process of the {side} profiled it"


def _outcome(profile: dict[str, object]) -> Outcome:
    return Outcome(Status.OK, profile=profile_from_dict(profile))
