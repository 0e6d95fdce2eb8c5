"""The fence does not wait: a thread still computes when a step is said to be over."""

import queue
import threading

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        self.waiting = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            self.waiting.get()
            super().step()
            self.waiting.task_done()

    def step(self):
        self.waiting.put(None)

    def reset(self, weights, batch):
        self.waiting.join()
        super().reset(weights, batch)

    def parameters(self):
        self.waiting.join()
        return super().parameters()

    def last_loss(self):
        return 8.0 if self.waiting.unfinished_tasks else self.loss


ADAPTER = Adapter
