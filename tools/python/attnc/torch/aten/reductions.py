"""Folds, sums and products along axes."""

import functools
import math

import torch

from ..._arrays import Array, ir_type
from ..._formulas import named
from ...errors import UntranslatableError
from .table import adopted, common_dtype, converted, meta_of, op


def dims_of(array, dim):
    return list(range(array.rank)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)


@op("sum")
def sum_(low, out, a, dim=None, keepdim=False, dtype=None):
    return low.summed(out, converted(low, a, out.dtype), dims_of(a, dim), keepdim)


@op("mean")
def mean(low, out, a, dim=None, keepdim=False, dtype=None):
    count = math.prod(low.fixed(a.extents[axis]) for axis in dims_of(a, dim))
    total = sum_(low, out, a, dim, keepdim)
    return low.elementwise(out, lambda x: low.builder.op("div", x, low.builder.const(count, "f32")), (total, "f32"))


def folded(name, bool_name=None):
    def handler(low, out, a, dim=None, keepdim=False, **_):
        fold = functools.partial(named(name, bool_name), low.builder)
        return low.reduce(out, converted(low, a, out.dtype), dims_of(a, dim), keepdim, fold)

    return handler


op("amax")(folded("max", "or"))
op("amin")(folded("min", "and"))
op("prod")(folded("mul"))


def extreme(reduced):
    def refuse(_):
        raise UntranslatableError("the position of a minimum or maximum is not computed, its value alone")

    def handler(low, out, a, dim=None, keepdim=False):
        if isinstance(out, torch.Tensor):
            return reduced(low, out, a, dim, keepdim)
        return [reduced(low, out[0], a, dim, keepdim), low.array(out[1], out[1].shape, refuse)]

    return handler


op("max")(extreme(folded("max", "or")))
op("min")(extreme(folded("min", "and")))


def counted(is_all):
    def handler(low, out, a, dim=None, keepdim=False):
        return low.any_of(out, converted(low, a, torch.bool), dims_of(a, dim), keepdim, is_all)

    return handler


op("any")(counted(False))
op("all")(counted(True))


@op("isin")
def isin(low, out, a, b, assume_unique=False, invert=False):
    """Whether each element of a is an element of b."""
    dtype = torch.result_type(meta_of(a), meta_of(b))
    if dtype != common_dtype(a, b) and math.prod(map(low.fixed, b.extents)) >= 10:
        dtype = common_dtype(a, b)  # torch sorts both together
    ops, type = low.builder, ir_type(dtype)
    a, b = adopted(low, a, dtype), adopted(low, b, dtype)
    if not isinstance(b, Array) or not b.rank:
        return low.elementwise(out, lambda x, y: ops.compare("ne" if invert else "eq", x, y), (a, type), (b, type))
    b = low.reshaped(torch.empty(b.meta.numel(), dtype=b.dtype, device="meta"), b)

    def element(indices):
        x, y = low.value(a, indices[:-1], type), low.value(b, indices[-1:], type)
        return ops.compare("ne" if invert else "eq", x, y)

    pairs = low.array(None, [*low.broadcast(out, [a]), b.extents[0]], element, a, b)
    return low.any_of(out, pairs, [len(out.shape)], False, is_all=invert)


def passed(low, out, boundaries, values, is_right):
    """Counts the boundaries, which ascend, below each value, or up to it if `is_right`. NaN is above all."""
    ops, type = low.builder, ir_type(common_dtype(boundaries, values))
    type = "i32" if type == "bool" else type

    def element(indices):
        place = indices[-1:] if boundaries.rank == 1 else (*indices[:-2], indices[-1])
        boundary, value = low.value(boundaries, place, type), low.value(values, indices[:-1], type)
        is_beyond = ops.compare("lt", value, boundary) if is_right else ops.compare("le", value, boundary)
        return ops.cast(ops.op("not", is_beyond), "i32")

    terms = low.array(None, [*low.broadcast(out, [values]), boundaries.extents[-1]], element, boundaries, values)
    count = low.summed(torch.empty_like(out, dtype=torch.int32), terms, [len(out.shape)], type="i32")
    return converted(low, count, out.dtype)


@op("bucketize")
def bucketize(low, out, values, boundaries, out_int32=False, right=False):
    return passed(low, out, boundaries, values, right)


@op("searchsorted")
def searchsorted(low, out, boundaries, values, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        raise UntranslatableError("`searchsorted` needs sorted boundaries, and no `sorter`: capture boundaries[sorter]")
    return passed(low, out, boundaries, values, right or side == "right")


@op("linalg_vector_norm")
def vector_norm(low, out, a, ord=2, dim=None, keepdim=False, dtype=None):
    ops, dims = low.builder, dims_of(a, dim)
    magnitude = low.elementwise(a.meta, lambda x: ops.op("abs", x), (a, "f32"))
    if abs(ord) == math.inf:
        return low.reduce(out, magnitude, dims, keepdim, lambda x, y: ops.op("max" if ord > 0 else "min", x, y))
    if ord not in (1, 2):
        raise UntranslatableError(f"a norm of order {ord}; there are 1, 2 and infinity")
    if ord == 1:
        return low.summed(out, magnitude, dims, keepdim)
    squares = low.elementwise(a.meta, lambda x: ops.op("mul", x, x), (a, "f32"))
    zero = ops.const(0, "f32")

    def root(x):
        # If the sum is 0, the gradient of the norm is 0.
        return ops.select(ops.compare("eq", x, zero), zero, ops.op("sqrt", x))

    return low.elementwise(out, root, (low.summed(out, squares, dims, keepdim), "f32"))


op("dot", "vdot", "mv", "mm")(lambda low, out, a, b: low.contracted(out, a, b, ([a.rank - 1], [0])))
op("bmm")(lambda low, out, a, b: low.contracted(out, a, b, ([2], [1]), ([0], [0])))
