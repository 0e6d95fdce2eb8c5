"""Kinds of operators, by their names; and profiles from the output of frameworks' profilers.

Every framework's profiler names operators and kernels in its own way: ``aten::addmm``, ``MatMul``,
``_backward_FullyConnected``, ``dot.3``, ``sm80_xmma_fprop_implicit_gemm_...``. One table of words
classifies them, so that frameworks can be compared. It goes by names, so it can be wrong. An
unknown name is OTHER.
"""

import bisect
import gc
import glob
import heapq
import json
import os
import re
import tempfile
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Set,
    Tuple,
)

from ..launch.timing import time_one
from ..protocol import Operator, Profile

#: The profiler of a step whose framework has none: it counts functions, not operators.
PYTHON_PROFILER = "Python's cProfile"

MATRIX = "matrix product"
CONVOLUTION = "convolution"
RECURRENT = "recurrent"  # a whole recurrent layer in one operator, its matrix products included
ELEMENTWISE = "elementwise"  # activations, sums of two tensors, the update of the parameters
NORMALISATION = "normalisation"
REDUCTION = "reduction"  # sums over an axis, softmax, loss, pooling
MEMORY = "memory"  # copies, changes of layout, fills, reading and writing rows of a table
COMMUNICATION = "communication"
FUSED = "fused"  # several kinds, made one by a compiler, into which the profiler does not look
OTHER = "other"
KINDS = (
    MATRIX,
    CONVOLUTION,
    RECURRENT,
    ELEMENTWISE,
    NORMALISATION,
    REDUCTION,
    MEMORY,
    COMMUNICATION,
    FUSED,
    OTHER,
)


def _any_word(text: str) -> str:
    return r"(?<![a-z])(?:%s)(?![a-z])" % "|".join(text.split())


# The first rule that fits decides. Names come as ``_with_word_breaks`` writes them: lower case,
# with "_" before each capital inside a word.
_PATTERNS = (
    # Wrappers of operators are named after them.
    (OTHER, r"^autograd::|^optimizer\.|^torch-compiled|^torch_dynamo|^cu(da)?_(?!.*mem(cpy|set))"),
    (FUSED, r"compiled_?fx_?graph"),
    (
        COMMUNICATION,
        r"nccl|gloo|c10d::|record_param_comms|all_?-?reduce|all_?-?gather|reduce_?-?scatter"
        r"|all_?-?to_?-?all"
        r"|collective|horovod|cross-replica",
    ),
    (MEMORY, r"param_concat"),
    (RECURRENT, r"lstm|(?<![a-z])rnn|rnn(?![a-z])|(?<![a-z])gru(?![a-z])"),
    # A compiler's kernels are named after all that is fused in them; "poi", "red" and "per" say
    # how they work.
    (ELEMENTWISE, r"^triton_poi_"),
    (NORMALISATION, r"(batch|layer|group|instance|rms)_?norm|(?<![a-z])bn_"),
    (REDUCTION, r"^triton_(red|per)_"),
    (
        REDUCTION,
        r"pool(?!_?alloc)|soft_?max|cross_entropy|nll_loss|log_?sum_?exp|select-and-scatter",
    ),
    (
        MEMORY,
        r"memcpy|memset|nchw_?to_?nhwc|nhwc_?to_?nchw|transpose_?device|direct_copy"
        r"|fill_functor|^reorder",
    ),
    (ELEMENTWISE, r"op_tensor|op_generic_tensor|add_tensor"),
    (CONVOLUTION, r"conv(?!er)|implicit_gemm|fprop|dgrad|wgrad|winograd|im2col|col2im|fft2d|cudnn"),
    (
        MATRIX,
        # XLA's calls of YNNPACK on the CPU, "ynn_fusion", are above all products.
        r"gemm|gemv|mat_?mul|addmm|addmv|baddbmm|cutlass|cublas|nvjet|wgmma|xmma"
        r"|fully_?connected|inner_product|^ynn_"
        r"|linear_pointwise|split_?kreduce|einsum|" + _any_word("mm bmm mv dot linear ger"),
    ),
    (
        REDUCTION,
        r"bias_add_grad|(?<![a-z])reduce|reduction|"
        + _any_word("sum mean argmax argmin pick loss norm"),
    ),
    # A fusion that also moves data is named after both; it computes.
    (
        ELEMENTWISE,
        r"(add|subtract|multiply|divide|maximum|compare|exponential|tanh|logistic"
        r"|select).*fusion",
    ),
    (
        MEMORY,
        r"copy|transpose|reshape|concat|gather|scatter|embedding|strided|index_?select|expand"
        r"|broadcast|contiguous"
        r"|one_?hot|lookup|convert|permute|"
        + _any_word(
            "cat clone slice split stack unstack pack unpack pad empty zeros ones zero fill "
            "full tile cast to"
        )
        + r"|flatten|"
        + _any_word(
            "view as_strided t take index unsqueeze squeeze narrow detach resize alias iota reverse"
        ),
    ),
    (
        ELEMENTWISE,
        r"element_?wise|elemwise|vectorized|pointwise|activation|relu|sigmoid|tanh|threshold"
        r"|clamp|multi_tensor"
        r"|gradient_descent|fused_sgd|sgd_update|sgd_mom|sgdoptimizer|foreach|accumulator"
        r"|bias_add|cwise|functor"
        r"|fusion|logistic|maximum|minimum|rsqrt|sqrt|"
        + _any_word(
            "sgd add sub mul div neg exp log pow square where select subtract multiply divide "
            "negate compare rsub"
        )
        + r"|"
        + _any_word(
            "addcmul addcdiv axpy scale abs sign gt lt ge le eq ne not and or assign "
            "assign_sub add_n"
        ),
    ),
)
_RULES = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)


def kind(name: str) -> str:
    """Return the kind, one of KINDS, of an operator or kernel of this name."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    for rule, pattern in _RULES:
        if pattern.search(words):
            return rule
    return OTHER


#: One call of an operator, as a trace has it: name, start and duration, in any unit that all spans
#: share.
Span = Tuple[str, float, float]


class Calls(NamedTuple):
    """Calls of one operator in all profiled steps together."""

    name: str
    on_device: bool
    seconds: float  # without the operators that it called
    calls: float


def _by_start(span: Span) -> Tuple[float, float]:
    """Return a sort key: earlier spans first, and the longest first where several begin at once."""
    _, start, duration = span
    return start, -duration


def self_durations(spans: Iterable[Span]) -> List[Tuple[str, float]]:
    """Return (name, own duration) of each span.

    A moment belongs to the current span that began last. For nested spans, such as calls on one
    thread, that is the duration without the spans inside; and where operators ran side by side no
    moment is counted twice.
    """
    ordered = sorted(spans, key=_by_start)
    ends = [start + duration for _, start, duration in ordered]
    own = [0.0] * len(ordered)
    current: List[int] = []  # a heap; the one that began last first
    begun = 0
    moments = sorted({start for _, start, _ in ordered}.union(ends))
    for place, following in enumerate(moments[1:]):
        moment = moments[place]
        while begun < len(ordered) and ordered[begun][1] <= moment:
            heapq.heappush(current, -begun)
            begun += 1
        while current and ends[-current[0]] <= moment:
            heapq.heappop(current)
        if current:
            own[-current[0]] += following - moment
    return [(name, duration) for (name, _, _), duration in zip(ordered, own)]


def run(step: Callable[[], None], synchronize: Callable[[], None], steps: int) -> float:
    """Run this many steps like the timed ones; return their seconds.

    Each starts and ends with an idle device.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return sum(time_one(step, synchronize) for _ in range(steps)) * 1e-9
    finally:
        if collecting:
            gc.enable()


def _by_time(operator: Operator) -> Tuple[float, str]:
    """Return a sort key: the operators that took longest first."""
    return -operator.seconds, operator.name


def profile(profiler: str, steps: int, seconds: float, calls: Iterable[Calls]) -> Profile:
    """Return the profile of this many steps that took these seconds together.

    Calls of the same name are joined.
    """
    totals: Dict[Tuple[str, bool], List[float]] = {}
    for call in calls:
        total = totals.setdefault((call.name, call.on_device), [0.0, 0.0])
        total[0] += call.seconds
        total[1] += call.calls
    operators = []
    for (name, on_device), (all_seconds, count) in totals.items():
        own_seconds = max(0.0, all_seconds) / steps
        operators.append(Operator(name, kind(name), on_device, own_seconds, count / steps))
    operators.sort(key=_by_time)
    return Profile(profiler, steps, seconds / steps, operators)


def undisturbed(parts: List[Profile]) -> Profile:
    """Return the part whose steps took less time than those of three quarters of the parts.

    Other programs only add time. The fastest one is left aside, as its steps may be the luckiest.
    """
    ordered = sorted(parts, key=lambda part: part.step_seconds)
    return ordered[len(ordered) // 4]


# The profiler that TensorFlow and JAX share (TSL's) writes planes, of lines, of events.
#
# A plane is the host or a device, a line a thread of the host or a stream of the device. Besides
# operators, lines hold much else: calls of the runtime, waiting, pieces of loops.
#
# On the CPU a compiled program's operation may continue, on other threads, after the call that
# began it. An event "end: dot.3" then marks the end of "dot.3".

HLO = "hlo_op"  # the statistic that an event of a compiled program's operation carries
_END = "end: "
_FURTHER_GPU = re.compile("/device:GPU:[1-9]")
#: "mean/MatMul:MatMul", a node of a graph and its operation.
_OPERATION = re.compile(r"[^:]+:([A-Za-z_]\w*)")
_NUMBERED = re.compile(r"(?:[._](?:\d+|clone|remat))+$")  # "dot.12.clone": one of many of its name


#: Name, start and duration in nanoseconds, by one clock for all lines, and whether it carries the
#: statistic `HLO`.
TslEvent = Tuple[str, float, float, bool]
#: A thread or a stream: the names of its plane and of its own, and its events.
TslLine = Tuple[str, str, List[TslEvent]]


def tsl_calls(lines: Iterable[TslLine], on_cpu: bool) -> Iterator[Calls]:
    """Yield the calls of the operators on the host, or of the device's kernels and copies."""
    if on_cpu:
        host_events: List[TslEvent] = []
        for plane, _, events in lines:
            if plane.startswith("/host:CPU"):
                host_events += events
        for name, duration in self_durations(_host_spans(host_events)):
            yield Calls(name, False, duration * 1e-9, 1)
        return
    for plane, line, events in lines:
        # Of several GPUs, whose workers do the same side by side, only the first counts.
        is_first_gpu = plane.startswith("/device:GPU") and not _FURTHER_GPU.match(plane)
        # The device's other lines are summaries of its streams.
        if is_first_gpu and line.startswith("Stream"):
            for name, _, duration, _ in events:
                yield Calls(_NUMBERED.sub("", name), True, duration * 1e-9, 1)


def _host_spans(events: List[TslEvent]) -> Iterator[Span]:
    """Yield the spans of operators, named by operation and not by place in the program."""
    ends: Dict[str, List[float]] = {}
    for name, start, _, _ in sorted(events, key=lambda event: event[1]):
        if name.startswith(_END):
            ends.setdefault(name[len(_END) :], []).append(start)
    for name, start, duration, compiled in events:
        match = _OPERATION.fullmatch(name)
        if compiled:
            later = ends.get(name, [])
            place = bisect.bisect_left(later, start)
            done = later[place] if place < len(later) else start
            yield _NUMBERED.sub("", name), start, max(duration, done - start)
        elif match:
            yield match.group(1), start, duration


def tsl_lines_in(directory: str) -> List[TslLine]:
    """Return the lines of the one profile below this directory.

    Raises RuntimeError where the profiler wrote none.
    """
    files = glob.glob(os.path.join(directory, "plugins", "profile", "*", "*.xplane.pb"))
    if not files:
        raise RuntimeError("the profiler wrote no profile")
    with open(files[0], "rb") as file:
        return tsl_lines(file.read())


# The file is a protocol buffer, XSpace (tsl/profiler/protobuf/xplane.proto). Releases differ in
# whether and where they have a reader of it, so it is read here: a message is a sequence of fields,
# each a number, a wire type and a value.
_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5
_SPACE_PLANES = 1
_PLANE_NAME = 2
_PLANE_LINES = 3
_PLANE_EVENT_NAMES = 4
_PLANE_STAT_NAMES = 5
_LINE_NAME = 2
_LINE_TIMESTAMP_NS = 3
_LINE_EVENTS = 4
_EVENT_NAME = 1
_EVENT_OFFSET_PS = 2
_EVENT_DURATION_PS = 3
_EVENT_STATS = 4
_STAT_NAME = 1
_ENTRY_KEY = 1
_ENTRY_VALUE = 2
_METADATA_NAME = 2


def _fields(message: bytes) -> Iterator[Tuple[int, Any]]:
    """Yield the number and the value of each field of a message: an integer, or bytes."""
    place = 0
    end = len(message)
    while place < end:
        tag, place = _varint(message, place)
        number = tag >> 3
        wire = tag & 7
        if wire == _VARINT:
            value, place = _varint(message, place)
            yield number, value
        elif wire == _BYTES:
            length, place = _varint(message, place)
            yield number, message[place : place + length]
            place += length
        elif wire in (_FIXED64, _FIXED32):
            place += 8 if wire == _FIXED64 else 4
        else:
            raise RuntimeError("the profile has a field of unknown type %d" % wire)


def _varint(message: bytes, place: int) -> Tuple[int, int]:
    """Return the integer that begins at a place, and the place after it.

    It has seven bits a byte, the lowest first.
    """
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def tsl_lines(space: bytes) -> List[TslLine]:
    """Return the lines of an XSpace.

    Its events refer to names by number, and count time from their line's.
    """
    planes = [_plane(value) for number, value in _fields(space) if number == _SPACE_PLANES]
    starts = []
    for _, lines, _, _ in planes:
        starts += [begun for _, begun, _ in lines]
    # Nanoseconds since 1970 would take all the digits that a float has.
    first = min(starts, default=0)
    tsl_lines: List[TslLine] = []
    for plane, lines, names, compiled in planes:
        for line, begun, messages in lines:
            events = [_event(message, begun - first, names, compiled) for message in messages]
            tsl_lines.append((plane, line, events))
    return tsl_lines


#: A line's name, the nanosecond at which it begins, and its events as they are written.
_RawLine = Tuple[str, int, List[bytes]]


def _plane(message: bytes) -> Tuple[str, List[_RawLine], Dict[int, str], Set[int]]:
    """Return a plane's name, lines, names of events, and numbers of the statistic `HLO`."""
    name = ""
    lines: List[_RawLine] = []
    names: Dict[int, str] = {}
    compiled: Set[int] = set()
    for number, value in _fields(message):
        if number == _PLANE_NAME:
            name = value.decode("utf-8", "replace")
        elif number == _PLANE_LINES:
            lines.append(_line(value))
        elif number == _PLANE_EVENT_NAMES:
            key, text = _entry(value)
            names[key] = text
        elif number == _PLANE_STAT_NAMES:
            key, text = _entry(value)
            if text == HLO:
                compiled.add(key)
    return name, lines, names, compiled


def _line(message: bytes) -> _RawLine:
    name = ""
    begun = 0
    events: List[bytes] = []
    for number, value in _fields(message):
        if number == _LINE_NAME:
            name = value.decode("utf-8", "replace")
        elif number == _LINE_TIMESTAMP_NS:
            begun = value
        elif number == _LINE_EVENTS:
            events.append(value)
    return name, begun, events


def _entry(message: bytes) -> Tuple[int, str]:
    """Return the key of an entry of a map of names, and the name."""
    key = 0
    name = ""
    for number, value in _fields(message):
        if number == _ENTRY_KEY:
            key = value
        elif number == _ENTRY_VALUE:
            for inner, text in _fields(value):
                if inner == _METADATA_NAME:
                    name = text.decode("utf-8", "replace")
    return key, name


def _event(message: bytes, begun: int, names: Dict[int, str], compiled: Set[int]) -> TslEvent:
    """Return an event of a line that begins at this nanosecond."""
    name = ""
    offset = 0
    duration = 0
    is_compiled = False
    for number, value in _fields(message):
        if number == _EVENT_NAME:
            name = names.get(value, "")
        elif number == _EVENT_OFFSET_PS:
            offset = value
        elif number == _EVENT_DURATION_PS:
            duration = value
        elif number == _EVENT_STATS:
            for inner, statistic in _fields(value):
                if inner == _STAT_NAME and statistic in compiled:
                    is_compiled = True
    return name, begun + offset * 1e-3, duration * 1e-3, is_compiled


# ONNX Runtime: a session profiles from its making to its end or not at all, so the timed ones do
# not. Others, of the same graphs, are made for the profiled steps. Each writes its own profile when
# it ends.

if TYPE_CHECKING:
    # ONNX Runtime is not installed where the host reads a profile.
    from .onnx_sessions import SessionAdapter

ONNX_PROFILER = "ONNX Runtime's profiling"
WARMUP = 2  # runs of a new session before the ones that count
MICROSECONDS = 1e-6
#: Older versions write several events of a node: this is the one of its kernel.
_KERNEL_TIME = "_kernel_time"


def take_onnx_profile(
    adapter: "SessionAdapter",
    open_sessions: Callable[[Any], object],
    close_sessions: Callable[[], object],
    steps: int,
) -> Profile:
    """Run this many steps in further sessions; return their profile.

    They are opened by ``open_sessions(options)``, and closed by ``close_sessions()``.
    """
    options = adapter.session_options()
    with tempfile.TemporaryDirectory(
        prefix="onnxruntime-", dir=adapter.cache_directory
    ) as directory:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(directory, "profile")
        open_sessions(options)
        run(adapter.step, adapter.synchronize, WARMUP)
        seconds = run(adapter.step, adapter.synchronize, steps)
        close_sessions()
        calls: List[Calls] = []
        for path in glob.glob(os.path.join(directory, "*.json")):
            with open(path, encoding="utf-8") as file:
                calls += onnx_calls(json.load(file), WARMUP)
    return profile(ONNX_PROFILER, steps, seconds, calls)


def onnx_calls(events: List[Dict[str, Any]], skipped: int) -> Iterator[Calls]:
    """Yield the calls of each node, by its operator, after the first ``skipped`` runs.

    An event of a node is the CPU's time; one of a kernel, which builds for GPUs may write, the
    device's.
    """
    runs = sorted(float(event["ts"]) for event in events if event.get("name") == "model_run")
    if len(runs) <= skipped:
        return
    first = runs[skipped]
    spans_by_thread: Dict[Any, List[Span]] = {}
    for event in events:
        if float(event.get("ts", 0)) < first:
            continue
        if event.get("cat") == "Kernel":
            yield Calls(str(event["name"]), True, float(event["dur"]) * MICROSECONDS, 1)
        elif event.get("cat") == "Node" and str(event.get("name")).endswith(_KERNEL_TIME):
            span = (str(event["args"]["op_name"]), float(event["ts"]), float(event["dur"]))
            spans_by_thread.setdefault((event.get("pid"), event.get("tid")), []).append(span)
    for spans in spans_by_thread.values():
        for name, duration in self_durations(spans):
            yield Calls(name, False, duration * MICROSECONDS, 1)
