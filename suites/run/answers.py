"""Reads the folder that a guest leaves: its phase and its answer.

Nothing in it is trusted. A guest can replace a file by anything (a link, a FIFO, a folder, a
gigabyte), and reading must neither hang nor fill the memory. Types, ranges, lengths and consistency
of an answer are checked by models made from the protocol's own tuples, which refuse other keys.
"""

import itertools
import json
import os
import stat
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from dlbench.adapters.launch.batches import BLOCK
from dlbench.adapters.networks import from_data
from dlbench.adapters.protocol import (
    OUTCOME_FILE,
    PHASE_FILE,
    SCHEMA_VERSION,
    Answer,
    Launch,
    ProtocolError,
    Status,
    answer_from_dict,
)

from ..planning.toml_files import sentence

MOST_BYTES = 64 * 1024**2
"""Most bytes of an answer."""
_PHASE_BYTES = 4096
_SHARE_OF_CALLS = 0.5
"""Least share of a sample's time that its calls take."""


class UnreadableError(Exception):
    """A guest's file is no plain file, too large or inconsistent. The text says which."""


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Return the JSON in a plain file, in which NaN and Infinity are not allowed.

    Raises FileNotFoundError and UnreadableError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableError(f"{path.name} is not a plain file: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UnreadableError(f"{path.name} is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        limit = f"{most} bytes"
        if most >= 1024**2:
            limit = f"{most // 1024**2} MiB"
        size = max(status.st_size, len(content))
        raise UnreadableError(f"{path.name} has {size} bytes, more than {limit}")
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise UnreadableError(f"{path.name} is not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise UnreadableError(f"{path.name} is not valid JSON: {str(error)[:200]}") from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def read_phase(directory: Path) -> tuple[str, float | None]:
    """Return the phase that the guest reports, and its expected seconds if it gives any."""
    try:
        content = read_json(directory / PHASE_FILE, _PHASE_BYTES)
        phase = content["phase"]
        seconds = content.get("expected_seconds")
        is_valid = seconds is None or (seconds is not True and 0 <= seconds < 1e9)
        if phase.isprintable() and is_valid:
            return phase[:40], seconds
    except (OSError, UnreadableError, TypeError, KeyError, AttributeError):
        pass
    return "", None


def read_step_seconds(directory: Path) -> float | None:
    """Return the seconds of a step that the guest reported when its phase began.

    None if it had done no step.
    """
    try:
        seconds = read_json(directory / PHASE_FILE, _PHASE_BYTES).get("step_seconds")
    except (OSError, UnreadableError, AttributeError):
        return None
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and 0 <= seconds < 1e9:
        return float(seconds)
    return None


def bytes_in(directory: Path, most: int) -> int:
    """Return the bytes of the files below a folder, without looking further than ``most``."""
    total = 0
    waiting = [str(directory)]
    while waiting and total <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total


_LARGEST = 2**62
_LONGEST_TEXT, _LONGEST_LIST, _MOST_KEYS = 20_000, 1_000_000, 10_000
_SOFTWARE_BYTES, _SOFTWARE_DEPTH = 4 * 1024**2, 20
_SIGNED = ("final_loss", "losses", "updates", "outputs", "curve", "test_loss")
"""Numbers that may be below zero."""
_GUEST_STATUSES = (Status.OK, Status.UNSUPPORTED, Status.OUT_OF_MEMORY, Status.CRASHED)
"""Statuses that a guest may report. The others are reserved for the host."""
_EMPTY_KEYS = ("parity", "outside", "statistics", "paused_ns")
"""Keys that adapters of an earlier revision leave empty: they are the host's."""


def read_answer(directory: Path, launch: Launch) -> Answer:
    """Return a guest's answer.

    Raises FileNotFoundError, and UnreadableError with the reason.
    """
    content = read_json(directory / OUTCOME_FILE)
    if not isinstance(content, dict):
        raise UnreadableError(f"{OUTCOME_FILE} is not a JSON object")
    version = content.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise UnreadableError(
            f"{OUTCOME_FILE} has schema version {str(version)[:20]}, not {SCHEMA_VERSION}"
        )
    for key in _EMPTY_KEYS:
        if not content.get(key):
            content.pop(key, None)
    try:
        _model(Answer).model_validate(content)
        answer = answer_from_dict(content)
    except ValidationError as error:
        raise UnreadableError(f"{OUTCOME_FILE}: {sentence(error, _model(Answer))}") from error
    except (ProtocolError, ValueError) as error:
        raise UnreadableError(str(error)[:300]) from error
    for contradiction in _contradictions(answer, launch):
        raise UnreadableError(contradiction)
    return answer


@cache
def _model(kind: Any) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        fields[name] = (_checked_type(hint, name in _SIGNED), kind._field_defaults.get(name, ...))
    return create_model(kind.__name__, __config__=ConfigDict(extra="forbid", strict=True), **fields)


def _checked_type(hint: Any, signed: bool) -> Any:
    """Return a type with the ranges and lengths that such a value may have."""
    if hasattr(hint, "_fields"):
        return _model(hint)
    if hint is int:
        return Annotated[int, Field(ge=0, le=_LARGEST)]
    if hint is float:
        least = -1e300 if signed else 0.0
        return Annotated[float, Field(allow_inf_nan=False, ge=least, le=1e300)]
    if hint is str:
        return Annotated[str, Field(max_length=_LONGEST_TEXT)]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return typing.Literal[*(member.value for member in hint)]
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is list:
        item = _checked_type(arguments[0], signed)
        return Annotated[list[item], Field(max_length=_LONGEST_LIST)]  # type: ignore[valid-type]
    if origin is dict:
        value = _checked_type(arguments[1], signed)
        return Annotated[dict[str, value], Field(max_length=_MOST_KEYS)]  # type: ignore[valid-type]
    if origin is typing.Union:
        inner = next(argument for argument in arguments if argument is not type(None))
        return _checked_type(inner, signed) | None
    return hint


def _contradictions_of_calls(answer: Answer, launch: Launch) -> Iterator[str]:
    """Yield the inconsistencies between the times of single calls and those of samples."""
    calls, in_sample = answer.calls_ns, answer.steps_per_sample
    if not launch.cell.infers or not launch.cell.cpu_quota:
        yield "calls_ns: single calls are timed in inference under a CPU quota alone"
    if len(calls) != len(answer.samples_ns) * in_sample:
        yield f"{len(calls)} calls in {len(answer.samples_ns)} samples of {in_sample}"
        return
    for number, sample in enumerate(answer.samples_ns):
        together = sum(calls[number * in_sample : (number + 1) * in_sample])
        # The process may also wait for a CPU between two calls.
        if not _SHARE_OF_CALLS * sample <= together <= sample:
            yield (
                f"calls_ns: those of sample {number} take {together} ns, and the sample {sample} ns"
            )


def _contradictions(answer: Answer, launch: Launch) -> Iterator[str]:
    """Yield the inconsistencies in an answer, and its mismatches with the request."""
    if answer.status not in _GUEST_STATUSES:
        yield f"status {answer.status.value} is reserved for the host"
    if (
        not _is_shallow(answer.software, _SOFTWARE_DEPTH)
        or len(json.dumps(answer.software)) > _SOFTWARE_BYTES
    ):
        yield (
            f"software: more than {_SOFTWARE_BYTES // 1024**2} MiB, or nested deeper than "
            f"{_SOFTWARE_DEPTH}"
        )
    if answer.status is not Status.OK or not launch.times_steps:
        return
    yield from _contradictions_of_samples(answer, launch)
    requested = None
    if answer.threads is not None:
        requested = answer.threads.requested
    if requested != launch.all_threads:
        yield f"threads.requested: {requested}, where {launch.all_threads} were asked for"
    if launch.network is not None and answer.parameter_count is not None:
        expected = from_data(launch.network).family.parameter_count()
        if answer.parameter_count != expected:
            yield f"{answer.parameter_count} parameters, where the network has {expected}"
    curve_steps = 0
    if launch.text is not None:
        curve_steps = launch.protocol.curve_steps
    ends = [min(end, curve_steps) for end in range(BLOCK, curve_steps + BLOCK, BLOCK)]
    curve = _steps_of_points(answer.curve)
    if curve != ends[: len(curve)] or (len(curve) < len(ends) and not answer.curve_ended):
        yield f"a curve of {len(curve)} blocks, where {len(ends)} were asked for"
    loss_steps = launch.protocol.loss_steps
    steps = [0, *_steps_of_points(answer.losses)]
    if any(not before < step <= loss_steps for before, step in itertools.pairwise(steps)):
        yield f"losses of further steps that were not asked for: there are {loss_steps}"


def _steps_of_points(points: Sequence[Sequence[float]]) -> list[float]:
    """Return the step of each point (step, number) of a curve, or 0 for any other content."""
    steps = []
    for point in points:
        step = 0.0
        if len(point) == 2:
            step = point[0]
        steps.append(step)
    return steps


def _contradictions_of_samples(answer: Answer, launch: Launch) -> Iterator[str]:
    """Yield the inconsistencies between the samples, their turns and the observed steps."""
    samples = len(answer.samples_ns)
    if not samples or answer.steps_per_sample < 1:
        yield f"{samples} samples of {answer.steps_per_sample} steps: there must be one at least"
    sample_counts = answer.sample_counts
    if sample_counts is not None:
        kinds = list(sample_counts)
        if not launch.protocol.trend:
            kinds.pop()
        if any(len(counts) != samples for counts in kinds):
            yield f"sample_counts: there must be one of each kind for each of {samples} samples"
        if sample_counts.resident_bytes and not launch.protocol.trend:
            yield "sample_counts: the memory of samples is kept of launches alone that are followed"
    if answer.calls_ns:
        yield from _contradictions_of_calls(answer, launch)
    steps = answer.observed_steps()
    if steps < answer.timed_steps() or steps % answer.steps_per_sample:
        yield f"{answer.timed_steps()} steps timed of {steps} observed"
    samples_in_turns = 0
    if launch.in_turns:
        samples_in_turns = samples
    if sum(answer.turns) != samples_in_turns:
        yield f"turns of {sum(answer.turns)} samples, where there are {samples}"
    calls = steps // answer.steps_per_sample
    if launch.in_turns:
        lead_ins = calls - samples
        if lead_ins not in (0, len(answer.turns)) or len(answer.starts_ns) != calls:
            yield (
                f"{len(answer.starts_ns)} starts of {calls} timed calls in {len(answer.turns)} "
                "turns"
            )
        return
    most = launch.protocol.steps + launch.protocol.maximum_warmup_steps
    if calls > most:
        yield f"{calls} samples where at most {most} were asked for"


def _is_shallow(value: Any, depth: int) -> bool:
    """Return whether a value is nested less deeply than this."""
    if depth == 0:
        return False
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list):
        return True
    return all(_is_shallow(item, depth - 1) for item in value)
