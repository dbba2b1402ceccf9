"""Sizes of captured tensors that a mod in a graph asks for.

A `Size` stands for one that may change. What is computed from it is computed by the kernel, from the extent that the
launch has. Whatever else is done with it is done with the number at hand; then the program is only for this size.
"""

import functools
import operator

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map_only

_ASKING = frozenset({torch.Tensor.size, torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.__len__, torch.numel})
_ARITHMETIC = "add radd sub rsub mul rmul floordiv rfloordiv mod rmod neg".split()
_ELEMENTWISE = frozenset(
    "add sub rsub subtract mul multiply div rdiv truediv rtruediv true_divide divide floordiv rfloordiv floor_divide mod "
    "rmod remainder eq ne lt le gt ge clamp clip where getitem".split()
)


class Size(int):
    """A size: the number at hand, and `tensor`, 0-d, of int64, for that of a launch. Integer arithmetic keeps both."""


class Undecided:
    """A Size by which Python cannot decide, since nothing would guard that. It raises TypeError."""

    def __init__(self, size):
        self.size = size

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # functions of torch take what has this
        return NotImplemented


def _of(number, tensor):
    size = Size(number)
    size.tensor = tensor
    return size


def _computed(name):
    def compute(self, *others):
        number = getattr(int, name)(self, *others)
        if any(type(other) not in (int, Size) for other in others):
            return number
        return _of(number, getattr(self.tensor, name)(*[getattr(other, "tensor", other) for other in others]))

    return compute


def _undecided(name):
    def compute(self, *others):
        if any(isinstance(other, torch.Tensor) for other in others):
            return NotImplemented
        if name in _ARITHMETIC:
            result = getattr(Size, f"__{name}__")(self.size, *[getattr(other, "size", other) for other in others])
            if isinstance(result, Size):
                return Undecided(result)
        raise TypeError("a size that may change decides what the mod is")

    return compute


for _name in _ARITHMETIC:
    setattr(Size, f"__{_name}__", _computed(f"__{_name}__"))
for _name in (*_ARITHMETIC, *"bool eq float format ge gt hash index int le lt ne repr".split()):
    setattr(Undecided, f"__{_name}__", _undecided(_name))


def _is_shape(function):
    return getattr(function, "__self__", None) is torch.Tensor.shape


class Sizes:
    """What a mod is told of sizes. `axes` has (tensor that stands for a size, captured tensor, axis) by the id of the
    first. `known` are sizes that Python may decide by."""

    def __init__(self, is_free, is_guarded):
        """`is_free`: whether sizes that may change stay free. `is_guarded`: whether the mod is a graph, which is settled."""
        self.is_free, self.is_guarded, self.axes, self.known, self.found = is_free, is_guarded, {}, [], {}

    def asks(self, function):
        return _is_shape(function) or function in _ASKING

    def asked(self, function, args, kwargs):
        """Returns what a function that asks for sizes returns."""
        tensor = args[0]
        changing = getattr(tensor, "changing_axes", ()) if self.is_free else ()
        if not changing or function is torch.Tensor.__len__:  # which Python takes only numbers from
            result = function(*args, **kwargs)
            if not self.is_guarded:
                self.known.append(result)
            return result
        shape = tuple(self._size(tensor, axis) if axis in changing else n for axis, n in enumerate(tensor.shape))
        if function is torch.Tensor.size and (len(args) > 1 or kwargs):
            return shape[args[1] if len(args) > 1 else kwargs["dim"]]
        return shape if _is_shape(function) or function is torch.Tensor.size else functools.reduce(operator.mul, shape)

    def _size(self, tensor, axis):
        found = self.found.get((id(tensor), axis))
        if found is None:
            with _disable_current_modes():
                leaf = torch.tensor(tensor.shape[axis])
            self.axes[id(leaf)] = leaf, tensor, axis
            found = _of(tensor.shape[axis], leaf)
            found = self.found[id(tensor), axis] = found if self.is_guarded else Undecided(found)
        return found

    def taken(self, function, args, kwargs):
        """Returns the arguments of a function of torch, with tensors or numbers in place of sizes. A number takes the
        dtype of the integers that it meets, and so does a size."""
        given = [*tree_iter((args, kwargs))]
        if not any(isinstance(x, (Size, Undecided)) for x in given):
            return args, kwargs
        args, kwargs = tree_map_only(Undecided, lambda x: x.size, (args, kwargs))
        name = function.__name__.strip("_")
        if name not in _ELEMENTWISE:
            return tree_map_only(Size, int, (args, kwargs))
        dtypes = [x.dtype for x in given if isinstance(x, torch.Tensor) and x.dtype != torch.bool]
        integers = [x for x in dtypes if not x.is_floating_point and name != "getitem"]
        dtype = functools.reduce(torch.promote_types, integers) if integers else torch.int64
        kinds = int if name in ("clamp", "clip") else Size  # clamp takes no mixture
        tensor_of = lambda x: (x.tensor if isinstance(x, Size) else torch.tensor(x)).to(dtype)  # noqa: E731
        return tree_map_only(kinds, tensor_of, (args, kwargs))
