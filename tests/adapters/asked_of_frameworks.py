"""What is asked of several frameworks in the same words, by the guest inside each framework's own
interpreter.

Each question gives, for a framework's options, the check that is asked of its guest:
``asked.rate()(guest)``.
"""

from collections.abc import Iterable, Sequence
from functools import wraps
from typing import Any

from inside import Guest

from dlbench.suites.planning.framework import find

#: Every framework asked builds so many small networks: those of the first four families.
OF_ALL = 6


def question(ask):
    """Make a question of a function that asks a guest: given a framework's options, it returns the
    check."""

    @wraps(ask)
    def with_options(*arguments, **named):
        @wraps(ask)
        def check(guest: Guest) -> None:
            ask(guest, *arguments, **named)

        return check

    return with_options


@question
def reference(guest: Guest, only: Sequence[str] = (), **settings: Any) -> None:
    """Every kind of layer, odd sizes and strides that do not divide: three steps against
    float64."""
    verdicts = guest(f"""
from guest.reference.adapter import ReferenceAdapter
answer = {{}}
for name in {list(only)!r} or built(**{settings!r}):
    network = EVERY[name]
    found, expected = [
        small.parity_observation(parity, batches, adapter, network, 4)
        for adapter in (
            make(name, **{settings!r}),
            ReferenceAdapter(Cell("reference", "reference", "", name, "cpu", 1, 4), {{}}, ""),
        )
    ]
    verdict = parity.judge(found, expected, network.parity)
    answer[name] = (verdict.verdict, verdict.reason)
""")
    assert len(verdicts) >= (len(only) or OF_ALL)
    assert {verdict for verdict, _ in verdicts.values()} == {"agrees"}, verdicts


#: Gives what an adapter shows whose steps take the mini-batches in a folder.
FED = """
from guest.launch import feeds
from guest.protocol import Launch, Protocol
os.makedirs(CACHE, exist_ok=True)

def fed(adapter, network, folder):
    launch = Launch(adapter.cell, Protocol(), {}, CACHE, feed=folder)
    return small.fed_observation(feeds, parity, batches, launch, adapter, network)
"""
#: Images, symbols behind an embedding and as one-hot vectors, and numbers: every kind of a feed's
#: file.
FED_NETWORKS = ("small-convolutional", "small-recurrent", "one-hot-gru", "small-elman")
PLACED = (("fed", 0), ("prefetched", 0), ("loader", 0), ("loader", 2))


@question
def feeding(guest: Guest, only: Sequence[str] = FED_NETWORKS, **settings: Any) -> None:
    """Each step takes its own mini-batch, from memory, ahead of it and by the loader, as the
    reference does."""
    verdicts = guest(f"""{FED}
from guest.reference.adapter import ReferenceAdapter
answer = {{}}
for name in {list(only)!r}:
    network = SMALL[name]
    folder = small.write_feeds(feeds, batches, network, CACHE)
    cell = Cell("reference", "reference", "", name, "cpu", 1, 4, placement="fed")
    expected = fed(ReferenceAdapter(cell, {{}}, ""), network, None)
    for placement, workers in {PLACED!r}:
        adapter = make(name, placement=placement, loader_workers=workers, **{settings!r})
        assert adapter.supports(network)[0], adapter.supports(network)[1]
        verdict = parity.judge(fed(adapter, network, folder), expected, network.parity)
        answer[str((name, placement, workers))] = (verdict.verdict, verdict.reason)
""")
    assert len(verdicts) == len(only) * len(PLACED)
    assert {verdict for verdict, _ in verdicts.values()} == {"agrees"}, verdicts


@question
def rate(
    guest: Guest, same: str = "0", setup: str = "", network: str = "small-dense", **options: Any
) -> None:
    """Steps at the rates 0, 0.5 and 0 move the parameters at 0.5 alone; the expression ``same``
    keeps one value."""
    moved, different = guest(f"""{setup}
adapter = prepared({network!r}, **{options!r})
moved, different = [], set()
for rate in (0.0, 0.5, 0.0):
    before = {{name: value.copy() for name, value in adapter.parameters()}}
    adapter.set_learning_rate(rate)
    adapter.step(); adapter.synchronize()
    different.add({same})
    moved.append(any((value != before[name]).any() for name, value in adapter.parameters()))
answer = moved, len(different)
""")
    assert moved == [False, True, False]
    assert different == 1, "something was compiled, traced or made anew for another rate"


#: Gives ``as_fresh(name, make_adapter, same)``: what is different where an adapter is reset from
#: where it is made anew. ``make_adapter()`` makes one, and ``same(adapter)`` is to keep its value.
AS_FRESH = """
from collections.abc import Mapping

class Drawn(Mapping):
    def __init__(self, weights):
        self.weights, self.names, self.copies = weights, [], []
    def __getitem__(self, name):
        self.names.append(name)
        self.copies.append(self.weights[name].copy())
        return self.copies[-1]
    def __iter__(self):
        return iter(self.weights)
    def __len__(self):
        return len(self.weights)

def two_steps(adapter, network):
    adapter.set_learning_rate(network.parity.learning_rate)
    losses = []
    for _ in range(2):
        adapter.step(); adapter.synchronize()
        losses.append(adapter.last_loss())
    return losses, {name: value.copy() for name, value in adapter.parameters()}

def as_fresh(name, make_adapter, same, examples=4, repeated=None):
    network = EVERY[name]
    other = network._replace(name=name + ", other numbers")
    weights = batches.initial_weights(other)
    weights = {key: 0.9 * value + np.float32(0.01) for key, value in weights.items()}
    first = batches.mini_batch(network, examples, repeated)
    second = batches.mini_batch(other, examples, repeated)
    first_before = [array.copy() for array in first]
    adapter = make_adapter()
    adapter.prepare(network, batches.initial_weights(network), first)
    two_steps(adapter, network)
    drawn, arrays, step = Drawn(weights), [array.copy() for array in second], same(adapter)
    adapter.reset(drawn, batches.Batch(*arrays))
    # The host may draw the next arrays into the memory of these.
    for array in drawn.copies + arrays:
        array[...] = 0
    losses, values = two_steps(adapter, network)
    again = same(adapter)
    fresh = make_adapter()
    fresh.prepare(network, {key: value.copy() for key, value in weights.items()}, second)
    expected_losses, expected = two_steps(fresh, network)
    different = []
    if sorted(drawn.names) != sorted(weights):
        different.append("each weight is to be looked up once")
    if not all(map(np.array_equal, first, first_before)):
        different.append("the first mini-batch, which is not the adapter's")
    if not np.allclose(losses, expected_losses, 1e-5, 0.0):
        different.append("losses")
    for key, value in expected.items():
        if not np.allclose(values[key], value, 1e-4, 1e-6):
            different.append(key)
    if step != again:
        different.append("the step, which was made anew")
    return different
"""


@question
def reset(
    guest: Guest,
    same: str = "0",
    setup: str = "",
    only: Sequence[str] = (),
    expression: str = "make(name)",
    **settings: Any,
) -> None:
    """After ``reset`` the steps are those of an adapter that was prepared with the same weights and
    mini-batch.

    The expression ``same`` keeps its value. ``expression`` makes an adapter, with the settings
    where there are any.
    """
    expression = f"make(name, **{settings!r})" if settings else expression
    different = guest(f"""{setup}{AS_FRESH}
answer = {{}}
for name in {list(only)!r} or built(**{settings!r}):
    answer[name] = as_fresh(name, lambda: {expression}, lambda adapter: {same})
""")
    assert len(different) >= (len(only) or OF_ALL)
    assert not any(different.values()), different


@question
def memory(
    guest: Guest,
    provoked: dict[str, bool],
    setup: str = 'adapter = prepared("small-dense"); adapter.step(); adapter.synchronize()',
    further_bytes: int | None = None,
) -> None:
    """Each expression fails, and the adapter tells whether it was for want of memory.

    ``further_bytes`` is the memory that the process may still ask for once it is set up; None sets
    no limit.
    """
    answers = guest(f"""
import resource
{setup}
answer, further = [], {further_bytes}
if further is not None:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + further, resource.RLIM_INFINITY))
for provoke in ({", ".join(f"lambda: {expression}" for expression in provoked)},):
    try:
        provoke()
        answer.append(("no exception", "", None))
    except Exception as error:
        answer.append((type(error).__name__, str(error)[-300:], adapter.is_out_of_memory(error)))
""")
    assert [memory for _, _, memory in answers] == list(provoked.values()), answers


@question
def queue(guest: Guest) -> None:
    """A step of a wide network comes back well before it is done; ``synchronize`` waits for it."""
    queued, waited = guest("""
        import time
        wide = families.Feedforward(1024, (2048,), 1024, "relu")
        network = SMALL["small-dense"]._replace(family=wide)
        adapter = make("small-dense")
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 128))
        adapter.step(); adapter.synchronize()
        queued, waited = [], []
        for _ in range(5):
            start = time.perf_counter(); adapter.step(); queued.append(time.perf_counter() - start)
            adapter.synchronize(); waited.append(time.perf_counter() - start)
        answer = sorted(queued)[2], sorted(waited)[2]
    """)
    assert waited > 2 * queued


@question
def completion(guest: Guest, **settings: Any) -> None:
    """Nothing of a step is left to do after ``synchronize``: a loss may be ready before the
    update."""
    working, resting = guest(f"""
        import time
        wide = families.Feedforward(2048, (4096, 4096), 2048, "relu")
        network = SMALL["small-dense"]._replace(family=wide)
        adapter = make("small-dense", **{settings!r})
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
        for _ in range(2):
            adapter.step(); adapter.synchronize()
        working, resting = [], []
        for _ in range(5):
            start = time.process_time(); adapter.step(); adapter.synchronize(); done = time.process_time()
            time.sleep(0.2)
            working.append(done - start)
            resting.append(time.process_time() - done)
        answer = sorted(working)[2], sorted(resting)[2]
    """)
    assert resting < 0.1 * working, (working, resting)


@question
def capabilities(guest: Guest, **expected: bool) -> None:
    """The adapter has an answer to each question, and says how it knows."""
    answers: dict[str, Any] = guest('answer = make("small-dense").capabilities()')
    assert {name: answer for name, (answer, _) in answers.items()} == expected
    assert all(how for _, how in answers.values())


def _threads(
    guest: Guest, threads: int, settings: dict[str, Any], setup: str = "", **variables: str
) -> int | None:
    return guest(
        f"{setup}\nanswer = make('small-dense', threads={threads}, "
        f"**{settings!r}).effective_threads()",
        **variables,
    )


@question
def threads_of_cells(guest: Guest, environment: str = "{}", **settings: Any) -> None:
    """Threads are the cell's whatever the environment says."""
    assert [
        _threads(guest, threads, settings, f"os.environ.update({environment})")
        for threads in (1, 2, 5)
    ] == [1, 2, 5]


@question
def threads_of_variables(guest: Guest, name: str, **settings: Any) -> None:
    """The framework reports the threads of its variables; a setting without effect shows."""
    framework = find(name)
    variables = framework.launch_variables(framework.default_mode, 5)
    assert [_threads(guest, threads, settings) for threads in (1, 4)] == [1, 1]
    assert _threads(guest, 5, settings, **variables) == 5


@question
def refusal(guest: Guest, *words: str, network: str = "small-dense", **settings: Any) -> None:
    """A setting that is not known is refused with these words, those that are known among them."""
    answers = guest(f"""
        try:
            answer = make({network!r}, **{settings!r}) and "accepted"
        except ValueError as error:
            answer = str(error)
    """)
    assert all(word in answers for word in words), answers


@question
def refusal_of_cells(guest: Guest) -> None:
    """What it cannot do is refused with a reason that names it."""
    output = guest("""
        from guest.launch import contract
        network = SMALL["small-dense"]
        answer = [contract.supports(make(network.name, **changes), network)
                  for changes in ({"device": "tpu:0"}, {"precision": "float8"})]
    """)
    check_reasons(output, ["tpu:0", "float8"])


@question
def one_bias(guest: Guest, seconds: str) -> None:
    """One bias per gate is trained: the second ones, which the expression gives, stay 0."""
    assert guest(f"""
        adapter = prepared("small-recurrent")
        for _ in range(3):
            adapter.step()
        answer = [float(abs(value).max()) for value in {seconds}]
    """) == [0.0, 0.0]


def check_reasons(answers: list[list[Any]], words: list[str]) -> None:
    """Each answer of ``supports`` is a refusal with these words in its reason, or none where the
    words are empty."""
    for (supported, reason), part in zip(answers, words, strict=True):
        assert supported is (part == ""), reason
        assert part in reason


def check_bfloat16_is_float32_but_for_its_rounding(guest: Guest, networks: Iterable[str]) -> None:
    """One step: after it the trajectories of a normalised network part, as they do in float32 at
    full size."""
    answers = guest(f"""
        answer = {{}}
        for name in {list(networks)!r}:
            network = SMALL[name]._replace(parity=SMALL[name].parity._replace(steps=1))
            rounded, exact = [
                small.parity_observation(parity, batches, make(name, precision=precision), network, 4)
                for precision in ("bfloat16", "float32")
            ]
            allowance = parity.allowance(network, "bfloat16")
            verdict = parity.judge(rounded, exact, network.parity, allowance)
            answer[name] = (verdict.verdict, verdict.reason, verdict.update_error)
    """)
    assert {verdict for verdict, _, _ in answers.values()} == {"agrees"}, answers
    assert all(error > 1e-4 for _, _, error in answers.values()), (
        "it computed in float32 all the same"
    )


@question
def pool(guest: Guest, threads: int, sessions: int) -> None:
    """ONNX Runtime: each session starts a pool of its own, in which the thread that calls it works
    too."""
    says, started = guest(f"""
        adapter, network = make("small-dense", threads={threads}), SMALL["small-dense"]
        before = len(os.listdir("/proc/self/task"))
        adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, 4))
        adapter.step()
        answer = adapter.effective_threads(), len(os.listdir("/proc/self/task")) - before
    """)
    assert says == threads
    assert started == sessions * (threads - 1)


@question
def spinning(guest: Guest) -> None:
    """ONNX Runtime: waiting threads spin only while there is a core for each, unless a setting says
    otherwise."""
    spins, forced = guest("""
        cores = len(os.sched_getaffinity(0))
        chosen = [make("small-dense", threads=n, spin="within_cores") for n in (1, cores, cores + 1)]
        spins = [each.describe()["allow_spinning"] for each in chosen]
        forced = [make("small-dense", spin=how).describe()["allow_spinning"] for how in ("always", "never")]
        answer = spins, forced
    """)
    assert spins == [True, True, False]
    assert forced == [True, False]


#: A step of so many examples of a small network asks for more memory than is left.
_MANY_EXAMPLES = """
network, examples = SMALL["small-dense"], 3000000
adapter = make("small-dense", batch_size=examples)
adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, examples))
"""


def onnx_sessions(sessions: int, same: str) -> list[Any]:
    """ONNX Runtime: what is asked of an adapter with so many sessions, which the expression
    ``same`` gives."""
    provoked = {"adapter.step()": True, "np.ones(3) @ np.ones(4)": False}
    return [
        *(pool(threads, sessions) for threads in (1, 2, 5)),
        spinning(),
        rate(same),
        memory(provoked, _MANY_EXAMPLES, 2**26),
    ]
