"""Integers as XLA computes them: they wrap at their width, division by zero and shifts by any count are defined, and
floats saturate.

Functions take an IntegerBuilder and values.
"""

from .._arrays import ir_type
from .._formulas import narrow, remainder_of, truncated
from .._ir_text import INT_BITS, LIMITS, Builder


class IntegerBuilder(Builder):
    """Knows that integers wrap."""

    def fitted(self, bounds, whole):
        return bounds if whole[0] <= bounds[0] and bounds[1] <= whole[1] else whole


def wrapped(ops, value, dtype):
    """Wraps an integer to the width of its dtype."""
    limits = LIMITS.get(str(dtype))
    if limits is None or value.type == "f32":
        return value
    least, most = ops.bounds(value)
    return value if limits[0] <= least and most <= limits[1] else narrow(ops, value, dtype)


def converted(ops, value, dtype):
    """Wraps integers, saturates floats."""
    limits = LIMITS.get(str(dtype))
    if limits is None or value.type != "f32":
        return wrapped(ops, ops.cast(value, ir_type(dtype)), dtype)
    value = ops.cast(value, ir_type(dtype))
    for name, bound, of_type in zip(("max", "min"), limits, ops.bounds(value)):
        if bound != of_type:
            value = ops.op(name, value, ops.const(bound, value.type))
    return value


def _unless_zero(ops, divisor, result, at_zero):
    least, most = ops.bounds(divisor)
    if least > 0 or most < 0:
        return result
    return ops.select(ops.compare("eq", divisor, ops.const(0, divisor.type)), at_zero, result)


def quotient(ops, x, y):
    """Rounds towards zero. All bits are set if the divisor is 0."""
    are_natural = ops.is_non_negative(x) and ops.is_non_negative(y)  # then all forms of division agree
    result = ops.op("floor_div", x, y) if are_natural else truncated(ops, x, y)
    return _unless_zero(ops, y, result, ops.const(-1, x.type))


def remainder(ops, x, y):
    """Has the sign of the dividend, and is the dividend if the divisor is 0."""
    are_natural = ops.is_non_negative(x) and ops.is_non_negative(y)
    result = ops.op("mod", x, y) if are_natural else remainder_of(ops, x, y)
    return _unless_zero(ops, y, result, x)


def _shifted(ops, name, x, count, width, beyond):
    least, most = ops.bounds(count)
    if 0 <= least and most < width:
        return ops.op(name, x, count)
    last, zero = ops.const(width - 1, count.type), ops.const(0, count.type)
    is_inside = ops.op("and", ops.compare("le", zero, count), ops.compare("le", count, last))
    return ops.select(is_inside, ops.op(name, x, count), beyond)


def shift_left(ops, x, count, width, is_signed):
    return _shifted(ops, "shl", x, count, width, ops.const(0, x.type))


def shift_right_arithmetic(ops, x, count, width, is_signed):
    if not is_signed:  # the highest bit counts as a sign
        sign = ops.op("and", x, ops.const(1 << width - 1, x.type))
        x = ops.op("sub", x, ops.op("add", sign, sign))
    return _shifted(ops, "shr", x, count, width, ops.op("shr", x, ops.const(width - 1, x.type)))


def shift_right_logical(ops, x, count, width, is_signed):
    type, zero, one = x.type, ops.const(0, x.type), ops.const(1, x.type)
    if width == 64:
        is_kept = ops.compare("eq", count, zero)
        # The first step clears the sign.
        half = ops.op("and", ops.op("shr", x, one), ops.const((1 << 63) - 1, type))
        return ops.select(is_kept, x, _shifted(ops, "shr", half, ops.op("sub", count, one), 63, zero))
    if not ops.is_non_negative(x):
        wide = "i64" if width == 32 else type
        x = ops.op("and", ops.cast(x, wide), ops.const((1 << width) - 1, wide))
        count = ops.cast(count, wide)
    return ops.cast(_shifted(ops, "shr", x, count, width, ops.const(0, x.type)), type)


def population_count(ops, x, width, is_signed):
    """Counts the bits that are set, in groups of twice as many bits in each step."""
    type, size = x.type, 1
    if width < INT_BITS[type]:
        x = ops.op("and", x, ops.const((1 << width) - 1, type))
    while size < width:
        group = sum((1 << size) - 1 << at for at in range(0, width, 2 * size))
        high = ops.op("shr", x, ops.const(size, type))
        low, high = (ops.op("and", part, ops.const(group, type)) for part in (x, high))
        x, size = ops.op("add", low, high), 2 * size
    return x
