"""One suite over every adapter: the promises of the contract, seen from outside, framework by mode
by network.

Each combination is launched once, in the framework's own interpreter, as the product launches it. A
framework's default mode trains one small network, and PyTorch's one at full size; a further mode
one small network; all other pairs are slow: `test_frameworks.py` has each framework train every
network in one process. A framework that is not built here is skipped with the reason.
DLBENCH_TEST_DEVICE=cuda:0 asks the same of a GPU, with builds that drive it (DLBENCH_PYTHON_TORCH
and so on); what is about CPUs is skipped then.
"""

import os

import pytest
from known_networks import NETWORKS
from one_launch import ALWAYS_BOUND, SHORT, is_tested
from small_networks import BUILD_THEM, OF_FEW, small_networks

from dlbench.adapters import networks
from dlbench.adapters.families import Feedforward
from dlbench.adapters.networks import network_with
from dlbench.adapters.protocol import INSTALLED, Status
from dlbench.reports.results.thread_evidence import wanting_threads
from dlbench.suites.planning.framework import catalogue, find

#: At full size.
USUAL = "lstm32"
#: A network whose rate falls a thousandfold after the parity steps, so that its final loss shows
#: the rate.
REFERRED = "small-recurrent"
#: A machine that is sampled.
SAMPLED = "small-mpm"
#: What the default modes of these train, too; `-m slow` looks at the others.
FURTHER = {"torch": (USUAL,), "numpy": (SAMPLED,)}
#: With the recipes of their families, as a user's own network has.
SMALL = {
    name: network_with(name, table.family, table.batch_size)
    for tables in (small_networks(networks), small_networks(networks, OF_FEW))
    for name, table in tables.items()
}
EVERY = {**SMALL, **NETWORKS}
OF_EACH_FAMILY = (
    *("small-convolutional", "small-residual", "small-recurrent"),
    *("one-hot-gru", "small-elman", "small-attention"),
)
OF_FURTHER_MODES = "small-relu"
#: Modes whose settings `test_frameworks.py` trains with; the first takes half a minute for a step.
ELSEWHERE = (("torch", "compile"), ("torch", "onednn"), ("tensorflow", "xla"), ("jax", "products"))
#: A network for each mode that is about one family alone and refuses the others.
OF_ONE_FAMILY = {("torch", "loop"): "small-elman"}
#: Networks that some frameworks do not build: no such family, no clipping of all gradients
#: together, no such units.
WITHOUT = {
    **dict.fromkeys(("one-hot-gru", "one-hot-rnn"), ("caffe", "equinox")),
    **dict.fromkeys(
        ("small-attention", "gpt32", "gpt64"),
        ("caffe", "cntk", "litert", "onnx", "onnxruntime", "openvino"),
    ),
    "small-elman": ("caffe", "cntk", "equinox"),
    "leaky-elman": ("caffe", "cntk", "equinox", "keras", "mxnet", "paddle"),
    "free-elman": ("caffe", "equinox", "mxnet", "paddle"),
}
#: Mini-batches, with references that are shipped: a step is as right with few examples as with the
#: paper's many.
FEW = {
    "fcn5": 16,
    "fcn8": 16,
    "alexnet": 4,
    "resnet50": 8,
    "lstm32": 32,
    "lstm64": 32,
    "gpt32": 32,
    "gpt64": 32,
}
DEVICE = os.environ.get("DLBENCH_TEST_DEVICE", "cpu")
about_cpus = pytest.mark.skipif(DEVICE != "cpu", reason="it is about the CPU")
two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two CPUs are needed")
#: One thread busy, in CPU seconds per second: above 1 by what the clocks' ticks and helpers may
#: add.
ONE_THREAD = 1.15
#: They train nothing; `test_it_infers_what_the_reference_does_or_refuses` is about them.
INFER_ALONE = ("litert", "openvino")
#: A step of the user's own has no networks.
FRAMEWORKS = {
    name: framework
    for name, framework in catalogue().items()
    if framework.directory.name != "own_step" and name not in INFER_ALONE and is_tested(framework)
}


def marks(framework, slow=False):
    """Return the marks: each framework may run beside the others, each of its launches by
    itself."""
    own = [pytest.mark.framework] if framework.environment == "own" else []
    return [
        pytest.mark.xdist_group(f"conformance of {framework.name}"),
        *own,
        *([pytest.mark.slow] if slow else []),
    ]


def modes(only_default=False):
    """Yield each framework that computes with each of its modes on this device."""
    kind = "cpu" if DEVICE == "cpu" else "gpu"
    for framework in FRAMEWORKS.values():
        for name, mode in framework.modes.items():
            if framework.computes and kind in mode.devices and (mode.default or not only_default):
                yield framework, name


def looked_at(framework, mode):
    """Return the networks that are launched in every run: a launch costs seconds however small its
    network is."""
    if not framework.modes[mode].default:
        further = OF_ONE_FAMILY.get((framework.name, mode), OF_FURTHER_MODES)
        return () if (framework.name, mode) in ELSEWHERE else (further,)
    if framework.outside is not None:
        return ("small-dense", *OF_EACH_FAMILY, USUAL, SAMPLED)
    return (REFERRED, *FURTHER.get(framework.name, ()))


def combinations():
    return [
        pytest.param(
            entry.name, mode, network, marks=marks(entry, network not in looked_at(entry, mode))
        )
        for entry, mode in modes()
        for network in EVERY
    ]


def default_modes(slow=()):
    return [
        pytest.param(entry.name, mode, marks=marks(entry, entry.name in slow))
        for entry, mode in modes(only_default=True)
    ]


def may_refuse(name: str, mode: str, network: str) -> bool:
    """Tell whether a framework may refuse a network: one outside dlbench may, and others where that
    is known."""
    family = EVERY[network].family.name
    of_another = (name, mode) in OF_ONE_FAMILY and EVERY[
        OF_ONE_FAMILY[name, mode]
    ].family.name != family
    # Machines that are sampled, and spikes.
    special = family in ("boltzmann", "mcculloch_pitts", "lif")
    unfit = special and (name not in BUILD_THEM or mode in ("onednn", "compile"))
    return (
        catalogue()[name].outside is not None
        or of_another
        or unfit
        or name in WITHOUT.get(network, ())
    )


@pytest.fixture(scope="module", autouse=True)
def ran():
    """Give which modes gave at least one number, among those of which any launch was looked at."""
    results = {}
    yield results
    # Most adapters drive the CPU only.
    assert any(results.values()) if DEVICE != "cpu" else all(results.values()), (
        f"refused every network: {[name for name, ran in results.items() if not ran]}"
    )


@pytest.fixture(scope="module")
def referred(launch):
    """Give the loss of a launch's last step as the float64 reference has it, the change of rate
    included."""
    return launch("reference", "float64", SMALL[REFERRED]).final_loss


@pytest.mark.parametrize(("name", "mode", "network"), combinations())
def test_it_keeps_the_contract(name, mode, network, launch, ran, request):
    outcome = launch(name, mode, EVERY[network], batch_size=FEW.get(network), device=DEVICE)
    assert outcome.status in (Status.OK, Status.UNSUPPORTED), outcome.reason
    ran[name, mode] = ran.get((name, mode), False) or outcome.status is Status.OK
    if outcome.status is Status.UNSUPPORTED:
        assert DEVICE != "cpu" or may_refuse(name, mode, network), (
            f"{name} refuses {network}: {outcome.reason}"
        )
        assert len(outcome.reason.split()) > 3, "a reader of the matrix needs a sentence"
        assert not outcome.samples_ns
        return
    check_parity(outcome, EVERY[network])
    assert len(outcome.samples_ns) == SHORT.steps
    assert min(outcome.samples_ns) > 0
    assert outcome.first_step_seconds > 0.0
    assert outcome.prepare_seconds >= 0.0
    assert outcome.parameter_count == EVERY[network].family.parameter_count()
    check_description(outcome, catalogue()[name])
    # MindSpore has more threads, which share the CPU that it is bound to; a small network does not
    # occupy a second one.
    if DEVICE == "cpu" and network not in SMALL and name not in ALWAYS_BOUND:
        check_one_thread(outcome)
    if (
        network == REFERRED and DEVICE == "cpu"
    ):  # a GPU warms up for a second, however many steps that is
        # A rate left at the parity steps' would move the loss by more than 1e-3 of itself.
        assert outcome.final_loss == pytest.approx(request.getfixturevalue("referred"), rel=2e-5)


def check_parity(outcome, network=None):
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.parity is not None, outcome.reason
    assert outcome.parity.verdict == "agrees", outcome.parity.reason
    assert network is None or 1 <= len(outcome.parity.losses) <= network.parity.steps


def check_description(outcome, framework):
    assert all(outcome.software[key] for key in ("python", "numpy", "framework", "version"))
    interpreter_is_given = (
        f"DLBENCH_PYTHON_{framework.name.upper().replace('-', '_')}" in os.environ
    )
    if (
        framework.environment == "own"
        and framework.project is not None
        and framework.outside is None
        and not interpreter_is_given
    ):
        # Without a date a report cannot tell old software from new.
        versions = {release.version for release in framework.project.releases}
        assert str(outcome.software["version"]).partition("+")[0] in versions


def check_one_thread(outcome):
    threads = outcome.threads
    assert threads is not None, outcome.reason
    assert threads.requested == 1
    assert threads.framework_says in (None, 1)
    # Thread clocks tick a hundred times a second, so a short region is judged a few ticks more
    # leniently.
    allowance = 0.04 / threads.wall_seconds
    # Threads running or waiting to run at any moment. Two that take turns are one (XLA hands a
    # step's parts from one pool thread to another), so the spread over threads is asked only where
    # other tests, running beside this one, made threads wait that had next to nothing to do.
    beyond_one = (threads.cpu_seconds - max(threads.cpu_seconds_by_thread)) / threads.wall_seconds
    wanting = wanting_threads(threads, outcome.contention)
    assert min(wanting, 1.0 + beyond_one) <= ONE_THREAD + allowance, threads


def installed():
    """Return a network of each kind for every framework with settings, in its default mode; one of
    them is not slow."""
    return [
        # One whose defaults are unlike its settings; PyTorch has them in `test_frameworks.py`.
        pytest.param(
            entry.name,
            mode,
            network,
            marks=marks(entry, not (entry.name == "mxnet" and network == "small-residual")),
        )
        for entry, mode in modes(only_default=True)
        for network in OF_EACH_FAMILY
        if entry.tuning
        and DEVICE == "cpu"
        and entry.tunable(mode, DEVICE, EVERY[network].family.name)
    ]


@pytest.mark.parametrize(("name", "mode", "network"), installed())
def test_as_installed_it_computes_the_same(name, mode, network, launch):
    outcome = launch(name, mode, EVERY[network], tuning=INSTALLED)
    if outcome.status is Status.UNSUPPORTED:
        assert may_refuse(name, mode, network), outcome.reason
    else:
        check_parity(outcome)


#: Forward passes in every run: running statistics, and an operator for a whole recurrent layer.
INFERRED = {"small-residual": None, "small-recurrent": ("litert", "onnx", "openvino", "torch")}


def inferred():
    """Return a network of each kind for every framework in its default mode; few of them are not
    slow."""
    alone = [(entry, entry.default_mode) for entry in map(find, INFER_ALONE) if is_tested(entry)]
    parameters = []
    for entry, mode in (*modes(only_default=True), *alone):
        for network in EVERY:
            frameworks = INFERRED.get(network, ())
            in_every_run = frameworks is None or entry.name in frameworks
            slow = marks(entry, not in_every_run)
            parameters.append(pytest.param(entry.name, mode, network, marks=slow))
    return parameters


@pytest.mark.parametrize(("name", "mode", "network"), inferred())
def test_it_infers_what_the_reference_does_or_refuses(name, mode, network, launch):
    outcome = launch(name, mode, EVERY[network], task="inference", device=DEVICE)
    if outcome.status is Status.UNSUPPORTED:
        assert "task inference" in outcome.reason or may_refuse(name, mode, network), outcome.reason
        assert not outcome.samples_ns
        return
    check_parity(outcome)
    assert 0.0 <= outcome.parity.output_error <= outcome.parity.output_tolerance
    assert (outcome.final_loss, outcome.parity.losses, outcome.parameter_count) == (None, [], None)


@about_cpus
@pytest.mark.parametrize(
    ("name", "mode"), default_modes(slow=[name for name in FRAMEWORKS if name != "torch"])
)
def test_inference_takes_mini_batches_from_a_feed(name, mode, launch):
    outcome = launch(name, mode, SMALL["small-recurrent"], task="inference", placement="fed")
    if outcome.status is Status.UNSUPPORTED:
        assert "task inference" in outcome.reason or "placement fed" in outcome.reason
        return
    check_parity(outcome)
    assert outcome.parity.output_error is not None


@about_cpus
@pytest.mark.parametrize(
    ("name", "mode"), default_modes(slow=["tensorflow"])
)  # which has tests of its own
def test_two_workers_compute_the_same_as_one_or_are_refused(name, mode, launch):
    outcome = launch(name, mode, "lstm32", batch_size=4, world_size=2)
    if outcome.status is Status.UNSUPPORTED:
        assert "world size 2" in outcome.reason
        assert not outcome.samples_ns
        return
    check_parity(outcome)
    assert outcome.parity.losses
    assert outcome.threads.requested == 2
    # Both workers work, whatever processes or threads they are.
    assert sum(1 for seconds in outcome.threads.cpu_seconds_by_thread if seconds > 0.02) >= 2


@about_cpus
@pytest.mark.slow  # a launch of every framework; PyTorch answers for loaders in each run
@pytest.mark.parametrize(("name", "mode"), default_modes())
def test_mini_batches_of_a_loader_compute_the_same_or_are_refused(name, mode, launch):
    outcome = launch(name, mode, SMALL["small-recurrent"], placement="loader", loader_workers=1)
    if outcome.status is Status.UNSUPPORTED:
        assert "placement loader" in outcome.reason
        assert not outcome.samples_ns
        return
    check_parity(outcome)
    assert (outcome.threads.requested, outcome.threads.helpers) == (2, 1)
    assert outcome.threads.framework_says in (None, 2)


@about_cpus
@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), default_modes())
def test_two_workers_average_over_their_batch_normalisations(name, mode, launch):
    """Their parts have the same inputs, so the same statistics, and labels of their own."""
    outcome = launch(name, mode, "resnet50", batch_size=16, world_size=2)
    if outcome.status is Status.UNSUPPORTED:
        pytest.skip(outcome.reason)
    check_parity(outcome)


#: Frameworks whose workers can take steps of their own between two exchanges.
LOCAL_STEPS = ("torch", "jax")


@about_cpus
@pytest.mark.parametrize(
    ("name", "mode", "network"),
    [
        # Each launch takes seconds: one of them in every run.
        pytest.param(
            entry.name,
            mode,
            network,
            marks=marks(entry, (entry.name, network) != ("torch", "small-residual")),
        )
        for entry, mode in modes(only_default=True)
        for network in ("small-residual", "small-relu", "small-elman")
        if entry.name in LOCAL_STEPS
    ],
)
def test_workers_with_local_steps_compute_what_the_reference_does(name, mode, network, launch):
    """Statistics of each worker's own part, kinks, and clipping of its own gradients included."""
    outcome = launch(name, mode, EVERY[network], batch_size=4, world_size=2, sync="local:3")
    check_parity(outcome)
    assert outcome.steps_per_sample % 3 == 0
    assert len(outcome.parity.losses) > 3


#: One whose loss falls to less than half of what it was within 200 steps at the usual rate.
LEARNER = network_with("learner", Feedforward(784, (512,), 10, "relu"), 32)


@about_cpus
@pytest.mark.framework
@pytest.mark.slow  # two launches of several seconds
@pytest.mark.xdist_group("conformance of torch")
def test_asynchronous_workers_are_unchecked_and_learn_as_synchronous_ones_do(launch):
    protocol = SHORT._replace(loss_steps=200)
    results = {
        sync: launch("torch", "eager", LEARNER, world_size=2, sync=sync, protocol=protocol)
        for sync in ("step", "async")
    }
    check_parity(results["step"])
    assert (results["async"].status, results["async"].parity.verdict) == (Status.OK, "unchecked")
    assert "asynchronous" in results["async"].parity.reason
    assert results["async"].software["staleness"]["maximum"] >= 1
    step, asynchronous = (results[sync].losses for sync in ("step", "async"))
    assert step[-1][0] == asynchronous[-1][0] == 200
    assert step[-1][1] < 0.5 * step[0][1]
    assert asynchronous[-1][1] == pytest.approx(step[-1][1], rel=0.05)


@two_cpus
@about_cpus
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(entry.name, mode, marks=marks(entry))
        for entry, mode in modes()
        if entry.name not in ALWAYS_BOUND
    ],
)
def test_two_threads_are_two_threads(name, mode, launch):
    outcome = launch(name, mode, "fcn5", threads=2)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.threads.framework_says in (None, 2)
    busiest, second, *further_threads = [*outcome.threads.cpu_seconds_by_thread, 0.0, 0.0]
    assert second > 0.4 * busiest
    assert sum(further_threads) <= 0.15 * outcome.threads.wall_seconds + 0.04
