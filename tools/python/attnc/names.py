"""Names that mod files import, so that CPython runs them and linters read them:

    from attnc import H, KV_LEN, f32

    slopes: f32[H]

attnc's own front end knows them without an import (dsl/SPEC.md).
"""

import builtins
import functools
import math
import operator
import types

from ._philox import random_of


class _Named:
    """A name that only means something in a mod: it is not instantiated."""

    def __init_subclass__(cls):
        cls.__module__ = "attnc"


class _DType(_Named):
    """A dtype of captured tensors: f32[H, KV_LEN] is a tensor of two dims, f32 one of no dims."""

    def __class_getitem__(cls, dims):
        return types.GenericAlias(cls, dims)


class f32(_DType):
    """32-bit floats."""


class f16(_DType):
    """16-bit floats (IEEE 754 binary16)."""


class bf16(_DType):
    """16-bit floats with the exponent of f32 (bfloat16)."""


class i64(_DType):
    """64-bit ints."""


class i32(_DType):
    """32-bit ints."""


class i16(_DType):
    """16-bit ints."""


class i8(_DType):
    """8-bit ints."""


class u8(_DType):
    """8-bit ints without a sign."""


class bool(_DType):
    """Truth values. Called, it is Python's bool, whose name it takes."""

    def __new__(cls, value=False):
        return builtins.bool(value)


class _Extent(_Named):
    """An extent of a launch. To call a mod's functions in Python, replace it by a number: `alibi.H = 8`."""


class B(_Extent):
    """Number of sequences."""


class H(_Extent):
    """Number of query heads."""


class HKV(_Extent):
    """Number of heads of k and v."""


class Q_LEN(_Extent):
    """Rows of q."""


class KV_LEN(_Extent):
    """Rows of k and v."""


def and_masks(*masks):
    """Returns a mask_mod that is true where all masks are."""

    def mask_mod(b, h, q_idx, kv_idx):
        return functools.reduce(operator.and_, (mask(b, h, q_idx, kv_idx) for mask in masks), True)

    return mask_mod


def or_masks(*masks):
    """Returns a mask_mod that is true where any mask is."""

    def mask_mod(b, h, q_idx, kv_idx):
        return functools.reduce(operator.or_, (mask(b, h, q_idx, kv_idx) for mask in masks), False)

    return mask_mod


def choice(which, *mods):
    """Returns the mod that sequence b has: `mods[which[b]]`.

    `which` holds an int for each sequence. The mods are mask_mods, or score_mods. Another int than 0 to len(mods) - 1
    is an error if it can be seen, else all scores of the sequence are masked.
    """
    if not mods:
        raise TypeError("choice(which, *mods) takes at least one mod")
    _check_choice(which, len(mods))

    def mod(*arguments):
        if len(arguments) not in (4, 5):
            raise TypeError("a mod takes (b, h, q_idx, kv_idx), or (score, b, h, q_idx, kv_idx)")
        taken = which[arguments[-4]]
        home = type(taken).__module__.partition(".")[0]
        if home == "torch":
            from torch import where
        elif home in ("jax", "jaxlib"):
            from jax.numpy import where
        elif getattr(taken, "ndim", 0):
            from numpy import where
        else:
            _check_choice([taken], len(mods))
            return mods[int(taken)](*arguments)
        chosen = False if len(arguments) == 4 else -math.inf
        for i in reversed(range(len(mods))):
            chosen = where(taken == i, mods[i](*arguments), chosen)
        return chosen

    return mod


def _check_choice(which, count):
    """Raises if elements that the host can read choose none of the mods."""
    home = type(which).__module__.partition(".")[0]
    if home == "torch":
        import torch

        # Others are on a GPU, or have no values: they are traced.
        if type(which) not in (torch.Tensor, torch.nn.Parameter) or which.device.type != "cpu":
            return
        if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(which):
            return
        which = which.tolist()
    elif home in ("jax", "jaxlib"):
        import jax

        if isinstance(which, jax.core.Tracer) or any(device.platform != "cpu" for device in which.devices()):
            return
        which = which.tolist()
    elif hasattr(which, "tolist"):
        which = which.tolist()
    if not hasattr(which, "__iter__"):
        return
    for b, taken in enumerate(which):
        if hasattr(taken, "__index__") and not 0 <= int(taken) < count:
            raise ValueError(f"which[{b}] is {int(taken)}, and there are {count} mods: give 0 to {count - 1}")


class Reduced(_Named):
    """What an output of a mod is: a function of (prob, score, b, h, q_idx, kv_idx), and how its values are reduced."""

    def __init__(self, kind, function, axes):
        self.kind, self.function, self.axes = kind, function, axes

    def __repr__(self):
        return f"reduce_{self.kind}({getattr(self.function, '__name__', self.function)})"


def reduce_sum(function, axes=None):
    """Returns the sum of `function(prob, score, b, h, q_idx, kv_idx)` over live scores, as an output of a mod:

    column_sums: f32[B, H, KV_LEN] = reduce_sum(weight)

    `axes` are what flex_attention's outputs keep: "B H KV_LEN", "B H Q_LEN" or "B H".
    """
    return Reduced("sum", function, axes)


def reduce_max(function, axes=None):
    """Returns the largest value, as reduce_sum() the sum; -inf if no score lives."""
    return Reduced("max", function, axes)


def noop_mask(b, h, q_idx, kv_idx):
    """A mask_mod that is true everywhere."""
    return True


def tanh_approx(x):
    """Returns tanh(x). Kernels compute it with one instruction, whose relative error is up to about 2e-4."""
    if hasattr(x, "tanh"):  # of torch
        return x.tanh()
    if hasattr(x, "__array__"):
        import numpy

        return numpy.tanh(x)
    return math.tanh(x)


def random(seed, b, h, q_idx, kv_idx):
    """Returns a uniform number in [0, 1) that only depends on ints: a seed of 64 bits, and positions."""
    values = seed, b, h, q_idx, kv_idx
    modules = {type(value).__module__.partition(".")[0] for value in values}
    if "torch" in modules:
        from .torch.philox import draw

        return draw(*values)
    if modules & {"jax", "jaxlib"}:
        from .jax.philox import draw

        return draw(*values)
    return random_of(values)
