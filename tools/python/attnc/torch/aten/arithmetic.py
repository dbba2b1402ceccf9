"""Arithmetic, powers, bits, and functions of floats."""

import math

from ..._arrays import Array
from ..._formulas import is_nan, named, power_of, power_of_ints, random_at, remainder_of, sign_of, sinc_of, truncated
from ..._ir_text import INT_BITS
from ..._spec import FUNCTIONS_OF_IR
from .table import arithmetic, converted, of_elements, op

for _name in (*FUNCTIONS_OF_IR, "hypot"):
    of_elements(_name)(named(_name))
for _name, _ir, _of_bools in (
    ("mul", "mul", "and"), ("remainder", "mod", None), ("neg", "neg", None), ("minimum", "min", "and"),
    ("maximum", "max", "or"), ("bitwise_not", "not", None), ("bitwise_and", "and", None), ("__and__", "and", None),
    ("bitwise_or", "or", None), ("__or__", "or", None), ("bitwise_xor", "xor", None), ("__xor__", "xor", None),
):  # fmt: skip
    of_elements(_name)(named(_ir, _of_bools))
of_elements("fmod")(remainder_of)
of_elements("sign")(sign_of)
of_elements("sinc")(sinc_of)


# ---- Arithmetic ----


def scaled(low, out, b, alpha):
    """Returns b * alpha, in the type of the result."""
    if alpha == 1:
        return b
    if not isinstance(b, Array):
        return b * alpha
    b = converted(low, b, out.dtype)
    return arithmetic(low, b.meta, lambda ops, x: ops.op("mul", x, ops.const(alpha, x.type)), b)


op("add")(lambda low, out, a, b, alpha=1: arithmetic(low, out, named("add", "or"), a, scaled(low, out, b, alpha)))
op("sub")(lambda low, out, a, b, alpha=1: arithmetic(low, out, named("sub"), a, scaled(low, out, b, alpha)))
op("rsub")(lambda low, out, a, b, alpha=1: arithmetic(low, out, named("sub"), b, scaled(low, out, a, alpha)))


@op("div", "true_divide", "divide")
def div(low, out, a, b, rounding_mode=None):
    def function(ops, x, y):
        if rounding_mode == "floor":
            return ops.op("floor_div", x, y)
        if rounding_mode == "trunc":
            return ops.op("trunc", ops.op("div", x, y)) if x.type == "f32" else truncated(ops, x, y)
        return ops.op("div", x, y)

    return arithmetic(low, out, function, a, b)


op("floor_divide")(lambda low, out, a, b: div(low, out, a, b, "floor"))
of_elements("abs")(lambda ops, x: x if x.type == "bool" else ops.op("abs", x))
of_elements("reciprocal")(lambda ops, x: ops.op("div", ops.const(1, "f32"), x))


def shift(name):
    def function(ops, x, count):
        width = INT_BITS[x.type]
        last = ops.const(width - 1, x.type)
        if count.is_const and 0 <= ops.number(count) < width:
            return ops.op(name, x, count)
        is_inside = ops.op("and", ops.compare("le", ops.const(0, x.type), count), ops.compare("le", count, last))
        # Counts beyond the width give 0, and the sign for >>.
        if name == "shl":
            return ops.select(is_inside, ops.op("shl", x, count), ops.const(0, x.type))
        return ops.op("shr", x, ops.select(is_inside, count, last))

    return function


of_elements("bitwise_left_shift", "__lshift__")(shift("shl"))
of_elements("bitwise_right_shift", "__rshift__")(shift("shr"))


# ---- Powers ----


@op("pow")
def power(low, out, base, exponent):
    def known(ops, x):
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

    def general(ops, x, y):
        if x.type != "f32":
            return power_of_ints(ops, x, y)
        if not isinstance(base, Array) and base == 2:
            return ops.op("exp2", y)
        return ops.op("pow", x, y)

    if isinstance(exponent, Array):
        return arithmetic(low, out, general, base, exponent)
    return arithmetic(low, out, known, base)


# ---- Functions of floats ----


@op("random_at")
def random(low, out, *operands):
    return low.elementwise(out, lambda *x: random_at(low.builder, *x), *[(x, x.type) for x in operands])


@of_elements("log10")
def log10(ops, x):
    return ops.op("mul", ops.op("log", x), ops.const(1 / math.log(10), "f32"))


def rounding(name):
    return lambda low, out, a: arithmetic(low, out, lambda ops, x: ops.op(name, x) if x.type == "f32" else x, a)


for _name in ("floor", "ceil", "trunc", "round"):
    op(_name)(rounding(_name))


@of_elements("relu")
def relu(ops, x):
    # Not max, because the gradient at 0 is 0.
    return ops.select(ops.compare("le", x, ops.const(0, x.type)), ops.const(0, x.type), x)


def ignoring_nan(name):
    def function(ops, x, y):
        result = ops.op(name, x, y)
        if x.type != "f32":
            return result
        return ops.select(is_nan(ops, x), y, ops.select(is_nan(ops, y), x, result))

    return function


of_elements("fmin")(ignoring_nan("min"))
of_elements("fmax")(ignoring_nan("max"))
