"""A training step for `dlbench run threads --step FILE`, in TensorFlow: replace the network by your own."""

import tensorflow as tf

INPUTS, HIDDEN, OUTPUTS, RATE = 1024, 2048, 512, 1e-3


def prepare(cell):
    """Build what is trained; return one training step, and what tells the loss of the last one.

    ``cell`` has ``threads``, ``batch_size``, ``device`` and the other axes. Seed whatever is random: the losses of the
    first steps must be the same in every launch.
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
