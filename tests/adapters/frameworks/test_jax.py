"""What is particular to JAX, shown by the guest in JAX's own interpreter."""

from pathlib import Path

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "jax"


def test_kept_programs_are_found_again_by_the_next_process_with_as_many_threads(
    guest: Guest, tmp_path: Path
) -> None:
    program = """
        os.environ["NPROC"] = "%s"
        adapter = prepared("small-dense")
        adapter.step(); adapter.synchronize()
        folder = adapter.describe()["kept_programs"]
        answer = folder, {name: os.path.getmtime(os.path.join(folder, name))
                          for name in os.listdir(folder) if name.endswith("-cache")}
    """
    folder, times_by_file = guest(program % 1)
    assert Path(folder).is_relative_to(tmp_path)
    assert times_by_file
    assert guest(program % 1) == [folder, times_by_file]
    assert guest(program % 2)[0] != folder


def test_a_gpu_is_refused_in_jaxs_own_terms(guest: Guest) -> None:
    output = guest("""
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
    words = [
        "tpu:0",
        "no scaling of the loss",
        "precision float8",
        "placement on tape",
        "no plugin for CUDA is installed",
    ]
    asked.check_reasons(output[:5], words)
    assert "--python jax=" in output[4][1]
    assert "with xla_cuda13 cannot use the GPU: " in output[5][1]


@pytest.mark.slow
def test_bfloat16_trains_as_float32_does_but_for_its_rounding(guest: Guest) -> None:
    """XLA's CPU back end computes it too, though no cell there asks for it."""
    asked.check_bfloat16_is_float32_but_for_its_rounding(guest, guest("answer = list(SMALL)"))


def test_workers_without_a_device_or_a_way_to_train_together_are_refused(guest: Guest) -> None:
    output = guest("""
        from guest.jax import devices
        def refused(workers, device="cuda:0", sync="step"):
            cell = Cell("jax", "jax", "jit", "small-dense", device, 1, 4, world_size=workers, sync=sync)
            return ADAPTER(cell, {"keep_programs": False}, "").supports(SMALL["small-dense"])
        answer = [refused(2, "cpu")]
        devices.gpu_plugins = lambda: ["xla_cuda12"]
        gpu = types.SimpleNamespace(compute_capability="9.0")
        devices.find_devices = lambda name: [gpu]
        answer += [refused(1), refused(2)]
        del jax.shard_map
        answer.append(refused(2, "cpu"))
        answer.append(refused(2, "cpu", "async"))
    """)
    asked.check_reasons(
        output,
        [
            "",
            "",
            "each worker needs its own device, and JAX sees 1",
            "jax.shard_map",
            "cannot share parameters",
        ],
    )
