"""Writes an answer of a plausible size and leaves."""

import json
import os

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def prepare(self, network, weights, batch):
        answer = {
            "schema_version": 1,
            "status": "ok",
            "samples_ns": [50000000] * 5,
            "threads": {
                "requested": self.cell.all_threads,
                "framework_says": None,
                "os_threads": 1,
                "cpu_seconds": 0.25,
                "wall_seconds": 0.25,
                "cpu_seconds_by_thread": None,
            },
            "software": {"framework": "forged", "version": "1"},
        }
        with open("outcome.json", "w") as file:
            json.dump(answer, file)
        os._exit(0)


ADAPTER = Adapter
