"""One suite over every adapter: what the contract promises, seen from outside, framework by mode by network.

Each combination is launched once, in the framework's own interpreter, as the product launches it; the tests look at
that one outcome. A framework's default mode trains two small networks, and PyTorch's one of each family and one at full
size; a further mode one small network; all other pairs are slow: in `frameworks/` each framework trains every network
in a process of its own. A framework that is not built here is skipped with the reason. DLBENCH_TEST_DEVICE=cuda:0 asks
the same of a GPU, with builds that drive it (DLBENCH_PYTHON_TORCH and so on); what is about CPUs is skipped then.
"""

import os

import pytest
from known_networks import NETWORKS
from one_launch import ALWAYS_BOUND, SHORT
from small_networks import small_networks

from dlbench.adapters import networks
from dlbench.adapters.networks import of_family
from dlbench.adapters.protocol import INSTALLED, Outcome, Status
from dlbench.reports.flags import wanting_threads
from dlbench.suites.planning.framework import catalogue

#: At full size the default modes of these train this one, and adapters outside dlbench; `-m slow` looks at the others.
USUAL = "fcn5"
AT_FULL_SIZE = ("torch",)
#: A network whose rate falls a thousandfold after the parity steps, so that its final loss tells the rate.
REFERRED = "small-recurrent"
#: With the recipes of their families, as a user's own network has.
SMALL = {name: of_family(name, each.family, each.batch_size) for name, each in small_networks(networks).items()}
EVERY = {**SMALL, **NETWORKS}
OF_EACH_FAMILY = (
    "small-convolutional",
    "small-residual",
    "small-recurrent",
    "one-hot-gru",
    "small-elman",
    "small-attention",
)
OF_EACH_FRAMEWORK = ("small-residual", "small-recurrent")
OF_FURTHER_MODES = "small-relu"
#: Modes that take half a minute for their first step.
COMPILED = (("torch", "compile"),)
#: A network for each mode that is about one family alone and refuses the others.
OF_ONE_FAMILY = {("torch", "loop"): "small-elman"}
#: Networks that some frameworks do not build: no such family, no clipping of all gradients together, no such units.
WITHOUT = {
    "one-hot-gru": ("caffe",),
    "one-hot-rnn": ("caffe",),
    "small-attention": ("caffe", "cntk", "onnx", "onnxruntime"),
    "gpt32": ("caffe", "cntk", "onnx", "onnxruntime"),
    "gpt64": ("caffe", "cntk", "onnx", "onnxruntime"),
    "small-elman": ("caffe", "cntk"),
    "leaky-elman": ("caffe", "cntk", "keras", "mxnet", "paddle"),
    "free-elman": ("caffe", "mxnet", "paddle"),
}
#: Mini-batches, with references that are shipped: a step is as right with few examples as with the paper's many.
FEW = {"fcn5": 16, "fcn8": 16, "alexnet": 4, "resnet50": 8, "lstm32": 32, "lstm64": 32, "gpt32": 32, "gpt64": 32}
DEVICE = os.environ.get("DLBENCH_TEST_DEVICE", "cpu")
about_cpus = pytest.mark.skipif(DEVICE != "cpu", reason="it is about the CPU")
#: One thread busy, in CPU seconds per second: above 1 by what the clocks' ticks and helpers may add.
ONE_THREAD = 1.15


def _marks(framework, mode=None, network=None):
    # Each framework may run beside the others, each of its launches by itself.
    marks = [pytest.mark.xdist_group(f"conformance of {framework.name}")]
    if framework.environment == "own":
        marks.append(pytest.mark.framework)
    # A launch costs seconds however small its network is: what a further mode does is seen in one.
    looked_at = (OF_ONE_FAMILY.get((framework.name, mode), OF_FURTHER_MODES),)
    if mode is not None and framework.modes[mode].default:
        looked_at = OF_EACH_FRAMEWORK
        if framework.name in AT_FULL_SIZE or framework.outside is not None:
            looked_at = (*OF_EACH_FAMILY, USUAL)
    if (framework.name, mode) in COMPILED:
        looked_at = ()
    if framework.name == "reference":
        looked_at = OF_EACH_FAMILY
    if network is not None and network not in looked_at:
        marks.append(pytest.mark.slow)
    return marks


def on_the_device(framework):
    kind = "cpu" if DEVICE == "cpu" else "gpu"
    return [name for name, mode in framework.modes.items() if kind in mode.devices]


def _asked_by_tests_of_its_own(framework):
    # As those in `frameworks/` and `historic/` are, by `asked.refusal_of_cells`.
    return framework.environment == "own" and framework.outside is None


def modes(computing=True, only_default=False, asked_elsewhere=True):
    return [
        pytest.param((name, mode), marks=_marks(framework), id=f"{name}-{mode}")
        for name, framework in frameworks().items()
        for mode in on_the_device(framework)
        if (framework.computes or not computing) and (mode == framework.default_mode or not only_default)
        if asked_elsewhere or not _asked_by_tests_of_its_own(framework)
    ]


def combinations():
    return [
        pytest.param((name, mode, network), marks=_marks(framework, mode, network), id=f"{name}-{mode}-{network}")
        for name, framework in frameworks().items()
        if framework.computes
        for mode in on_the_device(framework)
        for network in EVERY
    ]


def frameworks():
    """Return every framework that has networks; a step of the user's own has none."""
    return {name: each for name, each in catalogue().items() if each.directory.name != "own_step"}


def may_refuse(name: str, mode: str, network: str) -> bool:
    """Tell whether a framework may refuse a network: one outside dlbench may, and others what is known of them."""
    family = EVERY[network].family.name
    of_another = (name, mode) in OF_ONE_FAMILY and EVERY[OF_ONE_FAMILY[name, mode]].family.name != family
    return catalogue()[name].outside is not None or of_another or name in WITHOUT.get(network, ())


#: Which modes gave at least one number in this session, among those of which any launch was looked at.
RAN: dict[tuple[str, str], bool] = {}


@pytest.fixture(scope="module")
def launch_of() -> dict[tuple[str, str, str], Outcome]:
    """Give the outcomes of launches that several tests look at."""
    return {}


@pytest.fixture(scope="module", params=combinations())
def answered(request, launch, launch_of) -> tuple[networks.Network, Outcome]:
    name, mode, network = request.param
    if request.param not in launch_of:
        launch_of[request.param] = launch(name, mode, EVERY[network], batch_size=FEW.get(network), device=DEVICE)
    outcome = launch_of[request.param]
    RAN[name, mode] = RAN.get((name, mode), False) or outcome.status is Status.OK
    return EVERY[network], outcome


@pytest.fixture
def launched(answered) -> tuple[networks.Network, Outcome]:
    if answered[1].status is Status.UNSUPPORTED:
        pytest.skip(answered[1].reason)
    return answered


def test_it_runs_or_refuses_with_a_reason(answered, request):
    _, outcome = answered
    assert outcome.status in (Status.OK, Status.UNSUPPORTED), outcome.reason
    if outcome.status is Status.UNSUPPORTED:
        name, mode, network = request.node.callspec.params["answered"]
        assert DEVICE != "cpu" or may_refuse(name, mode, network), f"{name} refuses {network}: {outcome.reason}"
        assert len(outcome.reason.split()) > 3, "a reader of the matrix needs a sentence"
        assert not outcome.samples_ns


def test_it_computes_what_the_reference_computes(launched):
    network, outcome = launched
    assert outcome.parity is not None, outcome.reason
    assert outcome.parity.verdict == "agrees", outcome.parity.reason
    assert 1 <= len(outcome.parity.losses) <= network.parity.steps


def installed():
    """Return a network of each kind for every framework with settings, in its default mode; one of them is not slow."""
    found = []
    for name, framework in frameworks().items():
        mode = framework.default_mode
        kinds = [each for each in OF_EACH_FAMILY if framework.tunable(mode, DEVICE, EVERY[each].family.name)]
        for network in kinds if framework.tuning and DEVICE == "cpu" else ():
            # A launch costs seconds: of those in every run, the ones whose defaults are most unlike their settings.
            looked_at = name in ("torch", "mxnet") and network == "small-residual"
            marks = [*_marks(framework), *([] if looked_at else [pytest.mark.slow])]
            found.append(pytest.param((name, mode, network), marks=marks, id=f"{name}-{mode}-{network}"))
    return found


@pytest.mark.parametrize("which", installed())
def test_as_installed_it_computes_the_same(which, launch):
    name, mode, network = which
    outcome = launch(name, mode, EVERY[network], tuning=INSTALLED)
    if outcome.status is Status.UNSUPPORTED:
        assert may_refuse(name, mode, network), outcome.reason
        return
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.parity.verdict == "agrees", outcome.parity.reason


def test_it_gives_every_sample(launched):
    _, outcome = launched
    assert len(outcome.samples_ns) == SHORT.steps
    assert min(outcome.samples_ns) > 0
    assert outcome.first_step_seconds > 0.0
    assert outcome.prepare_seconds >= 0.0


def test_it_counts_the_networks_parameters(launched):
    network, outcome = launched
    assert outcome.parameter_count == network.family.parameter_count()


@about_cpus
def test_one_thread_is_one_thread(launched, request):
    network, outcome = launched
    if request.node.callspec.params["answered"][0] in ALWAYS_BOUND:
        pytest.skip("it has more threads, which share the CPU that it is bound to: asked by tests of its own")
    if network.name in SMALL:
        pytest.skip("a small network gives a second thread nothing to do")
    threads = outcome.threads
    assert threads is not None, outcome.reason
    assert threads.requested == 1
    assert threads.framework_says in (None, 1)
    # Thread clocks tick a hundred times a second, so a short region is judged a few ticks more leniently.
    allowance = 0.04 / threads.wall_seconds
    # Threads running or waiting to run at any moment. Two that take turns are one (XLA hands a step's parts from one
    # pool thread to another), so the spread over threads is asked only where other tests, running beside this one,
    # made threads wait that had next to nothing to do.
    beyond_one = (threads.cpu_seconds - max(threads.cpu_seconds_by_thread)) / threads.wall_seconds
    wanting = wanting_threads(threads, outcome.contention)
    assert min(wanting, 1.0 + beyond_one) <= ONE_THREAD + allowance, threads


def test_it_says_what_it_is(launched, request):
    _, outcome = launched
    software = outcome.software
    assert software["python"]
    assert software["numpy"]
    assert software["framework"]
    assert software["version"]
    framework = catalogue()[request.node.callspec.params["answered"][0]]
    given = f"DLBENCH_PYTHON_{framework.name.upper().replace('-', '_')}" in os.environ
    if framework.environment == "own" and framework.project is not None and framework.outside is None and not given:
        # Without a date a report cannot tell old software from new.
        known = {release.version for release in framework.project.releases}
        assert str(software["version"]).partition("+")[0] in known


@pytest.fixture(scope="module")
def expected_final_loss(launch, launch_of) -> float:
    """Give the loss of a launch's last step as the float64 reference has it, the change of rate included."""
    which = "reference", "float64", REFERRED
    if which not in launch_of:
        launch_of[which] = launch("reference", "float64", SMALL[REFERRED])
    outcome = launch_of[which]
    assert outcome.status is Status.OK, outcome.reason
    return outcome.final_loss


def test_it_honours_a_new_learning_rate(launched, request):
    network, outcome = launched
    if network.name != REFERRED:
        pytest.skip(f"looked at in {REFERRED}")
    # A rate left at the parity steps' would move the loss by more than 1e-3 of itself.
    assert outcome.final_loss == pytest.approx(request.getfixturevalue("expected_final_loss"), rel=2e-5)


@about_cpus
@pytest.mark.parametrize("which", modes())
def test_it_can_do_something(which):
    if which not in RAN:
        pytest.skip("none of its networks was looked at in this session")
    assert RAN[which], "it refused every network"


@pytest.mark.parametrize("which", modes(only_default=True, asked_elsewhere=False))
def test_what_it_cannot_do_is_an_outcome_with_a_reason(which, launch):
    name, mode = which
    for asked in ({"device": "tpu:0"}, {"precision": "float8"}):
        outcome = launch(name, mode, SMALL["small-dense"], **asked)
        assert outcome.status is Status.UNSUPPORTED
        assert next(iter(asked.values())) in outcome.reason
        assert not outcome.samples_ns


def modes_with_workers():
    """Return the default modes; TensorFlow's workers are tried in every run by tests of their own."""
    return [
        pytest.param(*each.values, marks=(*each.marks, pytest.mark.slow), id=each.id)
        if each.values[0][0] == "tensorflow"
        else each
        for each in modes(only_default=True)
    ]


@about_cpus
@pytest.mark.parametrize("which", modes_with_workers())
def test_two_workers_compute_what_one_does_or_are_refused(which, launch):
    name, mode = which
    outcome = launch(name, mode, "lstm32", batch_size=4, world_size=2)
    if outcome.status is Status.UNSUPPORTED:
        assert "world size 2" in outcome.reason
        assert not outcome.samples_ns
        return
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.parity.verdict == "agrees", outcome.parity.reason
    assert outcome.parity.losses
    assert outcome.threads.requested == 2
    # Both workers work, whatever processes or threads they are.
    assert sum(1 for seconds in outcome.threads.cpu_seconds_by_thread if seconds > 0.02) >= 2


@about_cpus
@pytest.mark.slow
@pytest.mark.parametrize("which", modes(only_default=True))
def test_two_workers_average_what_their_batch_normalisation_lets_them(which, launch):
    """Their parts have the same inputs, so the same statistics, and labels of their own."""
    outcome = launch(*which, "resnet50", batch_size=16, world_size=2)
    if outcome.status is Status.UNSUPPORTED:
        pytest.skip(outcome.reason)
    assert outcome.status is Status.OK, outcome.reason
    assert (outcome.parity.verdict, outcome.parity.reason) == ("agrees", "")


@about_cpus
@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two CPUs are needed to bind two workers")
@pytest.mark.parametrize("which", modes(only_default=True))
def test_two_bound_workers_train_together(which, launch):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    outcome = launch(*which, "lstm32", batch_size=4, world_size=2, cpus=cpus[::-1])
    if outcome.status is Status.UNSUPPORTED:
        pytest.skip(outcome.reason)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.parity.verdict == "agrees", outcome.parity.reason
    assert outcome.cpus == cpus


@about_cpus
@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two CPUs are needed to see two threads work")
@pytest.mark.parametrize("which", modes())
def test_two_threads_are_two_threads(which, launch):
    name, mode = which
    if name in ALWAYS_BOUND:
        pytest.skip("it has more threads, which share the CPUs that it is bound to: asked by tests of its own")
    outcome = launch(name, mode, "fcn5", threads=2)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.threads.framework_says in (None, 2)
    busiest, second, *others = [*outcome.threads.cpu_seconds_by_thread, 0.0, 0.0]
    assert second > 0.4 * busiest
    assert sum(others) <= 0.15 * outcome.threads.wall_seconds + 0.04


def test_a_framework_that_computes_nothing_is_unchecked_not_agreed(launch):
    for name, framework in catalogue().items():
        if framework.computes:
            continue
        outcome = launch(name, framework.default_mode, SMALL["small-dense"])
        assert outcome.status is Status.OK
        assert outcome.parity.verdict == "unchecked"
        assert outcome.parity.reason
        assert len(outcome.samples_ns) == SHORT.steps


def test_every_lock_file_pins_everything():
    for framework in (each for known in catalogue().values() for each in known.by_lock):
        if framework.environment != "own" or framework.unavailable or framework.interpreter:
            continue
        lines = framework.lock_file.read_text().splitlines()
        wanted = [line.split("#")[0].strip() for line in lines]
        wanted = [line for line in wanted if line]
        assert wanted
        for line in wanted:
            requirement = line.split(";")[0].split("--hash")[0]
            assert requirement.count("==") == 1, f"{framework.name}: {line}"
            assert "*" not in requirement
            # A build of one index alone, torch 2.13.0+cpu, needs the plain version as its alternative.
            plain = requirement.partition("+")[0].strip()
            alternatives = [other.split(";")[0].split("--hash")[0].strip() for other in wanted]
            assert "+" not in requirement or plain in alternatives, f"only one package index has {requirement}"
