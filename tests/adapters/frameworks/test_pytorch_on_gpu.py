"""PyTorch on a real GPU: skipped where its interpreter finds none."""

import itertools
from collections.abc import Callable

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "torch"

MODES = {"eager": {}, "compile": {"compile": True}, "graph": {"graph": True}}
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")


#: Whether PyTorch's interpreter finds a GPU, once it was asked: starting it takes seconds.
FOUND: list[bool] = []


@pytest.fixture
def guest(guests: Callable[..., Guest]) -> Guest:
    """Give a function that runs statements in PyTorch's interpreter, or skip where that has no
    GPU."""
    guest = guests("torch")
    if not FOUND:
        FOUND.append(guest("answer = torch.version.cuda is not None and torch.cuda.is_available()"))
    if not FOUND[0]:
        pytest.skip("PyTorch's interpreter finds no CUDA GPU (torch.cuda.is_available)")
    return guest


@pytest.mark.parametrize(("mode", "precision"), list(itertools.product(MODES, PRECISIONS)))
def test_it_trains_as_the_cpu_does_in_float32(guest: Guest, mode: str, precision: str) -> None:
    verdicts = guest(f"""
        answer = {{}}
        for name, network in SMALL.items():
            if {precision!r} != "float32":
                # After one step the trajectories of a normalised network part, as they do in float32 at full size.
                network = network._replace(parity=network.parity._replace(steps=1))
            choices = dict(device="cuda:0", precision={precision!r}, mode={mode!r}, **{MODES[mode]!r})
            supported, reason = make(name, **choices).supports(network)
            if not supported:
                answer[name] = ("refused", reason)
                continue
            on_gpu = small.parity_observation(parity, batches, make(name, **choices), network, 4)
            expected = small.parity_observation(parity, batches, make(name), network, 4)
            allowance = parity.allowance(network, {precision!r})
            verdict = parity.judge(on_gpu, expected, network.parity, allowance)
            answer[name] = (verdict.verdict, verdict.reason)
    """)
    assert {verdict for verdict, _ in verdicts.values()} <= {"agrees", "refused"}, verdicts
    assert "agrees" in {verdict for verdict, _ in verdicts.values()} or (mode, precision) == (
        "graph",
        "float16",
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "placement", ["resident", "pinned", pytest.param("pageable", marks=pytest.mark.slow)]
)
def test_each_step_reads_the_mini_batch_where_the_cell_says(
    guest: Guest, mode: str, placement: str
) -> None:
    """A change in the host's memory reaches the next step, unless the mini-batch is resident."""
    first, second = guest(f"""
        network = SMALL["small-convolutional"]
        adapter = make(network.name, device="cuda:0", placement={placement!r}, mode={mode!r}, **{MODES[mode]!r})
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
        adapter.set_learning_rate(0.0)
        answer = []
        for _ in range(2):
            adapter.step(); adapter.synchronize()
            answer.append(adapter.last_loss())
            if hasattr(adapter, "_on_device"):
                adapter._held[0].zero_()
    """)
    assert (first == second) is (placement == "resident")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("placement", ["resident", "pinned", "pageable"])
def test_after_a_reset_it_is_as_fresh(guest: Guest, mode: str, placement: str) -> None:
    only = ["small-dense", "small-convolutional", "small-recurrent"]
    same = (
        "[tensor.data_ptr() for tensor in [*adapter._training.module.parameters(), *adapter._held]]"
    )
    asked.reset(same, only=only, device="cuda:0", mode=mode, placement=placement, **MODES[mode])(
        guest
    )


@pytest.mark.parametrize("mode", MODES)
def test_each_step_takes_its_own_mini_batch_from_the_host(guest: Guest, mode: str) -> None:
    asked.feeding(
        ["small-convolutional", "small-recurrent"], device="cuda:0", mode=mode, **MODES[mode]
    )(guest)


@pytest.mark.parametrize("mode", MODES)
def test_events_and_memory_agree_with_what_is_known(guest: Guest, mode: str) -> None:
    answers = guest(f"""
        import time
        wide = families.Feedforward(4096, (4096,), 4096, "relu")
        network = SMALL["small-dense"]._replace(family=wide)
        adapter = make("small-dense", device="cuda:0", mode={mode!r}, **{MODES[mode]!r})
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4096))
        adapter.set_learning_rate(0.0)
        for _ in range(5):
            adapter.step(); adapter.synchronize()
        adapter.reset_device_peak_memory()
        start = time.perf_counter()
        earlier = adapter.event()
        for _ in range(20):
            adapter.step()
        later = adapter.event()
        adapter.synchronize()
        wall = time.perf_counter() - start
        held = sum(value.size for _, value in adapter.parameters()) * 4
        answer = dict(wall=wall, events=adapter.event_nanoseconds(earlier, later) * 1e-9, held=held,
                      peak=adapter.device_peak_memory(), name=adapter.device_name(), gpu=adapter.describe()["gpu"])
    """)
    assert answers["events"] == pytest.approx(answers["wall"], rel=0.05)
    assert answers["peak"] > 2 * answers["held"]  # parameters and gradients at least
    assert answers["name"] == answers["gpu"]["device"]
