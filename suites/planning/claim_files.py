"""A claim of a user's own, from a TOML file."""

import tomllib
from pathlib import Path

from pydantic import ValidationError

from dlbench.reports.claims.claim import Claim
from dlbench.reports.claims.own import OwnClaim

from ..errors import UsageError
from .toml_words import sentence, text_of


def read_claim(path: Path) -> Claim:
    """Return the claim of a file, named by it. Raises UsageError."""
    try:
        given = tomllib.loads(text_of(path))
    except OSError as error:
        raise UsageError(f"The claim {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The claim {path} is not TOML: {error}.") from error
    try:
        return OwnClaim.model_validate(given).claim(path.stem)
    except ValidationError as error:
        raise UsageError(f"Claim {path}: {sentence(error, OwnClaim)}") from error
