"""Values of a traced mod during translation, as functions of their indices. No element is computed before it is
needed. So `u = t * 2; u[h]` is one gather and one product, whatever the size of t."""

import dataclasses
import functools
import itertools
import math
import typing

from ._diagnostics import kind_of, of_result
from ._ir_text import KNOWN_INDICES, Value
from .errors import UntranslatableError

# Dtypes of torch and JAX that tensors may have, by their names, and their names here.
DTYPE_NAMES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16",
    "bfloat16": "bf16", "float32": "f32",
}  # fmt: skip
_IR_TYPES = {"bool": "bool", "uint32": "i64", "int64": "i64", "float16": "f32", "bfloat16": "f32", "float32": "f32"}
_IR_TYPES |= dict.fromkeys(("uint8", "int8", "uint16", "int16", "int32"), "i32")
# Sums over at least this many elements become loops of the kernel, as in the mod language (dsl/SPEC.md, section 5).
LOOP_FROM = 16
MOST_UNROLLED = 4096
MOST_ROUNDS = 1 << 24


@functools.cache
def ir_type(dtype):
    """Returns the type that values of a dtype of torch or JAX are computed in: f32 for half precision, as in a compiled
    FlexAttention."""
    library, point, name = str(dtype).rpartition(".")
    if name == "float64":
        of_numbers = ", and with Python numbers after torch.set_default_dtype(torch.float32)" if library else ""
        raise UntranslatableError(
            f"attnc does not compute in {dtype}: compute with arrays of {library}{point}float32{of_numbers}"
        )
    if name not in _IR_TYPES:
        raise UntranslatableError(
            f"attnc does not compute in {dtype}: convert the tensor to {library}{point}float32 outside of the mod"
        )
    return _IR_TYPES[name]


def fold_index(ops, index):
    """Computes an index from known numbers, for tables that belong to the mod."""
    if index.op not in KNOWN_INDICES:
        return index
    operands = [fold_index(ops, operand) for operand in index.operands]
    if not all(operand.is_const for operand in operands):
        return index
    return ops.const(KNOWN_INDICES[index.op](*map(ops.number, operands)), index.type)


def registry():
    """Returns the handlers of operations by name, and a decorator that adds one by some names."""
    handlers = {}

    def op(*names):
        def register(handler):
            handlers.update(dict.fromkeys(names, handler))
            return handler

        return register

    return handlers, op


@dataclasses.dataclass(frozen=True)
class Axis:
    """The extent of an axis of a captured tensor. A program need not know its size."""

    capture: int
    axis: int
    size: int


@dataclasses.dataclass
class Array:
    """An array during translation. `meta` has its dtype and shape: the fake tensor that torch computed, or an aval of JAX. `extents` has
    an Axis for each size that is that of a captured tensor. `element` returns the value at a tuple of i32 and i64
    values. `loops` is the depth of the nested sums in it."""

    meta: typing.Any
    extents: tuple
    element: typing.Callable
    loops: int = 0
    memo: dict = dataclasses.field(default_factory=dict)

    @property
    def dtype(self):
        return self.meta.dtype

    @property
    def rank(self):
        return len(self.extents)

    @property
    def shape(self):
        return tuple(extent.size if isinstance(extent, Axis) else extent for extent in self.extents)

    @property
    def type(self):
        return ir_type(self.dtype)

    def at(self, indices):
        """Returns the element. It is computed once."""
        key = tuple(index.number for index in indices)
        value = self.memo.get(key)
        if value is None:
            value = self.memo[key] = self.element(indices)
        return value


class Lowering:
    """What handlers of operations need: the builder, and functions that make arrays from arrays."""

    def __init__(self, builder):
        self.builder = builder

    # ---- Captures and results ----

    def captured(self, meta, declared):
        """Returns a tensor that the mod captures. `declared` is its Capture."""
        capture, type = self.builder.capture(declared), ir_type(meta.dtype)
        declared.fixed.update(axis for axis, size in enumerate(meta.shape) if size == 1)
        extents = [Axis(capture, axis, size) if size != 1 else 1 for axis, size in enumerate(meta.shape)]
        return self.array(meta, extents, lambda indices: self.builder.cast(self.builder.load(capture, indices), type))

    def result(self, function, what, array, called):
        """Returns the value of a mod, `what`, that returns an array, which messages call `called`."""
        if array.rank:
            raise of_result(function, what, "array-result", f"{called} of shape {array.shape}")
        value = array.at(())
        if what == "mask_mod" and value.type != "bool":
            raise of_result(function, what, "mask-result", kind_of(value.type))
        if what == "sink_mod" and value.type != "f32":
            raise of_result(function, what, "sink-result", kind_of(value.type))
        return value if what == "mask_mod" else self.builder.cast(value, "f32")

    # ---- Extents ----

    def fixed(self, extent):
        """Returns the size as a number. The program is then made for this size."""
        if not isinstance(extent, Axis):
            return extent
        self.builder.captures[extent.capture].fixed.add(extent.axis)
        return extent.size

    def size(self, extent, type):
        """Returns the size as a value."""
        if isinstance(extent, Axis):
            return self.builder.cast(self.builder.extent(extent.capture, extent.axis), type)
        return self.builder.const(extent, type)

    def index(self, number):
        return self.builder.const(number, "i32" if number == int(number) and abs(number) < 2**31 else "i64")

    def inside(self, index, extent):
        """Returns an index as a non-negative one: negative ones count from the end. Gathers clamp those outside."""
        b = self.builder
        if b.is_non_negative(index):
            return index
        from_end = b.op("add", index, self.size(extent, index.type))
        if index.is_const:
            return from_end
        return b.select(b.compare("lt", index, b.const(0, index.type)), from_end, index)

    # ---- Arrays ----

    def array(self, meta, extents, element, *of):
        return Array(meta, tuple(extents), element, max((a.loops for a in of if isinstance(a, Array)), default=0))

    def value(self, operand, indices, type):
        """Returns the operand's element for `indices` of a broadcast result, or its number."""
        if not isinstance(operand, Array):
            return self.builder.const(operand, type)
        mine = indices[len(indices) - operand.rank :]
        zero = self.index(0)
        mine = tuple(zero if extent == 1 else index for extent, index in zip(operand.extents, mine))
        return self.builder.cast(operand.at(mine), type)

    def broadcast(self, meta, operands):
        """Returns the extents of a broadcast result: those of captured tensors if an operand has them."""
        extents = list(meta.shape)
        for operand in operands:
            if isinstance(operand, Array):
                for axis in range(-operand.rank, 0):
                    if isinstance(operand.extents[axis], Axis) and operand.extents[axis].size == extents[axis]:
                        extents[axis] = operand.extents[axis]
        return extents

    def elementwise(self, meta, function, *operands):
        """Applies function(values...) -> value elementwise. Operands are pairs (Array or number, type)."""
        arrays = [operand for operand, _ in operands]

        def element(indices):
            return function(*[self.value(operand, indices, type) for operand, type in operands])

        return self.array(meta, self.broadcast(meta, arrays), element, *arrays)

    def reshaped(self, meta, array):
        """Returns the same elements, in row-major order, as an array of the shape of `meta`."""
        shape, ops = list(meta.shape), self.builder
        if shape == list(array.shape):
            return self.array(meta, array.extents, array.at, array)
        old = [self.fixed(extent) for extent in array.extents]

        def element(indices):
            linear = self.index(0)
            for size, index in zip(shape, indices):
                if size != 1:
                    linear = ops.op("add", ops.op("mul", linear, self.index(size)), ops.cast(index, "i32"))
            result = []
            for size in reversed(old):
                is_first = len(result) == len(old) - 1
                result.insert(
                    0, self.index(0) if size == 1 else linear if is_first else ops.op("mod", linear, self.index(size))
                )
                linear = ops.op("floor_div", linear, self.index(size))
            return array.at(tuple(fold_index(ops, index) for index in result))

        return self.array(meta, shape, element, array)

    # ---- Views ----

    def moved(self, index, start, step=1):
        """Returns start + step * index, for a start that is a value or a number."""
        b = self.builder
        if step != 1:
            index = b.op("mul", index, b.const(step, index.type))
        if isinstance(start, Value):
            return start if index.is_const and b.number(index) == 0 else b.op("add", b.cast(index, start.type), start)
        return fold_index(b, index if start == 0 else b.op("add", index, b.const(start, index.type)))

    def sliced(self, meta, array, starts, steps):
        """Returns the elements at starts[axis] + steps[axis] * index."""
        is_whole = [size == of and step == 1 for size, of, step in zip(meta.shape, array.shape, steps)]
        extents = [extent if whole else size for extent, whole, size in zip(array.extents, is_whole, meta.shape)]
        return self.array(meta, extents, lambda indices: array.at(tuple(map(self.moved, indices, starts, steps))), array)

    def flipped(self, meta, array, dims):
        """Returns the array with its elements in reverse order along some axes."""
        lasts = {axis: self.fixed(array.extents[axis]) - 1 for axis in dims}

        def element(indices):
            return array.at(tuple(
                self.moved(index, lasts[axis], -1) if axis in lasts else index for axis, index in enumerate(indices)
            ))  # fmt: skip

        return self.array(meta, array.extents, element, array)

    def squeezed(self, meta, array, gone):
        """Returns the array without the axes `gone`, of one element each."""
        kept = [extent for axis, extent in enumerate(array.extents) if axis not in gone]

        def element(indices):
            left = iter(indices)
            return array.at(tuple(self.index(0) if axis in gone else next(left) for axis in range(array.rank)))

        return self.array(meta, kept, element, array)

    def permuted(self, meta, array, dims):
        """Returns the array with its axes in the order of `dims`."""
        dims = [*dims]

        def element(indices):
            return array.at(tuple(indices[dims.index(axis)] for axis in range(array.rank)))

        return self.array(meta, [array.extents[dim] for dim in dims], element, array)

    # ---- Put together ----

    def stacked(self, meta, arrays, dim, most=math.inf):
        """Returns the arrays along a new axis `dim`. An index of the mod chooses from at most that many."""
        type = ir_type(meta.dtype)

        def element(indices):
            if len(arrays) > most and not indices[dim].is_const:
                raise UntranslatableError(f"an index into {len(arrays)} stacked values; at most {most} are chosen from")
            rest = (*indices[:dim], *indices[dim + 1 :])
            return self.builder.chosen(indices[dim], [functools.partial(self.value, a, rest, type) for a in arrays])

        return self.array(meta, meta.shape, element, *arrays)

    def joined(self, meta, arrays, dim):
        """Returns the arrays one after another along `dim`."""
        b, type = self.builder, ir_type(meta.dtype)
        ends = [*itertools.accumulate(self.fixed(a.extents[dim]) for a in arrays)]

        def element(indices):
            index, result = indices[dim], None
            for a, end in reversed([*zip(arrays, ends)]):
                start = end - a.shape[dim]
                if index.is_const and not start <= b.number(index) < end:
                    continue
                value = b.cast(a.at((*indices[:dim], self.moved(index, -start), *indices[dim + 1 :])), type)
                is_below = b.compare("lt", index, b.const(end, index.type))
                result = value if result is None else b.select(is_below, value, result)
            return result

        return self.array(meta, meta.shape, element, *arrays)

    # ---- Folds ----

    def any_of(self, meta, array, dims, keepdim, is_all=False):
        """Returns whether any of some bools is true, or all are. A loop counts, because its only fold is a sum."""
        b, name = self.builder, "and" if is_all else "or"
        if math.prod(self.fixed(array.extents[dim]) for dim in dims) < LOOP_FROM:
            fold = lambda x, y: b.op(name, x, y)  # noqa: E731
            return self.reduce(meta, array, dims, keepdim, fold, None, b.const(is_all, "bool"))

        def one(x):
            return b.cast(b.op("not", x) if is_all else x, "i32")

        counts = self.array(None, array.extents, lambda indices: one(array.at(indices)), array)
        total = self.summed(None, counts, dims, keepdim, "i32")
        return self.elementwise(meta, lambda x: b.compare("eq" if is_all else "ne", x, b.const(0, "i32")), (total, "i32"))

    def summed(self, meta, array, dims, keepdim=False, type=None):
        """Returns the sum of an array whose elements have a type; default: that of its dtype."""
        b = self.builder
        zero = b.const(0, type or array.type)
        return self.reduce(meta, array, dims, keepdim, lambda x, y: b.op("add", x, y), lambda x: x, zero)

    def contracted(self, meta, a, b, summed, batch=((), ())):
        """Returns the sums of products of two arrays. `summed` and `batch` are pairs: axes of a, and those of b. The
        result has the axes of the batch, then other ones of a, then other ones of b."""
        ops, type, count = self.builder, ir_type(meta.dtype), len(meta.shape)
        free = [
            [axis for axis in range(x.rank) if axis not in (*of_sum, *of_batch)]
            for x, of_sum, of_batch in zip((a, b), summed, batch)
        ]
        orders = [[*of_batch, *others, *of_sum] for of_batch, others, of_sum in zip(batch, free, summed)]
        lead, split = len(batch[0]), len(batch[0]) + len(free[0])

        def element(indices):
            first, last = indices[:lead], indices[count:]
            places = (*first, *indices[lead:split], *last), (*first, *indices[split:count], *last)
            factors = (
                x.at(tuple(place[order.index(axis)] for axis in range(x.rank)))
                for x, order, place in zip((a, b), orders, places)
            )
            return ops.op("and" if type == "bool" else "mul", *(ops.cast(factor, type) for factor in factors))

        terms = self.array(None, [*meta.shape, *(a.extents[axis] for axis in summed[0])], element, a, b)
        return self.summed(meta, terms, range(count, count + len(summed[0])), False, type)

    def reduce(self, meta, array, dims, keepdim, fold, sum_of=None, start=None):
        """Folds over axes in the order of the index. `sum_of(value)` makes a fold that is a sum a loop, if that pays."""
        dims = sorted({dim % array.rank for dim in dims}) if array.rank else []
        counts = [self.fixed(array.extents[dim]) for dim in dims]
        total = math.prod(counts)
        is_loop = sum_of is not None and total >= LOOP_FROM
        if not is_loop and total > MOST_UNROLLED:
            raise UntranslatableError(f"a reduction over {total} elements; at most {MOST_UNROLLED} can be unrolled")
        if is_loop and max(counts) > MOST_ROUNDS:
            raise UntranslatableError(f"a sum over {max(counts)} elements; a loop has at most {MOST_ROUNDS} rounds")
        kept = [extent for axis, extent in enumerate(array.extents) if axis not in dims]
        extents = [1 if axis in dims else extent for axis, extent in enumerate(array.extents)] if keepdim else kept

        def merge(indices, inner):
            outer = iter([index for axis, index in enumerate(indices) if axis not in dims] if keepdim else indices)
            inner = iter(inner)
            return tuple(next(inner) if axis in dims else next(outer) for axis in range(array.rank))

        def looped(indices):
            # The innermost loop has the smallest number; all loops within an element have smaller ones.
            iters = [self.builder.iter(array.loops + len(dims) - 1 - place, count) for place, count in enumerate(counts)]
            value = sum_of(array.at(merge(indices, iters)))
            for iter in reversed(iters):
                value = self.builder.sum(iter, value)
            return value

        def unrolled(indices):
            places = itertools.product(*(map(self.index, range(count)) for count in counts))
            values = (array.at(merge(indices, place)) for place in places)
            return functools.reduce(fold, values, *([] if start is None else [start]))

        result = self.array(meta, extents, looped if is_loop else unrolled, array)
        result.loops += len(dims) if is_loop else 0
        return result
