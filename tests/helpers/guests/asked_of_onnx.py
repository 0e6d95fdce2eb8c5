"""What is asked of both adapters that run ONNX Runtime's sessions, in the same words."""

from asked_of_frameworks import Check, memory, question
from inside import Guest


@question
def pool(guest: Guest, threads: int, sessions: int) -> None:
    """ONNX Runtime: each session starts a pool of its own, in which the thread that calls it works too."""
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
    """ONNX Runtime: waiting threads spin only while there is a core for each, unless they are told to or not to."""
    spins, forced = guest("""
        cores = len(os.sched_getaffinity(0))
        chosen = [make("small-dense", threads=n, spin="within_cores") for n in (1, cores, cores + 1)]
        spins = [each.describe()["allow_spinning"] for each in chosen]
        forced = [make("small-dense", spin=how).describe()["allow_spinning"] for how in ("always", "never")]
        answer = spins, forced
    """)
    assert spins == [True, True, False]
    assert forced == [True, False]


@question
def rates_in_proportion(guest: Guest, same: str) -> None:
    """A new rate holds from the next step; the expression ``same`` keeps its value meanwhile."""
    still, ratio, kept = guest(f"""
        adapter = prepared("small-dense")
        first = {same}
        def move(rate):
            before = {{name: value.copy() for name, value in adapter.parameters()}}
            adapter.set_learning_rate(rate)
            adapter.step()
            return max(float(np.abs(value - before[name]).max()) for name, value in adapter.parameters())
        still, few, many = move(0.0), move(1e-3), move(1e-1)
        answer = still, many / few, first == {same}
    """)
    assert still == 0.0
    # Gradients change little in so short a way.
    assert 95.0 < ratio < 105.0
    assert kept


#: A step of so many examples of a small network asks for more memory than is left.
_MANY_EXAMPLES = """
network, examples = SMALL["small-dense"], 3000000
adapter = make("small-dense", batch_size=examples)
adapter.prepare(network, batches.initial_weights(network), batches.mini_batch(network, examples))
"""


def onnx_sessions(sessions: int, same: str) -> list[Check]:
    """ONNX Runtime: what is asked of an adapter with so many sessions, which the expression ``same`` gives."""
    provoked = {"adapter.step()": True, "np.ones(3) @ np.ones(4)": False}
    return [
        *(pool(threads, sessions) for threads in (1, 2, 5)),
        spinning(),
        rates_in_proportion(same),
        memory(provoked, _MANY_EXAMPLES, 2**26),
    ]
