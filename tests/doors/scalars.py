"""What PyTorch computes for a tree of trees.py at one position, in Python's numbers: ints wrap at their width, floats
are rounded to single precision after each operation. Needs only Python."""

import math
import operator
import struct

from trees import BITS, COMPARISONS, HALVES, NUMBERS, Node, extent_of, met, promoted

_COMPARE = {name: getattr(operator, name) for name in COMPARISONS}
_FUNCTIONS = {
    **{name: getattr(math, name) for name in (
        "tanh", "sin", "cos", "erf", "erfc", "atan", "asinh", "exp", "expm1", "log", "log2", "log10", "log1p", "tan",
        "asin", "acos", "sinh", "cosh", "acosh", "atanh",
    )},
    "exp2": lambda x: 2.0**x, "rsqrt": lambda x: x**-0.5, "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0,
    "sinc": lambda x: math.sin(math.pi * x) / (math.pi * x) if x else 1.0,
    "silu": lambda x: x / (1 + math.exp(-x)), "gelu": lambda x: x * 0.5 * (1 + math.erf(x * 0.5**0.5)),
    "softplus": lambda x: math.log1p(math.exp(x)), "logsigmoid": lambda x: -math.log1p(math.exp(-x)),
    "leaky_relu": lambda x: x if x > 0 else x * 0.01,
}  # fmt: skip


def single(x):
    """Rounds a number to single precision, an int of any size once."""
    if isinstance(x, int):
        shift = max(0, x.bit_length() - 60)
        x = float((x >> shift | (x & ((1 << shift) - 1) != 0)) if shift else _odd(x)) * 2.0**shift
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def _odd(x):
    """Cuts an int of up to 60 bits to 53, of which the last one says whether anything was cut."""
    shift = max(0, abs(x).bit_length() - 53)
    return x if not shift else ((x >> shift) | (x & ((1 << shift) - 1) != 0)) << shift


def wrapped(x, dtype):
    if dtype == "bool":
        return bool(x)
    bits = BITS[dtype]
    half = 0 if dtype == "u8" else 1 << (bits - 1)
    return (int(x) + half) % (1 << bits) - half


def converted(x, dtype):
    """Returns a number as an element of a dtype."""
    if dtype == "f32":
        return single(x)
    if isinstance(x, float):
        return wrapped(int(x) if math.isfinite(x) else 0, dtype) if dtype != "bool" else x != 0
    return wrapped(x, dtype)


def _divided(a, b):
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _remainder(a, b):
    rest = math.fmod(a, b) if math.isfinite(a) and b != 0 else math.nan
    return rest, rest != 0 and (rest < 0) != (b < 0)


def _floor_divided(a, b):
    if b == 0:
        return _divided(a, b)
    rest, differ = _remainder(a, b)
    quotient = single(single(a - rest) / b)
    quotient = single(quotient - 1) if differ else quotient
    if quotient == 0 or not math.isfinite(quotient):
        return quotient
    floor = float(math.floor(quotient))
    return floor + 1 if quotient - floor > 0.5 else floor


def _of_floats(op, a, b):
    if op == "mod":
        rest, differ = _remainder(a, b)
        return rest + b if differ else rest
    if op in ("min", "max"):
        return math.nan if a != a or b != b else {"min": min, "max": max}[op](a, b)
    return {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": _divided,
            "floordiv": _floor_divided, "fmod": lambda a, b: _remainder(a, b)[0], "hypot": math.hypot,
            "atan2": math.atan2}[op](a, b)  # fmt: skip


def _shifted(op, a, count, dtype):
    if not 0 <= count < BITS[dtype]:
        return -1 if op == "shr" and a < 0 else 0
    return a << count if op == "shl" else a >> count


def _raised(a, n):
    if n >= 0:
        return pow(a, n, 1 << 64) if a >= 0 else pow(a % (1 << 64), n, 1 << 64)
    return {1: 1, -1: -1 if n % 2 else 1}.get(a, 0)


_INTS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "fmod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1), "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "pow": _raised, "min": min, "max": max,
}  # fmt: skip


class Evaluation:
    """A tree at one position: `names` maps b, h, i and j to numbers, and captures by their names are `captures`."""

    def __init__(self, captures, problem, names, score):
        self.captures, self.problem, self.names, self.score = captures, problem, names, score

    def of(self, x):
        if not isinstance(x, Node):
            return x
        found = getattr(self, f"_{x.op}", None)
        return found(x) if found else self._operation(x)

    def _position(self, node):
        return self.names[node.name]

    def _score(self, node):
        return self.score

    def _scalar(self, node):
        return self.captures[node.name].data[0]

    def _load(self, node):
        capture, place = self.captures[node.name], 0
        for dim, index in zip(capture.dims, map(self.of, node.args)):
            size = extent_of(dim, self.problem)
            if not -size <= index < size:
                raise IndexError(f"{index} of {size}")
            place = place * size + index % size
        value = capture.data[place]
        return value if capture.dtype == "bool" or capture.dtype in HALVES else converted(value, capture.dtype)

    def _cast(self, node):
        return converted(self.of(node.args[0]), node.dtype)

    def _select(self, node):
        condition, a, b = node.args
        return converted(self.of(a if self.of(condition) else b), node.dtype)

    def _clamp(self, node):
        x, low, high = (None if arg is None else converted(self.of(arg), node.dtype) for arg in node.args)
        if x != x:
            return x
        x = x if low is None else max(x, low)
        return x if high is None else min(x, high)

    def _table(self, node):
        capture = self.captures[node.name]
        return [converted(value, capture.dtype) for value in capture.data]

    def _searchsorted(self, node):
        x, table, right = map(self.of, node.args)
        return sum(not (bound > x if right else bound >= x) for bound in table)

    _bucketize = _searchsorted

    def _isin(self, node):
        x, table, inverted = map(self.of, node.args)
        if len(table) < 10:  # longer ones are sorted together with x, in the wider dtype
            x = converted(x, self.captures[node.args[1].name].dtype)
        return (x in table) != inverted

    def _isfinite(self, node):
        return math.isfinite(self.of(node.args[0]))

    def _isnan(self, node):
        return math.isnan(self.of(node.args[0]))

    def _isinf(self, node):
        return math.isinf(self.of(node.args[0]))

    def _operation(self, node):
        op, args = node.op, [self.of(arg) for arg in node.args]
        if op.startswith("logical_"):
            return _INTS[op.removeprefix("logical_")](*map(bool, args))
        dtype = self._common(node) if op in COMPARISONS else node.dtype
        args = [converted(x, dtype) for x in args]
        if op in COMPARISONS:
            return _COMPARE[op](*args)
        if len(args) == 1:
            return converted(self._of_one(op, args[0], dtype), dtype)
        if dtype == "f32":
            return single(_of_floats(op, *args))
        return wrapped(_shifted(op, *args, dtype) if op in ("shl", "shr") else _INTS[op](*args), dtype)

    @staticmethod
    def _common(node):
        """Returns the dtype in which a comparison is made."""
        tensors = [x.dtype for x in node.args if isinstance(x, Node) and x.dtype not in NUMBERS]
        numbers = [NUMBERS[x.dtype]() if isinstance(x, Node) else x for x in node.args
                   if not isinstance(x, Node) or x.dtype in NUMBERS]  # fmt: skip
        dtype = promoted(*tensors)
        return met(dtype, numbers[0]) if numbers else dtype

    @staticmethod
    def _of_one(op, x, dtype):
        if op in _FUNCTIONS:
            if math.isfinite(x) or x != x:
                return _FUNCTIONS[op](x)
            return {"tanh": math.copysign(1, x), "erf": math.copysign(1, x), "erfc": 1 - math.copysign(1, x),
                    "atan": math.atan(x), "asinh": x, "sigmoid": float(x > 0)}.get(op, math.nan)  # fmt: skip
        if op in ("floor", "ceil", "trunc", "round"):
            function = round if op == "round" else getattr(math, op)
            return math.copysign(float(function(x)), x) if math.isfinite(x) else x
        if op == "sign":
            return 0.0 * x if x != x else (x > 0) - (x < 0)
        if op == "invert":
            return not x if dtype == "bool" else ~x
        return {"neg": operator.neg, "abs": abs, "sqrt": math.sqrt, "square": lambda x: x * x,
                "relu": lambda x: x if x != x else max(x, 0.0)}[op](x)  # fmt: skip


def computed(mod, score_at):
    """Yields (position, score or None, whether it is live) for all positions; score_at(b, h, i, j) is q.k, scaled."""
    captures = {capture.name: capture for capture in mod.captures}
    batch, heads, _, q_len, kv_len = mod.problem
    for b in range(batch):
        for h in range(heads):
            for i in range(q_len):
                for j in range(kv_len):
                    at = Evaluation(captures, mod.problem, dict(b=b, h=h, i=i, j=j), score_at(b, h, i, j))
                    score = at.score if mod.score is None else at.of(mod.score)
                    yield (b, h, i, j), score, mod.mask is None or at.of(mod.mask)
