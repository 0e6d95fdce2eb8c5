"""What is particular to CNTK, shown by the guest in CNTK's own interpreter."""

import asked_of_frameworks as asked
import pytest
from inside import Guest

pytestmark = pytest.mark.framework

FRAMEWORK = "cntk"


def test_padding_is_symmetric_whatever_the_stride(guest: Guest) -> None:
    layers = """
from guest.cntk import networks as ours
def evaluated(image, build):
    held = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    inputs = cntk.input_variable(held.shape[1:])
    return [build(inputs).eval({inputs: held}).transpose(0, 2, 3, 1)]
def convolved(image, weight, stride, padding):
    filters = np.ascontiguousarray(weight.transpose(3, 2, 0, 1))
    sizes = dict(kernel=weight.shape[0], stride=stride, padding=padding)
    spec = families.Layer("convolution", "c", norm="n", **sizes)
    functions = ours.CntkFunctions(None, {"c.weight": filters})
    return evaluated(image, lambda inputs: functions.convolution(spec, inputs))
def pooled(image, kernel, stride, padding):
    return evaluated(image, lambda inputs: ours.max_pool(inputs, kernel, stride, padding))
"""
    cases = [(15, 5, 2, 2), (16, 3, 2, 1), (14, 3, 4, 1), (12, 7, 4, 3), (19, 11, 4, 2), (10, 4, 3, 1), (9, 2, 2, 0)]
    asked.check_padding_is_symmetric(guest, layers, cases)


def test_threads_are_cntks_word_and_no_more_than_there_are_cpus(guest: Guest) -> None:
    """What was asked for and not given is seen in the framework's word."""
    said, cpus = guest("""
        answer = [make("small-dense", threads=asked).effective_threads() for asked in (1, 2, 4096)]
        answer = answer, len(os.sched_getaffinity(0))
    """)
    assert said == [min(asked, cpus) for asked in (1, 2, 4096)]
