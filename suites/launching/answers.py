"""A guest's answer, believed in nothing: types, ranges, lengths and what must fit together are checked here.

The models are made of the protocol's own tuples, so that a new field is checked from its first day.
"""

import json
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from dlbench.adapters.launch.batches import BLOCK
from dlbench.adapters.networks import from_data
from dlbench.adapters.protocol import (
    OUTCOME_FILE,
    SCHEMA_VERSION,
    Launch,
    Outcome,
    ProtocolError,
    Status,
    outcome_from_dict,
)

from ..planning.toml_words import sentence
from .control import UnreadableError, read_json

_LARGEST = 2**62
_LONGEST_TEXT, _LONGEST_LIST, _MOST_KEYS = 20_000, 1_000_000, 10_000
_SOFTWARE_BYTES, _SOFTWARE_DEPTH = 4 * 1024**2, 20
_SIGNED = ("final_loss", "losses", "updates", "curve", "test_loss")
"""Numbers that may be below zero."""
_OF_A_GUEST = (Status.OK, Status.UNSUPPORTED, Status.OUT_OF_MEMORY, Status.CRASHED)
"""The other statuses are the host's to give."""


def read_answer(directory: Path, launch: Launch, judges_itself: bool = False) -> Outcome:
    """Return the outcome that a guest left; raises FileNotFoundError, and UnreadableError with what is wrong.

    Adapters of an older version judge themselves: of them a verdict is taken as it is.
    """
    told = read_json(directory / OUTCOME_FILE)
    if not isinstance(told, dict):
        raise UnreadableError(f"{OUTCOME_FILE} holds no object")
    version = told.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise UnreadableError(f"{OUTCOME_FILE} has schema version {str(version)[:20]}, not {SCHEMA_VERSION}")
    try:
        _model(Outcome).model_validate(told)
        outcome = outcome_from_dict(told)
    except ValidationError as error:
        raise UnreadableError(f"{OUTCOME_FILE}: {sentence(error, _model(Outcome))}") from error
    except (ProtocolError, ValueError) as error:
        raise UnreadableError(str(error)[:300]) from error
    wrong = _against_itself(outcome, launch, judges_itself)
    if wrong:
        raise UnreadableError(wrong)
    return outcome


@cache
def _model(kind: Any) -> type[BaseModel]:
    """Return the model of a tuple of the protocol."""
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        default = kind._field_defaults.get(name, ...)
        fields[name] = (_checked(hint, name in _SIGNED), default)
    return create_model(kind.__name__, __config__=ConfigDict(extra="forbid", strict=True), **fields)


def _checked(hint: Any, signed: bool) -> Any:
    """Return a type with the ranges and lengths that such a value may have."""
    if hasattr(hint, "_fields"):
        return _model(hint)
    if hint is int:
        return Annotated[int, Field(ge=0, le=_LARGEST)]
    if hint is float:
        return Annotated[float, Field(allow_inf_nan=False, ge=-1e300 if signed else 0.0, le=1e300)]
    if hint is str:
        return Annotated[str, Field(max_length=_LONGEST_TEXT)]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return typing.Literal[*(each.value for each in hint)]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return Annotated[list[_checked(inner[0], signed)], Field(max_length=_LONGEST_LIST)]  # type: ignore[misc]
    if origin is dict:
        return Annotated[dict[str, _checked(inner[1], signed)], Field(max_length=_MOST_KEYS)]  # type: ignore[misc]
    if origin is typing.Union:
        checked = [_checked(each, signed) for each in inner if each is not type(None)]
        return checked[0] | None
    return hint


def _against_itself(outcome: Outcome, launch: Launch, judges_itself: bool) -> str:
    """Return what of an answer does not fit together or does not fit what was asked for; empty where all does."""
    allowed = (*_OF_A_GUEST, Status.PARITY_FAILED) if judges_itself else _OF_A_GUEST
    if outcome.status not in allowed:
        return f"status {outcome.status.value} is not a guest's to give"
    if outcome.outside is not None or (outcome.parity is not None and not judges_itself):
        return "it tells what only the host can know: " + ("parity" if outcome.outside is None else "outside")
    if not _shallow(outcome.software, _SOFTWARE_DEPTH) or len(json.dumps(outcome.software)) > _SOFTWARE_BYTES:
        return f"software: more than {_SOFTWARE_BYTES // 1024**2} MiB, or nested deeper than {_SOFTWARE_DEPTH}"
    if outcome.status is not Status.OK or launch.only_capabilities:
        return ""
    return _of_numbers(outcome, launch)


def _of_numbers(outcome: Outcome, launch: Launch) -> str:
    if not outcome.samples_ns or outcome.steps_per_sample < 1:
        return f"{len(outcome.samples_ns)} samples of {outcome.steps_per_sample} steps: there must be one at least"
    steps = outcome.observed_steps()
    if steps < outcome.timed_steps() or steps % outcome.steps_per_sample:
        return f"{outcome.timed_steps()} steps timed of {steps} observed"
    most = launch.protocol.steps + launch.protocol.maximum_warmup_steps
    if steps // outcome.steps_per_sample > most:
        return f"{steps // outcome.steps_per_sample} samples where at most {most} were asked for"
    threads = outcome.threads
    if threads is None or threads.requested != launch.cell.all_threads:
        said = "none" if threads is None else str(threads.requested)
        return f"threads.requested: {said}, where {launch.cell.all_threads} were asked for"
    count = outcome.parameter_count
    if count is not None and launch.network is not None:
        expected = from_data(launch.network).family.parameter_count()
        if count != expected:
            return f"{count} parameters, where the network has {expected}"
    return _of_curve(outcome, launch)


def _of_curve(outcome: Outcome, launch: Launch) -> str:
    steps = launch.protocol.curve_steps if launch.text is not None else 0
    expected = [min(end, steps) for end in range(BLOCK, steps + BLOCK, BLOCK)]
    told = [block[0] if len(block) == 2 else 0 for block in outcome.curve]
    if told != expected[: len(told)] or (len(told) < len(expected) and not outcome.curve_ended):
        return f"a curve of {len(told)} blocks, where {len(expected)} were asked for"
    return ""


def _shallow(value: Any, depth: int) -> bool:
    if depth == 0:
        return False
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return all(_shallow(each, depth - 1) for each in inner)
