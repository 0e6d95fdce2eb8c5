"""What is particular to TensorFlow, shown by the guest in TensorFlow's own interpreter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest, check_parameters_come_back_as_they_were_given, guest_of

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(framework_python: Callable[[str], Path], tmp_path: Path) -> Guest:
    """Give a function that runs statements in TensorFlow's interpreter and returns what they bind to ``answer``."""
    return guest_of(
        framework_python("tensorflow"),
        tmp_path,
        "tensorflow",
        "tensorflow",
        "function",
        "import tensorflow as tf",
        TF_CPP_MIN_LOG_LEVEL="3",
    )


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, marks=marks, id=",".join(f"{key}={value}" for key, value in settings.items()))
        for settings, marks in (
            ({"recurrence": "loop"}, pytest.mark.slow),
            ({"inter_op": 2}, pytest.mark.slow),
            ({"compile": True}, pytest.mark.slow),
            ({"compile": True, "recurrence": "loop"}, pytest.mark.slow),
        )
    ],
)
def test_settings_do_not_change_the_mathematics(guest: Guest, settings: dict[str, Any]) -> None:
    plain: dict[str, Any] = {}
    program = """
        answer = {{}}
        for name, network in SMALL.items():
            adapter = make(name, **{settings!r})
            adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
            adapter.set_learning_rate(network.parity.learning_rate)
            losses = []
            for _ in range(network.parity.steps):
                adapter.step()
                losses.append(adapter.last_loss())
            answer[name] = (losses, {{key: value.reshape(-1)[:50].tolist() for key, value in adapter.parameters()}})
    """
    # Two processes: thread counts are fixed at TensorFlow's first operation.
    found, expected = (guest(program.format(settings=chosen)) for chosen in (settings, plain))
    assert set(found) == set(expected)
    for name, (losses, parameters) in expected.items():
        assert found[name][0] == pytest.approx(losses, rel=1e-4), name
        for key, values in parameters.items():
            assert found[name][1][key] == pytest.approx(values, rel=1e-2, abs=1e-3), (name, key)


def test_padding_is_symmetric_whatever_the_stride(guest: Guest) -> None:
    errors = guest("""
        from guest.tensorflow.networks import convolve, max_pool
        random = np.random.RandomState(0)
        answer = []
        for side, kernel, stride, padding in ((9, 3, 1, 1), (8, 3, 2, 1), (11, 5, 2, 2), (10, 7, 2, 3), (7, 1, 2, 0)):
            image = random.rand(1, side, side, 2).astype("float32") - 2
            weight = random.rand(kernel, kernel, 2, 3).astype("float32")
            around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
            padded, low = np.pad(image, around), np.pad(image, around, constant_values=-np.inf)
            out = (side + 2 * padding - kernel) // stride + 1
            wanted = np.zeros((1, out, out, 3)), np.zeros((1, out, out, 2))
            for y in range(out):
                for x in range(out):
                    window = np.s_[:, y * stride : y * stride + kernel, x * stride : x * stride + kernel]
                    wanted[0][:, y, x] = np.einsum("bhwi,hwio->bo", padded[window], weight)
                    wanted[1][:, y, x] = low[window].max((1, 2))
            found = convolve(tf.constant(image), tf.constant(weight), stride, padding)
            pooled = max_pool(tf.constant(image), kernel, stride, padding)
            answer.append(float(np.abs(found.numpy() - wanted[0]).max()))
            answer.append(float(np.abs(pooled.numpy() - wanted[1]).max()))
    """)
    assert max(errors) < 1e-4, errors


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_are_the_cells_whatever_the_environment_says(guest: Guest, threads: int) -> None:
    variables = {"OMP_NUM_THREADS": "3", "TF_NUM_INTRAOP_THREADS": "3", "TF_NUM_INTEROP_THREADS": "3"}
    says, described = guest(
        f"""
        adapter = make("small-dense", threads={threads})
        answer = adapter.effective_threads(), adapter.describe()["inter_op_threads"]
        """,
        **variables,
    )
    assert (says, described) == (threads, 1)


@pytest.mark.parametrize("settings", [{}, {"compile": True}], ids=["function", "xla"])
def test_a_new_rate_takes_effect_at_the_next_step_and_traces_nothing(guest: Guest, settings: dict[str, Any]) -> None:
    moved, traces = guest(f"""
        from guest.tensorflow import networks as built
        traces = []
        loss = built.Model.loss
        built.Model.loss = lambda *given: traces.append(1) or loss(*given)
        adapter = prepared("small-dense", **{settings!r})
        moved = []
        for rate in (0.0, 0.5, 0.0):
            before = dict(adapter.parameters())
            adapter.set_learning_rate(rate)
            adapter.step()
            moved.append(any((value != before[name]).any() for name, value in adapter.parameters()))
        answer = moved, len(traces)
    """)
    assert moved == [False, True, False]
    assert traces == 1


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    recognised = guest("""
        adapter, answer = make("small-dense"), []
        wide = tf.ones([1 << 24])
        for provoke in (
            lambda: tf.broadcast_to(wide, [1 << 20, 1 << 24]),
            lambda: np.empty(1 << 50),
            lambda: tf.matmul(tf.ones([1, 3]), tf.ones([4, 1])),
        ):
            try:
                provoke()
            except Exception as error:
                answer.append((type(error).__name__, str(error)[:80], adapter.is_out_of_memory(error)))
    """)
    assert [memory for _, _, memory in recognised] == [True, True, False], recognised


def test_an_unknown_recurrence_is_refused_with_the_known_ones(guest: Guest) -> None:
    refusal = guest("""
        try:
            answer = make("small-recurrent", recurrence="spiral") and "accepted"
        except ValueError as error:
            answer = str(error)
    """)
    assert "'spiral'" in refusal
    assert "loop, unrolled" in refusal


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest('answer = make("small-dense", threads=2, compile=True).describe()', TF_ENABLE_ONEDNN_OPTS="0")
    assert described["version"].startswith("2.")
    assert described["execution"] == "one tf.function, compiled by XLA"
    assert described["intra_op_threads"] == 2
    assert described["onednn_enabled"] is False


def test_a_gpu_is_refused_in_tensorflows_own_terms(guest: Guest) -> None:
    said = guest("""
        def refused(device="cuda:0", **cell):
            return make("small-dense", device=device, **cell).supports(SMALL["small-dense"])
        answer = [refused("tpu:0"), refused(precision="bfloat16"), refused(placement="pinned")]
        built = {"is_cuda_build": False}
        tf.sysconfig.get_build_info = lambda: built
        answer.append(refused())
        built.update(is_cuda_build=True, cuda_version="12.5")
        built.update(cuda_compute_capabilities=["sm_80", "sm_90", "compute_90"])
        tf.config.list_physical_devices = lambda kind=None: []
        answer.append(refused())
        tf.config.list_physical_devices = lambda kind=None: ["GPU"]
        for capability in ((7, 5), (8, 6), (12, 0)):
            tf.config.experimental.get_device_details = lambda device: {"compute_capability": capability}
            answer.append(refused(precision="tf32"))
    """)
    words = [
        "tpu:0",
        "float32 and tf32 only",
        "placement pinned",
        "no CUDA code",
        "sees no GPU",
        "no kernels for",
        "",
        "",
    ]
    for (supported, reason), part in zip(said, words, strict=True):
        assert supported is (part == "")
        assert part in reason
    assert "--python tensorflow=" in said[3][1]
    assert "compute capability 7.5 (it has sm_80, sm_90, compute_90)" in said[5][1]


TRAINED = """
    from guest.networks import Residual
    def trained(workers, parts, **settings):
        answer = {{}}
        for name, network in SMALL.items():
            # Batch normalisation is each worker's own: only equal inputs give what the whole mini-batch gives.
            equal = (6 // parts, parts) if isinstance(network.family, Residual) else (None, 1)
            cell = Cell("tensorflow", "tensorflow", "function", name, "cpu", 1, 6, world_size=workers)
            adapter = ADAPTER(cell, settings, "unused")
            adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 6, *equal))
            adapter.set_learning_rate(network.parity.learning_rate)
            losses = []
            for _ in range(network.parity.steps):
                adapter.step()
                losses.append(adapter.last_loss())
            values = {{key: value.reshape(-1)[:50].tolist() for key, value in adapter.parameters()}}
            copies = [getattr(variable, "values", [variable]) for variable in adapter._variables.all()]
            alike = all((copy.numpy() == of[0].numpy()).all() for of in copies for copy in of)
            devices = [[part.device[-5:] for part in getattr(each, "values", [each])] for each in adapter._batch]
            answer[name] = losses, values, alike, sorted({{len(of) for of in copies}}), devices
        return answer
    answer = trained({workers}, {parts}, **{settings!r})
"""


@pytest.mark.parametrize(
    ("workers", "settings"),
    [
        (2, {}),
        pytest.param(3, {}, marks=pytest.mark.slow),
        pytest.param(2, {"compile": True, "recurrence": "loop"}, marks=pytest.mark.slow),
    ],
    ids=["two", "three", "two-xla"],
)
def test_several_workers_learn_what_one_learns(guest: Guest, workers: int, settings: dict[str, Any]) -> None:
    # Each in a process of its own: devices are fixed at TensorFlow's first operation.
    found, expected = (guest(TRAINED.format(workers=count, parts=workers, settings=settings)) for count in (workers, 1))
    assert set(found) == set(expected)
    for name, (losses, parameters, *_) in expected.items():
        assert found[name][0] == pytest.approx(losses, rel=1e-5), name
        for key, values in parameters.items():
            assert found[name][1][key] == pytest.approx(values, rel=1e-4, abs=1e-5), (name, key)
        _, _, alike, copies, devices = found[name]
        assert (alike, copies) == (True, [workers]), name
        assert devices == [[f"CPU:{worker}" for worker in range(workers)]] * 2, name


@pytest.mark.parametrize(("workers", "threads"), [(2, 1), (2, 2), (3, 1)])
def test_workers_run_side_by_side_each_on_threads_of_its_own(guest: Guest, workers: int, threads: int) -> None:
    says, seconds = guest(f"""
        from guest import evidence
        wide = networks.Feedforward((768,), tuple(
            networks.Dense("fc%d" % layer, 768, 768, "sigmoid") for layer in range(4)
        ))
        network = networks.Network("wide", wide, 384, 1.0, SMALL["small-dense"].parity, "")
        cell = Cell("tensorflow", "tensorflow", "function", "wide", "cpu", {threads}, 384, world_size={workers})
        adapter = ADAPTER(cell, {{}}, "unused")
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 384))
        for _ in range(3):
            adapter.step()
        before = evidence.snapshot()
        for _ in range(30):
            adapter.step()
        told = evidence.thread_evidence(cell.all_threads, adapter.effective_threads(), before, evidence.snapshot())
        answer = told.framework_says, told.cpu_seconds_by_thread
    """)
    asked = workers * threads
    assert says == asked
    # Seconds on a CPU, not by the clock: however busy the machine is, those who share the work have equal parts of it.
    assert seconds[asked - 1] > 0.5 * seconds[0], seconds
    # With a pool of several threads the one that calls it waits meanwhile; it does what is too small to be shared.
    assert sum(seconds[asked:]) < 0.35 * sum(seconds), seconds
    assert max(seconds[asked:], default=0.0) < 0.75 * seconds[0], seconds


@pytest.mark.parametrize(("device", "reduction"), [("cpu", "ReductionToOneDevice"), ("cuda:0", "NCCL")])
def test_the_engine_of_several_workers_is_named(guest: Guest, device: str, reduction: str) -> None:
    alone, together = guest(f"""
        from guest.tensorflow import gpu
        gpu.describe = dict
        cell = Cell("tensorflow", "tensorflow", "function", "small-dense", {device!r}, 1, 4, world_size=2)
        adapter = ADAPTER(cell, {{"compile": True}}, "unused")
        together = adapter.describe()
        adapter.cell = cell._replace(world_size=1)
        answer = adapter.describe(), together
    """)
    assert "data_parallel" not in alone
    assert alone["execution"] == "one tf.function, compiled by XLA"
    assert together["data_parallel"]["engine"] == "MirroredStrategy"
    assert reduction in together["data_parallel"]["reduction"]
    assert together["execution"] == "one tf.function, gradients compiled by XLA"
    assert together["inter_op_threads"] == 2


def test_too_few_gpus_for_the_workers_are_refused(guest: Guest) -> None:
    said = guest("""
        built = {"is_cuda_build": True, "cuda_version": "12.5", "cuda_compute_capabilities": ["sm_80"]}
        tf.sysconfig.get_build_info = lambda: built
        capabilities = {"first": (8, 0), "second": (8, 6), "old": (7, 5)}
        tf.config.experimental.get_device_details = lambda gpu: {"compute_capability": capabilities[gpu]}
        cell = Cell("tensorflow", "tensorflow", "function", "small-dense", "cuda:0", 1, 4, world_size=2)
        answer = []
        for there in (["first"], ["first", "second"], ["first", "old"], ["first", "second", "old"]):
            tf.config.list_physical_devices = lambda kind=None: there
            answer.append(ADAPTER(cell, {}, "unused").supports(SMALL["small-dense"]))
    """)
    assert [supported for supported, _ in said] == [False, True, False, True]
    assert said[0][1].startswith("world size 2: each worker needs a GPU of its own, and TensorFlow 2.")
    assert said[0][1].endswith("sees 1")
    assert "compute capability 7.5" in said[2][1]


def test_the_copy_of_a_ceiling_is_of_a_tensor_of_its_own(guest: Guest) -> None:
    told = guest("""
        from guest import device_ceilings
        from guest.tensorflow import gpu
        source = gpu.filled(1000, "CPU:0")
        copies = [gpu.copied(source, "CPU:0") for _ in range(2)]
        addresses = {each._numpy().ctypes.data for each in [source] + copies}
        answer = [len(addresses), sum(int(each.shape[0]) * each.dtype.size for each in copies),
                  all(bool((each.numpy() == 1).all()) for each in copies)]
        waited = []
        found = {name: gpu.probe(name, 1000, "CPU:0", lambda: waited.append(1)) for name in device_ceilings.NAMES}
        found["copy"].start()
        found["copy"].wait()
        answer += [sorted(name for name in found if found[name]), len(waited)]
        try:
            gpu.probe("copy", 1000, "GPU:0")  # there is none, and TensorFlow takes the CPU in its place
            answer.append("")
        except Exception as error:
            answer.append(str(error))
    """)
    assert told[:5] == [3, 2000, True, ["copy"], 1]
    assert "GPU:0" in told[5]
