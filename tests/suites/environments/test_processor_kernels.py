"""Kernels of an old OpenBLAS: never any that the processor cannot run. Programs: each kind of processor its own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.hardware_probe import probe_cpu
from dlbench.hardware_probe.cpu import KNOWN
from dlbench.suites.environments import folders, processor_kernels
from dlbench.suites.planning import framework

NEEDS = {
    "": set(),
    "Haswell": {"avx2", "fma"},
    "SkylakeX": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}


@given(st.frozensets(st.sampled_from(sorted(set(KNOWN.values())))))
def test_no_kernels_are_named_that_the_processor_cannot_run(present):
    chosen = processor_kernels.for_instruction_sets(present)
    assert present >= NEEDS[chosen]
    better = list(NEEDS)[list(NEEDS).index(chosen) + 1 :]
    assert not any(present >= NEEDS[name] for name in better)


def test_where_there_is_nothing_to_name_no_variable_is_set(monkeypatch):
    caffe = framework.find("caffe")
    for answer in ("SkylakeX", ""):
        monkeypatch.setattr(framework, "openblas_kernels", lambda answer=answer: answer)
        assert caffe.launch_variables("pthread", 1).get("OPENBLAS_CORETYPE", "") == answer
        assert ("OPENBLAS_CORETYPE" in caffe.launch_variables("pthread", 1)) == bool(answer)
    assert "OPENBLAS_CORETYPE" not in caffe.launch_variables("pthread", 1, chosen=())


@pytest.mark.parametrize("change", [{"model": "Another"}, {"instruction_sets": ("avx2",)}, {"model_number": "255"}])
def test_another_kind_of_processor_keeps_its_own_programs(monkeypatch, change):
    found = framework.find("jax")
    here = folders.cache_directory(found)
    cpu = replace(probe_cpu(), affinity=(0,), quota_cpus=0.5)
    try:
        for same, changes in ((True, {}), (False, change)):
            processor_kernels.processor.cache_clear()
            monkeypatch.setattr(processor_kernels, "probe_cpu", lambda changes=changes: replace(cpu, **changes))
            assert (folders.cache_directory(found) == here) is same
            assert folders.cache_directory(found).parent == here.parent
    finally:
        processor_kernels.processor.cache_clear()
