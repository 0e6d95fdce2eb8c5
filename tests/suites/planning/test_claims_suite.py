"""The suite `claims`: which cells the papers' claims still need from a machine, and in which
order."""

from pathlib import Path

import pytest
from fake_nvml import TWO, gpus
from processes import suite_of_null

from dlbench.reports.claims.claims import Claim
from dlbench.reports.claims.claims import claims as list_of_claims
from dlbench.suites.errors import UsageError
from dlbench.suites.planning import claims as of_claims
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.claims import plan_of_claims
from dlbench.suites.planning.plan import Plan
from dlbench.suites.planning.values import Capacity

SMALL = Capacity(2, 2)
RUN = "dlbench run quick --frameworks null --threads 1 --networks"


def claim(name: str, measure: str, **more: object) -> Claim:
    return Claim(name, "own", "", "words", measure=measure, **more)


def planned(
    *claims: Claim,
    place: Capacity = SMALL,
    measured=(),
    cell_seconds=None,
    say=lambda line: None,
    **words: str,
):
    return plan_of_claims(
        claims, SuiteOverrides(**words), place, 1, measured, cell_seconds or {}, say
    )


def cells(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [cell.network for cell in plan.cells]


def test_most_claims_a_minute_come_first_and_what_is_shared_costs_once() -> None:
    first, second = claim("one", f"{RUN} fcn5"), claim("two", f"{RUN} lstm32")
    (long,), (short,) = (planned(claim).cells for claim in (first, second))
    for costs, order in (((60.0, 10.0), ["lstm32", "fcn5"]), ((10.0, 60.0), ["fcn5", "lstm32"])):
        cell_costs = dict(zip((long, short), costs, strict=True))
        plan = planned(first, second, cell_seconds=cell_costs)
        assert cells(plan) == order
        # The order is kept: nothing is shuffled.
        assert [claim.cell.network for claim in plan.block(3)] == order
    cell_costs = {long: 30.0, short: 10.0}
    # Three claims about the long one are more a minute than a single one about the short one.
    several = [claim(f"more{number}", f"{RUN} fcn5") for number in range(4)]
    assert cells(planned(second, *several, cell_seconds=cell_costs)) == ["fcn5", "lstm32"]
    # Both networks for one claim more: only what is new counts.
    for_two_networks = claim("both", f"{RUN} fcn5,lstm32")
    assert cells(planned(for_two_networks, first, cell_seconds=cell_costs)) == ["fcn5", "lstm32"]


def test_claims_about_other_machines_are_left_out_with_a_line() -> None:
    lines: list[str] = []
    fits = claim("fits", f"{RUN} fcn5")
    other_claims = (
        claim("cores", f"{RUN} lstm32", cores=16),
        claim(
            "gpu",
            "dlbench run quick --frameworks null --networks lstm32 --devices cuda:all",
            gpus=1,
        ),
        claim(
            "old",
            "dlbench run quick --frameworks null --networks lstm32 --devices cuda:all",
            gpus=2,
            gpu="GTX 1080|Tesla K80",
        ),
        claim("text", ""),
    )
    assert cells(planned(fits, *other_claims, say=lines.append)) == ["fcn5"]
    assert lines == [
        "left out: cores: for a machine with 16 cores",
        "left out: gpu: for a machine with a GPU",
        "left out: old: for a machine with 2 GPUs (GTX 1080, Tesla K80)",
        "left out: text: no command measures them",
    ]
    lines.clear()
    large = Capacity(16, 32, gpus(TWO))
    plan = planned(fits, *other_claims, place=large, say=lines.append)
    assert plan is not None
    assert {cell.device for cell in plan.cells} == {"cpu", "cuda:0", "cuda:1"}
    assert [line.split(":")[1] for line in lines] == [" old", " text"]


def test_every_claim_of_the_papers_has_a_plan_where_its_machine_is() -> None:
    measured_claims = [
        claim for claim in list_of_claims() if claim.measure and claim.paper != "gurari2021"
    ]  # who trains
    place = Capacity(16, 32, gpus(TWO))
    for claim in measured_claims:
        plan = planned(Claim("any", "own", "", "", measure=claim.measure), place=place)
        assert plan is not None, claim.id
        assert plan.suite == of_claims.NAME
    plan = planned(*measured_claims, place=SMALL)
    assert plan is not None
    assert plan.protocol == of_claims.PROTOCOL.protocol()
    assert len(set(plan.cells)) == len(plan.cells)
    assert {cell.framework for cell in plan.cells} == {row.build.name for row in plan.rows}
    assert plan.by_worth


def test_claims_cannot_be_narrowed_but_take_a_number_of_launches() -> None:
    single = claim("one", f"{RUN} fcn5")
    for words in ({"networks": "fcn5"}, {"threads": "1"}, {"frameworks": "null"}):
        with pytest.raises(UsageError, match="cannot be combined with claims"):
            planned(single, **words)
    plan = planned(single, launches="5-9", cell_budget="60s")
    assert plan is not None
    assert (plan.launches, plan.launches_most, plan.cell_seconds) == (5, 9, 60.0)


def test_a_run_measures_what_is_missing_and_then_nothing_is(
    command, monkeypatch, tmp_path: Path
) -> None:
    Path("mine.toml").write_text(suite_of_null(threads=[1, 2]))

    # Null computes nothing, so the claims stay without a verdict: its cells are measured all the
    # same, once.
    ours = Claim("N1", "own", "", "words", measure="dlbench run mine.toml --threads 1,2")
    theirs = Claim(
        "N2", "own", "", "words", measure="dlbench run mine.toml --devices cuda:all", gpus=99
    )
    monkeypatch.setattr("dlbench.reports.claims.report.claims", lambda: (ours, theirs))
    code, out, errors = command("plan", "claims", "--json")
    assert code == 0
    assert len(errors.splitlines()) == 1
    assert "left out: N2: for a machine with 99 GPUs" in errors
    run = ("run", "claims", "--no-ceilings", "--no-wait-for-quiet")
    code, _, errors = command(*run, "--budget", "1ms")
    assert "1 launch left" in errors  # one fits any budget
    code, out, errors = command(*run, "--resume", "--budget", "5m")
    assert code == 0, errors
    assert "null" in out
    code, _, errors = command(*run)
    assert code == 0
    assert "Nothing is left to measure" in errors
