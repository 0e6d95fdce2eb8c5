"""What all tests of this room start from."""

import signal

# Started in the background of a script, this process ignores Ctrl-C, and the commands under test
# would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
