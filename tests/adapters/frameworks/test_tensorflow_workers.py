"""Several workers of TensorFlow that train together, shown by the guest in TensorFlow's own interpreter."""

from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest
from small_networks import SMALL

pytestmark = pytest.mark.framework

FRAMEWORK = "tensorflow"

#: Makes ``traces``, which is one longer each time that the loss is traced.
COUNTED = """
from guest.tensorflow import networks as built
traces, loss = [], built.Model.loss
built.Model.loss = lambda *given: traces.append(1) or loss(*given)
"""

TRAINED = """
from guest.reference.adapter import ReferenceAdapter
answer = {{}}
for name in {names} or SMALL:
    network = SMALL[name]
    # Batch normalisation is each worker's own: only equal inputs give what the whole mini-batch gives.
    equal = (6 // {workers}, {workers}) if isinstance(network.family, families.Residual) else (None, 1)
    batch = batches.mini_batch(network, 6, *equal)
    cell = Cell("tensorflow", "tensorflow", "function", name, "cpu", 1, 6, world_size={workers})
    adapter = ADAPTER(cell, {settings!r}, "unused")
    found, expected = [
        small.parity_observation(parity, batches, each, network, batch=batch)
        for each in (adapter, ReferenceAdapter(cell, {{}}, ""))
    ]
    verdict = parity.judge(found, expected, network.parity)
    copies = [getattr(variable, "values", [variable]) for variable in adapter._model.variables.values()]
    alike = all((copy.numpy() == of[0].numpy()).all() for of in copies for copy in of)
    devices = [[part.device[-5:] for part in getattr(each, "values", [each])] for each in adapter._batch]
    answer[name] = verdict.verdict, verdict.reason, alike, sorted({{len(of) for of in copies}}), devices
"""


@pytest.mark.parametrize(
    ("workers", "names", "settings"),
    [
        (2, ["small-dense"], {}),
        pytest.param(2, [], {}, marks=pytest.mark.slow),
        pytest.param(3, [], {}, marks=pytest.mark.slow),
        pytest.param(2, [], {"compile": True, "recurrence": "loop"}, marks=pytest.mark.slow),
    ],
    ids=["two", "two-all", "three", "two-xla"],
)
def test_several_workers_learn_what_one_learns(
    guest: Guest, workers: int, names: list[str], settings: dict[str, Any]
) -> None:
    answers = guest(TRAINED.format(workers=workers, names=names, settings=settings))
    assert len(answers) == len(names or SMALL)
    for name, (verdict, reason, *placed) in answers.items():
        assert verdict == "agrees", (name, reason)
        assert placed == [True, [workers], [[f"CPU:{worker}" for worker in range(workers)]] * 2], name


def test_each_worker_is_reset_to_its_part(guest: Guest) -> None:
    made = 'ADAPTER(Cell("tensorflow", "tensorflow", "function", name, "cpu", 1, 4, world_size=2), {}, "")'
    asked.reset("len(traces)", COUNTED, only=["small-dense", "small-recurrent"], made=made)(guest)


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
    assert said[0][1].startswith("world size 2: each worker needs its own GPU, and TensorFlow 2.")
    assert said[0][1].endswith("sees 1")
    assert "compute capability 7.5" in said[2][1]
