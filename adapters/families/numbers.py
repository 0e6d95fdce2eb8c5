"""Reads the numbers of a family from plain data, with errors that name the key and say what to write instead."""

from typing import Any, Dict, Iterable, List, Sequence

#: Of any one number: what is larger is a slip of the keyboard.
LARGEST = 1000000
#: Of all parameters of a network: 40 GB in float32.
MOST_PARAMETERS = 10000000000


class NumbersError(Exception):
    """A number of a network that cannot be used: ``key`` says which, the text what is wrong and what to write."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class Numbers:
    """The numbers of one network while they are read; `finish` refuses those that nobody asked for."""

    def __init__(self, data: Dict[str, Any], where: str = "") -> None:
        self._data = data
        self._where = where  # what stands before a key in errors: "layers, table 2, "
        self._read: List[str] = []

    def error(self, key: str, text: str) -> NumbersError:
        """Return the error about this key."""
        return NumbersError(self._where + key, text)

    def has(self, key: str) -> bool:
        """Tell whether the key is given."""
        return key in self._data

    def _take(self, key: str, usual: Any, example: str) -> Any:
        self._read.append(key)
        if key in self._data:
            return self._data[key]
        if usual is None:
            raise self.error(key, "it is missing. Add it, as in %s = %s." % (key, example))
        return usual

    def whole(self, key: str, usual: Any = None, least: int = 1, most: int = LARGEST, example: str = "512") -> int:
        """Return a whole number from ``least`` to ``most``."""
        value = self._take(key, usual, example)
        if not _is_whole(value, least, most):
            raise self.error(key, "%s is not a whole number from %d to %d." % (_shown(value), least, most))
        return int(value)

    def wholes(self, key: str, shortest: int = 1, longest: int = 1000, example: str = "[512, 512]") -> List[int]:
        """Return a list of whole numbers from 1 on."""
        value = self._take(key, None, example)
        right = isinstance(value, (list, tuple)) and shortest <= len(value) <= longest
        if not right or not all(_is_whole(each, 1, LARGEST) for each in value):
            raise self.error(
                key,
                "%s is not a list of %d to %d whole numbers from 1 to %d. Write it as in %s = %s."
                % (_shown(value), shortest, longest, LARGEST, key, example),
            )
        return [int(each) for each in value]

    def real(self, key: str, usual: float, least: float, most: float) -> float:
        """Return a number from ``least`` to ``most``."""
        value = self._take(key, usual, "")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise self.error(key, "%s is not a number from %g to %g." % (_shown(value), least, most))
        return float(value)

    def word(self, key: str, known: Sequence[str], usual: Any = None) -> str:
        """Return one of these words."""
        value = self._take(key, usual, '"%s"' % known[0])
        if value not in known:
            raise self.error(key, "%s is not one of %s." % (_shown(value), ", ".join('"%s"' % each for each in known)))
        return str(value)

    def tables(self, key: str, example: str) -> "List[Numbers]":
        """Return a list of tables."""
        value = self._take(key, None, example)
        if not isinstance(value, (list, tuple)) or not value or not all(isinstance(each, dict) for each in value):
            raise self.error(key, "%s is not a list of tables. Write it as in %s = %s." % (_shown(value), key, example))
        return [
            Numbers(each, "%s%s, table %d, key " % (self._where, key, place)) for place, each in enumerate(value, 1)
        ]

    def finish(self) -> None:
        """Raise NumbersError for a key that was not read."""
        for key in self._data:
            if key not in self._read:
                raise self.error(
                    str(key), "there is no such key here. Known keys: %s." % ", ".join(dict.fromkeys(self._read))
                )


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def without_usual(data: Dict[str, Any], usual: Iterable[Any]) -> Dict[str, Any]:
    """Return the data without those optional numbers that are at their usual value, given as (key, value).

    So a number that a family is given later, with a usual value that means what was so before, changes no digest.
    """
    left_out = dict(usual)
    return {key: value for key, value in data.items() if key not in left_out or value != left_out[key]}
