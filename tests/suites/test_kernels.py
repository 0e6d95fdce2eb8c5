"""Kernels of an old OpenBLAS: never any that the processor cannot run."""

from hypothesis import given
from hypothesis import strategies as st

from dlbench.hardware_probe.instruction_sets import KNOWN
from dlbench.suites import framework, kernels

NEEDS = {
    "": set(),
    "Haswell": {"avx2", "fma"},
    "SkylakeX": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}


@given(st.frozensets(st.sampled_from(sorted(set(KNOWN.values())))))
def test_no_kernels_are_named_that_the_processor_cannot_run(present):
    chosen = kernels.for_instruction_sets(present)
    assert present >= NEEDS[chosen]
    better = list(NEEDS)[list(NEEDS).index(chosen) + 1 :]
    assert not any(present >= NEEDS[name] for name in better)


def test_where_there_is_nothing_to_name_no_variable_is_set(monkeypatch):
    caffe = framework.find("caffe")
    for answer in ("SkylakeX", ""):
        monkeypatch.setattr(framework, "openblas_kernels", lambda answer=answer: answer)
        assert caffe.launch_variables("pthread", 1).get("OPENBLAS_CORETYPE", "") == answer
        assert ("OPENBLAS_CORETYPE" in caffe.launch_variables("pthread", 1)) == bool(answer)
    assert "OPENBLAS_CORETYPE" not in caffe.launch_variables("vendor", 1)
