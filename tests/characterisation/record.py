"""Writes `outputs` anew after a change on purpose: `python tests/characterisation/record.py [BEGINNING_OF_NAME...]`.

Look at the difference (`git diff tests/characterisation/outputs`) before you commit it.
"""

import sys
import time
from pathlib import Path

from carry_out import server
from kept_commands import COMMANDS

OUTPUTS = Path(__file__).parent / "outputs"


def main(beginnings: list[str]) -> None:
    """Record the commands whose names begin so; all without any."""
    OUTPUTS.mkdir(exist_ok=True)
    names = [name for name in COMMANDS if not beginnings or name.startswith(tuple(beginnings))]
    with server() as running:
        for name in names:
            started = time.perf_counter()
            (OUTPUTS / f"{name}.txt").write_text(running.carry_out(name), encoding="utf-8")
            if (seconds := time.perf_counter() - started) > 1:
                print(f"{name}: {seconds:.1f} s")
    for stray in OUTPUTS.glob("*.txt"):
        if stray.stem not in COMMANDS:
            stray.unlink()
    print(f"{len(names)} outputs recorded")


if __name__ == "__main__":
    main(sys.argv[1:])
