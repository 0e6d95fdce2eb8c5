"""Claims to plan: the user's own, from a TOML file, and the suite `claims`.

That suite is not a file, but the cells that the papers' claims still need from this machine. Each
claim names the command that measures it (`reports/data/claims.toml`). Its cells are those of that
command's plan, all with the protocol of this suite, except those that the store already has for
this machine. Cells that decide the most claims per minute come first.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlbench.adapters.protocol import Cell

from ..errors import UsageError
from . import devices, suite
from .axes import KEYS, SuiteOverrides, option_of
from .plan import LaunchDurations, Plan, expand
from .suite import ProtocolSection
from .toml_files import parse_toml, read_text, validated
from .values import Capacity

if TYPE_CHECKING:  # the report imports SciPy, and `dlbench plan` needs the name of this suite alone
    from dlbench.reports.claims.claims import Claim

NAME = "claims"
PROTOCOL = ProtocolSection(maximum_warmup_steps=30, sample_seconds=0.01, seconds=4.0)


def plan_of_claims(
    claims: "Iterable[Claim]",
    chosen: SuiteOverrides,
    place: Capacity,
    seed: int,
    measured: Collection[Cell],
    known: Mapping[Cell, float],
    say: Callable[[str], None],
) -> Plan | None:
    """Return the plan of the cells that these claims need from this machine; None if there is none
    left.

    ``measured`` are the cells that need no further launch, ``known`` says how long launches lasted;
    says which claims are left out. Raises UsageError for choices that this suite does not take.
    """
    _check(chosen)
    plans = []
    for claim in _here(claims, place, say):
        words = shlex.split(claim.measure)[3:]
        given = {option_of(key): key for key in KEYS}
        named = {
            given[option]: value for option, value in zip(words[::2], words[1::2], strict=True)
        }
        of = _of(claim).model_copy(update={"name": NAME, "protocol": PROTOCOL})
        plans.append(expand(of, chosen.but(**named), place, seed))
    if not plans:
        return None
    networks = {name: network for plan in plans for name, network in plan.networks.items()}
    found = replace(
        plans[0],
        rows=tuple(
            {(row.build.name, row.mode): row for plan in plans for row in plan.rows}.values()
        ),
        networks=networks,
        settings={name: settings for plan in plans for name, settings in plan.settings.items()},
        left_out=(),
        by_worth=True,
    )
    cells = list(
        dict.fromkeys(cell for plan in plans for cell in plan.cells if cell not in measured)
    )
    durations = LaunchDurations(found, known)
    seconds = {cell: durations.launch_duration(cell) for cell in cells}
    ordered = _most_claims_first(
        [[cell for cell in plan.cells if cell in seconds] for plan in plans], seconds
    )
    return replace(found, cells=ordered) if ordered else None


def _check(chosen: SuiteOverrides) -> None:
    narrowing = [option_of(key) for key in KEYS if chosen[key]]
    if narrowing or chosen.own is not None:
        what = narrowing[0] if narrowing else "--step"
        raise UsageError(
            f"{what} cannot be combined with {NAME}: the claims determine the cells. Run a suite "
            "instead; `dlbench report claims` says which."
        )


def _here(claims: "Iterable[Claim]", place: Capacity, say: Callable[[str], None]) -> "list[Claim]":
    """Return the claims that this machine can decide; says which are left out, and what they would
    need.
    """
    gpus = [device.title or device.name for device in devices.present(place.gpus)]
    found: list[Claim] = []
    left: dict[str, list[str]] = {}
    for claim in claims:
        if not claim.measure:
            why = "no command measures them"
        elif not claim.can_be_on(place.cores, gpus):
            why = f"for a machine with {claim.machine}"
        elif _of(claim).protocol.curve_steps:
            why = f"they need networks trained by `{claim.measure}`"
        else:
            found.append(claim)
            continue
        left.setdefault(why, []).append(claim.id)
    for why, names in left.items():
        say(f"left out: {', '.join(names)}: {why}")
    return found


def _of(claim: "Claim") -> suite.Suite:
    return suite.load(shlex.split(claim.measure)[2])


def _most_claims_first(
    wanted: Sequence[Sequence[Cell]], seconds: Mapping[Cell, float]
) -> tuple[Cell, ...]:
    """Return the cells in the order that decides the most claims per minute.

    Claims about the same cells count together; cells chosen for one claim cost nothing for the
    next.
    """
    left = Counter(frozenset(cells) for cells in wanted if cells)
    in_order = {frozenset(cells): cells for cells in wanted}
    found: dict[Cell, None] = {}
    while left:
        cost = {cells: sum(seconds[cell] for cell in cells if cell not in found) for cells in left}
        best = max(
            left, key=lambda cells: left[cells] / cost[cells] if cost[cells] else float("inf")
        )
        found |= dict.fromkeys(in_order[best])
        del left[best]
    return tuple(found)


def read_claim(path: Path) -> "Claim":
    """Return the claim of a file, named by it. Raises UsageError."""
    from dlbench.reports.claims.claims import OWN, Claim
    from dlbench.reports.claims.figures import OwnClaim

    figure = validated(parse_toml(read_text(path), str(path)), f"Claim {path}", OwnClaim)
    return Claim(path.stem, OWN, figure.where, figure.words, (figure,), needs="cells of both sides")
