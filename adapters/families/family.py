"""The interface of every family of networks.

A family is a module of this folder. Its class holds the numbers of one network and everything that
dlbench needs to know about it. An adapter builds the network from the numbers and never from a
name.
"""

import math
from functools import partial, reduce
from operator import mul
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

#: Largest value of any one number: a larger one is a typing mistake.
LARGEST = 1000000
#: Most parameters of a network: 40 GB in float32.
MOST_PARAMETERS = 10000000000


class NumbersError(Exception):
    """A number of a network that cannot be used.

    ``key`` names it, and the text describes the mistake and how to fix it.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


class Numbers:
    """The numbers of one network while they are read; `finish` refuses unknown keys."""

    def __init__(self, data: Dict[str, Any], where: str = "") -> None:
        self._data = data
        self._where = where  # the text before a key in errors: "layers, table 2, "
        self._read: List[str] = []

    def error(self, key: str, text: str) -> NumbersError:
        return NumbersError(self._where + key, text)

    def has(self, key: str) -> bool:
        return key in self._data

    def _take(self, key: str, usual: Any, example: str) -> Any:
        self._read.append(key)
        if key in self._data:
            return self._data[key]
        if usual is None:
            raise self.error(key, "it is missing. Add it, as in %s = %s." % (key, example))
        return usual

    def whole(
        self, key: str, usual: Any = None, least: int = 1, most: int = LARGEST, example: str = "512"
    ) -> int:
        """Return a whole number from ``least`` to ``most``."""
        value = self._take(key, usual, example)
        if not _is_whole(value, least, most):
            text = "%s is not a whole number from %d to %d."
            raise self.error(key, text % (_shorten(value), least, most))
        return int(value)

    def wholes(
        self, key: str, shortest: int = 1, longest: int = 1000, example: str = "[512, 512]"
    ) -> Tuple[int, ...]:
        """Return a list of whole numbers from 1 on."""
        value = self._take(key, None, example)
        right = isinstance(value, (list, tuple)) and shortest <= len(value) <= longest
        if not right or not all(_is_whole(item, 1, LARGEST) for item in value):
            text = (
                "%s is not a list of %d to %d whole numbers from 1 to %d. Write it as in %s = %s."
            )
            shown = _shorten(value)
            raise self.error(key, text % (shown, shortest, longest, LARGEST, key, example))
        return tuple(int(item) for item in value)

    def real(self, key: str, usual: float, least: float, most: float) -> float:
        value = self._take(key, usual, "")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            text = "%s is not a number from %g to %g."
            raise self.error(key, text % (_shorten(value), least, most))
        return float(value)

    def word(self, key: str, known: Sequence[str], usual: Any = None) -> str:
        value = self._take(key, usual, '"%s"' % known[0])
        if value not in known:
            words = ", ".join('"%s"' % word for word in known)
            raise self.error(key, "%s is not one of %s." % (_shorten(value), words))
        return str(value)

    def tables(self, key: str, example: str) -> "List[Numbers]":
        value = self._take(key, None, example)
        is_list = isinstance(value, (list, tuple)) and bool(value)
        if not is_list or not all(isinstance(table, dict) for table in value):
            text = "%s is not a list of tables. Write it as in %s = %s."
            raise self.error(key, text % (_shorten(value), key, example))
        where = self._where + key
        return [
            Numbers(table, "%s, table %d, key " % (where, place))
            for place, table in enumerate(value, 1)
        ]

    def finish(self) -> None:
        for key in self._data:
            if key not in self._read:
                known = ", ".join(dict.fromkeys(self._read))
                raise self.error(str(key), "this table has no such key. Known keys: %s." % known)


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def number(read: Callable[..., Any], **options: Any) -> Any:
    """Declare one of a family's numbers, read by this method of `Numbers` with these arguments.

    ``usual`` among these may be a function of the family as far as it is read.
    """
    return partial(read, **options)


# The layers of networks, and the parameters of any network.
#
# Canonical layouts, which every adapter converts from and back to: dense weight (outputs, inputs),
# convolution weight (outputs, inputs, height, width), images (batch, channels, height, width),
# tokens (batch, steps), LSTM weights (4 x hidden, inputs) with the gates in the order input,
# forget, cell, output, GRU weights (3 x hidden, inputs) in the order reset, update, new.


class Layer(NamedTuple):
    """A layer of a chain, or a convolution of a residual network.

    The ``kind`` is "dense", ``activation(inputs @ weight.T + bias)``. Or it is "convolution",
    square, with symmetric zero padding. Or it is "pool", the maxima of square windows, sizes round
    down. Or it is "flatten", (batch, channels, height, width) to (batch, channels * height *
    width).
    """

    kind: str
    name: str = ""
    inputs: int = 0
    outputs: int = 0
    kernel: int = 0
    stride: int = 1
    padding: int = 0
    activation: str = "none"  # or one of `ACTIVATIONS`
    norm: str = ""  # the batch normalisation behind a convolution, which then has no bias

    @property
    def slides(self) -> bool:
        """Return whether it moves a window over images."""
        return self.kernel > 0


ACTIVATIONS = ("relu", "sigmoid", "tanh")


class Parameter(NamedTuple):
    """A tensor of the step.

    At the start it is uniform in [-bound, bound], or constant where ``constant`` is given.
    """

    name: str
    shape: Tuple[int, ...]
    bound: float
    constant: Optional[float] = None
    centre: float = 0.0  # the middle of the interval, where that is not 0
    symmetric: bool = False  # its lower triangle mirrored, zeros on the diagonal


def output_side(side: int, kernel: int, stride: int, padding: int) -> int:
    """Return the side of a convolution's or pool's output, rounding down."""
    return (side + 2 * padding - kernel) // stride + 1


def convolution_weight(layer: Layer) -> Parameter:
    """Return a convolution's weight.

    It follows He et al. 2015, arXiv 1502.01852, eq. 10, as a uniform distribution.
    """
    shape = (layer.outputs, layer.inputs, layer.kernel, layer.kernel)
    bound = math.sqrt(6.0 / (layer.inputs * layer.kernel**2))
    return Parameter(layer.name + ".weight", shape, bound)


def dense_parameters(
    name: str, outputs: int, inputs: int, bound: float, bias: Optional[float] = None
) -> List[Parameter]:
    """Return a fully connected layer's weight and bias.

    ``bias`` is the bias's bound where it is another one.
    """
    bias_bound = bound if bias is None else bias
    return [
        Parameter(name + ".weight", (outputs, inputs), bound),
        Parameter(name + ".bias", (outputs,), bias_bound),
    ]


def norm_parameters(name: str, size: int, gamma: float = 1.0) -> List[Parameter]:
    """Return a normalisation's gamma and beta."""
    return [
        Parameter(name + ".gamma", (size,), 0.0, gamma),
        Parameter(name + ".beta", (size,), 0.0, 0.0),
    ]


#: Of the timed steps. A parity recipe has another rate.
LEARNING_RATE = 0.01

#: Largest number of symbols in a text. Networks that are trained on a text take so many.
ALPHABET = 96

#: Names for tables, by a family's ``loss``. A loss is a mean over the mini-batch and, where there
#: are any, steps.
LOSSES = {
    "cross_entropy": "cross-entropy",
    "squares": "mean squared error",
    "activity": "mean activity",
    "clock": "mean clock",
}


class Drawn(NamedTuple):
    """An example's part of a synthetic mini-batch, see ``launch/batches.py``."""

    shape: Tuple[int, ...]  # of one example
    #: Whole numbers from 0 to less than this. None: uniform within +-scale.
    below: Optional[int] = None
    scale: float = 1.0
    #: Each whole number as a float32 vector of zeros and a one, along the last axis.
    one_hot: bool = False
    probabilities: bool = False  # uniform between 0 and 1 instead, and neither of them


class ParityRecipe(NamedTuple):
    """How the first steps of a launch are compared with the reference.

    Tolerances are about ten times the errors of honest float32 implementations (five where rounding
    flips ReLUs), and far below those of mistakes. The errors seen, by which they were chosen:
    adapters/docs/explanation/tolerances.md.
    """

    steps: int
    learning_rate: float
    loss_tolerance: float  # relative
    update_tolerance: float  # relative, per parameter
    why: str


class Family:
    """A family with the numbers of one network, each declared by `number`.

    Numbers at their usual value are left out of `data`. A number that a family is given later thus
    changes no digest where its usual value stands for the earlier behaviour.
    """

    #: Its name in suites.
    name = ""
    #: Its demand on a framework, for tables: "dense", "convolutional", "recurrent", "attention" or
    #: "sampling".
    kind = ""
    #: How the last layer's outputs are compared with the labels, a key of `LOSSES`.
    loss = "cross_entropy"
    #: Largest norm of the gradients of all parameters together, to which a step scales them down.
    #: 0: no limit.
    clip: float = 0.0
    #: Whether adapters turn a mini-batch so that the steps come first and the examples second.
    time_major = False
    #: Whether statistics of the whole mini-batch are part of the mathematics: then workers need
    #: equal parts.
    normalises = False
    #: Whether a step updates its parameters by gradients. A sampling machine's moves the states of
    #: its chains.
    trains = True
    #: Whether its mathematics is known. Where it is not, launches are compared with one another.
    #: See `Own`.
    specified = True
    #: Its numbers.
    fields: "Dict[str, partial[Any]]" = {}
    #: The names of those that are lists themselves.
    lists: Tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.fields = {}
        lists = []
        for name, field in vars(cls).items():
            if isinstance(field, partial):
                cls.fields[name] = field
                if field.func in (Numbers.wholes, Numbers.tables):
                    lists.append(name)
        cls.lists = tuple(lists)

    def __init__(self, *values: Any, **named: Any) -> None:
        """Take the numbers in the order of their declarations, or by name."""
        given = dict(zip(self.fields, values), **named)
        needed = {name for name, field in self.fields.items() if "usual" not in field.keywords}
        if len(values) > len(self.fields) or not needed <= set(given) <= set(self.fields):
            names = ", ".join(self.fields)
            raise TypeError("%s takes %s, not %s" % (type(self).__name__, names, given))
        for name in self._ordered_names():
            setattr(self, name, given[name] if name in given else self.usual(name))

    @classmethod
    def _ordered_names(cls) -> List[str]:
        """Return the numbers' names, those last whose usual value depends on others."""

        def depends_on_others(name: str) -> bool:
            return callable(cls.fields[name].keywords.get("usual"))

        return sorted(cls.fields, key=depends_on_others)

    def usual(self, name: str) -> Any:
        """Return the value of a number that is left out; None where it must be given."""
        value = self.fields[name].keywords.get("usual")
        return value(self) if callable(value) else value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.fields)))

    def __repr__(self) -> str:
        numbers = ", ".join("%s=%r" % item for item in vars(self).items())
        return "%s(%s)" % (type(self).__name__, numbers)

    def _replace(self, **changed: Any) -> "Family":
        return type(self)(**dict(vars(self), **changed))

    @property
    def learns_inputs(self) -> bool:
        """Return whether a step needs the gradient by the mini-batch's inputs.

        It does where these are looked up in a weight.
        """
        return False

    @property
    def alphabet(self) -> int:
        """Return the number of symbols in a text to train on; 0: the network takes no symbols."""
        return int(getattr(self, "vocabulary", 0))

    @classmethod
    def read(cls, numbers: Numbers) -> "Family":
        family = cls.__new__(cls)
        for name in cls._ordered_names():
            field = cls.fields[name]
            if "usual" in field.keywords:
                value = field(numbers, name, usual=family.usual(name))
            else:
                value = field(numbers, name)
            setattr(family, name, value)
        family.check(numbers)
        return family

    def check(self, numbers: Numbers) -> None:
        """Raise NumbersError where numbers do not go together."""

    def data(self) -> Dict[str, Any]:
        data = {}
        for name in self.fields:
            value = getattr(self, name)
            if value != self.usual(name):
                data[name] = list(value) if isinstance(value, tuple) else value
        return data

    def parameters(self) -> List[Parameter]:
        """Return every trainable tensor, in forward order, in canonical layout."""
        raise NotImplementedError

    def statistics(self) -> List[Parameter]:
        """Return the running means and variances that batch normalisation uses in inference."""
        return []

    def convolutions(self) -> List[Layer]:
        """Return every convolution, in forward order."""
        return []

    def multiply_adds(self) -> List[int]:
        """Return the multiply-adds of one example's forward pass by layer.

        Only matrix products and convolutions count.
        """
        raise NotImplementedError

    def drawn_inputs(self) -> Drawn:
        raise NotImplementedError

    def drawn_labels(self) -> Drawn:
        """Return an example's labels; by default a symbol for each step."""
        steps: Any = getattr(self, "steps", 0)
        return Drawn((steps,), self.alphabet)

    #: Largest relative error of an example's outputs in inference, in float32. The errors seen:
    #: adapters/docs/explanation/tolerances.md.
    output_tolerance = 2e-5

    def kinked(self) -> bool:
        """Return whether rounding can flip a unit of the network: ReLUs and maxima."""
        return False

    def parity(self) -> ParityRecipe:
        """Return the recipe of the comparison with the float64 reference."""
        raise NotImplementedError

    def words(self) -> str:
        raise NotImplementedError

    def parameter_count(self) -> int:
        """Return the number of trainable scalars."""
        return sum(reduce(mul, parameter.shape, 1) for parameter in self.parameters())

    def size_words(self) -> str:
        count = self.parameter_count()
        return "%.1f M" % (count / 1e6) if count >= 100000 else "%.1f k" % (count / 1e3)

    def batch_bytes(self, batch_size: int) -> int:
        """Return the bytes of a mini-batch, inputs and labels, with 4 bytes for each number."""
        inputs = reduce(mul, self.drawn_inputs().shape, 1)
        labels = reduce(mul, self.drawn_labels().shape, 1)
        return 4 * batch_size * (inputs + labels)

    def least_bytes(self, batch_size: int, workers: int = 1, inference: bool = False) -> int:
        """Return a lower bound for the memory of a step in any framework, in bytes of float32.

        It counts the weights of each worker, in training their gradients, and the mini-batch.
        Activations depend on the framework and are not counted: a network beyond this never fits,
        one below may not fit either.
        """
        copies = 2 if self.trains and not inference else 1
        return 4 * copies * workers * self.parameter_count() + self.batch_bytes(batch_size)

    def flops(self, batch_size: int, inference: bool = False) -> int:
        """Return the floating-point operations of one step: of training, or of inference."""
        return self.forward_flops(batch_size) if inference else self.training_flops(batch_size)

    def forward_flops(self, batch_size: int) -> int:
        """Return the floating-point operations of one forward pass.

        They are counted as in `training_flops`.
        """
        return 2 * sum(self.multiply_adds()) * batch_size

    def training_flops(self, batch_size: int) -> int:
        """Return the floating-point operations of one step (a multiply-add is two).

        Forward, gradient by the weights and gradient by the inputs cost the same each. The first
        layer needs no gradient by its inputs unless these are learnt. Element-wise work, pooling,
        normalisation and the update are not counted: the figure is for comparison with a
        matrix-product ceiling.
        """
        if not self.trains:
            return self.forward_flops(batch_size)
        products = self.multiply_adds()
        total = 3 * sum(products)
        if not self.learns_inputs:
            total -= products[0]
        return 2 * total * batch_size
