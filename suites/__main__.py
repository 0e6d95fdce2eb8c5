"""`python -m dlbench.suites` is the command `dlbench`."""

from .cli import main

if __name__ == "__main__":
    main()
