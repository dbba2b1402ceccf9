"""Functions that the IR has no operation for, by its operations. `ops` is a Builder; operands are values."""

import math

from ._arrays import ir_type
from ._ir_text import LIMITS


def named(name, bool_name=None):
    """Returns a function of the builder and operands, which is an operation, and another one for bools if it has a name."""
    return lambda ops, x, *others: ops.op(bool_name or name if x.type == "bool" else name, x, *others)


def is_nan(ops, x):
    return ops.make("isnan", "bool", (x,))


def narrow(ops, value, dtype):
    """Wraps an integer to the width of a dtype of torch or JAX."""
    name = str(dtype).removeprefix("torch.")
    least, most = LIMITS.get(name, (0, 0))
    if name in ("bool", "int32", "int64") or not most:
        return value
    half, mask = -least, most - least
    if half:
        value = ops.op("add", value, ops.const(half, value.type))
    value = ops.op("and", value, ops.const(mask, value.type))
    return ops.op("sub", value, ops.const(half, value.type)) if half else value


def to_dtype(ops, value, dtype):
    """Converts to a dtype of torch or JAX."""
    type = ir_type(dtype)
    if value.type == "f32" and type == "i32":
        value = ops.cast(value, "i32")
    return narrow(ops, ops.cast(value, type), dtype)


def truncated(ops, x, y):
    """Returns the quotient of integers, rounded towards zero: the floor, plus one for an inexact negative quotient."""
    zero, floor = ops.const(0, x.type), ops.op("floor_div", x, y)
    is_inexact = ops.compare("ne", ops.op("mod", x, y), zero)
    is_below = ops.op("and", ops.compare("lt", floor, zero), is_inexact)
    return ops.select(is_below, ops.op("add", floor, ops.const(1, x.type)), floor)


def remainder_of(ops, x, y):
    """Returns the remainder that has the sign of the dividend, as C's."""
    if x.type == "f32":
        return ops.op("fmod", x, y)
    # For integers: the remainder of floor_div, minus the divisor if the signs differ.
    zero, rest = ops.const(0, x.type), ops.op("mod", x, y)
    differ = ops.compare("ne", ops.compare("lt", x, zero), ops.compare("lt", y, zero))
    return ops.select(ops.op("and", differ, ops.compare("ne", rest, zero)), ops.op("sub", rest, y), rest)


def sign_of(ops, x):
    if x.type == "bool":
        return x
    zero = ops.const(0, x.type)
    below = ops.select(ops.compare("lt", x, zero), ops.const(-1, x.type), zero)
    return ops.select(ops.compare("lt", zero, x), ops.const(1, x.type), below)


def power_of(ops, base, count):
    """Returns base ** count by squaring, count >= 1."""
    result, square = None, base
    while True:
        if count & 1:
            result = square if result is None else ops.op("mul", result, square)
        count >>= 1
        if not count:
            return result
        square = ops.op("mul", square, square)


def power_of_ints(ops, base, exponent):
    """Computes one step for each bit of the exponent; 0 if it is negative, except for bases 1 and -1."""
    type, whole = base.type, base
    zero, one = ops.const(0, type), ops.const(1, type)
    result = one
    for bit in range(31 if type == "i32" else 63):
        is_set = ops.compare("ne", ops.op("and", exponent, ops.const(1 << bit, type)), zero)
        result = ops.select(is_set, ops.op("mul", result, base), result)
        base = ops.op("mul", base, base)
    is_fraction = ops.op("and", ops.compare("lt", exponent, zero), ops.compare("ne", ops.op("abs", whole), one))
    return ops.select(is_fraction, zero, result)


def sinc_of(ops, x):
    """Returns sin(y) / y for y = pi x, by its series around 0, whose derivative keeps its digits there."""
    y = ops.op("mul", x, ops.const(math.pi, "f32"))
    square, series = ops.op("mul", y, y), ops.const(-1 / 5040, "f32")
    for term in (1 / 120, -1 / 6, 1):
        series = ops.op("add", ops.op("mul", square, series), ops.const(term, "f32"))
    is_near = ops.compare("lt", square, ops.const(1 / 16, "f32"))
    return ops.select(is_near, series, ops.op("div", ops.op("sin", y), y))


def random_at(ops, seed, *position):
    return ops.make("random", "f32", (ops.cast(seed, "i64"), *(ops.cast(x, "i32") for x in position)))
