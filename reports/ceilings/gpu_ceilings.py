"""What each GPU did at best in any launch: the rates to hold a step against, and what an operator costs the host.

A GPU is a machine's device together with its board's name: another card in the same slot, or another part of it, is
another GPU. Rates are the device's, whichever framework showed them; what an operator costs is the framework's own. A
framework that computes nothing only pretends, and is listed only where no other told anything of that GPU.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dlbench.adapters.libraries.gpus import TRANSFERS
from dlbench.adapters.protocol import PRECISIONS
from dlbench.reports.flags import product_rate
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results


@dataclass(frozen=True)
class Best:
    """The highest rate or the shortest time of several launches."""

    value: float
    launches: int
    """That told one."""
    row: str
    """Framework and mode that showed it; empty where the record is not at hand."""


@dataclass(frozen=True)
class GpuCeilings:
    """The ceilings of one GPU; what was not measured is missing."""

    machine: str
    """Its fingerprint."""
    device: str
    board: str
    """As the driver calls it, or else as the framework does."""
    products: Mapping[str, Best] = field(default_factory=dict)
    """FLOP/s of a framework's own large matrix product, by precision."""
    transfers: Mapping[str, Best] = field(default_factory=dict)
    """Bytes per second, by the names in `device_ceilings.TRANSFERS`; of a copy on the device read and written."""
    starts: Mapping[str, Best] = field(default_factory=dict)
    """Seconds of the host to start the smallest operator behind others, by framework."""
    finishes: Mapping[str, Best] = field(default_factory=dict)
    """Seconds from the start of one on an idle device until the host knows that it is done, by framework."""

    def ridge(self, precision: str) -> float | None:
        """Return the FLOPs per byte above which products, and no longer the memory, limit (Williams et al. 2009)."""
        product, copy = self.products.get(precision), self.transfers.get("copy")
        return product.value / copy.value if product and copy else None


def gpu_ceilings(results: Results) -> list[GpuCeilings]:
    """Return what is known of each GPU, in the order of machines and devices."""
    grouped: dict[tuple[str, str, str], list[Record]] = {}
    for record in results.records:
        if not record.cell.on_cpu and record.outcome.device is not None:
            grouped.setdefault((record.machine, record.cell.device, board_of(record)), []).append(record)
    machines = {name: place for place, name in enumerate(results.hosts)}
    order = sorted(grouped, key=lambda key: (machines.get(key[0], len(machines)), key[0], _numbered(key[1]), key[2]))
    found = []
    for machine, device, board in order:
        records = grouped[machine, device, board]
        records = [record for record in records if record.outcome.parameter_count] or records
        # Of records left out only machine and device are known: theirs where there was one board alone.
        alone = sum(key[:2] == (machine, device) for key in grouped) == 1
        made = GpuCeilings(
            machine,
            device,
            board,
            _products(records, results, (machine, device) if alone else None),
            _transfers(records),
            _overheads(records, "operator_start_seconds"),
            _overheads(records, "operator_finish_seconds"),
        )
        if made.products or made.transfers or made.starts or made.finishes:
            found.append(made)
    return found


def board_of(record: Record) -> str:
    """Return what the driver calls the GPU of a launch, or what the framework does where the driver was not asked."""
    told = record.outcome.software.get("gpu")
    name = told.get("name") if isinstance(told, dict) else None
    if isinstance(name, str) and name:
        return name
    return "" if record.outcome.device is None else record.outcome.device.name


def _products(records: Iterable[Record], results: Results, elsewhere: tuple[str, str] | None) -> dict[str, Best]:
    records = list(records)
    found = {}
    for precision in dict.fromkeys([*PRECISIONS, *(record.cell.precision for record in records)]):
        here = [record for record in records if record.cell.precision == precision]
        best = _best(max, here, lambda record: product_rate(record, results.hosts.get(record.machine)))
        left_out = results.products.get((*elsewhere, precision), ()) if elsewhere else ()
        highest = max((rate for _, rate in left_out), default=0.0)
        if highest > (best.value if best else 0.0):
            best = Best(highest, best.launches if best else 0, "")
        if best is not None:
            found[precision] = best
    return found


def _transfers(records: Iterable[Record]) -> dict[str, Best]:
    records = list(records)
    return _there({name: _best(max, records, _told(f"{name}_bytes_per_second")) for name in TRANSFERS})


def _overheads(records: Iterable[Record], name: str) -> dict[str, Best]:
    by_framework: dict[str, list[Record]] = {}
    for record in records:
        by_framework.setdefault(record.cell.framework, []).append(record)
    return _there({framework: _best(min, of, _told(name)) for framework, of in sorted(by_framework.items())})


def _there(found: Mapping[str, Best | None]) -> dict[str, Best]:
    return {name: best for name, best in found.items() if best is not None}


def _told(name: str) -> Callable[[Record], float | None]:
    def value(record: Record) -> float | None:
        device = record.outcome.device
        return None if device is None or device.ceilings is None else getattr(device.ceilings, name)

    return value


def _best(
    choose: Callable[..., tuple[float, Record]], records: Iterable[Record], value: Callable[[Record], float | None]
) -> Best | None:
    """Return the best of what the records tell, by ``max`` or ``min``; None where none tells anything above 0."""
    found = [(told, record) for record in records if (told := value(record)) is not None and told > 0]
    if not found:
        return None
    best, record = choose(found, key=lambda pair: pair[0])
    framework, mode = record.cell.framework, record.cell.mode
    return Best(best, len(found), framework if mode in ("", framework) else f"{framework} {mode}")


def _numbered(device: str) -> list[tuple[int, str]]:
    """Order cuda:2 before cuda:10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in device.split(":")]
