import factory_of_records as make

from dlbench.adapters.protocol import Status
from dlbench.reports.tables import software_table


def texts(rows: object) -> list[list[str]]:
    return [[entry.text for entry in row] for row in rows]  # type: ignore[attr-defined]


def test_software() -> None:
    software = {
        "framework": "torch",
        "version": "2.13.0",
        "numpy": "2.4",
        "blas": "MKL",
        "variables": {"OMP_NUM_THREADS": "1", "SPIN": "0"},
    }
    records = [
        make.record(result=make.outcome(software=software)),
        make.record(result=make.outcome(software=software), launch=1),
        make.hole(Status.CRASHED, "signal 11", minutes=5),  # tells nothing of its software
        make.record(framework="torch-nightly", environment="0123456789abcdef", result=make.outcome(software=software)),
    ]
    table = software_table(records)
    assert texts(table.rows) == [
        ["torch eager", "2.13.0", "CPython 3.11.7", "2.4", "abc123"],
        ["torch-nightly eager", "torch 2.13.0", "CPython 3.11.7", "2.4", "0123456789ab"],
    ]
    assert table.notes[0] == "torch eager: blas MKL; OMP_NUM_THREADS=the threads asked; SPIN=0"
