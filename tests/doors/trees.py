"""Random mods: drawn from a seed as trees of typed nodes, printed as the text of a mod and as functions of jax.numpy.
Needs only Python.

A tree means what PyTorch means by it. Its nodes have the dtype that PyTorch promotes to; a Python number among the
operands has none, and adopts that of the tensor that it meets.
"""

import dataclasses
import random

BITS = {"u8": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
INTS = tuple(BITS)
HALVES = ("f16", "bf16")
NUMBERS = {"int": int, "float": float}  # run-time scalars, numbers of Python in CPython
TORCH = {"bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16",
         "bf16": "bfloat16", "f32": "float32"}  # fmt: skip
SHORT = {"bool": "bool", "i32": "int", "i64": "long", "f32": "float"}  # methods that convert
INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "div": "/", "and": "&", "or": "|",
         "xor": "^", "shl": "<<", "shr": ">>", "pow": "**", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
         "ne": "!="}  # fmt: skip
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# Of a score, so that each weight is above 0. No score equals one: there JAX gives it half of the gradient, PyTorch all.
BOUNDS = (-29.9, 29.9)
# Functions of one float, and bounds of it: their values are moderate, so that an error of the last place stays one.
FUNCTIONS = {
    **dict.fromkeys(("tanh", "sigmoid", "sin", "cos", "erf", "erfc", "atan", "asinh")),
    "exp": (-9.0137, 3.0137), "exp2": (-9.0137, 4.0137), "expm1": (-9.0137, 3.0137), "log": (0.1137, 1e6),
    "log2": (0.1137, 1e6), "log10": (0.1137, 1e6), "log1p": (-0.8863, 1e6), "rsqrt": (0.1137, 1e6),
    "reciprocal": (0.1137, 1e6), "tan": (-1.2137, 1.2137), "asin": (-0.9137, 0.9137), "acos": (-0.9137, 0.9137),
    "sinh": (-3.0137, 3.0137), "cosh": (-3.0137, 3.0137), "acosh": (1.0137, 1e6), "atanh": (-0.9137, 0.9137),
    **dict.fromkeys(("silu", "gelu", "softplus", "logsigmoid", "leaky_relu"), (-9.0137, 9.0137)),
}  # fmt: skip
ACTIVATIONS = ("silu", "gelu", "softplus", "logsigmoid", "leaky_relu")  # of torch.nn.functional


@dataclasses.dataclass(frozen=True)
class Node:
    """An operation; the operands are nodes, numbers of Python, or None for a bound that is left out. A load, a table, a
    scalar and a position have a name. An inexact float may differ in the last places: no step function takes it."""

    op: str
    dtype: str
    args: tuple = ()
    name: str = ""
    is_exact: bool = True


@dataclasses.dataclass(frozen=True)
class Captured:
    """A captured tensor with its elements in rows, or a run-time scalar: then `dtype` is int, float or bool."""

    name: str
    dtype: str
    dims: tuple = ()  # numbers, or names of extents
    data: tuple = ()


@dataclasses.dataclass(frozen=True)
class Mod:
    """A mod, its captures, and the problem (B, H, HKV, Q_LEN, KV_LEN). Without a score or mask the tree is None."""

    score: Node | None
    mask: Node | None
    captures: tuple
    problem: tuple
    is_wide: bool = False  # whether JAX computes with 64 bits, and with positions of 64 bits

    def used(self):
        names = {node.name for tree in (self.score, self.mask) if tree for node in nodes_of(tree)}
        return tuple(capture for capture in self.captures if capture.name in names)


def nodes_of(node):
    yield node
    for arg in node.args:
        if isinstance(arg, Node):
            yield from nodes_of(arg)


def promoted(*types):
    """Returns the dtype that tensors without dims are promoted to."""
    if "f32" in types:
        return "f32"
    ints = [type for type in types if type != "bool"]
    if not ints:
        return "bool"
    bits = max(BITS[type] for type in ints)
    if "u8" in ints and "i8" in ints and bits == 8:
        return "i16"
    return next(type for type in ints if BITS[type] == bits)


def met(dtype, number):
    """Returns the dtype of a tensor that meets a Python number."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, float):
        return "f32"
    return "i64" if dtype == "bool" else dtype


def range_of(dtype):
    bits = BITS[dtype]
    return (0, 2**bits - 1) if dtype == "u8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def extent_of(dim, problem):
    return dict(zip(("B", "H", "HKV", "Q_LEN", "KV_LEN"), problem)).get(dim, dim)


# ---- Drawing ----


class Draw:
    """Draws one mod. Nodes are made by the functions of their kind: integer(), boolean(), exact() and smooth()."""

    def __init__(self, seed, kinds=INTS):
        self.random = random.Random(seed)
        r = self.random
        self.kinds = kinds
        length = r.choice((1, 3, 7, 8, 12, 16))
        heads, kv_heads = r.choice(((1, 1), (2, 1), (2, 2), (3, 1)))
        q_len = length if r.random() < 0.5 else r.choice((1, 5, 16))
        self.problem = (r.choice((1, 2)), heads, kv_heads, q_len, length)
        if r.random() < 0.05:
            self.problem = (1, 1, 1, 140, r.choice((132, 160)))
        self.captures = []
        self.nesting = 0  # gathers inside gathers

    def mod(self):
        r = self.random
        mask = self.boolean(r.randint(2, 5)) if r.random() < 0.75 else None
        score = self.score(r.randint(2, 4)) if mask is None or r.random() < 0.6 else None
        return Mod(score, mask, tuple(self.captures), self.problem, r.random() < 0.6)

    # Captures

    def capture(self, dtype):
        r = self.random
        known = [capture for capture in self.captures if capture.dtype == dtype]
        if known and r.random() < 0.6:
            return r.choice(known)
        name = f"{'w' if dtype in ('int', 'float') else 't'}{len(self.captures)}"
        if dtype in ("int", "float"):
            value = self.number("i32") if dtype == "int" else self.real()
            made = Captured(name, dtype, (), (value,))
        else:
            rank = r.choice((0, 1, 1, 1, 2))
            dims = tuple(r.choice((2, 3, 5, 7, 8, "KV_LEN", "H", "Q_LEN")) for _ in range(rank))
            count = 1
            for dim in dims:
                count *= extent_of(dim, self.problem)
            made = Captured(name, dtype, dims, tuple(self.elements(dtype, count)))
        self.captures.append(made)
        return made

    def elements(self, dtype, count):
        r, style = self.random, self.random.random()
        if dtype == "bool":
            return [r.random() < 0.6 for _ in range(count)]
        if dtype in ("f32", *HALVES):
            scale = 8 if dtype == "bf16" else 64
            return [r.randint(-160, 160) / scale for _ in range(count)]
        least, most = range_of(dtype)
        if style < 0.3:
            return [r.choice((least, most, least + 1, most - 1, 0, 1, r.randint(least, most))) for _ in range(count)]
        if style < 0.5:
            return [r.randint(least, most) for _ in range(count)]
        if style < 0.75:
            return [max(least, r.randint(-9, 9)) for _ in range(count)]
        return [at * 3 // 4 for at in range(count)] if count < 100 else [at // 9 for at in range(count)]

    def load(self, dtype):
        capture = self.capture(dtype)
        loaded = "f32" if dtype in HALVES else dtype
        node = Node("load", dtype, tuple(self.place(dim) for dim in capture.dims), capture.name)
        return Node("cast", loaded, (node,)) if dtype in HALVES else node

    def table(self, dtype):
        """A captured tensor as a whole, whose elements ascend."""
        count = self.random.choice((1, 2, 3, 5, 8, 20))
        made = Captured(f"t{len(self.captures)}", dtype, (count,), tuple(sorted(self.elements(dtype, count))))
        self.captures.append(made)
        return Node("table", "table", (), made.name)

    def sought(self, depth, dtype):
        """A tensor of a dtype, to be looked up in a table of that dtype."""
        node = self.float_tensor(depth) if dtype == "f32" else self.tensor(depth)
        return node if node.dtype == dtype else Node("cast", dtype, (node,))

    def place(self, dim):
        """An index of an axis, inside it. PyTorch takes no others."""
        r, size = self.random, extent_of(dim, self.problem)
        direct = [name for name, extent in zip("bhij", (0, 1, 3, 4)) if self.problem[extent] <= size]
        if direct and r.random() < 0.5:
            return Node("position", "i64", (), r.choice(direct))
        if r.random() < 0.1:
            return r.randrange(size)
        self.nesting += 1
        index = self.tensor(2) if self.nesting < 3 else Node("position", "i64", (), r.choice("ij"))
        self.nesting -= 1
        if index.dtype not in ("i32", "i64"):
            index = Node("cast", "i64", (index,))
        style = r.random()
        if style < 0.5:
            return self.binary("mod", index, size)
        if style < 0.75:
            return Node("clamp", index.dtype, (index, 0, size - 1))
        if style < 0.9:
            return Node("clamp", index.dtype, (index, -size, size - 1))
        return self.binary("sub", self.binary("mod", index, size), size)

    # Numbers

    def number(self, dtype):
        """An integer of Python, in the range of a dtype, as in mods: small, or near a power of two."""
        r = self.random
        least, most = range_of(dtype)
        style = r.random()
        if style < 0.55:
            value = r.randint(-9, 20)
        elif style < 0.9:
            edge = r.choice([7, 8, 15, 16, 24, 30, 31, 32, 33, 40, 53, 62, 63])
            value = r.choice((1, -1)) * 2**edge + r.choice((-1, 0, 1))
        else:
            value = r.choice((10**9, 10**12, 0xFFFFFFFF, 0xFF00FF, 1234567890123, 65535, -(10**10), 3 * 10**9))
        if not least <= value <= most:
            value = value % (most - least + 1) + least
        return value

    def real(self):
        r = self.random
        rare = 1e10 if r.random() < 0.2 else 0.3
        return r.choice((0.25, 0.5, 1.5, -2.0, 3.0, 0.1, 7.3, -0.75, 100.0, 1e-3, 2.5, rare))

    # Integers

    def binary(self, op, a, b):
        nodes = [x for x in (a, b) if isinstance(x, Node)]
        tensors = [x for x in nodes if x.dtype not in NUMBERS]
        dtype = promoted(*(x.dtype for x in tensors))
        if len(tensors) < 2:
            other = b if tensors[0] is a else a
            dtype = met(dtype, NUMBERS[other.dtype]() if isinstance(other, Node) else other)
        if op == "div":
            dtype = "f32"
        is_exact = all(x.is_exact for x in nodes)
        return Node(op, "bool" if op in COMPARISONS else dtype, (a, b), is_exact=is_exact)

    def integer(self, depth):
        r = self.random
        if depth <= 0 or r.random() < 0.08:
            style = r.random()
            if style < 0.6:
                return Node("position", "i64", (), r.choice("hiijjb" if style < 0.1 else "ij"))
            if style < 0.64:
                return Node("scalar", "int", (), self.capture("int").name)
            return self.load(r.choice(self.kinds))
        op = r.choice((
            "add", "add", "sub", "sub", "mul", "mul", "floordiv", "floordiv", "mod", "mod", "fmod", "and", "or", "xor",
            "shl",
            "shr", "min", "max", "clamp", "clamp", "select", "select", "cast", "cast", "neg", "abs", "invert", "sign",
            "pow", "of_bool", "of_float", "searched",
        ))  # fmt: skip
        if op == "of_bool":
            return self.of_bool(depth)
        if op == "searched":
            dtype = r.choice((*INTS, "f32", "f32"))
            return Node(r.choice(("bucketize", "searchsorted")), "i64",
                        (self.sought(depth - 1, dtype), self.table(dtype), r.random() < 0.5))  # fmt: skip
        if op == "of_float":
            limit = 100 if r.random() < 0.7 else 32000
            a = self.load("f32") if r.random() < 0.4 else Node("cast", "f32", (self.tensor(depth - 1),))
            a = self.binary(r.choice(("add", "mul", "sub", "div")), a, self.real())  # no NaN
            node = Node("clamp", "f32", (a, 0.0 if limit == 100 else -float(limit), float(limit)))
            return Node("cast", r.choice(("u8", "i8", "i16", "i32", "i64") if limit == 100 else ("i16", "i32", "i64")),
                        (node,))  # fmt: skip
        a = self.tensor(depth - 1)
        if op in ("neg", "abs", "invert", "sign"):
            return Node(op, a.dtype, (a,))
        if op == "cast":
            return Node("cast", r.choice(INTS), (a,))
        if op == "clamp":
            low, high = sorted((self.number(a.dtype), self.number(a.dtype)))
            if r.random() < 0.15:
                low, high = self.tensor(1), self.tensor(1)
                return Node("clamp", promoted(a.dtype, low.dtype, high.dtype), (a, low, high))
            style = r.random()
            return Node("clamp", a.dtype, (a, None if style < 0.25 else low, None if style > 0.75 else high))
        if op == "select":
            b = self.operand(a, depth)
            a, b = (b, a) if r.random() < 0.4 else (a, b)
            dtype = self.binary("add", a, b).dtype
            return Node("select", dtype, (self.boolean(depth - 1), a, b))
        if op in ("min", "max"):
            b = self.tensor(depth - 1)
            return Node(op, promoted(a.dtype, b.dtype), (a, b))
        if op in ("floordiv", "mod", "fmod"):
            return self.binary(op, a, self.divisor(a, depth))
        if op in ("shl", "shr"):
            return self.shifted(op, a, depth)
        if op == "pow":
            if r.random() < 0.6:
                return self.binary("pow", a, r.randint(0, 5))
            count = self.binary("mod", self.tensor(depth - 2), r.randint(2, 9))
            return self.binary("pow", a, count) if r.random() < 0.6 else self.binary("pow", r.randint(-3, 3), count)
        b = self.operand(a, depth)
        a, b = (b, a) if r.random() < 0.3 else (a, b)
        return self.binary(op, a, b)

    def tensor(self, depth):
        """An integer that is a tensor in PyTorch: a run-time scalar is a number of Python."""
        node = self.integer(depth)
        return self.binary("add", Node("position", "i64", (), "j"), node) if node.dtype in NUMBERS else node

    def operand(self, a, depth):
        r = self.random
        return self.number(a.dtype) if r.random() < 0.45 else self.tensor(depth - 1)

    def divisor(self, a, depth):
        r = self.random
        if r.random() < 0.65:
            value = self.number(a.dtype)
            return 3 if value in (0, -1) else value
        most = r.randint(2, 60)
        rest = self.binary("mod", self.tensor(depth - 2), most)
        rest = self.binary("add", rest, 1)
        is_below = rest.dtype != "u8" and r.random() < 0.2
        return Node("neg", rest.dtype, (self.binary("add", rest, 1),)) if is_below else rest

    def shifted(self, op, a, depth):
        r = self.random
        if r.random() < 0.4:
            return self.binary(op, a, r.choice((0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 40, 63, 64, 70)))
        count = self.tensor(depth - 2)
        if r.random() < 0.6:
            count = self.binary("mod", count, r.choice((8, 33, 65, 80)))
            count = self.binary("sub", count, r.choice((0, 0, 3, 8))) if r.random() < 0.5 else count
        return self.binary(op, a if r.random() < 0.75 else self.number("i32"), count)

    def of_bool(self, depth):
        r, a = self.random, self.boolean(depth - 1)
        if r.random() < 0.4:
            return Node("cast", r.choice(INTS), (a,))
        b = self.tensor(depth - 1)
        return self.binary(r.choice(("add", "mul", "and", "or", "xor")), *r.sample((a, b), 2))

    # Booleans

    def boolean(self, depth):
        r = self.random
        style = r.random()
        if depth <= 0:
            a = self.tensor(0)
            return self.load("bool") if style < 0.2 else self.binary(r.choice(COMPARISONS), a, self.operand(a, 1))
        if style < 0.45:
            a = self.tensor(depth - 1)
            b = self.operand(a, depth)
            if isinstance(b, int) and r.random() < 0.15:  # beyond the dtype: PyTorch compares exactly
                b = self.number("i64")
            return self.binary(r.choice(COMPARISONS), *((a, b) if r.random() < 0.8 else (b, a)))
        if style < 0.55:
            a = self.float_tensor(depth - 1)
            other = r.choice((self.float_tensor, self.tensor, None))
            b = other(depth - 1) if other else self.real()
            return self.binary(r.choice(COMPARISONS), a, b)
        if style < 0.8:
            return self.binary(r.choice(("and", "or", "xor")), self.boolean(depth - 1), self.boolean(depth - 1))
        if style < 0.86:
            return Node("invert", "bool", (self.boolean(depth - 1),))
        if style < 0.9:
            return Node("cast", "bool", (self.tensor(depth - 1),))
        if style < 0.93:
            return Node(r.choice(("logical_and", "logical_or", "logical_xor")), "bool",
                        (self.tensor(depth - 1), self.boolean(depth - 1)))  # fmt: skip
        if style < 0.95:
            a = self.boolean(depth - 1)
            return Node("select", "bool", (self.boolean(depth - 1), a, self.boolean(depth - 1)))
        if style < 0.98:
            dtype = r.choice((*INTS, "f32"))
            a = self.float_tensor(depth - 1) if dtype == "f32" else self.tensor(depth - 1)
            return Node("isin", "bool", (a, self.table(dtype), r.random() < 0.3))
        return Node(r.choice(("isnan", "isinf", "isfinite")), "bool", (self.float_tensor(depth - 1),))

    # Floats

    def exact(self, depth):
        """A float that is rounded alike everywhere."""
        r = self.random
        style = r.random()
        if depth <= 0 or style < 0.3:
            if style < 0.08:
                return Node("scalar", "float", (), self.capture("float").name) if style < 0.02 else self.load("f32")
            if style < 0.2:
                return self.load(r.choice(("f32", "f16", "bf16", "f32")))
            return Node("cast", "f32", (self.tensor(depth - 1),))
        a = self.float_tensor(depth - 1)
        if style < 0.65:
            b = self.real() if r.random() < 0.4 else r.randint(-9, 40) if r.random() < 0.2 else (
                self.tensor(depth - 1) if r.random() < 0.4 else self.float_tensor(depth - 1))  # fmt: skip
            op = r.choice(("add", "sub", "mul", "mul", "add", "div"))
            is_number = not isinstance(b, Node) or b.dtype in NUMBERS
            if op == "div" and is_number:  # PyTorch multiplies a number with the reciprocal of a tensor
                return self.binary(op, a, b or 3)
            a, b = (a, b) if r.random() < 0.7 else (b, a)
            # The sign of a zero that is computed differs between PyTorch and XLA.
            is_clear = isinstance(b, Node) and (b.dtype in BITS or b.op in ("cast", "load", "abs"))
            return self.binary(op if op != "div" or is_clear else "mul", a, b)
        if style < 0.7:
            b = self.operand(self.tensor(0), depth)
            b = 3 if isinstance(b, int) else b
            return self.binary("div", self.tensor(depth - 1), b)
        if style < 0.78:
            return Node(r.choice(("floor", "ceil", "trunc", "round", "neg", "abs", "sign", "relu", "square")), "f32", (a,))
        if style < 0.84:
            return Node("select", "f32", (self.boolean(depth - 1), a, self.float_tensor(depth - 1)))
        if style < 0.9:
            return Node(r.choice(("min", "max")), "f32", (a, self.float_tensor(depth - 1)))
        if style < 0.95:
            low = self.real() + 0.0137
            return Node("clamp", "f32", (a, low, low + 17.7))
        if style < 0.975:
            return Node("sqrt", "f32", (Node("abs", "f32", (a,)),))
        return self.binary(r.choice(("floordiv", "mod", "fmod")), a, r.choice((2.5, 0.75, 3, -1.5, 7)))

    def float_tensor(self, depth):
        node = self.exact(depth)
        return self.binary("mul", Node("cast", "f32", (Node("position", "i64", (), "j"),)), node) if (
            node.dtype in NUMBERS) else node  # fmt: skip

    def smooth(self, depth):
        """A float of a moderate size, within some last places."""
        r = self.random
        style = r.random()
        if style < 0.8:
            inner = self.function(self.float_tensor(depth - 1))
        elif style < 0.85:  # PyTorch's derivative loses its digits near 0
            inner = Node("sinc", "f32", (self.load("f32"),), is_exact=False)
        else:
            inner = self.of_two(depth)
        style = r.random()
        if depth <= 0 or style < 0.5:
            return inner
        if style < 0.8:
            return self.binary(r.choice(("add", "sub", "mul")), inner, self.smooth(depth - 1))
        return Node("select", "f32", (self.boolean(depth - 1), inner, self.smooth(depth - 1)), is_exact=False)

    def function(self, x):
        """A function of a float that is moderate."""
        op, bounds = self.random.choice(tuple(FUNCTIONS.items()))
        x = Node("clamp", "f32", (x, *bounds), is_exact=x.is_exact) if bounds else x
        return Node(op, "f32", (x,), is_exact=False)

    def of_two(self, depth):
        """A function of two floats, not both 0. The sign of a zero that is computed is not looked at."""
        r, a, b = self.random, self.float_tensor(depth - 1), self.float_tensor(depth - 1)
        if r.random() < 0.5:
            a, b = (Node("clamp", "f32", (x, -9.0137, 9.0137)) for x in (a, b))
            return Node("hypot", "f32", (a, self.binary("add", Node("abs", "f32", (b,)), 0.25)), is_exact=False)
        if r.random() < 0.5:
            return Node("atan2", "f32", (a, self.binary("add", Node("abs", "f32", (b,)), 0.25)), is_exact=False)
        a, b = self.load("f32"), Node("cast", "f32", (self.tensor(depth - 1),))
        return Node("atan2", "f32", (a, self.binary("add", b, 0.5)), is_exact=False)

    def score(self, depth):
        r = self.random
        score = Node("score", "f32")
        total = score if r.random() < 0.7 else None
        for _ in range(r.choice((1, 1, 1, 2, 2, 3))):
            style = r.random()
            if style < 0.55:
                term = self.folded(self.tensor(depth))
            elif style < 0.8:
                term = self.with_score(depth)
            else:
                term = self.binary("mul", self.smooth(depth), r.choice((0.5, 2.0, -3.0)))
            if r.random() < 0.2:
                term = Node("select", "f32", (self.boolean(depth - 1), term, r.choice((0.0, 1.0, float("-inf")))),
                            is_exact=term.is_exact)  # fmt: skip
            total = term if total is None else self.binary("add", total, term)
        total = Node("clamp", "f32", (total, *BOUNDS), is_exact=total.is_exact)
        if r.random() < 0.5:
            total = Node("select", "f32", (self.boolean(depth), total, float("-inf")), is_exact=total.is_exact)
        return total

    def folded(self, a):
        """An integer as a small float in which all of its bits show."""
        if BITS[a.dtype] > 8:
            a = self.binary("mod", a, 4093)
        return self.binary("div", Node("cast", "f32", (a,)), 256)

    def with_score(self, depth):
        r, score = self.random, Node("score", "f32")
        style = r.random()
        if style < 0.2:
            return self.binary("mul", score, self.load(r.choice(("f32", *HALVES))))
        if style < 0.4:
            return Node("select", "f32", (self.boolean(depth), score, self.float_tensor(depth)))
        if style < 0.6:
            return Node(r.choice(("min", "max")), "f32", (self.float_tensor(depth), score))
        if style < 0.8:
            return self.binary("mul", self.float_tensor(depth - 1), self.binary("add", score, self.real()))
        return self.function(self.binary("mul", score, self.load("f32")))


def drawn(seed, kinds=INTS):
    return Draw(seed, kinds).mod()


# ---- Printing ----


def literal(number, math):
    if isinstance(number, float) and number in (float("inf"), float("-inf")):
        return f"{'-' if number < 0 else ''}{math}.inf"
    return f"({number!r})" if number < 0 else repr(number)


class Torch:
    """Prints expressions of torch."""

    module = "torch"
    named = {"select": "where", "min": "minimum", "max": "maximum"} | {x: f"nn.functional.{x}" for x in ACTIVATIONS}

    def __init__(self, mod):
        self.mod = mod

    def of(self, x):
        if x is None:
            return "None"
        return self.node(x) if isinstance(x, Node) else literal(x, self.module)

    def node(self, node):
        args, op = node.args, node.op
        if op in ("position", "scalar", "table"):
            return node.name
        if op == "score":
            return "s"
        if op == "load":
            return node.name + (f"[{', '.join(map(self.of, args))}]" if args else "")
        if op in INFIX:
            return f"({self.of(args[0])} {INFIX[op]} {self.of(args[1])})"
        if op == "neg":
            return f"(-{self.of(args[0])})"
        if op == "invert":
            return f"(~{self.of(args[0])})"
        return self.call(node)

    def call(self, node):
        args, op = node.args, node.op
        if op == "cast":
            x = self.of(args[0])
            is_short = len(x) % 2 and node.dtype in SHORT
            return f"{x}.{SHORT[node.dtype]}()" if is_short else f"{x}.to(torch.{TORCH[node.dtype]})"
        if op == "clamp":
            bounds = [f"{name}={self.of(x)}" for name, x in zip(("min", "max"), args[1:]) if x is not None]
            return f"torch.clamp({', '.join([self.of(args[0]), *bounds])})"
        if op in ("bucketize", "searchsorted", "isin"):
            return self.lookup(op, *map(self.of, args[:2]), args[2])
        return f"torch.{self.named.get(op, op)}({', '.join(map(self.of, args))})"

    @staticmethod
    def lookup(op, x, table, flag):
        if op == "isin":
            return f"torch.isin({x}, {table}, invert={flag})"
        operands = f"{table}, {x}" if op == "searchsorted" else f"{x}, {table}"
        return f"torch.{op}({operands}, right={flag})"


class Eager(Torch):
    """Prints what torch.vmap promotes as it promotes tensors without dims: each operand has dims outside of it. For a
    captured tensor of one element, or one at a known place, torch.vmap would keep the other operand's dtype."""

    def node(self, node):
        if node.op == "load":
            places = [self.of(x) if isinstance(x, Node) else f"b * 0 + {x}" for x in node.args] or ["b * 0"]
            return f"{node.name}[{', '.join(places)}]"
        return super().node(node)


class Jax(Torch):
    """Prints expressions of jax.numpy. What PyTorch converts by itself is converted by name: integers that meet floats
    are float32, also where JAX has float64."""

    module = "jnp"
    named = {
        "select": "where", "min": "minimum", "max": "maximum", "logsigmoid": "jax.nn.log_sigmoid",
        **{name: f"jax.nn.{name}" for name in ("sigmoid", "relu", "silu", "gelu", "softplus", "leaky_relu")},
        **{name: f"jax.lax.{name}" for name in ("erf", "erfc", "rsqrt")},
    }  # fmt: skip

    def node(self, node):
        if node.op == "position" and self.mod.is_wide:
            return f"{node.name}.astype(jnp.int64)"
        if node.dtype == "f32" and node.op in (*INFIX, "select", "min", "max"):
            node = dataclasses.replace(node, args=tuple(map(self.as_float, node.args)))
        elif node.op in COMPARISONS and "f32" in [self.type_of(x) for x in node.args]:
            node = dataclasses.replace(node, args=tuple(map(self.as_float, node.args)))
        elif node.op == "cast" and node.args[0].op == "scalar":
            node = node.args[0]
        return super().node(node)

    @staticmethod
    def type_of(x):
        return "f32" if isinstance(x, float) else x.dtype if isinstance(x, Node) else None

    def as_float(self, x):
        return Node("cast", "f32", (x,)) if isinstance(x, Node) and x.dtype in BITS else x

    def call(self, node):
        args, op = node.args, node.op
        if op == "cast":
            return f"{self.of(args[0])}.astype(jnp.{TORCH[node.dtype] if node.dtype != 'bool' else 'bool_'})"
        if op == "clamp":
            return f"jnp.clip({', '.join(map(self.of, args))})"
        if op in ("bucketize", "searchsorted", "isin"):
            return self.lookup(op, *map(self.of, args[:2]), args[2])
        if op == "gelu":
            return f"jax.nn.gelu({self.of(args[0])}, approximate=False)"
        name = self.named.get(op, op)
        return f"{name if '.' in name else 'jnp.' + name}({', '.join(map(self.of, args))})"


    @staticmethod
    def lookup(op, x, table, flag):
        if op == "isin":
            return f"jnp.isin({x}, {table}, invert={flag})"
        if op == "bucketize":
            return f"jnp.digitize({x}, {table}, right={not flag})"
        return f"jnp.searchsorted({table}, {x}, side={'right' if flag else 'left'!r})"


def functions_of(mod, printer):
    """Returns the text of score_mod and mask_mod."""
    made = []
    for name, params, tree in (("score_mod", "s, b, h, i, j", mod.score), ("mask_mod", "b, h, i, j", mod.mask)):
        if tree is not None:
            made.append(f"def {name}({params}):\n    return {printer(mod).of(tree)}\n")
    return "\n".join(made)


def text_of(mod):
    """Returns the text of the mod: declarations and functions of torch."""
    lines = []
    for capture in mod.used():
        dims = f"[{', '.join(map(str, capture.dims))}]" if capture.dims else ""
        lines.append(f"{capture.name}: {capture.dtype}{dims}\n")
    return "".join(lines) + "\n" + functions_of(mod, Torch)
