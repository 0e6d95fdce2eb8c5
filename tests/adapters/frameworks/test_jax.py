"""What is particular to JAX, shown by the guest in JAX's own interpreter."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inside import Guest, check_parameters_come_back_as_they_were_given, guest_of

pytestmark = pytest.mark.framework


@pytest.fixture
def guest(framework_python: Callable[[str], Path], tmp_path: Path) -> Guest:
    """Give a function that runs statements in JAX's interpreter and returns what they bind to ``answer``."""
    return guest_of(framework_python("jax"), tmp_path, "jax", "jax", "jit", "import jax", NPROC="1")


def test_parameters_come_back_as_they_were_given(guest: Guest) -> None:
    check_parameters_come_back_as_they_were_given(guest)


@pytest.mark.parametrize("pointwise", ["convolution", "product"])
def test_small_networks_train_as_the_reference_does(guest: Guest, pointwise: str) -> None:
    errors = guest(f"""
        from guest.reference.adapter import ReferenceAdapter
        answer = {{}}
        for name, network in SMALL.items():
            cell = Cell("reference", "reference", "", name, "cpu", 1, 4)
            expected = small.parity_observation(parity, batches, ReferenceAdapter(cell, {{}}, ""), network, 4)
            found = small.parity_observation(parity, batches, make(name, pointwise={pointwise!r}), network, 4)
            verdict = parity.judge(found, expected, network.parity)
            answer[name] = (verdict.verdict, verdict.reason)
    """)
    assert {verdict for verdict, _ in errors.values()} == {"agrees"}, errors


def test_padding_is_symmetric_whatever_the_stride(guest: Guest) -> None:
    errors = guest("""
        from guest.jax.networks import CONVOLUTIONS, max_pool
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
            for convolve in CONVOLUTIONS.values():
                found = convolve(jax.numpy.array(image), jax.numpy.array(weight), stride, padding)
                answer.append(float(np.abs(np.asarray(found) - wanted[0]).max()))
            pooled = max_pool(jax.numpy.array(image), kernel, stride, padding)
            answer.append(float(np.abs(np.asarray(pooled) - wanted[1]).max()))
    """)
    assert max(errors) < 1e-4, errors


def test_an_unknown_way_of_writing_convolutions_is_refused_with_the_known_ones(guest: Guest) -> None:
    refusal = guest("""
        try:
            answer = make("small-residual", pointwise="spiral") and "accepted"
        except ValueError as error:
            answer = str(error)
    """)
    assert "'spiral'" in refusal
    assert "convolution, product" in refusal


def test_a_step_updates_the_parameters_in_their_own_buffers(guest: Guest) -> None:
    given_away, kept = guest("""
        adapter = prepared("small-dense")
        before = dict(adapter._parameters)
        places = {value.unsafe_buffer_pointer() for value in before.values()}
        adapter.step(); adapter.synchronize()
        after = {value.unsafe_buffer_pointer() for value in adapter._parameters.values()}
        answer = all(value.is_deleted() for value in before.values()), places == after
    """)
    assert given_away
    assert kept


def test_a_new_rate_takes_effect_at_the_next_step_and_compiles_nothing(guest: Guest) -> None:
    moved, programs = guest("""
        adapter = prepared("small-dense")
        moved = []
        for rate in (0.0, 0.5, 0.0):
            before = {name: value.copy() for name, value in adapter.parameters()}
            adapter.set_learning_rate(rate)
            adapter.step()
            moved.append(any((value != before[name]).any() for name, value in adapter.parameters()))
        answer = moved, adapter._step._cache_size()
    """)
    assert moved == [False, True, False]
    assert programs == 1


def test_a_step_is_dispatched_and_synchronise_waits_for_it(guest: Guest) -> None:
    queued, waited = guest("""
        import time
        n = networks
        wide = n.Feedforward((2048,), (n.Dense("fc1", 2048, 4096, "relu"), n.Dense("fc2", 4096, 2048, "none")))
        network = SMALL["small-dense"]._replace(family=wide)
        adapter = make("small-dense")
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 256))
        adapter.step(); adapter.synchronize()
        queued, waited = [], []
        for _ in range(7):
            start = time.perf_counter(); adapter.step(); queued.append(time.perf_counter() - start)
            adapter.synchronize(); waited.append(time.perf_counter() - start)
        answer = sorted(queued)[3], sorted(waited)[3]
    """)
    assert waited > 2 * queued


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_pool_has_the_threads_of_nproc(guest: Guest, threads: int) -> None:
    described = guest(
        """
        adapter = prepared("small-dense")
        adapter.step(); adapter.synchronize()
        answer = adapter.describe()
        """,
        NPROC=str(threads),
    )
    assert described["pool_threads"] == threads


def test_the_framework_has_no_word_on_its_threads(guest: Guest) -> None:
    assert guest('answer = make("small-dense").effective_threads()') is None


def test_kept_programs_are_found_again_by_the_next_process_with_as_many_threads(guest: Guest, tmp_path: Path) -> None:
    program = """
        import os
        adapter = prepared("small-dense")
        adapter.step(); adapter.synchronize()
        folder = adapter.describe()["kept_programs"]
        answer = folder, {name: os.path.getmtime(os.path.join(folder, name))
                          for name in os.listdir(folder) if name.endswith("-cache")}
    """
    folder, kept = guest(program)
    assert Path(folder).is_relative_to(tmp_path)
    assert kept
    assert guest(program) == [folder, kept]
    assert guest(program, NPROC="2")[0] != folder


def test_without_the_setting_nothing_is_kept(guest: Guest, tmp_path: Path) -> None:
    guest('adapter = prepared("small-dense", keep_programs=False); adapter.step(); adapter.synchronize(); answer = 0')
    assert not (tmp_path / "cache").exists()


def test_a_failed_allocation_is_recognised(guest: Guest) -> None:
    recognised = guest("""
        adapter, answer = prepared("small-dense"), []
        for provoke in (
            lambda: jax.jit(lambda: jax.numpy.ones(1 << 45))().block_until_ready(),
            lambda: np.empty(1 << 50),
            lambda: jax.numpy.ones((3, 3)) @ jax.numpy.ones((4, 4)),
        ):
            try:
                provoke()
            except Exception as error:
                answer.append((type(error).__name__, str(error)[:200], adapter.is_out_of_memory(error)))
    """)
    assert [memory for _, _, memory in recognised] == [True, True, False], recognised


def test_capabilities_are_asked_of_the_framework(guest: Guest) -> None:
    found: dict[str, Any] = guest('answer = make("small-dense").capabilities()')
    assert {key: answer for key, (answer, _) in found.items()} == {
        "gpu": False,
        "automatic_gradients": True,
        "several_processes": True,
    }
    assert all(how for _, how in found.values())


def test_the_description_names_what_decides_speed(guest: Guest) -> None:
    described = guest('answer = prepared("small-dense").describe()', XLA_FLAGS="--xla_cpu_prefer_vector_width=512")
    assert described["version"] == described["jaxlib"] == "0.10.2"
    assert described["xla_flags"] == "--xla_cpu_prefer_vector_width=512"
    assert described["matmul_precision"] == "highest"
    assert described["float64_enabled"] is False
    assert described["platform"] == "cpu"


def test_a_gpu_is_refused_in_jaxs_own_terms(guest: Guest) -> None:
    said = guest("""
        from guest.jax import devices
        def refused(device="cuda:0", **cell):
            return make("small-dense", device=device, **cell).supports(SMALL["small-dense"])
        answer = [refused("tpu:0"), refused(precision="float16"), refused(precision="float8"),
                  refused(placement="on tape")]
        devices.gpu_plugins = lambda: []
        answer.append(refused())
        devices.gpu_plugins = lambda: ["xla_cuda13"]  # a plugin that does not find its GPU
        answer.append(refused())
    """)
    assert not any(supported for supported, _ in said)
    words = [
        "tpu:0",
        "no scaling of the loss",
        "precision float8",
        "placement on tape",
        "no plugin for CUDA is installed",
    ]
    for (_, reason), part in zip(said, words, strict=False):
        assert part in reason
    assert "--python jax=" in said[4][1]
    assert "with xla_cuda13 cannot use the GPU: " in said[5][1]


def test_a_gpu_too_old_for_a_precision_is_said(guest: Guest) -> None:
    said = guest("""
        import types
        from guest.jax import devices
        devices.gpu_plugins = lambda: ["xla_cuda12"]
        answer = []
        for capability, precision in (("7.5", "tf32"), ("7.5", "float32"), ("9.0", "bfloat16"), ("9.0", "tf32")):
            devices.find_device = lambda name: types.SimpleNamespace(compute_capability=capability)
            answer.append(make("small-dense", device="cuda:1", precision=precision).supports(SMALL["small-dense"]))
    """)
    assert [supported for supported, _ in said] == [False, True, True, True]
    assert said[0][1] == "precision tf32: it needs compute capability 8.0, and this GPU has 7.5"


@pytest.mark.slow
def test_bfloat16_trains_as_float32_does_but_for_its_rounding(guest: Guest) -> None:
    """XLA's CPU back end computes it too, though no cell there asks for it.

    One step: after it the trajectories of a normalised network part, as they do in float32 at full size.
    """
    verdicts = guest("""
        answer = {}
        for name, network in SMALL.items():
            network = network._replace(parity=network.parity._replace(steps=1))
            found, expected = [
                small.parity_observation(parity, batches, make(name, precision=precision), network, 4)
                for precision in ("bfloat16", "float32")
            ]
            verdict = parity.judge(found, expected, network.parity, parity.allowance(network, "bfloat16"))
            answer[name] = (verdict.verdict, verdict.reason, verdict.update_error)
    """)
    assert {verdict for verdict, _, _ in verdicts.values()} == {"agrees"}, verdicts
    assert all(error > 1e-4 for _, _, error in verdicts.values()), "it computed in float32 all the same"


@pytest.mark.parametrize("placement", ["pinned", "pageable"])
def test_a_mini_batch_on_the_host_trains_as_a_resident_one(guest: Guest, placement: str) -> None:
    same = guest(f"""
        network = SMALL["small-convolutional"]
        found, expected = [
            small.parity_observation(parity, batches, make(network.name, placement=where), network, 4)
            for where in ({placement!r}, "resident")
        ]
        answer = found.losses == expected.losses and all(
            np.array_equal(found.updates[name], expected.updates[name]) for name in expected.updates
        )
    """)
    assert same


#: Gives ``team(network, workers, examples)``, an adapter of so many workers, and ``trained``, what it then learnt. The
#: first one made in a process decides how many devices JAX makes of the CPU.
TEAMS = """
def team(name, workers, examples, threads=1, **further):
    cell = Cell("jax", "jax", "jit", name, "cpu", threads, examples, world_size=workers, **further)
    return ADAPTER(cell, {"keep_programs": False}, "")

def trained(name, workers, examples, repeated=None, label_sets=1, **further):
    network, adapter = SMALL[name], team(name, workers, examples, **further)
    weights = batches.initial_weights(network)
    before = parity.sample_weights(weights)
    adapter.prepare(network, weights, batches.mini_batch(network, examples, repeated, label_sets))
    adapter.set_learning_rate(network.parity.learning_rate)
    losses = []
    for _ in range(network.parity.steps):
        adapter.step()
        losses.append(adapter.last_loss())
    return adapter, parity.observe(adapter.parameters(), before, losses)
"""


def of_workers(guest: Guest, statements: str, **variables: str) -> Any:
    """Carry out statements with the functions of `TEAMS` at hand."""
    return guest(TEAMS + textwrap.dedent(statements), **variables)


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_train_together_as_one_does(guest: Guest, workers: int) -> None:
    """Normalised networks get equal inputs in each part, and other labels: each worker normalises its own by itself."""
    verdicts = of_workers(
        guest,
        f"""
        answer = {{}}
        for name, network in SMALL.items():
            parts = (2, {workers}) if name == "small-residual" else (None, 1)
            found = trained(name, {workers}, 2 * {workers}, *parts)[1]
            expected = trained(name, 1, 2 * {workers}, *parts)[1]
            verdict = parity.judge(found, expected, network.parity)
            answer[name] = (verdict.verdict, verdict.reason)
        """,
    )
    assert len(verdicts) == 5
    assert {verdict for verdict, _ in verdicts.values()} == {"agrees"}, verdicts


@pytest.mark.parametrize("placement", ["pinned", "pageable"])
def test_workers_take_their_parts_from_the_host_as_well(guest: Guest, placement: str) -> None:
    same = of_workers(
        guest,
        f"""
        found = trained("small-recurrent", 2, 4, placement={placement!r})[1]
        expected = trained("small-recurrent", 2, 4)[1]
        answer = found.losses == expected.losses and all(
            np.array_equal(found.updates[name], expected.updates[name]) for name in expected.updates
        )
        """,
    )
    assert same


def test_each_worker_keeps_its_own_parameters_and_its_part_of_the_mini_batch_alone(guest: Guest) -> None:
    found = of_workers(
        guest,
        """
        adapter = trained("small-recurrent", 2, 6)[0]
        tokens = batches.mini_batch(SMALL["small-recurrent"], 6).inputs
        parts = [np.asarray(each.data) for each in adapter._batch[0].addressable_shards]
        before = adapter._parameters
        places = lambda: {
            piece.data.unsafe_buffer_pointer()
            for value in adapter._parameters.values() for piece in value.addressable_shards
        }
        earlier = places()
        adapter.step(); adapter.synchronize()
        text = adapter._step.lower(adapter._parameters, adapter._rate, *adapter._batch).compile().as_text()
        answer = {
            "parts": all(np.array_equal(part, tokens[3 * at : 3 * at + 3].T) for at, part in enumerate(parts)),
            "copies": len(earlier) == 2 * len(before),
            "in place": earlier == places(),
            "given away": all(value.is_deleted() for value in before.values()),
            "meetings": text.count(" all-reduce(") + text.count(" all-gather("),
            "description": adapter.describe(),
        }
        """,
    )
    assert [found[what] for what in ("parts", "copies", "in place", "given away")] == [True] * 4
    assert found["meetings"] == 1, "the workers should meet once a step, for the gradients and the loss"
    told = found["description"]["data_parallel"]
    assert told["engine"] == "jit over a mesh of 2 devices"
    assert len(told["devices"]) == 2


@pytest.mark.parametrize(("workers", "threads"), [(2, 1), (2, 2), (3, 1)])
def test_all_workers_together_have_the_threads_that_each_was_promised(guest: Guest, workers: int, threads: int) -> None:
    described, kept = of_workers(
        guest,
        f"""
        adapter = team("small-dense", {workers}, 6, threads={threads})
        network = SMALL["small-dense"]
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 6))
        adapter.step(); adapter.synchronize(); adapter.multiply(8)()
        answer = adapter.describe(), jax.device_count()
        """,
        NPROC=str(threads),
    )
    assert described["pool_threads"] == workers * threads
    assert kept == workers


def test_flags_given_to_xla_are_kept_beside_those_of_workers(guest: Guest) -> None:
    read = 'team("small-dense", 2, 4); import os; answer = os.environ["XLA_FLAGS"]'
    added, own = "--xla_cpu_collective_call_terminate_timeout_seconds", "--xla_cpu_prefer_vector_width=512"
    assert of_workers(guest, read, XLA_FLAGS=own).startswith(f"{own} {added}=")
    assert of_workers(guest, read, XLA_FLAGS=f"{added}=90") == f"{added}=90"


def test_one_worker_alone_is_started_as_ever(guest: Guest) -> None:
    described, count, environment = of_workers(
        guest,
        """
        import os
        before = dict(os.environ)
        adapter = trained("small-dense", 1, 4, threads=2)[0]
        answer = adapter.describe(), jax.device_count(), before == dict(os.environ)
        """,
    )
    assert "data_parallel" not in described
    assert described["pool_threads"] == count == 1
    assert environment, "the variables are the host's to set"


def test_workers_without_a_device_or_a_way_to_train_together_are_refused(guest: Guest) -> None:
    said = of_workers(
        guest,
        """
        import types
        from guest.jax import devices, parallel
        small = SMALL["small-dense"]
        answer = [team("small-dense", 2, 4).supports(small)]
        devices.gpu_plugins = lambda: ["xla_cuda12"]
        gpu = types.SimpleNamespace(compute_capability="9.0")
        devices.find_devices = lambda name: [gpu]
        for workers in (1, 2):
            cell = Cell("jax", "jax", "jit", "small-dense", "cuda:0", 1, 4, world_size=workers)
            answer.append(ADAPTER(cell, {"keep_programs": False}, "").supports(small))
        del jax.shard_map
        answer.append(team("small-dense", 2, 4).supports(small))
        """,
    )
    assert [supported for supported, _ in said] == [True, True, False, False]
    assert said[2][1] == "world size 2: each worker needs a device of its own, and JAX sees 1"
    assert "0.10.2" in said[3][1]
    assert "jax.shard_map" in said[3][1]


def test_the_peak_of_several_devices_is_the_largest(guest: Guest) -> None:
    assert guest("""
        from types import SimpleNamespace
        from guest.jax.devices import peak_memory_bytes
        told = lambda stats: SimpleNamespace(memory_stats=lambda: stats)
        kept = [told({"peak_bytes_in_use": size}) for size in (3, 7, 5)]
        answer = peak_memory_bytes(kept), peak_memory_bytes([told(None)]), peak_memory_bytes(kept[:1] + [told({})])
    """) == [7, None, 3]


def test_each_copy_moves_all_bytes_from_where_to_where_its_name_says(guest: Guest) -> None:
    told = guest("""
        import jax, numpy
        from guest.libraries import device_ceilings
        from guest.jax import ceilings, devices
        device = devices.find_device("cpu")
        puts, results = [], {}
        real = jax.device_put
        def remembered(value, target, **more):
            found = real(value, target, **more)
            puts.append([type(value).__name__ == "ndarray", getattr(value, "sharding", None), target.memory_kind])
            results["array"] = found
            return found
        jax.device_put = remembered
        answer = {}
        for name in device_ceilings.NAMES:
            probe = ceilings.probe(name, 1000, device)
            if probe is None:
                answer[name] = None
                continue
            del puts[:]
            probe.start()
            probe.wait()
            moves = [[plain, getattr(home, "memory_kind", None), kind] for plain, home, kind in puts]
            answer[name] = [moves, results["array"].nbytes, bool((numpy.asarray(results["array"]) == 1).all())]
    """)
    assert told == {
        "copy": [[], 1000, True],  # by a program, not from one memory to another
        "to_device_pinned": [[[False, "pinned_host", "device"]], 1000, True],
        "to_device_pageable": [[[True, None, "device"]], 1000, True],
        "from_device_pinned": [[[False, "device", "pinned_host"]], 1000, True],
        "from_device_pageable": None,
        "operator": None,
    }


def test_a_copy_on_the_device_is_of_an_array_of_its_own(guest: Guest) -> None:
    told = guest("""
        import jax
        from guest.libraries import device_ceilings
        from guest.jax import ceilings, devices
        program = jax.jit(jax.numpy.copy).lower(jax.ShapeDtypeStruct((1000,), "uint8")).compile().as_text()
        adapter = prepared("small-dense")
        probe = adapter.device_probe("copy", 1000)
        copied = ceilings._copies(1000, devices.find_device("cpu"))[device_ceilings.COPY]()
        first, second = copied(), copied()
        apart = first.unsafe_buffer_pointer() != second.unsafe_buffer_pointer()
        answer = ["copy(" in program, device_ceilings.seconds_in_a_row(probe) > 0, apart, first.nbytes]
        answer.append(bool((first == 1).all()))
    """)
    assert told == [True, True, True, 1000, True]
