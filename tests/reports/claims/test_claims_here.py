"""The claims of papers on made-up records: each that dlbench can measure holds on some, and fails
on others."""

import itertools
from collections.abc import Callable

import factory_of_records as make
import pytest
from records_of_claims import CLAIMS, here, small, tables_of, timed

from dlbench.adapters.protocol import BOUND, Status
from dlbench.reports.claims.claims import ClaimVerdict, try_claims

FCNS, CNNS, RNNS = ("fcn5", "fcn8"), ("alexnet", "resnet50"), ("lstm32", "lstm64")
NETWORKS = (*FCNS, *CNNS, *RNNS)
REPRODUCES, DIFFERS, NOT_MEASURED = (
    ClaimVerdict.REPRODUCES,
    ClaimVerdict.DIFFERS,
    ClaimVerdict.NOT_MEASURED,
)
GPU = {"device": "cuda:0", "threads": 1}
ON_GPU = {"device": "cuda:0"}


def on_gpu(
    tool: str, seconds: float, networks: tuple[str, ...], **of_cell: object
) -> list[make.Record]:
    return [
        record
        for network in networks
        for record in timed(tool, seconds, network, **{**GPU, **of_cell})
    ]


def on_cpu(
    tool: str, seconds: dict[int, float], networks: tuple[str, ...], **more: object
) -> list[make.Record]:
    records = []
    for network in networks:
        for threads, time in seconds.items():
            records += timed(tool, time, network, threads=threads, **more)
    return records


def exchanging(step: float, local: float, shared: float) -> list[make.Record]:
    """Launches of two workers that exchange at every step, after local steps, and without
    waiting."""
    seconds_of = {"step": step, "local:4": local, "local:16": local, "async": shared}
    records = []
    for sync, seconds in seconds_of.items():
        records += timed("torch", seconds, "fcn5", world_size=2, sync=sync)
    return records


def failed(
    tool: str, status: Status, networks: tuple[str, ...], **of_cell: object
) -> list[make.Record]:
    cells = (timed(tool, 1.0, network, **of_cell)[0].cell for network in networks)
    return [make.hole(status, "it ended", **cell._asdict()) for cell in cells]


def loads(seconds: float, workers: int, storage: str = "cache") -> list[make.Record]:
    return on_cpu(
        "torch", {1: seconds}, CNNS, placement="loader", loader_workers=workers, storage=storage
    )


def fed(seconds: float, placement: str) -> list[make.Record]:
    return on_gpu("torch", seconds, CNNS, placement=placement)


def chains(count: int, cpu: float, gpu: float) -> list[make.Record]:
    """So many chains of a Boltzmann machine, on the CPU and on a GPU."""
    where = {"network": "bm-d256-sequential", "batch_size": count}
    return [*timed("torch", cpu, threads=2, **where), *timed("torch", gpu, **GPU, **where)]


Time = Callable[[int, int, int, str], float]


def study(
    time: Time, hidden: tuple[int, ...], steps: tuple[int, ...] = (20,), **more: object
) -> list[make.Record]:
    """Launches of a grid, whose seconds follow from units, steps, inputs and activation."""
    inputs, activations = more.pop("inputs", (2,)), more.pop("activations", ("relu",))
    records = []
    for n, t, i, phi in itertools.product(hidden, steps, inputs, activations):
        records += small(time(n, t, i, phi), n, t, i, phi, **more)
    return records


LITTLE, MUCH = {4: 1.0, 16: 0.9}, {4: 1.0, 16: 0.3}
ONCE = {1: 1.0}
GAINS, SUFFERS = {4: 1.0, 8: 0.8}, {2: 0.9, 4: 1.0, 8: 1.5}
RESNET = ("resnet50",)
SMALL, RNN = (20, 100), (20, 100, 200)
EVEN = study(lambda *_: 1e-3, (100,), inputs=(2, 100))
GROWING = study(lambda n, *_: n / 1e3, RNN, threads=4)
RELU, BOTH = {"relu": 1.0, "sigmoid": 1.2}, {"activations": ("relu", "sigmoid")}


@pytest.mark.parametrize(
    ("claim", "records", "cores", "expected"),
    [
        ("A1", on_cpu("torch", LITTLE, NETWORKS), 16, REPRODUCES),
        ("A1", on_cpu("torch", MUCH, NETWORKS), 16, DIFFERS),
        # Every tool that was measured counts, not the four of the paper alone.
        (
            "A1",
            [*on_cpu("torch", LITTLE, FCNS), *on_cpu("mxnet", MUCH, FCNS)],
            16,
            ClaimVerdict.PARTLY,
        ),
        ("A1", on_cpu("torch", LITTLE, NETWORKS), 8, NOT_MEASURED),
        (
            "A8",
            [
                *failed("caffe", Status.CRASHED, FCNS, threads=8),
                *failed("torch", Status.TIMED_OUT, FCNS, threads=8),
            ],
            4,
            REPRODUCES,
        ),
        ("A8", [*on_cpu("caffe", {8: 1.0}, FCNS), *on_cpu("torch", {8: 1.0}, FCNS)], 4, DIFFERS),
        # An environment that is not there tells nothing.
        ("A8", failed("caffe", Status.SKIPPED, FCNS, threads=8), 4, NOT_MEASURED),
        ("A9", on_cpu("tensorflow", GAINS, NETWORKS), 4, REPRODUCES),
        ("A9", on_cpu("tensorflow", SUFFERS, NETWORKS), 4, DIFFERS),
        ("A10", on_cpu("torch", GAINS, NETWORKS), 4, DIFFERS),
        # As many threads as these are none too many on a larger machine.
        ("A10", on_cpu("torch", SUFFERS, NETWORKS), 8, NOT_MEASURED),
        ("A11", on_cpu("torch", {2: 1.0, 4: 60.0, 8: 70.0}, RESNET), 4, REPRODUCES),
        ("A11", on_cpu("torch", {2: 1.0, 4: 2.0, 8: 2.0}, RESNET), 4, ClaimVerdict.IN_DIRECTION),
        ("A11", on_cpu("torch", {2: 1.0, 4: 0.6, 8: 0.6}, RESNET), 4, DIFFERS),
        ("A11", on_cpu("torch", {2: 1.0, 4: 60.0}, RESNET), 2, NOT_MEASURED),
        ("W1", on_cpu("torch", SUFFERS, FCNS), 4, REPRODUCES),
        ("W1", on_cpu("torch", GAINS, FCNS), 4, DIFFERS),
        (
            "W2",
            [*on_gpu("torch", 1.0, CNNS), *on_gpu("torch", 0.9, CNNS, world_size=2)],
            4,
            REPRODUCES,
        ),
        (
            "W2",
            [*on_gpu("torch", 1.0, CNNS), *on_gpu("torch", 1.2, CNNS, world_size=2)],
            4,
            DIFFERS,
        ),
        ("W4", exchanging(1.0, 0.6, 0.8), 4, REPRODUCES),
        ("W4", exchanging(1.0, 1.5, 1.2), 4, DIFFERS),
        ("M1", [*chains(1, 1.0, 5.0), *chains(1024, 1.0, 0.2)], 4, REPRODUCES),
        ("M1", [*chains(1, 1.0, 0.5), *chains(1024, 1.0, 2.0)], 4, DIFFERS),
        (
            "G4",
            [*on_gpu("torch", 1.0, CNNS), *on_gpu("torch", 1.5, CNNS, placement="pageable")],
            4,
            REPRODUCES,
        ),
        (
            "G4",
            [*on_gpu("torch", 1.0, CNNS), *on_gpu("torch", 1.0, CNNS, placement="pageable")],
            4,
            DIFFERS,
        ),
        (
            "G4",
            [*on_cpu("torch", ONCE, CNNS), *loads(1.5, 0), *loads(1.1, 1), *loads(2.0, 0, "disk")],
            4,
            REPRODUCES,
        ),
        ("G4", [*on_cpu("torch", ONCE, CNNS), *loads(1.0, 0), *loads(1.2, 1)], 4, DIFFERS),
        (
            "W3",
            [*on_gpu("torch", 1.0, CNNS), *fed(1.5, "fed"), *fed(1.0, "prefetched")],
            4,
            REPRODUCES,
        ),
        (
            "W3",
            [*on_gpu("torch", 1.0, CNNS), *fed(1.5, "fed"), *fed(1.4, "prefetched")],
            4,
            ClaimVerdict.PARTLY,
        ),
        ("W3", [*on_cpu("torch", ONCE, CNNS), *loads(1.5, 0)], 4, NOT_MEASURED),
        (
            "B1",
            [*study(lambda *_: 1e-3, SMALL), *study(lambda *_: 0.9e-3, SMALL, placement="fed")],
            4,
            REPRODUCES,
        ),
        (
            "B1",
            [*study(lambda *_: 1e-3, SMALL), *study(lambda *_: 1.1e-3, SMALL, placement="fed")],
            4,
            DIFFERS,
        ),
        # A thread for each core is what is poor.
        ("B4", [*GROWING, *study(lambda *_: 1e-3, RNN, threads=1)], 4, REPRODUCES),
        ("B4", [*GROWING, *study(lambda *_: 1e-3, RNN, threads=1)], 8, NOT_MEASURED),
        ("B8", EVEN, 4, REPRODUCES),
        ("B8", study(lambda n, t, i, phi: 1e-3 * i, (100,), inputs=(2, 100)), 4, DIFFERS),
        ("B9", study(lambda n, t, i, phi: 1 / RELU[phi], (100,), **BOTH), 4, REPRODUCES),
        ("B9", study(lambda n, t, i, phi: RELU[phi], (100,), **BOTH), 4, DIFFERS),
    ],
)
def test_a_claim_holds_on_some_launches_and_fails_on_others(
    claim: str, records: list[make.Record], cores: int, expected: ClaimVerdict
) -> None:
    assert here(claim, records, cores=cores).verdict is expected


@pytest.mark.parametrize(
    ("claim", "tool", "networks"), [("A2", "caffe", FCNS), ("A3", "tensorflow", CNNS)]
)
def test_the_fastest_on_gpus(claim: str, tool: str, networks: tuple[str, ...]) -> None:
    rivals = [rival for rival in ("caffe", "cntk", "tensorflow", "torch") if rival != tool]
    slower = [record for rival_tool in rivals for record in on_gpu(rival_tool, 2.0, networks)]
    assert here(claim, [*slower, *on_gpu(tool, 1.0, networks)]).verdict is REPRODUCES
    assert here(claim, [*slower, *on_gpu(tool, 3.0, networks)]).verdict is DIFFERS
    # A faster tool that the paper does not have is of no matter; without any of the others nothing
    # is fastest.
    assert (
        here(claim, [*slower, *on_gpu(tool, 1.0, networks), *on_gpu("jax", 0.1, networks)]).verdict
        is REPRODUCES
    )
    assert here(claim, on_gpu(tool, 1.0, networks)).verdict is NOT_MEASURED


def test_gpus_are_known_by_their_models() -> None:
    names = ("NVIDIA GeForce GTX 1080", "NVIDIA GeForce GTX 980", "Tesla K80")
    times = (1.0, 1.5, 3.0)
    records = [
        record
        for index, seconds in enumerate(times)
        for record in on_gpu("torch", seconds, CNNS, device=f"cuda:{index}")
    ]
    assert here("A7", records, gpus=names).verdict is REPRODUCES
    evidence = here("A16", records, gpus=names)
    assert (evidence.verdict, evidence.of) == (REPRODUCES, 4)
    assert (
        here(
            "A7", records, gpus=("NVIDIA GeForce GTX 980", "NVIDIA GeForce GTX 1080", "Tesla K80")
        ).holds
        < 4
    )
    another = ("NVIDIA GeForce GTX 1080 Ti", *names[1:])
    assert here("A7", records, gpus=another).verdict is NOT_MEASURED


def test_claims_over_mini_batches() -> None:
    sizes = (64, 128, 256)
    caffe = [record for size in sizes for record in on_gpu("caffe", 1.0, FCNS, batch_size=size)]
    torch = []
    for size in sizes:
        seconds = 2.0 if size < 256 else 0.5
        torch += on_gpu("torch", seconds, FCNS, batch_size=size)
    evidence = here("A17", [*caffe, *torch])
    assert (evidence.verdict, evidence.of) == (REPRODUCES, 4)  # 256 is no matter
    growing = [
        record for size in sizes for record in on_gpu("torch", size / 64, FCNS, batch_size=size)
    ]
    assert here("A19", growing).verdict is REPRODUCES
    assert here("A19", caffe).verdict is ClaimVerdict.INCONCLUSIVE
    lstm = ("lstm64",)
    for seconds, expected in ((1.0, REPRODUCES), (2.0, DIFFERS)):
        sizes_of_two = [
            *on_gpu("torch", 1.0, lstm, batch_size=256),
            *on_gpu("torch", seconds, lstm, batch_size=512),
        ]
        assert here("A19", sizes_of_two).verdict is expected


def test_claims_about_the_largest_mini_batch_in_memory() -> None:
    oom = Status.OUT_OF_MEMORY
    ends = (("caffe", 16), ("cntk", 32), ("torch", 64))
    as_said = [
        record
        for tool, size in ends
        for record in failed(tool, oom, RESNET, **GPU, batch_size=size)
    ]
    fits = on_gpu("tensorflow", 1.0, RESNET, batch_size=64)
    assert here("A18", [*as_said, *fits]).verdict is REPRODUCES
    large = [record for tool, size in ends for record in on_gpu(tool, 1.0, RESNET, batch_size=size)]
    evidence = here(
        "A18", [*large, *failed("tensorflow", oom, RESNET, **GPU, batch_size=128), *fits]
    )
    assert (evidence.verdict, evidence.of) == (DIFFERS, 4)


def test_the_fastest_mode_stands_for_a_tool_and_other_conditions_for_none() -> None:
    def of(mode: str, seconds: float, **more: object) -> list[make.Record]:
        return [
            record
            for network in RNNS
            for record in timed("torch", seconds, network, threads=4, mode=mode, **more)
        ]

    tensorflow = on_cpu("tensorflow", {4: 12.0}, RNNS)
    evidence = here(
        "A6",
        [*tensorflow, *of("eager", 3.0), *of("compile", 1.0), *of("bound", 0.1, affinity=BOUND)],
    )
    assert [
        round(question.found.value)
        for question, _ in evidence.figures
        if question.found is not None
    ] == [12, 12]
    # Another build of the framework is the same tool; one by the name alone is not.
    own = [
        record
        for network in RNNS
        for record in timed("torch", 1.0, network, threads=4, framework="mine")
    ]
    assert here("A6", [*tensorflow, *own]).verdict is REPRODUCES
    alone = [
        record
        for network in RNNS
        for record in timed("torch", 1.0, network, threads=4, adapter="of-mine")
    ]
    assert here("A6", [*tensorflow, *alone]).verdict is NOT_MEASURED


def test_of_an_empty_store_nothing_is_told_and_every_claim_says_what_it_needs() -> None:
    report = try_claims(list(CLAIMS.values()), tables_of([]))
    assert {tried.here.verdict for tried in report.tried} == {NOT_MEASURED}
    for tried in report.tried:
        assert tried.claim.needs or tried.claim.measure, tried.claim.id
        # What a test asks for a command measures, and nothing else.
        assert bool(tried.claim.measure) is (bool(tried.claim.figures)), tried.claim.id


@pytest.mark.parametrize(
    ("claim", "exponent", "expected"),
    [
        ("B2", 0.9, REPRODUCES),
        ("B2", 0.4, DIFFERS),
        ("B2", 1.2, DIFFERS),
        ("B3", 0.02, REPRODUCES),
        ("B3", 0.5, DIFFERS),
        ("B4", 1.0, REPRODUCES),
        ("B4", 0.1, DIFFERS),
        ("B7", 1.1, REPRODUCES),
        ("B7", -0.9, ClaimVerdict.IN_DIRECTION),
        ("B7", 2.3, DIFFERS),
        ("B14", 1.5, REPRODUCES),
        ("B14", 0.5, DIFFERS),
    ],
)
def test_growth_with_steps_and_units(claim: str, exponent: float, expected: ClaimVerdict) -> None:
    over_steps = claim == "B2"
    where = {} if claim in ("B2", "B4", "B14") else ON_GPU

    def time(n: int, t: int, i: int, phi: str) -> float:
        return 1e-3 * (t if over_steps else n) ** exponent

    hidden = (20, 100, 200) if claim in ("B2", "B3", "B4") else (500, 1000, 2000, 5000)
    evidence = here(claim, study(time, hidden, (20, 100), threads=4, **where))
    assert evidence.of >= 2
    assert evidence.verdict is expected


@pytest.mark.parametrize(("at_1000", "expected"), [(0.5, REPRODUCES), (2.0, ClaimVerdict.PARTLY)])
def test_where_the_gpu_begins_to_win(at_1000: float, expected: ClaimVerdict) -> None:
    cpu = study(lambda n, *_: 1.0, (100, 500, 1000, 5000), threads=2)
    gpu = study(
        lambda n, *_: {1000: at_1000, 5000: 0.12}.get(n, 3.0), (100, 500, 1000, 5000), **ON_GPU
    )
    # What other frameworks do on a CPU, and slower thread counts, are of no matter.
    more = [
        *study(lambda *_: 9.0, (1000,), threads=1),
        *study(lambda *_: 1e-6, (100, 1000), framework="jax"),
    ]
    assert here("B5", [*cpu, *gpu, *more]).verdict is expected
    gain = here("B6", [*cpu, *gpu, *more])
    assert (gain.verdict, gain.of) == (REPRODUCES, 1)
    assert here("B12", [*cpu, *gpu]).verdict is NOT_MEASURED
    tiny = [*study(lambda *_: 1.0, (10, 50)), *study(lambda *_: 2.0, (10, 50), **ON_GPU)]
    assert here("B12", tiny).verdict is REPRODUCES
