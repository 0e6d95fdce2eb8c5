"""What the host makes of a launch's claims: physics and clocks, without any guest."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_networks import NETWORKS
from processes import null_cell

from dlbench.adapters.protocol import Answer, Contention, Status, ThreadEvidence
from dlbench.hardware_probe import probe
from dlbench.reports.results.clocks import others_explain_clocks
from dlbench.reports.results.outcome import HostObservation, LaunchVerdict, TurnObservation
from dlbench.suites.run.judge import Limits, implausible, limits_of
from dlbench.suites.run.launcher import Launched

#: Without ceilings: 64 operations a cycle at 6.5 GHz.
MACHINE = probe()
LIMITS = Limits(None, 2, 64 * 6.5e9, 32 * 1024**2)
STEPS = 20
#: What was measured with one thread.
CEILING = {
    "threads": 1,
    "gemm_flops_per_second": 100e9,
    "bandwidth_bytes_per_second": 10e9,
    "gemm_samples": [100e9, 98e9, 99e9],
    "bandwidth_samples": [10e9],
    "gemm_order": 4096,
    "gemm_cpus_busy": 1.0,
    "bandwidth_cpus_busy": 1.0,
    "cpus_available": 2.0,
    "array_bytes": 10**8,
    "numpy": "2",
    "blas": None,
    "blas_threads": 1,
}


def claim(step=1.0, **changes):
    """Return a launch of fcn5 in which all that was seen fits the step's seconds; ``changes`` spoil
    it."""
    reported = changes.pop("reported", step)
    cell = null_cell(framework="torch", adapter="pytorch", **changes.pop("cell", {}))
    network = NETWORKS[changes.pop("network", "fcn5")]
    cpu = changes.pop("reported_cpu", STEPS * step)
    answer = Answer(
        Status.OK,
        samples_ns=[int(reported * 1e9)] * STEPS,
        threads=ThreadEvidence(cell.threads, 1, 1, cpu, STEPS * step, None),
        contention=Contention(0.0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0),
    )
    outside = HostObservation(
        timed_seconds=STEPS * step,
        timed_cpu_seconds=STEPS * step,
        check_steps=1,
        check_rounds=1,
        reset_seconds=0.2,
        reset_cpu_seconds=0.2,
        steps_seconds=step,
        steps_cpu_seconds=step,
        read_seconds=0.1,
        read_cpu_seconds=0.1,
    )
    limits, telemetry = changes.pop("limits", LIMITS), changes.pop("telemetry", None)
    launched = Launched(
        LaunchVerdict(Status.OK), answer=answer, outside=outside._replace(**changes)
    )
    return cell, network, launched, limits, telemetry


def reason(evidence, computes=True):
    return implausible(*evidence, computes)


@pytest.mark.parametrize("network", sorted(NETWORKS))
@pytest.mark.parametrize("step", [0.5, 2.0, 60.0])
def test_an_honest_launch_is_believed(network, step):
    assert reason(claim(step, network=network, cell={"batch_size": 16})) == ""


def test_a_check_may_be_shorter_or_longer_where_others_work_ahead():
    short = {"steps_seconds": 0.001, "steps_cpu_seconds": 0.0}
    assert "its work was done elsewhere" in reason(claim(**short, cell={"placement": "fed"}))
    assert reason(claim(**short, cell={"placement": "prefetched"})) == ""
    assert reason(claim(**short, cell={"placement": "loader", "loader_workers": 1})) == ""
    longer = {"steps_seconds": 4.5, "steps_cpu_seconds": 4.5}
    assert "right after, in the parity check" in reason(claim(**longer, cell={"placement": "fed"}))
    assert reason(claim(**longer, cell={"placement": "loader", "loader_workers": 1})) == ""
    longer = {"steps_seconds": 6.0, "steps_cpu_seconds": 6.0}
    assert "right after, in the parity check" in reason(
        claim(**longer, cell={"placement": "prefetched"})
    )


@given(
    slower=st.floats(1.0, 1.6),
    reported=st.floats(0.9, 1.0),
    step=st.floats(0.5, 30.0),
    cpu=st.floats(0.93, 1.07),
)
def test_noise_is_not_taken_for_a_lie(slower, reported, step, cpu):
    evidence = claim(
        step, reported=reported * step, steps_seconds=slower * step, reported_cpu=cpu * STEPS * step
    )
    assert reason(evidence) == ""


GPU, HALF = {"device": "cuda:0"}, {"precision": "bfloat16"}


@pytest.mark.parametrize(
    ("evidence", "complaint"),
    [
        # Others on the CPUs make the check long by the clock, and not in CPU time.
        (claim(steps_seconds=20.0), ""),
        (
            claim(steps_seconds=20.0, steps_cpu_seconds=20.0),
            "right after, in the parity check, 20 s",
        ),
        (claim(steps_seconds=0.001, steps_cpu_seconds=0.0), "its work was done elsewhere"),
        # The timed steps met others for all of their time, and those of the check did not.
        (claim(steps_seconds=0.31, steps_cpu_seconds=0.31), ""),
        # The timed steps were disturbed: their CPU time says that they did no more than those of
        # the check.
        (claim(steps_seconds=0.3, steps_cpu_seconds=0.9), ""),
        # Samples on a busy machine may lie apart, a second at most.
        (claim(reported=0.83, timed_waiting_seconds=0.5), ""),
        (claim(reported=0.83), "the host's clock saw"),
        (claim(reported=0.5, timed_waiting_seconds=15.0), "the host's clock saw"),
        (claim(1e-3), "1 thread can do 416 GFLOP/s at most on this machine"),
        (claim(1e-3), "of CPU time for 20 steps, which need"),
        # Of 2 CPUs no more than 2 count.
        (claim(1e-3, cell={"threads": 4}), "4 threads can do 832 GFLOP/s at most on this machine"),
        (
            claim(timed_cpu_seconds=0.1, reported_cpu=0.1, steps_cpu_seconds=0.0),
            "its processes used 0.1 s of CPU time for 20 steps, which need",
        ),
        # Hidden helpers and made-up CPU time.
        (claim(timed_cpu_seconds=40.0), "it reports 20 s of CPU time, and the host saw 40 s"),
        (claim(reported_cpu=40.0), "it reports 40 s"),
        # Keras placed and read 118 million weights like this, under a quota on a slow host.
        (
            claim(reset_cpu_seconds=3.4, reset_seconds=3.4, read_cpu_seconds=0.7, read_seconds=0.7),
            "",
        ),
        # Work left undone shows where weights are copied.
        (claim(reset_cpu_seconds=19.0, reset_seconds=19.0), "timed steps were still running"),
        (claim(read_cpu_seconds=19.0, read_seconds=19.0), "timed steps were still running"),
        (claim(1e-2, limits=None), ""),
        (claim(5e-2, cell=HALF), ""),
        (claim(1e-4, cell=HALF), "GFLOP/s"),
        (claim(1e-4, cell=GPU), "no GPU reaches 200"),
        (claim(1e-4, cell={**GPU, "precision": "float16"}), ""),
        # Its work takes next to no CPU time: there the clock alone tells of a check that takes
        # longer.
        (
            claim(
                cell=GPU,
                timed_cpu_seconds=0.1,
                reported_cpu=0.1,
                steps_seconds=5.0,
                steps_cpu_seconds=0.01,
            ),
            "right after, in the parity check, 5 s",
        ),
    ],
)
def test_a_claim_is_believed_or_refused_with_the_figures_of_both_sides(evidence, complaint):
    assert complaint in reason(evidence)
    assert bool(complaint) == bool(reason(evidence))


@pytest.mark.parametrize("reported", [0.25, 0.5, 0.8, 1.1, 4.0])
def test_a_clock_that_lies_is_seen(reported):
    assert "the host's clock saw 20 s" in reason(claim(reported=reported))
    assert "the host's clock saw" in reason(claim(reported=reported), computes=False)


def test_other_programs_are_named_where_the_clocks_differ():
    busy = TurnObservation(10.0, 10.0, 0.0, busy_seconds=25.0)
    why = reason(claim(reported=0.5, turns=[busy] * 2))
    assert "other programs used 1.5 CPUs and may be the cause" in why
    quiet = TurnObservation(10.0, 10.0, 0.0, busy_seconds=10.0)
    assert "other programs" not in reason(claim(reported=0.5, turns=[quiet] * 2))


BUSY_TURN = TurnObservation(10.0, 3.0, 7.0, busy_seconds=18.0)


@pytest.mark.parametrize(
    ("cpu_seconds", "turn", "reported", "believed"),
    [
        # Others ran between its samples, and it computed nothing there.
        (9.0, BUSY_TURN, 0.5, True),
        # It computed between its samples.
        (11.0, BUSY_TURN, 0.5, False),
        # No other program ran.
        (9.0, TurnObservation(10.0, 3.0, 7.0, busy_seconds=3.0), 0.5, False),
        # Samples that are longer than the host's clock are invented whatever else runs.
        (9.0, BUSY_TURN, 1.1, False),
    ],
)
def test_on_a_busy_machine_the_clocks_may_decide_nothing(cpu_seconds, turn, reported, believed):
    evidence = claim(
        reported=reported,
        timed_cpu_seconds=cpu_seconds,
        reported_cpu=cpu_seconds,
        steps_cpu_seconds=cpu_seconds / STEPS,
        turns=[turn] * 2,
    )
    assert (reason(evidence) == "") is believed
    cell, _, launched, *_ = evidence
    assert others_explain_clocks(cell, launched.outcome()) is believed


def test_warm_up_found_later_counts_as_time():
    cell, network, launched, *more = claim()
    answer = launched.answer._replace(
        samples_ns=[10**9] * 5, warmup_ns=[7] * 3 + [10**9] * 15, evidence_steps=STEPS
    )
    assert reason((cell, network, replace(launched, answer=answer), *more)) == ""


def test_convolutions_may_need_fewer_operations():
    family = NETWORKS["alexnet"].family
    least = family.training_flops(64) / 416e9
    assert reason(claim(0.5 * least, network="alexnet")) == ""
    assert "GFLOP/s" in reason(claim(0.2 * least, network="alexnet"))


def test_the_limits_are_the_measured_ceilings_and_never_more_than_instructions_allow():
    bare = limits_of(MACHINE, None)
    assert bare.flops(1) in (32 * 6.5e9, 64 * 6.5e9)
    measured = replace(limits_of(MACHINE, {"measured": [CEILING]}), cpus=2)
    assert measured.flops(1) == pytest.approx(100e9 * 1.3 * 1.05)
    assert measured.bandwidth(1) == pytest.approx(10.5e9)
    # Where the ceiling of two threads was disturbed, that of one limits one CPU and not two.
    assert measured.flops(2) == measured.flops(4) == pytest.approx(2 * measured.flops(1))
    assert measured.bandwidth(2) == pytest.approx(2 * 10.5e9)
    of_two = {**CEILING, "threads": 2, "gemm_flops_per_second": 150e9, "gemm_samples": [150e9]}
    of_two |= {"gemm_cpus_busy": 2.0, "bandwidth_cpus_busy": 2.0}
    of_both_ceilings = replace(limits_of(MACHINE, {"measured": [CEILING, of_two]}), cpus=2)
    assert (
        of_both_ceilings.flops(2) == of_both_ceilings.flops(4) == pytest.approx(150e9 * 1.3 * 1.05)
    )
    too_high = limits_of(MACHINE, {"measured": [{**CEILING, "gemm_flops_per_second": 1e15}]})
    assert too_high.flops(1) == bare.flops(1)
    doubtful = limits_of(MACHINE, {"measured": [{**CEILING, "gemm_cpus_busy": 0.3}]})
    assert (doubtful.ceilings, doubtful.flops(1)) == (None, bare.flops(1))


def test_weights_that_no_cache_holds_pass_through_memory():
    limits = replace(limits_of(MACHINE, {"measured": [CEILING]}), cache_bytes=32 * 1024**2)
    cell = {"batch_size": 1}
    assert "GB/s, and the memory's measured bandwidth is 10.5 GB/s" in reason(
        claim(0.09, cell=cell, limits=limits)
    )
    assert reason(claim(0.12, cell=cell, limits=limits)) == ""
    assert reason(claim(0.09, cell=cell, limits=replace(limits, cache_bytes=10**9))) == ""


def sampled(utilisation):
    """Return the driver's samples of a GPU in the 20 seconds of the timed steps."""
    at = [0.5 * turn for turn in range(41)]
    return {
        "schema": 1,
        "origin": 0.0,
        "gpu": {"uuid": "GPU-1", "name": "A GPU", "power_limit_watts": 700.0, "part": False},
        "samples": {"at": at, "utilisation": [utilisation] * len(at)},
        "slow_samples": {"at": []},
        "processes": None,
        "notes": [],
    }


def test_a_gpu_is_held_against_what_gpus_do_and_against_what_its_driver_saw():
    cell, network, launched, limits, _ = claim(cell=GPU, timed_cpu_seconds=1.0, reported_cpu=1.0)
    launched = replace(launched, answer=launched.answer._replace(timed_between=[0.0, 20.0]))
    assert reason((cell, network, launched, limits, sampled(60))) == ""
    idle = reason((cell, network, launched, limits, sampled(0)))
    assert idle == "the driver saw the GPU idle for all of the 20 s in which steps were timed"


def under(quota, step=1.0, threads=2, **changes):
    return reason(claim(step, cell={"threads": threads, "cpu_quota": quota}, **changes))


def test_a_launch_gets_no_more_than_its_quota():
    assert under(1.0) == ""
    assert under(0.5, timed_cpu_seconds=10.5, reported_cpu=10.5, steps_cpu_seconds=0.5) == ""
    output = under(0.5)
    assert (
        "its processes used 20 s of CPU time in 20 s under a CPU quota of 0.5: some of them left"
        in output
    )
    # Two CPUs would do it, half of one does not.
    fast = {
        "timed_cpu_seconds": 0.6,
        "reported_cpu": 0.6,
        "steps_cpu_seconds": 0.03,
        "steps_seconds": 0.06,
    }
    assert "GFLOP/s" not in under(2.0, 0.06, **fast)
    assert "2 threads under a CPU quota of 0.05 can do" in under(0.05, 0.06, **fast)


def test_with_its_own_threads_a_launch_may_use_every_cpu():
    assert "2 threads can do 832 GFLOP/s" in reason(claim(1e-3, cell={"threads": 0}))
