"""What is asked of every framework in the same words, with its own options: one table.

Parity on each family's networks, refusals and workers are asked by `test_conformance.py`, which
needs no entry here.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import asked_of_frameworks as asked
import pytest
from inside import Guest
from one_launch import is_tested

from dlbench.suites.planning.framework import find

pytestmark = pytest.mark.framework

CAPABLE = {"gpu": False, "automatic_gradients": True, "several_processes": True}
LIMITED = 256 << 20  # further bytes that a process may ask for

#: How often the loss is traced, of a step that is compiled.
TRACED_BY_TENSORFLOW = """
from guest.tensorflow import networks as built
traces, loss = [], built.TensorFlowNetwork.loss
built.TensorFlowNetwork.loss = lambda *given: traces.append(1) or loss(*given)
"""
TRACED_BY_KERAS = """
traces, compute = [], keras.Model.compute_loss
keras.Model.compute_loss = lambda *given, **named: traces.append(1) or compute(*given, **named)
"""
#: MLX's activations are compiled functions themselves: the first one that is called within
#: another's trace has that traced again in the second step, so it is called before.
TRACED_BY_MLX = """
from mlx import nn
nn.sigmoid(mx.ones(1))
traces, compute = [], nn.losses.cross_entropy
nn.losses.cross_entropy = lambda *given, **named: traces.append(1) or compute(*given, **named)
"""
#: Torch compiles nothing: each step computes its loss anew.
TRACES_OF_KERAS = 'keras.backend.backend() == "torch" or len(traces)'
HELD_BY_TORCH = (
    "[tensor.data_ptr() for tensor in [*adapter._training.module.parameters(), *adapter._held]]"
)
SAMPLED = ("small-sequential", "small-synchronous", "small-bipartite", "small-mpm")
#: What few frameworks build.
OF_FEW = ("small-lif", *SAMPLED)
MOVED_BY_TORCH = "[tensor.data_ptr() for tensor in adapter._training.moving.values()]"
PROGRAMS = "adapter.step.__self__.program._cache_size()"
TRACED_OF_SAMPLING = "adapter.step.__self__.program.experimental_get_tracing_count()"
SESSIONS = "adapter.module._model, adapter.optimizer._optimizer"
#: What a step is made of, and where it is made: neither changes with weights, mini-batch or rate.
CAPTURED_BY_TINYGRAD = """(id(adapter.train.captured), [
    id(tensor.uop.base.realized)
    for tensor in [*adapter.weights.values(), adapter.inputs, adapter.labels]
])"""
COMPILED_BY_MINDSPORE = "[len(adapter.train.compile_cache), *map(id, adapter.trainable.values())]"
WIDE_IN_CHAINER = """
adapter, network = prepared("small-dense", ideep=%s), SMALL["small-dense"]
adapter.step()
wide = network._replace(family=families.Feedforward(64, (), 1 << 21, "relu"))
"""
LARGE_IN_CNTK = """
adapter = prepared("small-dense")
adapter.step()
inputs = cntk.input_variable(4)
large = cntk.times_transpose(inputs, cntk.Parameter((1 << 15, 4), init=0.1))
"""
FILLED_BY_THEANO = """
adapter = prepared("small-dense")
adapter.step()
import theano
size = theano.tensor.lscalar()
fill = theano.function([size], theano.tensor.alloc(np.float32(1), size))
product = theano.function([], theano.tensor.dot(theano.shared(np.ones((3, 3), "f")), np.ones((4, 4), "f")))
"""

OF_KERAS = [
    *(asked.reference(**settings) for settings in ({}, {"unroll": True})),
    asked.rate(TRACES_OF_KERAS, TRACED_BY_KERAS),
    asked.reset(
        TRACES_OF_KERAS,
        TRACED_BY_KERAS,
        ["small-convolutional", "small-residual", "small-recurrent"],
    ),
    asked.memory(
        {
            "keras.ops.ones((1 << 24, 1 << 20)) + 1": True,
            "np.empty(1 << 50)": True,
            "keras.ops.matmul(keras.ops.ones((1, 3)), keras.ops.ones((4, 1)))": False,
        },
        'adapter = make("small-dense")',
    ),
    asked.capabilities(**CAPABLE),
    asked.feeding(),
]
OVER_JAX = [
    asked.reference(),
    asked.rate("adapter._step._cache_size()"),
    asked.reset("adapter._step._cache_size()", only=["small-convolutional", "small-recurrent"]),
    asked.queue(),
    asked.capabilities(**CAPABLE),
]

ASKED: dict[str, list[Callable[[Guest], None]]] = {
    "torch": [
        asked.reference(),
        asked.feeding(only=["small-convolutional", "one-hot-gru"], channels_last=True),
        asked.reference(optimizer="fused", channels_last=True),
        asked.reference(dense="onednn"),
        asked.one_bias(
            "[value.detach().numpy() for name, value in "
            "adapter._training.module.stack.named_parameters() if 'bias_hh' in name]"
        ),
        asked.threads_of_cells(),
        asked.rate(),
        *(
            asked.reset(HELD_BY_TORCH, **settings)
            for settings in ({}, {"optimizer": "fused", "channels_last": True}, {"dense": "onednn"})
        ),
        asked.reset(
            HELD_BY_TORCH,
            only=["small-dense", "small-convolutional", "small-residual"],
            precision="bfloat16",
        ),
        asked.reference(only=OF_FEW),
        asked.reset(MOVED_BY_TORCH, only=SAMPLED),
        asked.memory(
            {
                "torch.empty(1 << 50)": True,
                (
                    "(_ for _ in ()).throw(RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED "
                    "when calling'))"
                ): True,
                "torch.empty(3) @ torch.empty(4)": False,
            }
        ),
        asked.capabilities(**CAPABLE),
    ],
    "jax": [
        # Other networks have no convolution of one pixel, the only kind that can be written as a
        # product.
        *(
            asked.reference(only=["small-residual"], pointwise=how)
            for how in ("convolution", "product")
        ),
        asked.refusal(
            "'spiral'", "convolution, product", network="small-residual", pointwise="spiral"
        ),
        asked.feeding(),
        *(asked.reference(only=OF_FEW, donate=donated) for donated in (False, True)),
        asked.reset(PROGRAMS, only=SAMPLED),
        asked.rate("adapter._step._cache_size()"),
        asked.reset("adapter._step._cache_size()", only=["small-convolutional", "small-recurrent"]),
        asked.queue(),
        asked.memory(
            {
                "jax.jit(lambda: jax.numpy.ones(1 << 45))().block_until_ready()": True,
                "np.empty(1 << 50)": True,
                "jax.numpy.ones((3, 3)) @ jax.numpy.ones((4, 4))": False,
            }
        ),
        asked.capabilities(**CAPABLE),
    ],
    "flax": OVER_JAX,
    "equinox": [*OVER_JAX, asked.reference(only=["small-recurrent", "small-attention"], rows=True)],
    "tensorflow": [
        asked.threads_of_cells(
            "{name: '3' for name in ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS')}"
        ),
        *(
            asked.rate("len(traces)", TRACED_BY_TENSORFLOW, **settings)
            for settings in ({}, {"compile": True})
        ),
        asked.reset(
            "len(traces)", TRACED_BY_TENSORFLOW, only=["small-residual", "small-recurrent"]
        ),
        asked.reset(
            "len(traces)", TRACED_BY_TENSORFLOW, only=["small-convolutional"], compile=True
        ),
        asked.memory(
            {"np.empty(1 << 50)": True, "tf.matmul(tf.ones([1, 3]), tf.ones([4, 1]))": False}
        ),
        asked.refusal("'spiral'", "loop, unrolled", network="small-recurrent", recurrence="spiral"),
        asked.feeding(),
        # To compile all of them takes XLA longer than any other test.
        asked.reference(only=["small-convolutional", "small-elman", "small-mpm"], compile=True),
        asked.reference(only=OF_FEW),
        asked.reset(TRACED_OF_SAMPLING, only=SAMPLED),
    ],
    "keras:tensorflow": [*OF_KERAS, asked.reference(jit_compile=True), asked.threads_of_cells()],
    "keras:jax": [*OF_KERAS, asked.reference(jit_compile=False), asked.queue()],
    "keras:torch": [*OF_KERAS, asked.threads_of_cells()],
    "mxnet": [
        asked.feeding(),
        asked.reference(static=True, fused_norm=True),
        asked.reference(update="operator"),
        asked.one_bias(
            "[bias.data().asnumpy() for bias in "
            "adapter.block.collect_params('.*h2h_bias').values()]"
        ),
        asked.threads_of_variables("mxnet"),
        asked.rate("id(adapter.block._cached_op)"),
        *(
            asked.reset("id(adapter.block._cached_op)", **settings)
            for settings in ({}, {"static": False})
        ),
        asked.queue(),
        asked.memory(
            {
                "mx.nd.zeros((1 << 14, 1 << 15)).wait_to_read()": True,
                "mx.nd.dot(mx.nd.ones((3, 3)), mx.nd.ones((4, 4))).wait_to_read()": False,
            },
            further_bytes=LIMITED,
        ),
        asked.capabilities(**CAPABLE),
    ],
    "onnx": [
        asked.reference(rate_in_product=True),
        *asked.onnx_sessions(1, "adapter.session"),
        # The addresses of everything that is bound.
        asked.reset(
            "[id(adapter.session)] + [value.data_ptr() for values in adapter.sets + [adapter.given]"
            " for value in values.values()]"
        ),
        asked.capabilities(gpu=False, automatic_gradients=False),
    ],
    "onnxruntime": [
        asked.reference(fused_loss=False),
        *asked.onnx_sessions(2, f"({SESSIONS})"),
        # And the addresses of the parameters.
        asked.reset(
            f"({SESSIONS}, [parameter.data.ctypes.data for _, parameter in adapter.state.parameters])"
        ),
    ],
    "paddle": [
        asked.feeding(),
        *(asked.reference(**settings) for settings in ({}, {"widest_kernels": True})),
        asked.one_bias(
            "[getattr(adapter.layer.stack, 'bias_hh_l%d' % layer).numpy() for layer in range(2)]"
        ),
        asked.threads_of_variables("paddle"),
        asked.rate(),
        asked.reset(
            "[tensor.data_ptr() for tensor in [*adapter.layer.parameters(), adapter.inputs, "
            "adapter.labels]]"
        ),
        asked.memory(
            {
                "paddle.zeros([1 << 14, 1 << 15]).numpy()": True,
                "np.empty(1 << 50)": True,
                "paddle.matmul(paddle.ones([3, 3]), paddle.ones([4, 4]))": False,
            },
            further_bytes=LIMITED,
        ),
        asked.capabilities(**CAPABLE),
    ],
    "mindspore": [
        *(
            check
            for update in ("sgd", "descent")
            for check in (
                asked.reference(update=update),
                asked.completion(update=update),
                asked.rate("len(adapter.train.compile_cache)", update=update),
                asked.reset(COMPILED_BY_MINDSPORE, update=update),
            )
        ),
        asked.one_bias("[bias.asnumpy() for bias in adapter.network.stack.b_hh_list]"),
        asked.memory(
            {
                "mindspore.ops.zeros((1 << 16, 1 << 20)).asnumpy()": True,
                "np.empty(1 << 50)": True,
                (
                    "mindspore.ops.matmul(mindspore.ops.ones((3, 3)), mindspore.ops.ones((4, "
                    "4))).asnumpy()"
                ): False,
            }
        ),
        asked.capabilities(gpu=False, automatic_gradients=True),
    ],
    "mlx": [
        asked.reference(),
        asked.rate("len(traces)", TRACED_BY_MLX),
        asked.reset("len(traces)", TRACED_BY_MLX, ["small-convolutional", "small-recurrent"]),
        asked.completion(),
        asked.threads_of_cells(),
        asked.memory({"np.empty(1 << 50)": True, "mx.ones((3, 3)) @ mx.ones((4, 4))": False}),
        asked.capabilities(**CAPABLE),
        asked.refusal("'magma'", "openblas", blas="magma"),
    ],
    "tinygrad": [
        asked.reference(
            only=[
                "small-dense",
                "small-convolutional",
                "one-hot-gru",
                "small-elman",
                "small-attention",
            ]
        ),
        asked.reference(only=["small-recurrent", "one-hot-gru", "small-elman"], gates="kept"),
        # At a rate of 0 in the first step and the third: the second is captured, with a rate of its
        # own.
        asked.rate(),
        asked.reset(CAPTURED_BY_TINYGRAD, only=["small-dense", "small-recurrent"]),
        asked.completion(),
        asked.threads_of_variables("tinygrad"),
        asked.memory(
            {
                "tinygrad.Tensor.empty(1 << 45).contiguous().realize().numpy()": True,
                "np.empty(1 << 50)": True,
                "tinygrad.Tensor.ones(3, 3) @ tinygrad.Tensor.ones(4, 4)": False,
            }
        ),
        asked.capabilities(gpu=True, automatic_gradients=True),
    ],
    "caffe": [
        asked.reference(),
        asked.reference(only=["wide-recurrent", "one-hot-lstm"]),
        asked.rate("id(adapter.solver)"),
        asked.reset("id(adapter.solver)"),
        # Debian's build is for the CPU only.
        asked.capabilities(gpu=False, automatic_gradients=True, several_processes=False),
    ],
    "cntk": [
        *(asked.reference(kernels=kernels) for kernels in ("widest", "mkl")),
        asked.rate("id(adapter.trainer)"),
        asked.reset("id(adapter.trainer)"),
        asked.memory(
            {
                "cntk.Parameter((1 << 14, 1 << 15), init=0.0).value": True,
                'large.eval({inputs: np.ones((1 << 12, 4), "float32")})': True,
                "cntk.times(cntk.Constant(np.ones((3, 3))), cntk.Constant(np.ones((4, 4))))": False,
            },
            LARGE_IN_CNTK,
            LIMITED,
        ),
        asked.capabilities(**CAPABLE),
    ],
    "theano": [
        asked.reference(),
        asked.rate("id(adapter.train)"),
        asked.reset(
            "id(adapter.train)",
            only=["small-dense", "small-convolutional", "small-residual", "small-recurrent"],
        ),
        asked.threads_of_cells(),
        asked.memory({"fill(1 << 29)": True, "product()": False}, FILLED_BY_THEANO, LIMITED),
    ],
    "chainer": [
        check
        for ideep in (True, False)
        for check in (
            asked.reference(ideep=ideep),
            asked.rate(network="small-convolutional", ideep=ideep),
            asked.reset("id(adapter.model)", ideep=ideep),
            # iDeep's OpenMP reads the variable; the pool of NumPy's OpenBLAS is set.
            asked.threads_of_variables("chainer", ideep=True)
            if ideep
            else asked.threads_of_cells(ideep=False),
            asked.memory(
                {
                    'adapter.prepare(wide, {"fc1.weight": np.zeros((1 << 21, 64), "f")}, None)': True,
                    'chainer.functions.matmul(np.ones((3, 3), "f"), np.ones((4, 4), "f"))': False,
                },
                WIDE_IN_CHAINER % ideep,
                LIMITED,
            ),
        )
    ],
}


def table() -> list[Any]:
    """Return each check of each framework; those of one framework together: an interpreter starts
    slowly."""

    def marks(framework: str, check: Callable[[Guest], None]) -> list[Any]:
        group = pytest.mark.xdist_group(f"guest of {framework}")
        # Sixteen adapters each: PyTorch's stand for those of all others.
        return (
            [group, pytest.mark.slow]
            if check.__name__ == "feeding" and framework != "torch"
            else [group]
        )

    return [
        pytest.param(
            framework, check, id=f"{framework}-{check.__name__}", marks=marks(framework, check)
        )
        for framework, checks in ASKED.items()
        if is_tested(find(framework.partition(":")[0]))
        for check in [asked.refusal_of_cells(), *checks]
    ]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give a folder for each framework: what one check compiled, the next finds."""
    return cache(lambda name: tmp_path_factory.mktemp(name.partition(":")[0]))


@pytest.mark.parametrize(("framework", "check"), table())
def test_a_framework_answers_as_every_framework_does(
    framework: str,
    check: Callable[[Guest], None],
    guests: Callable[..., Guest],
    scratch: Callable[[str], Path],
) -> None:
    name, _, mode = framework.partition(":")
    check(guests(name, mode, scratch=scratch(framework)))
