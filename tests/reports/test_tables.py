import factory_of_records as make
from known_networks import NETWORKS

from dlbench.adapters.networks import family_of
from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import probe
from dlbench.reports.storage.hosts import Host, host_of
from dlbench.reports.storage.networks import FIRST
from dlbench.reports.tables import hardware_table, networks_table, software_table


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


def test_networks() -> None:
    table = networks_table()
    assert [row[0].text for row in table.rows] == list(FIRST)
    rows = {row[0].text: [entry.text for entry in row] for row in table.rows}
    assert rows["fcn5"][1:5] == ["4 dense", "118.0 M", "38.3", "64"]
    assert rows["resnet50"][1:3] == ["53 conv in 16 blocks, 1 dense", "25.6 M"]
    assert rows["alexnet"][1:3] == ["5 conv, 3 pool, 3 dense", "62.4 M"]
    assert rows["lstm64"][1] == "embedding, 2 LSTM of 256, 64 steps"
    assert [
        row[0].text for row in networks_table([("lstm32", None, 1), ("unheard of", None, 2), ("fcn5", None, 64)]).rows
    ] == ["fcn5", "lstm32", "unheard of"]


def test_networks_of_other_losses_and_families() -> None:
    numbers = {"inputs": 2, "hidden": 100, "outputs": 2, "steps": 20, "activation": "relu", "alpha": 0.2}
    elman = family_of({"family": "elman", "numbers": numbers})
    table = networks_table([("rnn", elman, 64), ("gpt32", NETWORKS["gpt32"].family, 128)])
    rows = {row[0].text: [entry.text for entry in row] for row in table.rows}
    words = "2 inputs, 100 recurrent relu units, 2 outputs, 20 steps, clip 1, alpha 0.2"
    assert rows["rnn"][1:3] == [words, "10.5 k"]
    assert rows["rnn"][-1] == "mean squared error"
    words = "embedding, 2 layers of 4 heads, width 256, feedforward 1024, 32 steps"
    assert rows["gpt32"][1:3] == [words, "6.7 M"]
    assert rows["gpt32"][-1] == "cross-entropy"
    notes = " ".join(table.notes)
    assert all(word in notes for word in ("Softmax cross-entropy", "Mean squared error", "Clip:", "0.01"))
    assert "squared" not in " ".join(networks_table().notes)


def test_hardware() -> None:
    host = host_of(probe())
    assert ["CPU", probe().cpu.model] in texts(hardware_table(host).rows)
    assert hardware_table(Host("m", "unknown")).notes
