"""What one or several stores hold, brought together for the reports."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from dlbench.hardware_probe import Ceilings
from dlbench.reports.hosts import Host, read_host
from dlbench.reports.record import Record
from dlbench.reports.store import Store


@dataclass(frozen=True)
class Results:
    """Records, and what is known of the machines they were made on."""

    records: tuple[Record, ...] = ()
    hosts: dict[str, Host] = field(default_factory=dict)
    """By fingerprint, in the order in which the machines first appear."""
    ceilings: dict[str, Ceilings] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        stores: Iterable[Store],
        run: str | None = None,
        suite: str | None = None,
        machine: str | None = None,
    ) -> "Results":
        """Read opened stores: all their records, or those of a run, suite or machine (fingerprint).

        A record that lies in several of the stores counts once. Raises StoreError.
        """
        return cls.merge(cls._of_one(store, run, suite, machine) for store in stores)

    @classmethod
    def _of_one(cls, store: Store, run: str | None, suite: str | None, machine: str | None) -> "Results":
        records = tuple(store.records(run=run, suite=suite, machine=machine))
        described = store.machines()
        hosts: dict[str, Host] = {}
        ceilings: dict[str, Ceilings] = {}
        for name in dict.fromkeys(record.machine for record in records):
            hosts[name] = read_host(name, described.get(name))
            try:
                if (kept := store.ceilings(name)) is not None:
                    ceilings[name] = Ceilings.from_dict(kept)
            except (ValueError, TypeError):
                continue  # From another version: the records' own sentinels still bound the rates.
        return cls(records, hosts, ceilings)

    @classmethod
    def read(
        cls,
        targets: Iterable[str | os.PathLike[str]],
        run: str | None = None,
        suite: str | None = None,
        machine: str | None = None,
    ) -> "Results":
        """Read the stores at these paths or URLs, which must exist. Raises StoreError."""
        parts = []
        for target in targets:
            with Store.open(target, create=False) as store:
                parts.append(cls._of_one(store, run, suite, machine))
        return cls.merge(parts)

    @classmethod
    def merge(cls, parts: Iterable["Results"]) -> "Results":
        """Bring several together; a record that is in more than one counts once."""
        records: dict[tuple[object, ...], Record] = {}
        hosts: dict[str, Host] = {}
        ceilings: dict[str, Ceilings] = {}
        for part in parts:
            for record in part.records:
                records.setdefault((record.run, record.launch, record.cell, record.started, record.machine), record)
            for name, host in part.hosts.items():
                if name not in hosts or not hosts[name].description:
                    hosts[name] = host
            for name, ceiling in part.ceilings.items():
                ceilings.setdefault(name, ceiling)
        return cls(tuple(records.values()), hosts, ceilings)
