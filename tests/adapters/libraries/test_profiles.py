"""What kind of work an operator is, by names as frameworks' profilers give them, and profiles made of their traces."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inside import guest_of

from dlbench.adapters.libraries import onnx_profiles, profiles, tsl_planes
from dlbench.adapters.libraries.profiles import (
    COMMUNICATION,
    CONVOLUTION,
    ELEMENTWISE,
    FUSED,
    KINDS,
    MATRIX,
    MEMORY,
    NORMALISATION,
    OTHER,
    RECURRENT,
    REDUCTION,
    Calls,
    Span,
)
from dlbench.adapters.libraries.tsl_planes import Event, Line

NAMES = {
    MATRIX: (
        # PyTorch, CPU
        "aten::addmm",
        "aten::mm",
        "aten::bmm",
        "aten::linear",
        "mkldnn::_linear_pointwise",
        "AddmmBackward0",
        # cuBLAS and CUTLASS, from Volta to Hopper
        "volta_sgemm_128x64_nn",
        "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_32x3_nn",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(Params)",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
        "nvjet_tst_128x24_64x11_2x1_v_bz_TNT",
        "void splitKreduce_kernel<32, 16, int, float, float, float, float>(cublasSplitKParams<float>)",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>",
        # TensorFlow, ONNX Runtime, MXNet, XLA
        "MatMul",
        "_MklNativeFusedMatMul",
        "_FusedMatMul",
        "BatchMatMulV2",
        "Gemm",
        "FusedMatMul",
        "FullyConnected",
        "_backward_FullyConnected",
        "matmul_grad",
        "dot",
        "gemm_fusion_dot",
        "dot_add_fusion",
        "dot_general",
        "ynn_fusion",
        "__cublas$gemm",
    ),
    CONVOLUTION: (
        "aten::mkldnn_convolution",
        "aten::convolution_backward",
        "aten::cudnn_convolution",
        "mkldnn::_convolution_pointwise",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1",
        "sm90_xmma_dgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc",
        "cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x128_16x3_nhwc_align4>",
        "maxwell_scudnn_winograd_128x128_ldg1_ldg4_relu_tile418n_nt",
        "void cudnn::detail::implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, true, false, false>",
        "void at::native::im2col_kernel<float>(long, float const*)",
        "_MklNativeConv2D",
        "Conv2DBackpropFilter",
        "Conv2DBackpropInput",
        "Conv",
        "ConvGrad",
        "Convolution",
        "_backward_Convolution",
        "convolution",
    ),
    RECURRENT: (
        "aten::mkldnn_rnn_layer",
        "aten::mkldnn_rnn_layer_backward",
        "aten::_cudnn_rnn",
        "void LSTM_elementWise_fp<float, float, float, (cudnnRNNBiasMode_t)2>(int, int, int, int)",
        "RNN",
        "_backward_RNN",
        "LSTM",
        "LSTMGrad",
        "CudnnRNN",
    ),
    ELEMENTWISE: (
        "aten::add_",
        "aten::mul",
        "aten::sigmoid_backward",
        "aten::threshold_backward",
        "aten::clamp_min_",
        "aten::_fused_sgd_",
        "aten::_foreach_add_",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
        "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda(at::TensorIteratorBase&)>",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "TensorListMetadata<2>, at::native::(anonymous namespace)::FusedSgdMathFunctor<float, 2, false, false> >",
        "triton_poi_fused_native_batch_norm_backward_threshold_backward_12",
        "void op_tensor_kernel<2, float, float, float, 32, 1, 4, 2>(cudnnTensorStruct, float*)",
        "Relu",
        "ReluGrad",
        "BiasAdd",
        "AddV2",
        "ResourceApplyGradientDescent",
        "Activation",
        "_backward_Activation",
        "elemwise_add",
        "sgd_update",
        "sgd",
        "SGDOptimizerV2",
        "InPlaceAccumulatorV2",
        "broadcast_multiply_fusion",
        "loop_add_fusion",
    ),
    NORMALISATION: (
        "aten::native_batch_norm",
        "aten::native_batch_norm_backward",
        "aten::cudnn_batch_norm",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>(cudnnTensorStruct)",
        "void cudnn::batchnorm_bwtr_nhwc_semiPersist<float, float, float, 512, true, 2>",
        "void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, float, float, 4>",
        "FusedBatchNormV3",
        "FusedBatchNormGradV3",
        "_FusedBatchNormEx",
        "BatchNorm",
        "_backward_BatchNormWithReLU",
        "BatchNormInternal",
        "BatchNormalizationGrad",
    ),
    REDUCTION: (
        "aten::sum",
        "aten::mean",
        "aten::_log_softmax",
        "aten::_log_softmax_backward_data",
        "aten::nll_loss_forward",
        "aten::max_pool2d_with_indices_backward",
        "aten::adaptive_avg_pool2d",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float> > >",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>",
        "void at::native::(anonymous namespace)::max_pool_backward_nhwc<float, float>",
        "SparseSoftmaxCrossEntropyWithLogits",
        "BiasAddGrad",
        "MaxPoolGrad",
        "GlobalAveragePool",
        "ReduceSum",
        "LogSoftmax",
        "Pooling",
        "log_softmax",
        "pick",
        "reduce-window",
        "select-and-scatter",
        "input_reduce_fusion",
        "convert_reduce_fusion",
    ),
    MEMORY: (
        "Memcpy HtoD (Pinned -> Device)",
        "[CUDA memcpy DtoD]",
        "Memset (Device)",
        "cudaMemcpyAsync",
        "aten::copy_",
        "aten::clone",
        "aten::fill_",
        "aten::zero_",
        "aten::cat",
        "aten::embedding_dense_backward",
        "aten::index_select",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>",
        "void cudnn::detail::cubeTransposeDeviceGeneric_kernel<float, float, float, 8, 8, 8, 8, 8, 11, 5>",
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
        "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>",
        "Transpose",
        "Reshape",
        "Gather",
        "ResourceGather",
        "ResourceScatterSub",
        "ConcatV2",
        "StridedSlice",
        "CopyCPU2CPU",
        "Reorder",
        "_backward_Embedding",
        "_rnn_param_concat",
        "copy",
        "dynamic-update-slice",
        "wrapped_transpose",
        "transpose_copy_fusion",
    ),
    COMMUNICATION: (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "nccl:all_reduce",
        "c10d::allreduce_",
        "record_param_comms",
        "all-reduce",
        "reduce-scatter",
        "AllGather",
    ),
    FUSED: ("## Call CompiledFxGraph ftemqk2mrxkqz7mn4 ##",),
    OTHER: (
        "autograd::engine::evaluate_function: ConvolutionBackward0",
        "Optimizer.step#SGD.step",
        "Torch-Compiled Region: 0/0",
        "TorchDynamo Cache Lookup",
        "cudaLaunchKernel",
        "cudaStreamSynchronize",
        "while",
        "StatefulPartitionedCall",
        "ReadVariableOp",
        "a name that nobody has heard of",
        "",
    ),
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_tell_the_kind(kind):
    assert {name: profiles.kind(name) for name in NAMES[kind]} == dict.fromkeys(NAMES[kind], kind)


def test_every_kind_has_names_of_its_own():
    assert set(NAMES) == set(KINDS)


@given(st.text())
def test_whatever_the_name_it_has_one_of_the_kinds(name):
    assert profiles.kind(name) in KINDS


spans = st.lists(
    st.builds(
        lambda name, start, length: Span(name, float(start), float(length)),
        st.sampled_from("abc"),
        st.integers(0, 60),
        st.integers(0, 40),
    ),
    max_size=12,
)


@given(spans)
def test_own_times_add_up_to_the_time_that_any_span_covers(spans):
    covered = {unit for span in spans for unit in range(int(span.start), int(span.start + span.duration))}
    found = profiles.self_durations(spans)
    assert sorted(name for name, _ in found) == sorted(span.name for span in spans)
    assert sum(duration for _, duration in found) == len(covered)


@given(spans, st.randoms())
def test_nothing_is_taken_from_the_span_that_began_last(spans, random):
    last = Span("last", 61.0, 7.0)
    shuffled = [*spans, last]
    random.shuffle(shuffled)
    assert dict(profiles.self_durations(shuffled))["last"] == 7.0


def test_what_an_operator_called_is_not_counted_twice():
    found = profiles.self_durations([Span("inner", 2.0, 3.0), Span("outer", 0.0, 10.0), Span("after", 10.0, 1.0)])
    assert sorted(found) == [("after", 1.0), ("inner", 3.0), ("outer", 7.0)]


def test_a_profile_joins_calls_of_one_name_and_counts_by_step():
    calls = [Calls("aten::mm", False, 0.4, 1), Calls("aten::add_", False, 0.9, 8), Calls("aten::mm", False, 0.8, 3)]
    found = profiles.profile("p", 4, 2.0, [*calls, Calls("aten::mm", True, 0.1, 1)])
    assert found.step_seconds == 0.5
    told = [(each.name, each.kind, each.on_device, each.calls) for each in found.operators]
    assert told == [
        ("aten::mm", MATRIX, False, 1.0),
        ("aten::add_", ELEMENTWISE, False, 2.0),
        ("aten::mm", MATRIX, True, 0.25),
    ]
    assert math.isclose(found.operators[0].seconds, 0.3)


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
    found = {(each.name, each.on_device): round(each.seconds * 1e6) for each in onnx_profiles.calls(events, 1)}
    assert found == {("If", False): 30, ("Gemm", False): 20, ("volta_sgemm_32x32", True): 7}
    assert not list(onnx_profiles.calls(events, 2))


def test_of_the_hosts_line_only_operators_count_and_of_the_device_its_streams():
    host = Line(
        "/host:CPU",
        "main",
        [
            Event("TfrtCpuExecutable::Execute", 0, 100, False),
            Event("ExecutorState::Process", 0, 100, False),
            Event("while.3", 5, 80, True),
            Event("dot.12.clone", 10, 60, True),
            Event("end: dot.12.clone", 70, 0, False),
            Event("grad/MatMul_1:MatMul", 90, 8, False),
        ],
    )
    lines = [
        host,
        Line("/device:GPU:0", "Stream #13(Compute)", [Event("loop_add_fusion_4", 0, 10, True)]),
        Line("/device:GPU:0", "XLA Modules", [Event("jit_step", 0, 100, False)]),
    ]
    on_cpu = {each.name: round(each.seconds * 1e9) for each in tsl_planes.calls(lines, on_cpu=True)}
    assert on_cpu == {"while": 20, "dot": 60, "MatMul": 8}
    on_gpu = list(tsl_planes.calls(lines, on_cpu=False))
    assert [(each.name, each.on_device) for each in on_gpu] == [("loop_add_fusion", True)]


def test_an_operation_lasts_until_its_end_on_whatever_thread_that_is():
    lines = [
        Line("/host:CPU", "caller", [Event("dot.1", 0, 2, True), Event("dot.1", 60, 2, True)]),
        Line(
            "/host:CPU",
            "pool",
            [Event("end: dot.1", 50, 1, False), Event("add.2", 51, 9, True), Event("end: dot.1", 100, 1, False)],
        ),
    ]
    found = list(tsl_planes.calls(lines, on_cpu=True))
    assert sum(each.seconds for each in found if each.name == "dot") == pytest.approx(90e-9)
    assert sum(each.seconds for each in found if each.name == "add") == pytest.approx(9e-9)


ADAPTERS = {
    "torch": ("pytorch", "eager"),
    "tensorflow": ("tensorflow", "function"),
    "jax": ("jax", "jit"),
    "mxnet": ("mxnet", "hybrid"),
    "onnx": ("onnx", "graph"),
    "onnxruntime": ("onnxruntime", "training"),
    "paddle": ("paddle", "widest"),
}
PROFILED = """
network = SMALL["small-dense"]._replace(family=families.Feedforward(1024, (1024,), 512, "sigmoid"))
adapter = make("small-dense", batch_size=128)
adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 128))
adapter.set_learning_rate(0.0)
for _ in range(3):
    adapter.step()
adapter.synchronize()
before = [value.copy() for _, value in adapter.parameters()]
found = adapter.profile(3)
adapter.step()
adapter.synchronize()
unchanged = all(np.array_equal(one, other) for one, (_, other) in zip(before, adapter.parameters()))
answer = {"unchanged": unchanged, "profile": [found.step_seconds, found.steps, found.operators]}
"""


@pytest.mark.framework
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_frameworks_own_profiler_finds_that_matrix_products_take_most(framework_python: Callable, tmp_path, name):
    folder, mode = ADAPTERS[name]
    python = framework_python(name)
    (tmp_path / "cache").mkdir()
    guest = guest_of(python, tmp_path, name, folder, mode)
    answer = guest(PROFILED)
    assert answer["unchanged"], "the profile left the adapter with other parameters or another learning rate"
    step_seconds, steps, operators = answer["profile"]
    assert steps == 3
    assert all(0 <= seconds <= step_seconds and calls > 0 for _, _, _, seconds, calls in operators)
    assert sum(seconds for _, _, _, seconds, _ in operators) > 0
    assert not any(on_device for _, _, on_device, _, _ in operators)
    spent = {each: sum(seconds for _, kind, _, seconds, _ in operators if kind == each) for each in KINDS}
    assert max(spent, key=lambda kind: spent[kind]) == MATRIX, operators
    # Two forward, three backward; a compiler may put some into one.
    assert sum(calls for _, kind, _, _, calls in operators if kind == MATRIX) >= 3, operators
