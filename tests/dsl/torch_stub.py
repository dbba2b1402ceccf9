"""A stub of torch for CPython: what a mod may use, on Python numbers.

A tensor is a flat list of numbers with a shape, computed by Python's own rules, which are torch's wherever the mod
language defines a result. Floats are rounded to single precision after each operation, and before it where they come
from Python. Nothing here wraps integers. Importing this file registers torch, torch.nn.functional and
torch.nn.attention.flex_attention as modules.
"""
import contextlib
import ctypes
import functools
import itertools
import math
import operator
import sys
import types


def ieee(fn):
    """A float function that gives inf and nan where Python raises."""
    def wrapped(*args):
        try:
            return fn(*args)
        except OverflowError:
            return math.inf
        except (ValueError, ZeroDivisionError):
            return math.nan
    return wrapped


def single(x):
    """A float rounded to single precision; anything else as it is."""
    return ctypes.c_float(x).value if isinstance(x, float) else x


def meet(row):
    """Operands of one operation: beside a float, ints are floats."""
    if any(isinstance(x, float) for x in row):
        row = [float(x) if isinstance(x, int) and not isinstance(x, bool) else x for x in row]
    return [single(x) for x in row]


def divide(a, b):
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a)
    return a / b


def bits(fn):
    return lambda a, b: bool(fn(a, b)) if isinstance(a, bool) and isinstance(b, bool) else fn(a, b)


def round_even(x):
    return float(round(x)) if isinstance(x, float) and math.isfinite(x) else x


def to_number(kind):
    def convert(x):
        if kind is int and isinstance(x, float):
            return int(x) if math.isfinite(x) else 0
        return kind(x)
    return convert


class T:
    """A tensor: numbers in row-major order, and a shape; () for a scalar."""

    def __init__(self, data, shape=()):
        self.data, self.shape = [single(x) for x in data], tuple(shape)

    # Indexing

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [i for i in index if not isinstance(i, T)]:
            at = next(n for n, i in enumerate(index) if i is Ellipsis)
            index = index[:at] + (slice(None),) * (len(self.shape) - len(index) + 1) + index[at + 1:]
        if None in [i for i in index if not isinstance(i, T)]:
            shape, kept = list(self.shape), []
            for n, i in enumerate(index):
                if i is None:
                    shape.insert(n, 1)
                kept.append(slice(None) if i is None else i)
            return T(self.data, shape)[tuple(kept)]
        axes, shape = [], []
        for n, size in enumerate(self.shape):
            part = index[n] if n < len(index) else slice(None)
            if isinstance(part, slice):
                axes.append(range(size)[part])
                shape.append(len(axes[-1]))
            else:
                axes.append([range(size)[part.item() if isinstance(part, T) else part]])
        assert len(index) <= len(self.shape)
        strides = [math.prod(self.shape[n + 1:]) for n in range(len(self.shape))]
        picked = [self.data[sum(i * s for i, s in zip(at, strides))] for at in itertools.product(*axes)]
        return T(picked, shape)

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(self.shape[0]))

    def __index__(self):
        return operator.index(self.item())

    def __bool__(self):
        raise TypeError("a traced value steers the program")

    def item(self):
        assert self.shape == ()
        return self.data[0]

    @property
    def dtype(self):
        return {bool: torch.bool, int: torch.int32, float: torch.float32}[type(self.data[0])]

    ndim = property(lambda self: len(self.shape))
    device = "cpu"

    @property
    def T(self):
        return self.transpose(-1, -2)

    def transpose(self, a, b):
        order = list(range(len(self.shape)))
        order[a], order[b] = order[b], order[a]
        shape = [self.shape[i] for i in order]
        strides = [math.prod(self.shape[n + 1:]) for n in range(len(self.shape))]
        data = [self.data[sum(i * strides[order[n]] for n, i in enumerate(at))]
                for at in itertools.product(*map(range, shape))]
        return T(data, shape)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def numel(self):
        return len(self.data)

    def where(self, condition, other):
        return torch.where(condition, self, other)

    def masked_fill(self, mask, value):
        return torch.where(mask, value, self)

    def to(self, dtype):
        if isinstance(dtype, str):
            return self
        return elementwise(to_number(dtype.kind if isinstance(dtype, DType) else dtype.dtype.kind))(self)

    type = to

    def type_as(self, other):
        return self.to(other.dtype)

    def __matmul__(self, other):
        return (self * other).sum()

    def clone(self):
        return self

    detach = contiguous = cuda = clone

    def reshape(self, *shape):
        shape = list(shape[0] if isinstance(shape[0], tuple) else shape)
        if -1 in shape:
            shape[shape.index(-1)] = -len(self.data) // math.prod(shape)
        return T(self.data, shape)

    view = reshape

    def flatten(self):
        return T(self.data, (len(self.data),))

    def unsqueeze(self, dim):
        shape = list(self.shape)
        shape.insert(dim % (len(shape) + 1), 1)
        return T(self.data, shape)

    def squeeze(self, dim):
        return T(self.data, [n for i, n in enumerate(self.shape) if i != dim])

    def permute(self, *order):
        assert order == (1, 0)
        return self.T

    def expand(self, *shape):
        shape = [old if new == -1 else new for old, new in zip(self.shape, shape)]
        return filled(shape, 0) + self

    def new_ones(self, *shape):
        return filled(shape, 1)


def filled(shape, value):
    shape = shape[0] if isinstance(shape[0], tuple) else shape
    return T([value] * math.prod(shape), shape)


def elementwise(fn):
    def apply(*args):
        shape = ()
        for arg in args:
            if isinstance(arg, T) and len(arg.shape) >= len(shape):
                padded = (1,) * (len(arg.shape) - len(shape)) + shape
                shape = tuple(a if p == 1 else p for a, p in zip(arg.shape, padded))
            elif isinstance(arg, T):
                padded = (1,) * (len(shape) - len(arg.shape)) + arg.shape
                shape = tuple(p if s == 1 else s for s, p in zip(shape, padded))
        if not any(isinstance(arg, T) for arg in args):
            return fn(*args)
        data = []
        for at in itertools.product(*map(range, shape)):
            row = []
            for arg in args:
                if not isinstance(arg, T):
                    row.append(arg)
                    continue
                own = [0 if s == 1 else i for i, s in zip(at[len(shape) - len(arg.shape):], arg.shape)]
                row.append(arg[tuple(own)].data[0])
            data.append(fn(*meet(row)))
        return T(data, shape)
    return apply


def reduction(fn):
    def reduce(x, dim=None, **_):
        if not isinstance(x, T) or x.shape == ():
            return x
        if dim is None or len(x.shape) == 1:
            return T([fn(x.data)])
        dim %= len(x.shape)
        shape = x.shape[:dim] + x.shape[dim + 1:]
        return T([fn(x[at[:dim] + (slice(None),) + at[dim:]].data) for at in itertools.product(*map(range, shape))], shape)
    return reduce


def extreme(pick, fold):
    def apply(x, y=None):
        return elementwise(pick)(x, y) if y is not None else reduction(fold)(x)
    return apply


class DType:
    def __init__(self, kind):
        self.kind = kind


def make_tensor(data, dtype=None, device=None):
    if isinstance(data, T):
        return data
    if isinstance(data, (list, tuple)):
        rows = [make_tensor(row) for row in data]
        result = T([x for row in rows for x in row.data], (len(rows),) + (rows[0].shape if rows else ()))
    else:
        result = T([data])
    return result.to(dtype) if dtype else result


def power(a, b):
    if isinstance(a, int) and isinstance(b, int) and b < 0:
        return float(a) ** b
    result = ieee(operator.pow)(a, b)
    return math.nan if isinstance(result, complex) else result


def fmod(a, b):
    return math.fmod(a, b) if isinstance(a, float) or isinstance(b, float) else int(math.fmod(a, b))


def div(a, b, rounding_mode=None):
    if rounding_mode == "floor":
        return elementwise(operator.floordiv)(a, b)
    if rounding_mode == "trunc":
        def truncate(x, y):
            return float(math.trunc(x / y)) if isinstance(x, float) or isinstance(y, float) else math.trunc(x / y)
        return elementwise(truncate)(a, b)
    return elementwise(divide)(a, b)


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def clamp(x, min=None, max=None):
    x = x if min is None else torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


def softplus(x, beta=1.0, threshold=20.0):
    return elementwise(lambda v: v if v * beta > threshold else math.log1p(math.exp(v * beta)) / beta)(x)


def module(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made
    return made


UNARY = {
    "exp": ieee(math.exp), "exp2": ieee(lambda x: 2.0 ** x), "expm1": ieee(math.expm1),
    "sqrt": ieee(math.sqrt), "tanh": math.tanh,
    "log": lambda x: -math.inf if x == 0 else ieee(math.log)(x), "log1p": ieee(math.log1p),
    "log2": lambda x: -math.inf if x == 0 else ieee(math.log2)(x),
    "log10": lambda x: -math.inf if x == 0 else ieee(math.log10)(x),
    "rsqrt": lambda x: math.inf if x == 0 else ieee(lambda v: 1 / math.sqrt(v))(x),
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh_approx": math.tanh,
    "asin": ieee(math.asin), "acos": ieee(math.acos), "atan": math.atan, "arctan": math.atan, "sinh": ieee(math.sinh),
    "cosh": ieee(math.cosh), "asinh": math.asinh, "arcsinh": math.asinh, "acosh": ieee(math.acosh),
    "arctanh": ieee(math.atanh), "erfc": math.erfc,
    "sinc": lambda x: 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x),
    "sigmoid": lambda x: ieee(lambda v: 1 / (1 + math.exp(-v)))(x) if x > -700 else 0.0, "erf": math.erf,
    "floor": lambda x: float(math.floor(x)) if isinstance(x, float) else x,
    "ceil": lambda x: float(math.ceil(x)) if isinstance(x, float) else x,
    "trunc": lambda x: float(math.trunc(x)) if isinstance(x, float) else x, "round": round_even,
    "abs": abs, "neg": operator.neg, "square": lambda x: x * x, "reciprocal": lambda x: divide(1.0, x),
    "relu": lambda x: max(x, 0), "sign": lambda x: type(x)((x > 0) - (x < 0)), "isnan": lambda x: x != x,
    "isinf": lambda x: abs(x) == math.inf, "isfinite": lambda x: x == x and abs(x) != math.inf,
    "logical_not": operator.not_, "bitwise_not": lambda x: not x if isinstance(x, bool) else ~x,
    "int": to_number(int), "long": to_number(int), "float": float, "bool": bool,
}
BINARY = {
    "atan2": math.atan2, "hypot": math.hypot,
    "add": operator.add, "sub": operator.sub, "mul": bits(operator.mul), "floor_divide": operator.floordiv,
    "remainder": operator.mod, "pow": power, "true_divide": divide, "fmod": fmod,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "minimum": min, "maximum": max, "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b), "bitwise_and": bits(operator.and_),
    "bitwise_or": bits(operator.or_), "bitwise_xor": bits(operator.xor),
    "bitwise_left_shift": operator.lshift, "bitwise_right_shift": operator.rshift,
}


def fold(fn):
    return lambda values: functools.reduce(lambda a, b: single(fn(a, b)), values)


REDUCTIONS = {
    "sum": fold(operator.add), "prod": fold(operator.mul), "any": lambda v: any(v), "all": lambda v: all(v), "amax": max, "amin": min,
    "mean": lambda v: fold(operator.add)(v) / len(v),
}
DTYPES = {"bool": bool, "int32": int, "int64": int, "long": int, "int": int, "float32": float, "float": float}

torch = module(
    "torch", inf=math.inf, nan=math.nan, pi=math.pi, e=math.e, Tensor=T, tensor=make_tensor, scalar_tensor=make_tensor,
    where=elementwise(lambda c, a, b: a if c else b), clamp=clamp, clip=clamp, div=div, dot=lambda a, b: (a * b).sum(),
    max=extreme(max, max), min=extreme(min, min), masked_fill=T.masked_fill, detach=T.clone, stack=lambda rows: make_tensor(list(rows)),
    arange=lambda *args, **_: make_tensor(list(range(*args))), transpose=T.transpose,
    full_like=lambda x, v: T([type(x.data[0])(v)]), zeros_like=lambda x: T([type(x.data[0])(0)]),
    ones_like=lambda x: T([type(x.data[0])(1)]),
    finfo=lambda dtype: types.SimpleNamespace(max=3.4028234663852886e38, min=-3.4028234663852886e38, eps=2.0 ** -23),
    iinfo=lambda dtype: types.SimpleNamespace(max=2 ** 31 - 1, min=-2 ** 31))
for table, wrap in ((UNARY, elementwise), (BINARY, elementwise), (REDUCTIONS, reduction)):
    for name, function in table.items():
        setattr(torch, name, wrap(function))
        if not hasattr(T, name):
            setattr(T, name, wrap(function))
for name, kind in DTYPES.items():
    setattr(torch, name, DType(kind))
torch.special = types.SimpleNamespace(erfc=torch.erfc, sinc=torch.sinc)
torch.no_grad = contextlib.nullcontext
torch.zeros, torch.full = lambda *shape: filled(shape, 0.0), lambda shape, value: filled((shape,), value)
torch.bucketize = lambda x, edges, right=False, out_int32=False: sum((edges[i] <= x if right else edges[i] < x) * 1 for i in range(len(edges)))
torch.isin = lambda x, items, assume_unique=False, invert=False: fold_or([x == item for item in items]) != invert
torch.norm = lambda x, p=2, dim=None: torch.sqrt((x * x).sum() if dim is None else (x * x).sum(dim))
for name in ("clamp", "clip", "div", "max", "min", "dot", "norm"):
    setattr(T, name, getattr(torch, name))
for name, function in {
        "add": operator.add, "sub": operator.sub, "mul": bits(operator.mul), "truediv": divide,
        "floordiv": operator.floordiv, "mod": operator.mod, "pow": power, "and": bits(operator.and_),
        "or": bits(operator.or_), "xor": bits(operator.xor), "lshift": operator.lshift, "rshift": operator.rshift,
        "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq,
        "ne": operator.ne}.items():
    apply = elementwise(function)
    setattr(T, f"__{name}__", apply)
    setattr(T, f"__r{name}__", lambda self, other, apply=apply: apply(other, self))
for name, function in {"neg": operator.neg, "pos": operator.pos, "abs": abs, "invert": UNARY["bitwise_not"],
                       "round": round_even}.items():
    setattr(T, f"__{name}__", elementwise(function))
for name, function in {"float": float, "int": to_number(int), "floor": math.floor, "ceil": math.ceil,
                       "trunc": math.trunc}.items():
    setattr(T, f"__{name}__", lambda self, function=function: function(self.item()))

functional = module(
    "torch.nn.functional", gelu=gelu, silu=lambda x: x * torch.sigmoid(x), relu=torch.relu, softplus=softplus,
    tanh=torch.tanh, sigmoid=torch.sigmoid, logsigmoid=lambda x: -softplus(-x),
    leaky_relu=lambda x, negative_slope=0.01: torch.where(x > 0, x, x * negative_slope))


def masks(fold):
    return lambda *mods: lambda *args: fold([mod(*args) for mod in mods])


def fold_and(values):
    result = values[0] if values else True
    for value in values[1:]:
        result = result & value
    return result


def fold_or(values):
    result = values[0] if values else False
    for value in values[1:]:
        result = result | value
    return result


flex = module("torch.nn.attention.flex_attention", and_masks=masks(fold_and), or_masks=masks(fold_or),
              noop_mask=lambda *args: True)
for name in ("flex_attention", "create_block_mask", "BlockMask", "_mask_mod_signature", "_score_mod_signature"):
    setattr(flex, name, None)
attention = module("torch.nn.attention", flex_attention=flex)
torch.nn = module("torch.nn", functional=functional, attention=attention)
