"""Runs inside a framework's own interpreter: imports once, then answers each question in a process
forked for it.

Starting a framework takes seconds, a fork none, and a question finds the interpreter as it was
after the imports: the frameworks start their threads and read their settings at the first
operation. By Python 3.6 and newer.

The first line of the standard input is a JSON string, the statements that every question begins
with. Each further line is an object: ``statements``, ``answer`` (the file for the JSON of what they
bind to ``answer``) and ``errors`` (the file for what they write). A line goes out when a question
is done.
"""

import json
import os
import sys
import traceback


def carry_out(question, names):
    """Answer one question; the process ends with it, at once: a framework's pools may take their
    time."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    errors = os.open(question["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    try:
        exec(question["statements"], names)
        with open(question["answer"], "w") as file:  # noqa: PTH123
            json.dump(names["answer"], file)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main():
    names = {"__name__": "question"}
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints is no reply
    exec(json.loads(sys.stdin.readline()), names)
    while True:
        line = sys.stdin.readline()
        if not line:
            return
        child = os.fork()
        if child == 0:
            replies.close()
            carry_out(json.loads(line), names)
        os.waitpid(child, 0)
        replies.write("done\n")
        replies.flush()


main()
