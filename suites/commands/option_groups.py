"""Options in groups: a command takes one object for each group, and Typer sees every option of it.

@dataclass(frozen=True)
class Where(OptionGroup):
store: Annotated[str, typer.Option("--store")] = "dlbench.sqlite"

@grouped
def command(name: str, where: Where) -> None: ...
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Self, get_type_hints


class OptionGroup:
    """Options that belong together; a subclass is a dataclass whose fields are options, or says what they are."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options, each a parameter with its annotation and default."""
        hints = get_type_hints(cls, include_extras=True)
        return [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass
        ]

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Make the group of what was given for each of its options."""
        return cls(**given)


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function whose signature has every option of the groups that this one takes."""
    signature = inspect.signature(function)
    groups = {
        name: each.annotation
        for name, each in signature.parameters.items()
        if inspect.isclass(each.annotation) and issubclass(each.annotation, OptionGroup)
    }
    flat: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        flat += groups[name].parameters() if name in groups else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    def command(**given: Any) -> None:
        taken = {
            name: group.of({each.name: given.pop(each.name) for each in group.parameters()})
            for name, group in groups.items()
        }
        function(**given, **taken)

    command.__doc__, command.__name__, command.__module__ = function.__doc__, function.__name__, function.__module__
    command.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]  # as inspect documents it
    command.__annotations__ = {each.name: each.annotation for each in flat}
    return command
