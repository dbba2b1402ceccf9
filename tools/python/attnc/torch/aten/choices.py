"""Comparisons, choices, tests and logic."""

import functools
import math

import torch

from ..._arrays import Array, ir_type
from ..._formulas import is_nan, to_dtype
from ..._ir_text import COMPARISONS
from .table import common_dtype, number_in, op


# ---- Comparisons and choices ----


def comparison(name):
    def handler(low, out, a, b):
        dtype = common_dtype(a, b)
        type = "i32" if dtype == torch.bool and name not in ("eq", "ne") else ir_type(dtype)
        operands = [(number_in(x, dtype), type) for x in (a, b)]
        return low.elementwise(out, functools.partial(low.builder.compare, name), *operands)

    return handler


for _name in COMPARISONS:
    op(_name)(comparison(_name))


@op("where")
def where(low, out, condition, a, b):
    type = ir_type(out.dtype)
    branches = [(number_in(x, out.dtype, wraps=False), type) for x in (a, b)]
    return low.elementwise(out, low.builder.select, (condition, "bool"), *branches)


@op("clamp", "clip")
def clamp(low, out, a, min=None, max=None):
    ops = low.builder
    bounds = [number_in(bound, out.dtype, wraps=False) for bound in (min, max) if bound is not None]

    def function(x, *values):
        values = iter(values)
        for name, bound in (("max", min), ("min", max)):
            if bound is not None:
                x = limit(x, next(values), name)
        return x

    def limit(x, bound, name):
        limited = ops.op(name, x, bound)
        if x.type != "f32" or bound.is_const:
            return limited
        return ops.select(ops.compare("eq", x, bound), x, limited)  # the bound takes no half of the gradient

    dtypes = [x.dtype for x in (a, *bounds) if isinstance(x, Array)]
    type = ir_type(functools.reduce(torch.promote_types, dtypes, out.dtype))  # as torch.vmap
    return low.elementwise(
        out, lambda *values: to_dtype(ops, function(*values), out.dtype), *[(x, type) for x in (a, *bounds)]
    )


op("clamp_min")(lambda low, out, a, bound: clamp(low, out, a, min=bound))
op("clamp_max")(lambda low, out, a, bound: clamp(low, out, a, max=bound))


def test_of_floats(function):
    """Makes a handler for a test that is false for integers and bools."""

    def handler(low, out, a):
        if a.type != "f32":
            return low.array(out, out.shape, lambda indices: low.builder.const(False, "bool"))
        return low.elementwise(out, lambda x: function(low.builder, x), (a, "f32"))

    return handler


op("isnan")(test_of_floats(is_nan))
op("isinf")(test_of_floats(lambda ops, x: ops.compare("eq", ops.op("abs", x), ops.const(math.inf, "f32"))))
op("isposinf")(test_of_floats(lambda ops, x: ops.compare("eq", x, ops.const(math.inf, "f32"))))
op("isneginf")(test_of_floats(lambda ops, x: ops.compare("eq", x, ops.const(-math.inf, "f32"))))


# ---- Logic ----


def logical(name):
    return lambda low, out, *operands: low.elementwise(
        out, functools.partial(low.builder.op, name), *[(x, "bool") for x in operands]
    )


for _name in ("and", "or", "xor", "not"):
    op(f"logical_{_name}")(logical(_name))
