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
