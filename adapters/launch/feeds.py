"""Feeds: mini-batches for launches in which each step takes another one.

All frameworks read the same files. A file holds the mini-batches of one network and size one after
another: inputs, then labels, padded to whole pages. Images are stored like decoded photographs, as
8-bit numbers with the channels last. Whole numbers are int32, all others float32. The host writes
two of them, one to be timed and one for the parity check, which restarts at its first mini-batch.

`Feed` reads and decodes mini-batches, `Feeder` hands them to an adapter as the cell's placement
says:

``fed``  from arrays in the host's memory, converted and copied within the step
``prefetched``  the same in a thread, one mini-batch ahead of the step
``loader``  from the file, by the framework's own loader (``Adapter.load``)
"""

import collections
import itertools
import os
from typing import Any, Callable, Dict, Generator, Iterator, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from ..base import Adapter, Unsupported
from ..families import Drawn
from ..networks import Network
from ..protocol import LOADER, Launch
from .batches import CHECKED, Batch, draw, one_hot, seeded

#: Records begin at multiples of this, so that a system can drop each from its memory.
PAGE = 4096
#: Of all mini-batches that are timed, as float32: more than caches hold.
_HELD_BYTES = 256 * 1024**2
#: Limits of their number.
_FEWEST = 4
_MOST = 64
#: NumPy's types of the numbers in a file.
IMAGES = "|u1"
SYMBOLS = "<i4"
NUMBERS = "<f4"
#: An image's numbers from 0 to 255 become numbers from -1 to 1, times its scale: the same bits in
#: every framework.
MIDDLE = 128.0
SHARED_MEMORY = "/dev/shm"


class FeedError(Exception):
    """A feed's file that cannot be read; the text gives the remedy."""


class RecordField(NamedTuple):
    """The inputs, or the labels, of every record."""

    drawn: Drawn  # of an example, as the family declares it
    type: str  # NumPy's, in the file
    #: Of the whole mini-batch in the file: images channels last, of one-hot vectors the symbols.
    shape: Tuple[int, ...]
    offset: int  # bytes
    length: int

    @property
    def scale(self) -> float:
        """Return the factor of an image's numbers from -`MIDDLE` on."""
        return self.drawn.scale / MIDDLE


def _part(drawn: Drawn, batch_size: int, offset: int) -> RecordField:
    shape = drawn.shape[:-1] if drawn.one_hot else drawn.shape
    if drawn.below is not None:
        kind = SYMBOLS
    elif len(drawn.shape) == 3:
        kind = IMAGES
        shape = shape[1:] + shape[:1]
    else:
        kind = NUMBERS
    shape = (batch_size,) + shape
    length = int(np.prod(shape)) * np.dtype(kind).itemsize
    return RecordField(drawn, kind, shape, offset, length)


def path_of(folder: str, batch_size: int, purpose: str) -> str:
    """Return the path of a feed's file in the folder of its network."""
    return os.path.join(folder, "%sb%d.feed" % (purpose, batch_size))


class Feed:
    """The mini-batches of a network at one size, by number, from 0 on.

    They repeat from `count` on.
    """

    def __init__(
        self,
        network: Network,
        batch_size: int,
        purpose: str,
        folder: Optional[str] = None,
        storage: str = "cache",
    ) -> None:
        """Open the file in this folder; without a folder each mini-batch is drawn when it is read.

        From the storage "disk" each mini-batch is read anew, since the system is asked to drop what
        was read.
        """
        self.network = network
        self.batch_size = batch_size
        self._purpose = purpose
        inputs = _part(network.family.drawn_inputs(), batch_size, 0)
        self.parts = (inputs, _part(network.family.drawn_labels(), batch_size, inputs.length))
        length = sum(part.length for part in self.parts)
        self.record_bytes = -(-length // PAGE) * PAGE
        if purpose == CHECKED:
            self.count = network.parity.steps
        else:
            held = _HELD_BYTES // network.family.batch_bytes(batch_size)
            self.count = min(_MOST, max(_FEWEST, held))
        self.path = None if folder is None else path_of(folder, batch_size, purpose)
        self._dropped = storage == "disk"
        self._file: Any = None if self.path is None else self._open(self.path)

    def _open(self, path: str) -> Any:
        expected_size = self.count * self.record_bytes
        try:
            file: Any = open(path, "rb", buffering=0)  # noqa: SIM115 - it stays open
            size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise Unsupported(
                "its mini-batches cannot be read: %s; start the run again" % error
            ) from None
        if size != expected_size:
            words = (
                "%s has %d bytes, not %d: it was changed since the run began; start the run again, "
                "which repairs it"
            )
            raise Unsupported(words % (path, size, expected_size))
        if self._dropped:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(2**24):  # once, so that the system has it in memory
                pass
        return file

    def drawn(self) -> Iterator[bytes]:
        """Yield every record, drawn by the network's name, the size and the purpose.

        Together they are the content of the file.
        """
        return map(self._draw, range(self.count))

    def _draw(self, number: int) -> bytes:
        stream = seeded(self._purpose + "feed", self.network.name, self.batch_size, number)
        record = b""
        for part in self.parts:
            if part.type == IMAGES:
                record += stream.bytes(part.length)
            else:
                symbols = part.drawn._replace(shape=part.shape[1:], one_hot=False)
                record += draw(stream, self.batch_size, symbols).astype(part.type).tobytes()
        return record.ljust(self.record_bytes, b"\0")

    def record(self, number: int) -> bytes:
        """Return the bytes of a mini-batch; raises FeedError where the file ends before."""
        number %= self.count
        if self._file is None:
            return self._draw(number)
        descriptor = self._file.fileno()
        start = number * self.record_bytes
        record = os.pread(descriptor, self.record_bytes, start)
        if len(record) < self.record_bytes:
            words = (
                "%s ends within mini-batch %d of %d: it was cut; start the run again, which "
                "repairs it"
            )
            raise FeedError(words % (self.path, number + 1, self.count))
        if self._dropped:
            os.posix_fadvise(descriptor, start, self.record_bytes, os.POSIX_FADV_DONTNEED)
        return record

    def __getitem__(self, number: int) -> Batch:
        """Return a mini-batch in canonical layout, in arrays of its own.

        Images are a view of channels last.
        """
        record = self.record(number)
        return Batch(*[_decode(record, part) for part in self.parts])


def _decode(record: bytes, part: RecordField) -> np.ndarray:
    count = part.length // np.dtype(part.type).itemsize
    values = np.frombuffer(record, part.type, count, part.offset).reshape(part.shape)
    if part.drawn.below is not None:
        return one_hot(values, part.drawn.below) if part.drawn.one_hot else values.astype(np.int64)
    numbers: np.ndarray = values.astype(np.float32)
    if part.type == IMAGES:
        numbers -= MIDDLE
        numbers *= part.scale
        return numbers.transpose(0, 3, 1, 2)
    return numbers


def ahead(make: Callable[[int], Any], workers: int, depth: int) -> Generator[Any, None, None]:
    """Yield make(0), make(1) and so on without end, made ahead by threads.

    So many ``workers`` make ``depth`` of them ahead. Without threads each is made when it is asked
    for.
    """
    if not workers:
        for number in itertools.count():
            yield make(number)
    from concurrent.futures import ThreadPoolExecutor  # loads much that other launches do not need

    pool = ThreadPoolExecutor(workers)
    try:
        waiting: Any = collections.deque(pool.submit(make, number) for number in range(depth))
        for number in itertools.count(depth):
            ready = waiting.popleft().result()
            waiting.append(pool.submit(make, number))
            yield ready
    finally:
        pool.shutdown(wait=False)


def check_shared_memory(feed: Feed, workers: int) -> None:
    """Raise Unsupported where the shared memory cannot hold the mini-batches that are loaded ahead.

    Each of these processes loads two ahead.
    """
    needed = 2 * (workers + 1) * feed.network.family.batch_bytes(feed.batch_size)
    try:
        filesystem = os.statvfs(SHARED_MEMORY)
    except OSError:
        return
    free = filesystem.f_bavail * filesystem.f_frsize
    if workers and free < needed:
        words = (
            "loader workers %d: these processes hand mini-batches over in shared memory, and need "
            "%.0f MB of it; %s has %.0f MB free: make it larger (docker run --shm-size), or use "
            "fewer workers"
        )
        raise Unsupported(words % (workers, needed / 1e6, SHARED_MEMORY, free / 1e6))


class Feeder:
    """An adapter whose every step takes the next mini-batch of a feed.

    Other attributes are the adapter's own.
    """

    def __init__(self, adapter: Adapter, network: Network, launch: Launch, purpose: str) -> None:
        self._adapter = adapter
        self._network = network
        self._launch = launch
        self._purpose = purpose
        self._source: Any = None
        self._ready: Iterator[Any] = iter(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        """Prepare the adapter with a mini-batch of the right shape, and begin the feed."""
        self._adapter.prepare(network, weights, batch)
        self._begin(self._purpose)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Reset the adapter, and begin the feed of the parity check.

        None of its mini-batches is ``batch``.
        """
        self.close()
        self._adapter.reset(weights, batch)
        self._begin(CHECKED)

    def step(self) -> None:
        self._adapter.take(next(self._ready))
        self._adapter.step()

    def close(self) -> None:
        """End the feed, and with it the threads or processes of a loader."""
        self._source.close()

    def _begin(self, purpose: str) -> None:
        cell = self._launch.cell
        hand_over = self._adapter.hand_over
        feed = Feed(self._network, cell.known_batch_size, purpose, self._launch.feed, cell.storage)
        if cell.placement != LOADER:
            held = [feed[number] for number in range(feed.count)]
            count = feed.count

            def hand_over_next(number: int) -> Any:
                return hand_over(held[number % count])

            self._source = ahead(hand_over_next, cell.helpers, 1)
        elif feed.path is None:
            raise Unsupported(
                "placement loader: there is no file to load from; the run says why none was written"
            )
        else:
            self._source = self._adapter.load(feed)
        # The start of a loader belongs to no step.
        first = [] if cell.placement == "fed" else [next(self._source)]
        self._ready = itertools.chain(first, self._source)


def close(adapter: Any) -> None:
    """End the feed of an adapter that has one."""
    if isinstance(adapter, Feeder):
        adapter.close()
