"""Operations of lax by the names of their primitives: HANDLERS.

A handler takes the lowering, the aval of the result, the operands as Arrays, and the parameters of the primitive. It
returns an Array.
"""

import math

from jax import lax

from .._arrays import Array, Axis, ir_type, registry
from .._formulas import is_nan, named, power_of, random_at, sign_of
from .._ir_text import COMPARISONS
from .._spec import FUNCTIONS_OF_IR
from ..errors import UntranslatableError
from .integers import (
    LIMITS, converted, population_count, quotient, remainder, shift_left, shift_right_arithmetic, shift_right_logical,
    wrapped,
)  # fmt: skip

HANDLERS, op = registry()  # by names of primitives


def elementwise(low, out, function, *operands):
    """Applies function(builder, values...) to operands of their own types, and wraps to the result's width."""
    return low.elementwise(
        out, lambda *values: wrapped(low.builder, function(low.builder, *values), out.dtype),
        *[(x, x.type) for x in operands],
    )  # fmt: skip


def of_elements(*names):
    """Registers function(builder, values...) as an elementwise operation."""

    def register(function):
        op(*names)(lambda low, out, *operands, **_: elementwise(low, out, function, *operands))
        return function

    return register


# ---- Arithmetic ----


for _name, _ir, _of_bools in (
    ("add", "add", "or"), ("add_any", "add", "or"), ("sub", "sub", None), ("mul", "mul", "and"), ("min", "min", "and"),
    ("max", "max", "or"), ("neg", "neg", None), ("abs", "abs", None), ("logistic", "sigmoid", None),
    ("and", "and", "and"), ("or", "or", "or"), ("xor", "xor", "xor"), ("not", "not", "not"),
):  # fmt: skip
    of_elements(_name)(named(_ir, _of_bools))
for _name in (*FUNCTIONS_OF_IR, "floor", "ceil"):
    of_elements(_name)(named(_name))


@of_elements("sign")
def sign(ops, x):
    """Is x itself if that is 0, -0 or NaN."""
    if x.type != "f32":
        return sign_of(ops, x)
    zero, rest = ops.const(0.0, "f32"), ops.op("stop_gradient", x)
    below = ops.select(ops.compare("lt", x, zero), ops.const(-1.0, "f32"), rest)
    return ops.select(ops.compare("lt", zero, x), ops.const(1.0, "f32"), below)


@of_elements("div")
def div(ops, x, y):
    return ops.op("div", x, y) if x.type == "f32" else quotient(ops, x, y)


@of_elements("rem")
def rem(ops, x, y):
    return ops.op("fmod", x, y) if x.type == "f32" else remainder(ops, x, y)


def of_bits(function):
    """Makes a handler of function(builder, values..., width, is_signed)."""

    def handler(low, out, *operands, **_):
        least, most = LIMITS[str(out.dtype)]
        width, is_signed = (most - least).bit_length(), least < 0
        return elementwise(low, out, lambda ops, *values: function(ops, *values, width, is_signed), *operands)

    return handler


for _function in (shift_left, shift_right_arithmetic, shift_right_logical, population_count):
    op(_function.__name__)(of_bits(_function))


of_elements("attnc_random")(random_at)


of_elements("square")(lambda ops, x: ops.op("mul", x, x))


@of_elements("is_finite")
def is_finite(ops, x):
    return ops.compare("lt", ops.op("abs", x), ops.const(math.inf, "f32"))


@op("integer_pow")
def integer_pow(low, out, a, y):
    def function(ops, x):
        if y == 0:
            return ops.const(1, x.type)
        result = power_of(ops, x, abs(y))
        return ops.op("div", ops.const(1, x.type), result) if y < 0 else result

    return elementwise(low, out, function, a)


of_elements("pow")(lambda ops, x, y: ops.op("pow", x, ops.cast(y, "f32")))


@op("round")
def round_(low, out, a, rounding_method):
    def function(ops, x):
        if rounding_method == lax.RoundingMethod.TO_NEAREST_EVEN:
            return ops.op("round", x)
        away = ops.op("floor", ops.op("add", ops.op("abs", x), ops.const(0.5, "f32")))
        return ops.op("mul", sign_of(ops, x), away)

    return elementwise(low, out, function, a)


@op("clamp")
def clamp(low, out, least, a, most):
    def function(ops, low_end, x, high_end):
        if x.type != "f32":
            return ops.op("min", ops.op("max", x, low_end), high_end)
        x = ops.select(ops.compare("le", x, low_end), low_end, x)  # no gradient passes at a bound
        return ops.select(ops.compare("le", high_end, x), high_end, x)

    return elementwise(low, out, function, least, a, most)


# ---- Comparisons, choices, types ----


def compared(name):
    def function(ops, x, y):
        if x.type == "bool" and name not in ("eq", "ne"):
            x, y = ops.cast(x, "i32"), ops.cast(y, "i32")
        is_below_zero = name == "lt" and x.type != "f32" and y.is_const and ops.number(y) <= 0
        if is_below_zero and ops.is_non_negative(x):  # as jax.numpy asks of each index
            return ops.const(False, "bool")
        return ops.compare(name, x, y)

    return function


for _name in COMPARISONS:
    of_elements(_name)(compared(_name))


@of_elements("lt_to")
def less_of_all(ops, x, y):
    """In the order of sorting, in which NaN comes last."""
    less = compared("lt")(ops, x, y)
    return ops.op("or", less, ops.op("and", is_nan(ops, y), ops.op("not", is_nan(ops, x)))) if x.type == "f32" else less


@of_elements("le_to")
def less_or_equal_of_all(ops, x, y):
    less = compared("le")(ops, x, y)
    return ops.op("or", less, is_nan(ops, y)) if x.type == "f32" else less


@of_elements("select_n")
def select_n(ops, which, *cases):
    if which.type == "bool" and not which.is_const:
        return ops.select(which, cases[-1], cases[0])
    return ops.chosen(which, [lambda x=x: x for x in cases])


@op("convert_element_type")
def convert(low, out, a, **_):
    return low.elementwise(out, lambda x: converted(low.builder, x, out.dtype), (a, a.type))


@op("stop_gradient")
def stop_gradient(low, out, a):
    return elementwise(low, out, lambda ops, x: ops.op("stop_gradient", x) if x.type == "f32" else x, a)


@op("copy", "copy_p", "pvary", "pcast", "sharding_constraint", "reduce_precision", "device_put", "name")
def same(low, out, a, *_, **__):
    return Array(out, a.extents, a.at, a.loops)


# ---- Views ----


op("reshape")(lambda low, out, a, *_, **__: low.reshaped(out, a))
op("squeeze")(lambda low, out, a, dimensions: low.squeezed(out, a, {axis % a.rank for axis in dimensions}))


@op("broadcast_in_dim")
def broadcast_in_dim(low, out, a, *_, broadcast_dimensions, **__):
    extents = list(out.shape)
    for axis, place in enumerate(broadcast_dimensions):
        if a.shape[axis] == extents[place]:
            extents[place] = a.extents[axis]

    def element(indices):
        return a.at(tuple(
            low.index(0) if a.extents[axis] == 1 else indices[place] for axis, place in enumerate(broadcast_dimensions)
        ))  # fmt: skip

    return low.array(out, extents, element, a)


op("transpose")(lambda low, out, a, permutation: low.permuted(out, a, permutation))


@op("slice")
def slice_(low, out, a, start_indices, limit_indices, strides):
    return low.sliced(out, a, start_indices, strides or (1,) * a.rank)


op("rev")(lambda low, out, a, dimensions: low.flipped(out, a, dimensions))


@op("iota")
def iota(low, out, *_, dimension, **__):
    def element(indices):
        return converted(low.builder, indices[dimension], out.dtype)

    return low.array(out, out.shape, element)


op("stack")(lambda low, out, *arrays, axis: low.stacked(out, arrays, axis))
op("concatenate")(lambda low, out, *arrays, dimension: low.joined(out, arrays, dimension))


# ---- Gathers ----


def counted(low, index, extent):
    """Returns an index without jax.numpy's own form of counting from the end, which holds the size as a number."""
    if index.op != "select":
        return index
    (below, from_end, plain), size = index.operands, extent if isinstance(extent, int) else extent.size
    if below.op != "lt" or below.operands[0] is not plain or from_end.op != "add":
        return index
    zero, (first, number) = below.operands[1], from_end.operands
    if first is not plain or not (zero.is_const and number.is_const):
        return index
    is_wrapped = low.builder.number(zero) == 0 and low.builder.number(number) == size
    return low.inside(plain, extent) if is_wrapped else index


def started(low, a, axis, start, size, offset):
    """Returns the index along an axis of a slice that starts at `start` and lies within the array."""
    ops, extent = low.builder, a.extents[axis]
    if size == a.shape[axis]:
        return offset
    start = counted(low, start, extent)
    is_read = size == 1 and isinstance(extent, Axis)  # then from memory, which clamps
    if not is_read and stays_inside(low, start, a.shape[axis], size) is not None:
        start = ops.op("max", start, ops.const(0, start.type))
        start = ops.op("min", start, ops.const(low.fixed(extent) - size, start.type))
    return low.moved(offset, start)


@op("dynamic_slice")
def dynamic_slice(low, out, a, *starts, slice_sizes):
    def element(indices):
        return a.at(tuple(
            started(low, a, axis, starts[axis].at(()), slice_sizes[axis], index) for axis, index in enumerate(indices)
        ))  # fmt: skip

    extents = [a.extents[i] if size == a.shape[i] else size for i, size in enumerate(slice_sizes)]
    return low.array(out, extents, element, a, *starts)


@op("gather")
def gather(low, out, a, where, *, dimension_numbers, slice_sizes, mode, fill_value=None, **_):
    ops, numbers = low.builder, dimension_numbers
    of_batch = [axis for axis in range(len(out.shape)) if axis not in numbers.offset_dims]
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims))

    def element(indices):
        batch = [indices[axis] for axis in of_batch]
        offsets = iter([indices[axis] for axis in numbers.offset_dims])
        starts = {axis: where.at((*batch, low.index(place))) for place, axis in enumerate(numbers.start_index_map)}
        result, is_inside = [], None
        for axis in range(a.rank):
            if axis in batching:
                result.append(batch[batching[axis]])
                continue
            offset = low.index(0) if axis in numbers.collapsed_slice_dims else next(offsets)
            if axis not in starts:
                result.append(offset)
                continue
            start, size = starts[axis], slice_sizes[axis]
            result.append(started(low, a, axis, start, size, offset))
            if mode == lax.GatherScatterMode.FILL_OR_DROP and size != a.shape[axis]:
                within = stays_inside(low, counted(low, start, a.extents[axis]), a.shape[axis], size)
                if within is not None:
                    is_inside = within if is_inside is None else ops.op("and", is_inside, within)
        value = a.at(tuple(result))
        if is_inside is None:
            return value
        return ops.select(is_inside, value, filling(ops, out.dtype, value.type, fill_value))

    return low.array(out, out.shape, element, a, where)


def stays_inside(low, start, extent, size):
    """Returns whether a slice lies within its axis, as a value; None if it always does."""
    ops, last = low.builder, extent - size
    if start.is_const and 0 <= ops.number(start) <= last:
        return None
    if start.op == "param" and ops.positions.get(start.attr, math.inf) <= last + 1:
        return None
    below = ops.compare("le", start, ops.const(last, start.type))
    return below if ops.is_non_negative(start) else ops.op("and", below, ops.compare("le", ops.const(0, start.type), start))


def filling(ops, dtype, type, given):
    if given is None:
        least, most = LIMITS.get(str(dtype), (0, 1))
        given = math.nan if type == "f32" else least or most
    return ops.const(given, type)


# ---- Sums ----


def in_width(low, out, array):
    """Returns the array, wrapped to the result's width."""
    return elementwise(low, out, lambda ops, x: x, array)


op("reduce_sum")(lambda low, out, a, axes, **_: in_width(low, out, low.summed(out, a, axes)))


@op("dot_general")
def dot_general(low, out, a, b, *, dimension_numbers, **_):
    return in_width(low, out, low.contracted(out, a, b, *dimension_numbers))


def folded(name, bool_name):
    def handler(low, out, a, axes, **_):
        if a.type == "bool" and bool_name in ("and", "or"):
            return low.any_of(out, a, axes, False, bool_name == "and")
        fold = named(name, bool_name)
        return in_width(low, out, low.reduce(out, a, axes, False, lambda x, y: fold(low.builder, x, y)))

    return handler


for _name, _ir, _of_bools in (
    ("reduce_max", "max", "or"), ("reduce_min", "min", "and"), ("reduce_prod", "mul", "and"),
    ("reduce_and", "and", "and"), ("reduce_or", "or", "or"), ("reduce_xor", "xor", "xor"),
):  # fmt: skip
    op(_name)(folded(_ir, _of_bools))


def searched(low, out, jaxpr, table, queries):
    """Counts the elements of a sorted array that come before each query: what jnp.searchsorted(method="sort") means.
    Returns None if its jaxpr has another form."""
    joined = next((eqn.invars for eqn in jaxpr.eqns if eqn.primitive.name == "concatenate"), None)
    if table.rank != 1 or joined is None or jaxpr.invars[0] not in joined:
        return None
    ops, is_left = low.builder, joined[-1] is jaxpr.invars[0]
    is_before = less_of_all if is_left else less_or_equal_of_all

    def element(indices):
        value, limit = table.at(indices[-1:]), queries.at(indices[:-1])
        return ops.cast(is_before(ops, value, limit), "i32")

    terms = low.array(None, [*queries.extents, table.extents[0]], element, table, queries)
    return low.elementwise(out, lambda x: x, (low.summed(None, terms, [queries.rank], type="i32"), ir_type(out.dtype)))


_LOOPS = {"while": "lax.while_loop or lax.fori_loop"}


def check_operation(name):
    """Returns the handler of a primitive. Raises UntranslatableError if there is none."""
    handler = HANDLERS.get(name)
    if handler is None:
        raise UntranslatableError(
            f"uses {_LOOPS.get(name, name)}, which attnc cannot translate. Compute it outside of the mod and capture the result, or write "
            "it with arithmetic, comparisons, jnp.where and indexing"
        )
    return handler
