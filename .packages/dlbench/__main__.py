"""`python -m dlbench` is the command `dlbench`."""

from dlbench.suites.__main__ import main

if __name__ == "__main__":
    main()
