"""Profiles, and the libraries below frameworks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.libraries import blas, profiles
from dlbench.adapters.libraries.profiles import (
    COMMUNICATION,
    CONVOLUTION,
    ELEMENTWISE,
    FUSED,
    MATRIX,
    MEMORY,
    NORMALISATION,
    OTHER,
    RECURRENT,
    REDUCTION,
    Calls,
)

#: Names of which each is the only one to show that a word of the rules, or their order, is needed.
NAMES = {
    MATRIX: (
        "aten::addmm",
        "nvjet_tst_128x24_64x11_2x1_v_bz_TNT",
        "MatMul",
        "FullyConnected",
        "dot_add_fusion",
        "ynn_fusion",
    ),
    CONVOLUTION: ("sm90_xmma_dgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc", "Conv"),
    RECURRENT: ("LSTM", "CudnnRNN"),
    ELEMENTWISE: (
        *(
            "aten::mul",
            "aten::sigmoid_backward",
            "aten::threshold_backward",
            "aten::clamp_min_",
            "Relu",
            "AddV2",
            "sgd",
        ),
        "triton_poi_fused_native_batch_norm_backward_threshold_backward_12",
        "void op_tensor_kernel<2, float, float, float, 32, 1, 4, 2>(cudnnTensorStruct, float*)",
        *(
            "ResourceApplyGradientDescent",
            "Activation",
            "InPlaceAccumulatorV2",
            "broadcast_multiply_fusion",
        ),
    ),
    NORMALISATION: (
        "aten::cudnn_batch_norm",
        (
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, "
            "true>(cudnnTensorStruct)"
        ),
    ),
    REDUCTION: (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>",
        *(
            "aten::sum",
            "BiasAddGrad",
            "Pooling",
            "pick",
            "select-and-scatter",
            "convert_reduce_fusion",
        ),
    ),
    MEMORY: (
        (
            "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, "
            "(cudnnKernelDataType_t)2>"
        ),
        (
            "void cudnn::detail::cubeTransposeDeviceGeneric_kernel<float, float, float, 8, 8, 8, "
            "8, 8, 11, 5>"
        ),
        *(
            "Memset (Device)",
            "cudaMemcpyAsync",
            "aten::fill_",
            "Transpose",
            "Gather",
            "ResourceScatterSub",
            "ConcatV2",
        ),
        *("Reorder", "_backward_Embedding", "_rnn_param_concat", "copy", "dynamic-update-slice"),
    ),
    COMMUNICATION: ("record_param_comms", "all-reduce", "reduce-scatter", "AllGather"),
    FUSED: ("## Call CompiledFxGraph ftemqk2mrxkqz7mn4 ##",),
    OTHER: (
        "autograd::engine::evaluate_function: ConvolutionBackward0",
        "TorchDynamo Cache Lookup",
        "while",
        "",
    ),
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_tell_the_kind(kind):
    assert {name: profiles.kind(name) for name in NAMES[kind]} == dict.fromkeys(NAMES[kind], kind)


spans = st.lists(
    st.builds(
        lambda name, start, length: (name, float(start), float(length)),
        st.sampled_from("abc"),
        st.integers(0, 60),
        st.integers(0, 40),
    ),
    max_size=12,
)


@given(spans)
def test_own_times_add_up_to_the_time_that_any_span_covers(spans):
    covered = {unit for span in spans for unit in range(int(span[1]), int(span[1] + span[2]))}
    self_durations = profiles.self_durations(spans)
    assert sorted(name for name, _ in self_durations) == sorted(span[0] for span in spans)
    assert sum(duration for _, duration in self_durations) == len(covered)


def test_a_profile_joins_calls_of_one_name_and_counts_by_step():
    calls = [
        Calls("aten::mm", False, 0.4, 1),
        Calls("aten::add_", False, 0.9, 8),
        Calls("aten::mm", False, 0.8, 3),
    ]
    profile = profiles.profile("p", 4, 2.0, [*calls, Calls("aten::mm", True, 0.1, 1)])
    assert profile.step_seconds == 0.5
    listed = [
        (operator.name, operator.kind, operator.on_device, operator.calls)
        for operator in profile.operators
    ]
    assert listed == [
        ("aten::mm", MATRIX, False, 1.0),
        ("aten::add_", ELEMENTWISE, False, 2.0),
        ("aten::mm", MATRIX, True, 0.25),
    ]
    assert math.isclose(profile.operators[0].seconds, 0.3)


def node(operator, start, duration, **more):
    return {
        "cat": "Node",
        "name": f"some/{operator}_kernel_time",
        "ts": start,
        "dur": duration,
        "pid": 1,
        "tid": 1,
        "args": {"op_name": operator},
        **more,
    }


def test_onnx_runtimes_first_runs_do_not_count():
    run = {"cat": "Session", "name": "model_run", "dur": 90, "args": {}}
    events = [
        {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5, "args": {}},
        {**run, "ts": 10},
        node("Gemm", 11, 50),
        {**run, "ts": 110},
        node("If", 111, 50),
        node("Gemm", 112, 20),
        node("Gemm", 111, 1, name="some/Gemm_fence_before"),
        {"cat": "Kernel", "name": "volta_sgemm_32x32", "ts": 113, "dur": 7, "args": {}},
    ]
    results = {
        (call.name, call.on_device): round(call.seconds * 1e6)
        for call in profiles.onnx_calls(events, 1)
    }
    assert results == {("If", False): 30, ("Gemm", False): 20, ("volta_sgemm_32x32", True): 7}
    assert not list(profiles.onnx_calls(events, 2))


def test_of_the_hosts_line_only_operators_count_and_of_the_device_its_streams():
    host = (
        "/host:CPU",
        "main",
        [
            ("TfrtCpuExecutable::Execute", 0, 100, False),
            ("ExecutorState::Process", 0, 100, False),
            ("while.3", 5, 80, True),
            ("dot.12.clone", 10, 60, True),
            ("end: dot.12.clone", 70, 0, False),
            ("grad/MatMul_1:MatMul", 90, 8, False),
        ],
    )
    lines = [
        host,
        ("/device:GPU:0", "Stream #13(Compute)", [("loop_add_fusion_4", 0, 10, True)]),
        ("/device:GPU:0", "XLA Modules", [("jit_step", 0, 100, False)]),
    ]
    on_cpu = {
        call.name: round(call.seconds * 1e9) for call in profiles.tsl_calls(lines, on_cpu=True)
    }
    assert on_cpu == {"while": 20, "dot": 60, "MatMul": 8}
    on_gpu = list(profiles.tsl_calls(lines, on_cpu=False))
    assert [(kernel.name, kernel.on_device) for kernel in on_gpu] == [("loop_add_fusion", True)]


def test_an_operation_lasts_until_its_end_on_whatever_thread_that_is():
    lines = [
        ("/host:CPU", "caller", [("dot.1", 0, 2, True), ("dot.1", 60, 2, True)]),
        (
            "/host:CPU",
            "pool",
            [("end: dot.1", 50, 1, False), ("add.2", 51, 9, True), ("end: dot.1", 100, 1, False)],
        ),
    ]
    calls = list(profiles.tsl_calls(lines, on_cpu=True))
    assert sum(call.seconds for call in calls if call.name == "dot") == pytest.approx(90e-9)
    assert sum(call.seconds for call in calls if call.name == "add") == pytest.approx(9e-9)


def _cpuinfo(vendor: str, flags: str) -> str:
    return (
        f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: a: b\nflags\t\t: fpu {flags}\n\n" * 2
    )


AVX512 = "avx512f avx512dq avx512cd avx512bw avx512vl"


@pytest.mark.parametrize(
    ("cpuinfo", "chosen"),
    [
        (_cpuinfo("GenuineIntel", f"avx2 fma {AVX512}"), None),  # chooses well itself
        (_cpuinfo("AuthenticAMD", f"avx2 fma {AVX512}"), "7"),
        (_cpuinfo("AuthenticAMD", "avx2 fma avx512f"), "5"),  # a part of AVX-512 is not enough
        (_cpuinfo("AuthenticAMD", "avx2 fma"), "5"),
        (_cpuinfo("HygonGenuine", "avx2"), None),
        (_cpuinfo("AuthenticAMD", "sse2 avx"), None),
        ("Features : neon", None),
    ],
)
def test_kernels_never_exceed_what_the_processor_runs(cpuinfo: str, chosen: str | None) -> None:
    assert blas.widest_mkl_kernels(cpuinfo) == chosen


def varint(value: int) -> bytes:
    """An integer as protocol buffers write it: seven bits a byte, the lowest first."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


names = st.text(st.characters(codec="utf-8"), max_size=20)
spans = st.tuples(st.integers(0, 3), st.integers(0, 2**40), st.integers(0, 2**40), st.booleans())


@given(
    st.lists(
        st.tuples(
            names, st.lists(st.tuples(names, st.integers(0, 2**62), st.lists(spans, max_size=5)))
        ),
        max_size=3,
    )
)
def test_a_profile_of_tensorflow_and_jax_is_read_as_it_was_written(planes):
    """An independent writer of XSpace: planes with their names of events, and lines with events
    that refer to those."""
    event_names = ["dot.1", "end: dot.1", "x" * 300, ""]
    space, expected = b"", []
    first = min((begun for _, lines in planes for _, begun, _ in lines), default=0)
    for plane, lines in planes:
        message = field(1, 7) + field(2, plane)
        message += b"".join(
            field(4, field(1, n) + field(2, field(1, n) + field(2, name)))
            for n, name in enumerate(event_names)
        )
        message += field(5, field(1, 9) + field(2, field(1, 9) + field(2, profiles.HLO)))
        for line, begun, events in lines:
            written = field(2, line) + field(3, begun) + field(11, 5)
            for event, offset, duration, compiled in events:
                content = field(1, event) + field(2, offset) + field(3, duration)
                if compiled:
                    # Other fields, of fixed length, are passed over.
                    content += field(4, field(1, 3) + varint(2 << 3 | 1) + bytes(8)) + field(
                        4, field(1, 9) + field(5, "x")
                    )
                written += field(4, content)
            message += field(3, written)
            expected_events = [
                (event_names[event], begun - first + offset * 1e-3, duration * 1e-3, compiled)
                for event, offset, duration, compiled in events
            ]
            expected.append((plane, line, expected_events))
        space += field(1, message)
    assert profiles.tsl_lines(space) == expected


def test_a_damaged_profile_is_refused():
    with pytest.raises(RuntimeError, match="unknown type"):
        profiles.tsl_lines(varint(1 << 3 | 3))
