"""A training step for `dlbench run threads --step FILE`, in TensorFlow: replace the network by your
own.

`dlbench try FILE` runs it twice and shows what it prints; `run` drops its output.

- Each launch is a fresh process: it imports this file, calls prepare(cell) once, and then the step,
  at least three times and as often as a suite asks (30 to 100 times in most).
- The losses of the first two or three steps must be the same in every launch, so seed whatever is
  random. Without a function for the loss nothing is checked.
- synchronize(), if the file has it, is called before and after every timed step, but never before
  the first.
- The garbage collector is off while steps are timed. There are no arguments and no relative
  imports; modules beside this file can be imported.
- HELPERS = 2, at the top level, says that two threads or processes load data beside those that
  compute.
"""

import tensorflow as tf

INPUTS, HIDDEN, OUTPUTS, RATE = 1024, 2048, 512, 1e-3


def prepare(cell):
    """Build what is trained; return one training step, and a function that returns the loss of the
    last one.

    ``cell`` has ``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.
    """
    if cell.threads:
        tf.config.threading.set_intra_op_parallelism_threads(cell.threads)
    tf.random.set_seed(0)
    first = tf.Variable(tf.random.normal((INPUTS, HIDDEN), seed=1) / INPUTS**0.5)
    second = tf.Variable(tf.random.normal((HIDDEN, OUTPUTS), seed=2) / HIDDEN**0.5)
    inputs = tf.random.normal((cell.batch_size, INPUTS), seed=3)
    targets = tf.random.normal((cell.batch_size, OUTPUTS), seed=4)
    last = {}

    @tf.function
    def update():
        with tf.GradientTape() as tape:
            outputs = tf.nn.relu(inputs @ first) @ second
            loss = tf.reduce_mean(tf.square(outputs - targets))
        of_first, of_second = tape.gradient(loss, [first, second])
        first.assign_sub(RATE * of_first)
        second.assign_sub(RATE * of_second)
        return loss

    def step():
        """Do one update. dlbench times this call, and nothing else."""
        last["loss"] = update()

    return step, lambda: float(last["loss"])
