"""Arithmetic, powers, and functions of floats."""

import math

import torch

from ..._arrays import Array
from ..._formulas import power_of, power_of_ints, random_at, remainder_of, sign_of, sinc_of, truncated
from .table import arithmetic, converted, op


def scaled(low, out, b, alpha):
    """Returns b * alpha, in the type of the result."""
    if alpha == 1:
        return b
    if not isinstance(b, Array):
        return b * alpha
    b = converted(low, b, out.dtype)
    return arithmetic(low, b.meta, lambda x: low.builder.op("mul", x, low.builder.const(alpha, x.type)), b)


# ---- Arithmetic ----


@op("add")
def add(low, out, a, b, alpha=1):
    name = "or" if out.dtype == torch.bool else "add"
    return arithmetic(low, out, lambda x, y: low.builder.op(name, x, y), a, scaled(low, out, b, alpha))


@op("sub")
def sub(low, out, a, b, alpha=1):
    return arithmetic(low, out, lambda x, y: low.builder.op("sub", x, y), a, scaled(low, out, b, alpha))


@op("rsub")
def rsub(low, out, a, b, alpha=1):
    return arithmetic(low, out, lambda x, y: low.builder.op("sub", y, x), scaled(low, out, a, alpha), b)


@op("mul")
def mul(low, out, a, b):
    name = "and" if out.dtype == torch.bool else "mul"
    return arithmetic(low, out, lambda x, y: low.builder.op(name, x, y), a, b)


@op("div", "true_divide", "divide")
def div(low, out, a, b, rounding_mode=None):
    ops = low.builder

    def function(x, y):
        if rounding_mode == "floor":
            return ops.op("floor_div", x, y)
        if rounding_mode == "trunc":
            return ops.op("trunc", ops.op("div", x, y)) if x.type == "f32" else truncated(ops, x, y)
        return ops.op("div", x, y)

    return arithmetic(low, out, function, a, b)


@op("floor_divide")
def floor_divide(low, out, a, b):
    return div(low, out, a, b, "floor")


@op("remainder")
def remainder(low, out, a, b):
    return arithmetic(low, out, lambda x, y: low.builder.op("mod", x, y), a, b)


@op("fmod")
def fmod(low, out, a, b):
    return arithmetic(low, out, lambda x, y: remainder_of(low.builder, x, y), a, b)


@op("neg")
def neg(low, out, a):
    return arithmetic(low, out, lambda x: low.builder.op("neg", x), a)


@op("abs")
def absolute(low, out, a):
    return arithmetic(low, out, lambda x: x if x.type == "bool" else low.builder.op("abs", x), a)


@op("sign")
def sign(low, out, a):
    return arithmetic(low, out, lambda x: sign_of(low.builder, x), a)


@op("reciprocal")
def reciprocal(low, out, a):
    return arithmetic(low, out, lambda x: low.builder.op("div", low.builder.const(1, "f32"), x), a)


# ---- Powers ----


@op("pow")
def power(low, out, base, exponent):
    ops = low.builder

    def known(x):
        if exponent == int(exponent) and abs(exponent) <= 64:
            one = ops.const(1, x.type)
            if exponent == 0:
                return one
            result = power_of(ops, x, abs(int(exponent)))
            return ops.op("div", one, result) if exponent < 0 else result
        if x.type != "f32":
            return power_of(ops, x, int(exponent))
        if abs(exponent) == 0.5:
            return ops.op("sqrt" if exponent > 0 else "rsqrt", x)
        return ops.op("pow", x, ops.const(exponent, "f32"))

    def general(x, y):
        if x.type != "f32":
            return power_of_ints(ops, x, y)
        if not isinstance(base, Array) and base == 2:
            return ops.op("exp2", y)
        return ops.op("pow", x, y)

    if isinstance(exponent, Array):
        return arithmetic(low, out, general, base, exponent)
    return arithmetic(low, out, known, base)


@op("exp2")
def exp2(low, out, a):
    return arithmetic(low, out, lambda x: low.builder.op("exp2", x), a)


# ---- Functions of floats ----


def function_of_floats(name):
    return lambda low, out, *operands: arithmetic(low, out, lambda *x: low.builder.op(name, *x), *operands)


for _name in (
    "exp", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "hypot",
):  # fmt: skip
    op(_name)(function_of_floats(_name))


@op("random_at")
def random(low, out, *operands):
    return low.elementwise(out, lambda *x: random_at(low.builder, *x), *[(x, x.type) for x in operands])


@op("sinc")
def sinc(low, out, a):
    return arithmetic(low, out, lambda x: sinc_of(low.builder, x), a)


@op("log10")
def log10(low, out, a):
    ops = low.builder
    return arithmetic(low, out, lambda x: ops.op("mul", ops.op("log", x), ops.const(1 / math.log(10), "f32")), a)


def rounding(name):
    return lambda low, out, a: arithmetic(low, out, lambda x: low.builder.op(name, x) if x.type == "f32" else x, a)


for _name in ("floor", "ceil", "trunc", "round"):
    op(_name)(rounding(_name))


@op("relu")
def relu(low, out, a):
    ops = low.builder
    # Not max, because the gradient at 0 is 0.
    return arithmetic(
        low, out, lambda x: ops.select(ops.compare("le", x, ops.const(0, x.type)), ops.const(0, x.type), x), a
    )
