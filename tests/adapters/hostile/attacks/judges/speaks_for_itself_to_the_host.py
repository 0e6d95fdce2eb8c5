"""Speaks on the host's line itself, at the pace of its made-up samples, and answers with the reference."""

import glob
import json
import os
import time

from ..launch import parity
from ..launch.check import Host
from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def prepare(self, network, weights, batch):
        for number in range(3, 64):
            host = Host()
            host._line = number
            try:
                os.fstat(number)
            except OSError:
                continue
            if not os.readlink("/proc/self/fd/%d" % number).startswith("socket"):
                continue
            break
        host.mark("begin")
        start = time.monotonic()
        pace, count = 0.04, 12
        time.sleep(pace * count)
        order = host.end(count)
        for _ in range(order.rounds):
            host.mark("reset")
            time.sleep(pace * order.steps)
            host.mark("steps")
        host.mark("read")
        home = os.path.expanduser(os.environ.get("HOSTILE_REFERENCES", "~/.cache/dlbench/references"))
        known = parity.load(glob.glob(os.path.join(home, network.name + "*.npz"))[0], order.steps)
        answer = {
            "schema_version": 1,
            "status": "ok",
            "samples_ns": [int(pace * 1e9)] * count,
            "evidence_steps": count,
            "final_loss": 1.0,
            "final_loss_finite": True,
            "timed_between": [start, start + pace * count],
            "threads": {
                "requested": self.cell.all_threads,
                "framework_says": None,
                "os_threads": 1,
                "cpu_seconds": 0.0,
                "wall_seconds": pace * count,
                "cpu_seconds_by_thread": None,
            },
            "answer": {
                "losses": known.losses,
                "updates": {name: list(value) for name, value in known.updates.items()},
                "parameter_count": network.family.parameter_count(),
                "moved": True,
            },
            "parameter_count": network.family.parameter_count(),
            "software": {"framework": "forged", "version": "1"},
        }
        with open("outcome.json", "w") as file:
            json.dump(answer, file)
        os._exit(0)


ADAPTER = Adapter
