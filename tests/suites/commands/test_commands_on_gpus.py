"""The commands on a machine with GPUs that are only pretended."""

from collections import Counter
from functools import partial

import pytest
from fake_nvml import (
    A100,
    FIRST,
    H200,
    LOST,
    NO_DRIVER,
    NO_GPU,
    PARTED,
    SECOND,
    TWO,
    gpus,
    nvml,
    stand_in,
)
from processes import records_in, refusal, run_command, suite_of_null

from dlbench.adapters.protocol import Cell, Status
from dlbench.suites.run.quiet import busy_gpus

SUITE = suite_of_null(
    devices=["cpu", "gpus"],
    protocol={"cell_seconds": 100.0},
    device_step_seconds=0.005,
    device_memory_bytes=200000000,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.toml").write_text(SUITE)
    return tmp_path


@pytest.fixture
def call(command, folder, monkeypatch):
    """Give a function that runs the command in this process beside a stand-in: exit code, output,
    complaints."""
    monkeypatch.setenv("DLBENCH_HOME", str(folder / "home"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def carry_out(source, *words, above=""):
        monkeypatch.setenv("DLBENCH_NVML", stand_in(folder, source, above))
        code, output, complaints = command(*words)
        return code or 0, output, complaints

    return carry_out


@pytest.mark.slow
def test_a_machine_with_gpus_gets_columns_of_them_unasked_and_goes_on_where_it_was(folder):
    played = stand_in(folder, TWO)
    begun = run_command(folder, "run", "mine.toml", "--budget", "10ms", DLBENCH_NVML=played)
    assert begun.returncode == 0, begun.stderr
    assert "2 launches left" in begun.stderr
    done = run_command(folder, "run", "mine.toml", "--resume", DLBENCH_NVML=played)
    assert done.returncode == 0, done.stderr
    assert "cuda:1" in begun.stderr + done.stderr
    header = next(line for line in done.stdout.splitlines() if "cuda:0" in line)
    assert header.index("cuda:0") < header.index("cuda:1")
    records = {record.cell.device: record for record in records_in(folder)}
    assert {record.outcome.status for record in records.values()} == {Status.OK}
    visible = {
        device: r.outcome.software["variables"]["CUDA_VISIBLE_DEVICES"]
        for device, r in records.items()
    }
    assert visible == {"cpu": "", "cuda:0": FIRST, "cuda:1": SECOND}
    second = records["cuda:1"].outcome
    assert second.software["gpu"] == {
        "index": 1,
        "name": H200,
        "uuid": SECOND,
        "driver": "550.54.15",
    }
    assert "gpu" not in records["cpu"].outcome.software
    assert second.device.name == "null device"
    assert len(second.device.event_ns) == len(second.samples_ns)
    # The pretended GPU's own clock and the wall clock tell of the same 5 ms.
    assert second.device.event_ns[-1] == pytest.approx(5e6 * second.steps_per_sample, rel=0.2)
    assert second.device.busy_seconds == pytest.approx(0.005)
    assert records["cuda:1"].telemetry["gpu"]["uuid"] == SECOND
    assert records["cpu"].telemetry is None


@pytest.mark.slow
def test_pairs_on_a_gpu_take_turns_where_that_is_asked_for(folder, call):
    pairs = ("compare", "--now", "--suite", "mine.toml", "--same", "--pairs", "3")
    code, out, errors = call(TWO, *pairs, "--devices", "cuda:1", "--order", "turns")
    assert code in (0, 6), errors
    records = records_in(folder)
    assert {record.outcome.status for record in records} == {Status.OK}, out
    assert len(records) >= 6
    for record in records:
        turns = record.outcome.outside.turns
        assert len({turn.round for turn in turns}) > 1
        assert all(turn.slices == 1 for turn in turns)
        assert record.outcome.device.name == "null device"
        # Energy and other processes belong to both launches.
        assert record.outcome.timed_between is None


def test_after_a_mini_batch_runs_out_of_memory_only_smaller_ones_run(folder, call):
    words = ["--devices", "cuda:1", "--batch-sizes", "512,64,256", "--seed", "3"]
    code, out, errors = call(TWO, "run", "mine.toml", *words)
    assert code == 0, errors
    results = [(r.cell.batch_size, r.outcome.status) for r in records_in(folder)]
    assert results == [(64, Status.OK), (256, Status.OUT_OF_MEMORY), (512, Status.SKIPPED)]
    reasons = [record.outcome.reason for record in records_in(folder)]
    assert "256000000 bytes" in reasons[1]
    assert reasons[2] == "mini-batch 256 ran out of memory already"
    assert "mini-batch 256 ran out of memory already" in " ".join(out.split())


def test_a_gpu_that_falls_off_the_bus_is_a_hole_and_the_others_go_on(folder, call):
    losing = """
class Losing(fake.FakeNvml):
    def nvmlDeviceGetHandleByIndex(self, index):
        if index == 0 and self.asked.count("began") > 1:
            raise fake.NVMLError(fake.GPU_IS_LOST)
        return super().nvmlDeviceGetHandleByIndex(index)
    def nvmlInit(self):
        self.asked.append("began")
        super().nvmlInit()
"""
    source = TWO.replace("fake.FakeNvml", "Losing")
    code, out, errors = call(
        source, "run", "mine.toml", "--devices", "cuda:all", "--launches", "2", above=losing
    )
    assert code == 0, errors
    result = Counter(
        (r.cell.device, r.outcome.status, r.outcome.reason) for r in records_in(folder)
    )
    reason = f"cuda:0 ({A100}) does not answer: GPU 0: nvmlDeviceGetHandleByIndex: GPU is lost"
    assert result == {("cuda:0", Status.SKIPPED, reason): 1, ("cuda:1", Status.OK, ""): 2}
    assert reason in " ".join(out.split())


@pytest.mark.parametrize(
    ("source", "words", "part"),
    [
        (NO_DRIVER, ["--devices", "cpu,cuda:0"], "NVML Shared Library Not Found"),
        (TWO, ["--devices", "cuda:2"], FIRST),
    ],
)
@pytest.mark.parametrize("verb", [("run",), ("gate", "--same")])
def test_devices_that_a_machine_lacks_are_refused_in_one_line(
    folder, call, verb, source, words, part
):
    assert part in refusal(partial(call, source), *verb, "mine.toml", *words)
    assert not (folder / "dlbench.sqlite").exists()


def test_gpus_that_others_compute_on_are_named_before_anything_is_measured():
    def on_boards(*counts):
        """Make two boards with so many processes on each; None: it does not tell."""
        boards = []
        for uuid, count in zip((FIRST, SECOND), counts, strict=True):
            processes = "" if count is None else f", ComputeRunningProcesses=[0] * {count}"
            boards.append(f"fake.board(uuid={uuid!r}{processes})")
        return f"fake.FakeNvml({', '.join(boards)})"

    def said(names, source, workers=1):
        cells = [
            Cell("null", "null", "null", "fcn5", name, 1, 64, world_size=workers) for name in names
        ]
        return busy_gpus(cells, gpus(source), nvml(source))

    for names, source in (
        *(
            (["cpu"], on_boards(1, 1)),
            (["cuda:0"], on_boards(0, 1)),
            (["cpu", "cuda:0"], on_boards(None, 1)),
        ),
        *((["cuda:0"], NO_GPU), ([], NO_DRIVER), (["cuda:0:1"], PARTED), (["cuda:0"], LOST)),
    ):
        assert said(names, source) == []
    (line,) = said(["cuda:0", "cuda:1"], on_boards(0, 1))
    assert line.startswith(f"cuda:1 ({A100}): 1 other process computes on it now")
    first, second, all_of_them = said(["cuda:0", "cuda:1"], on_boards(2, 1))
    assert "2 other processes compute" in first
    assert "cuda:1" in second
    assert "every GPU of this run is in use" in all_of_them
    assert len(said(["cuda:0"], on_boards(0, 1), workers=2)) == 1
    assert said(["cpu"], on_boards(1, 1), workers=2) == []


@pytest.mark.slow
def test_a_gpus_ceilings_are_measured_and_stored(folder, call):
    settings = """
device_host_seconds = 0.02
device_memory_bytes_per_second = 4e12
device_link_bytes_per_second = 5e10
device_operator_seconds = 0.002
"""
    (folder / "mine.toml").write_text(SUITE + settings)
    code, out, errors = call(TWO, "run", "mine.toml", "--devices", "cpu,cuda:1")
    assert code == 0, errors
    # Six operators of 2 ms in a step of 20 ms, of which the GPU works 5.
    assert "launch-bound, since starting 6 operators at" in " ".join(out.split())
    results = {record.cell.device: record.outcome.device for record in records_in(folder)}
    assert results["cpu"] is None
    ceilings = results["cuda:1"].ceilings
    rates = {"copy": 4e12, "device_pinned": 5e10, "device_pageable": 2.5e10}
    for name, value in ceilings._asdict().items():
        (rate,) = [rate for part, rate in rates.items() if part in name] or [None]
        # This machine's other work can make a pretended GPU slower, never faster.
        assert 0 < value <= rate if rate else value >= 0.002, name
