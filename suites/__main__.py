"""`python -m dlbench.suites` is the command `dlbench`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C while it is still being loaded ends it as quietly as later
    on.
    """
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
