"""Comparisons, choices, tests, logic and bits."""

import functools
import math

import torch

from ..._arrays import Array, ir_type
from ..._formulas import to_dtype
from .table import arithmetic, common_dtype, number_in, op


# ---- Comparisons and choices ----


def comparison(name, is_swapped=False):
    def handler(low, out, a, b):
        dtype = common_dtype(a, b)
        type = "i32" if dtype == torch.bool and name in ("lt", "le") else ir_type(dtype)

        def function(x, y):
            return low.builder.compare(name, *((y, x) if is_swapped else (x, y)))

        return low.elementwise(out, function, (number_in(a, dtype), type), (number_in(b, dtype), type))

    return handler


for _name, _ir, _is_swapped in (
    ("eq", "eq", False),
    ("ne", "ne", False),
    ("lt", "lt", False),
    ("le", "le", False),
    ("gt", "lt", True),
    ("ge", "le", True),
):
    op(_name)(comparison(_ir, _is_swapped))


@op("where")
def where(low, out, condition, a, b):
    type = ir_type(out.dtype)
    branches = [(number_in(x, out.dtype, wraps=False), type) for x in (a, b)]
    return low.elementwise(out, low.builder.select, (condition, "bool"), *branches)


def lesser(low, out, name, a, b):
    def function(x, y):
        if x.type == "bool":
            return low.builder.op("and" if name == "min" else "or", x, y)
        return low.builder.op(name, x, y)

    return arithmetic(low, out, function, a, b)


@op("minimum")
def minimum(low, out, a, b):
    return lesser(low, out, "min", a, b)


@op("maximum")
def maximum(low, out, a, b):
    return lesser(low, out, "max", a, b)


def ignoring_nan(name):
    def handler(low, out, a, b):
        ops = low.builder

        def function(x, y):
            result = ops.op(name, x, y)
            if x.type != "f32":
                return result
            return ops.select(is_nan(ops, x), y, ops.select(is_nan(ops, y), x, result))

        return arithmetic(low, out, function, a, b)

    return handler


op("fmin")(ignoring_nan("min"))
op("fmax")(ignoring_nan("max"))


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


@op("clamp_min")
def clamp_min(low, out, a, bound):
    return clamp(low, out, a, min=bound)


@op("clamp_max")
def clamp_max(low, out, a, bound):
    return clamp(low, out, a, max=bound)


def test_of_floats(function):
    """Makes a handler for a test that is false for integers and bools."""

    def handler(low, out, a):
        if a.type != "f32":
            return full(low, out)
        return low.elementwise(out, lambda x: function(low.builder, x), (a, "f32"))

    def full(low, out):
        return low.array(out, out.shape, lambda indices: low.builder.const(False, "bool"))

    return handler


def is_nan(ops, x):
    return ops.make("isnan", "bool", (x,))


op("isnan")(test_of_floats(is_nan))
op("isinf")(test_of_floats(lambda ops, x: ops.compare("eq", ops.op("abs", x), ops.const(math.inf, "f32"))))
op("isposinf")(test_of_floats(lambda ops, x: ops.compare("eq", x, ops.const(math.inf, "f32"))))
op("isneginf")(test_of_floats(lambda ops, x: ops.compare("eq", x, ops.const(-math.inf, "f32"))))


# ---- Logic and bits ----


def logical(name):
    return lambda low, out, a, b: low.elementwise(
        out, lambda x, y: low.builder.op(name, x, y), (a, "bool"), (b, "bool")
    )


op("logical_and")(logical("and"))
op("logical_or")(logical("or"))
op("logical_xor")(logical("xor"))


@op("logical_not")
def logical_not(low, out, a):
    return low.elementwise(out, lambda x: low.builder.op("not", x), (a, "bool"))


def bitwise(name):
    return lambda low, out, a, b: arithmetic(low, out, lambda x, y: low.builder.op(name, x, y), a, b)


for _name, _ir in (("and", "and"), ("or", "or"), ("xor", "xor")):
    op(f"bitwise_{_name}", f"__{_name}__")(bitwise(_ir))


@op("bitwise_not")
def bitwise_not(low, out, a):
    return arithmetic(low, out, lambda x: low.builder.op("not", x), a)


def shift(name):
    def handler(low, out, a, b):
        ops = low.builder

        def function(x, count):
            width = 32 if x.type == "i32" else 64
            last = ops.const(width - 1, x.type)
            inside = ops.op("and", ops.compare("le", ops.const(0, x.type), count), ops.compare("le", count, last))
            if count.is_const:
                is_inside = 0 <= ops.number(count) < width
            else:
                is_inside = None
            # Counts beyond the width give 0, and the sign for >>.
            if name == "shl":
                shifted = ops.op("shl", x, count)
                return shifted if is_inside else ops.select(inside, shifted, ops.const(0, x.type))
            return ops.op("shr", x, count if is_inside else ops.select(inside, count, last))

        return arithmetic(low, out, function, a, b)

    return handler


op("bitwise_left_shift", "__lshift__")(shift("shl"))
op("bitwise_right_shift", "__rshift__")(shift("shr"))
