"""Integers as XLA computes them: they wrap at their width, division by zero and shifts by any count are defined, and
floats saturate.

Functions take an IntegerBuilder and values.
"""

from .._arrays import ir_type
from .._formulas import narrow, remainder_of, truncated
from .._ir_text import INT_BITS, Builder

# The smallest and the largest number of a dtype.
LIMITS = {f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
LIMITS |= {f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32)}
_LOADED = {"bool": (0, 1), "u8": LIMITS["uint8"], "i8": LIMITS["int8"], "i16": LIMITS["int16"]}


class IntegerBuilder(Builder):
    """Knows bounds of integers. `positions` has the number of positions of each parameter."""

    def __init__(self, positions):
        super().__init__()
        self.positions, self.known_bounds = positions, []  # by number of a value

    def bounds(self, value):
        """Returns the smallest and the largest number that an integer can be."""
        while len(self.known_bounds) <= value.number:  # operands come before their users
            self.known_bounds.append(self._bounds(self.nodes[len(self.known_bounds)]))
        return self.known_bounds[value.number]

    def is_non_negative(self, value):
        return value.type != "f32" and self.bounds(value)[0] >= 0

    def _bounds(self, value):
        if value.type == "f32":
            return None
        whole = (0, 1) if value.type == "bool" else LIMITS[f"int{INT_BITS[value.type]}"]
        operands = [self.known_bounds[operand.number] for operand in value.operands]
        found = self._unwrapped(value, *operands)
        return found if found and whole[0] <= found[0] and found[1] <= whole[1] else whole

    def _unwrapped(self, value, a=None, b=None, c=None):
        """Returns the bounds of the result without wrap-around; None: unknown."""
        op = value.op
        if op == "const":
            return (self.number(value),) * 2
        if op in ("param", "iter", "extent"):
            count = self.positions.get(value.attr) if op == "param" else value.attr[1] if op == "iter" else None
            return 0, (count or 1 << 31) - 1
        if op == "load":
            return _LOADED.get(self.captures[value.attr].dtype)
        if op == "sum" and a:
            return a[0] * value.attr[1], a[1] * value.attr[1]
        if a is None or (b is None and len(value.operands) > 1):
            return None
        if op == "cast":
            return a
        if op == "select":
            return min(b[0], c[0]), max(b[1], c[1])
        if op == "neg":
            return -a[1], -a[0]
        if op == "abs":
            return 0, max(-a[0], a[1])
        if op == "add":
            return a[0] + b[0], a[1] + b[1]
        if op == "sub":
            return a[0] - b[1], a[1] - b[0]
        if op == "mul":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        if op in ("min", "max"):
            fold = min if op == "min" else max
            return fold(a[0], b[0]), fold(a[1], b[1])
        if op == "and" and max(a[0], b[0]) >= 0:
            return 0, min(most for least, most in (a, b) if least >= 0)
        if op in ("or", "xor") and min(a[0], b[0]) >= 0:
            return 0, (1 << (a[1] | b[1]).bit_length()) - 1
        if op == "mod" and b[0] > 0:
            return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1
        if op == "floor_div" and b[0] > 0:
            corners = [x // y for x in a for y in b]
            return min(corners), max(corners)
        if op == "shr":
            return min(a[0], 0), max(a[1], 0)
        return None


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
