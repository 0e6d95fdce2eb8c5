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

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell

from ..errors import UsageError
from . import devices, suite
from .axes import KEYS, SuiteOverrides, option_of
from .plan import LaunchDurations, Plan, expand
from .suite import ProtocolSection
from .toml_files import parse_toml, read_text, validated
from .values import Capacity, Row

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
    """Return the plan of the cells that these claims need from this machine; None if none is left.

    ``measured`` are the cells that need no further launch, ``known`` says how long launches lasted,
    and ``say`` gets lines about the claims that are left out. Raises UsageError for choices that
    this suite does not take.
    """
    _check(chosen)
    decidable = _decidable(claims, place, say)
    plans = [_plan_of_claim(claim, chosen, place, seed) for claim in decidable]
    if not plans:
        return None
    rows: dict[tuple[str, str], Row] = {}
    networks: dict[str, Network] = {}
    settings: dict[str, dict[str, object]] = {}
    cells: dict[Cell, None] = {}
    wanted = []
    for plan in plans:
        for row in plan.rows:
            rows[row.build.name, row.mode] = row
        networks.update(plan.networks)
        settings.update(plan.settings)
        cells_of_claim = [cell for cell in plan.cells if cell not in measured]
        cells.update(dict.fromkeys(cells_of_claim))
        wanted.append(cells_of_claim)
    if not cells:
        return None
    merged = replace(
        plans[0],
        rows=tuple(rows.values()),
        networks=networks,
        settings=settings,
        left_out=(),
        by_worth=True,
    )
    durations = LaunchDurations(merged, known)
    seconds = {cell: durations.launch_duration(cell) for cell in cells}
    return replace(merged, cells=_most_claims_first(wanted, seconds))


def _plan_of_claim(claim: "Claim", chosen: SuiteOverrides, place: Capacity, seed: int) -> Plan:
    """Return the plan of the command that measures a claim, with the protocol of this suite."""
    words = shlex.split(claim.measure)[3:]
    keys = {option_of(key): key for key in KEYS}
    named = {keys[option]: value for option, value in zip(words[::2], words[1::2], strict=True)}
    claimed = _suite_of(claim).model_copy(update={"name": NAME, "protocol": PROTOCOL})
    return expand(claimed, chosen.but(**named), place, seed)


def _check(chosen: SuiteOverrides) -> None:
    options = [option_of(key) for key in KEYS if chosen[key]]
    if chosen.own is not None:
        options.append("--step")
    if options:
        raise UsageError(
            f"{options[0]} cannot be combined with {NAME}: the claims determine the cells. Run a "
            "suite instead; `dlbench report claims` says which."
        )


def _decidable(
    claims: "Iterable[Claim]", place: Capacity, say: Callable[[str], None]
) -> "list[Claim]":
    """Return the claims that this machine can decide; say which are left out, and why."""
    gpus = [device.title or device.name for device in devices.present(place.gpus)]
    decidable: list[Claim] = []
    left_out: dict[str, list[str]] = {}
    for claim in claims:
        if not claim.measure:
            why = "no command measures them"
        elif not claim.can_be_on(place.cores, gpus):
            why = f"for a machine with {claim.machine}"
        elif _suite_of(claim).protocol.curve_steps:
            why = f"they need networks trained by `{claim.measure}`"
        else:
            decidable.append(claim)
            continue
        left_out.setdefault(why, []).append(claim.id)
    for why, names in left_out.items():
        say(f"left out: {', '.join(names)}: {why}")
    return decidable


def _suite_of(claim: "Claim") -> suite.Suite:
    return suite.load(shlex.split(claim.measure)[2])


def _most_claims_first(
    wanted: Sequence[Sequence[Cell]], seconds: Mapping[Cell, float]
) -> tuple[Cell, ...]:
    """Return the cells in the order that decides the most claims per minute.

    Claims about the same cells count together. Cells chosen for one claim cost nothing for the
    next.
    """
    left: Counter[frozenset[Cell]] = Counter()
    in_order = {}
    for cells in wanted:
        key = frozenset(cells)
        in_order[key] = cells
        if cells:
            left[key] += 1
    chosen: dict[Cell, None] = {}

    def claims_per_second(cells: frozenset[Cell]) -> float:
        cost = sum(seconds[cell] for cell in cells if cell not in chosen)
        if not cost:
            return float("inf")
        return left[cells] / cost

    while left:
        best = max(left, key=claims_per_second)
        chosen.update(dict.fromkeys(in_order[best]))
        del left[best]
    return tuple(chosen)


def read_claim(path: Path) -> "Claim":
    """Return the claim of a file, named by it. Raises UsageError."""
    from dlbench.reports.claims.claims import OWN, Claim
    from dlbench.reports.claims.figures import OwnClaim

    figure = validated(parse_toml(read_text(path), str(path)), f"Claim {path}", OwnClaim)
    return Claim(path.stem, OWN, figure.where, figure.words, (figure,), needs="cells of both sides")
