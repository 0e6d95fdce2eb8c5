"""A call of a trained network for `dlbench run threads --task inference --step FILE`, in
TensorFlow: put your own in.

`dlbench try FILE --task inference` runs it twice and shows what it prints; `run` drops its output.

- Each launch is a fresh process: it imports this file, calls prepare(cell) once, and then what that
  returned, again and again.
- A call returns its outputs: an array, a tensor, or a list or dictionary of them. Those of the
  first calls must be the same in every launch, so load trained weights, or seed what is random.
- synchronize(), if the file has it, is called before and after every timed call, but never before
  the first.
- There are no arguments and no relative imports; modules beside this file can be imported.
"""

import tensorflow as tf

INPUTS, HIDDEN, OUTPUTS = 1024, 2048, 512


def prepare(cell):
    """Build the network; return a call that answers one mini-batch with its outputs.

    ``cell`` has ``threads``, ``batch_size``, ``device``, ``precision`` and the other axes.
    """
    if cell.threads:
        tf.config.threading.set_intra_op_parallelism_threads(cell.threads)
    tf.random.set_seed(0)
    first = tf.Variable(tf.random.normal((INPUTS, HIDDEN), seed=1) / INPUTS**0.5)
    second = tf.Variable(tf.random.normal((HIDDEN, OUTPUTS), seed=2) / HIDDEN**0.5)
    inputs = tf.random.normal((cell.batch_size, INPUTS), seed=3)

    @tf.function
    def call():
        """Answer once. dlbench times this call, and nothing else."""
        return tf.nn.relu(inputs @ first) @ second

    return call
