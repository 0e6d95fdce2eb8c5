"""The guest's end of the line to the host: what is told at which moment, and what is answered.

At each mark the guest tells a word and waits for the host's line: meanwhile the host reads its own clock and the CPU
time of all processes of the launch, so that both stand beside what the guest itself tells. After the timed samples the
host's line says which parity check to carry out; nobody in the guest knows before.
"""

import json
import os
from typing import Any, Dict, NamedTuple, Optional

#: The variable that names the file descriptor of the line.
VARIABLE = "DLBENCH_HOST"

#: Phases that begin with the measurement safe on disk.
PROFILE, TRAINING = "profile", "training"

#: The marks, in the order in which they come; those of the rounds come over and over.
BEGIN, END, RESET, STEPS, READ = "begin", "end", "reset", "steps", "read"

_LONGEST = 4096


class Order(NamedTuple):
    """Which parity check the host asks for."""

    steps: int  # of each round, from the weights that ``reset`` put in place
    rounds: int


class Host:
    """The line to the host; where there is none, nothing is told and no check is asked for."""

    def __init__(self) -> None:
        told = os.environ.pop(VARIABLE, "")
        self._line = int(told) if told.isdigit() else None
        if self._line is not None:
            os.set_inheritable(self._line, False)

    def mark(self, word: str) -> Dict[str, Any]:
        """Tell the host that the launch came to a mark, and return its answer: empty where nobody listens."""
        if self._line is None:
            return {}
        try:
            os.write(self._line, word.encode("ascii") + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < _LONGEST:
                more = os.read(self._line, _LONGEST)
                if not more:
                    break
                answer += more
        except OSError:
            self._line = None  # the host is gone, and this launch with it
            return {}
        found = json.loads(answer.decode("ascii") or "{}")
        return found if isinstance(found, dict) else {}

    def end(self, steps: int) -> Optional[Order]:
        """Tell that so many steps were timed, and return the check that is asked for."""
        return _order(self.mark("%s %d" % (END, steps)))

    def read(self) -> Optional[Order]:
        """Tell that the parameters were read; return a further check, where the host asks for one."""
        return _order(self.mark(READ))


def _order(answer: Dict[str, Any]) -> Optional[Order]:
    return Order(int(answer["steps"]), int(answer["rounds"])) if "steps" in answer else None
