"""Array creation, views, concatenation and indexing. Nothing here does arithmetic on elements."""

import torch

from ..._arrays import Array, ir_type
from ...errors import UntranslatableError
from .table import number_in, op


# ---- Made of nothing ----


def filled(low, out, number):
    type = ir_type(out.dtype)
    if isinstance(number, Array):
        return low.array(out, out.shape, lambda indices: low.value(number, indices, type), number)
    number = number_in(number, out.dtype, wraps=False)
    return low.array(out, out.shape, lambda indices: low.builder.const(number, type))


# By the place of the number among the arguments.
for _place, _names in enumerate((("scalar_tensor",), ("full", "full_like", "fill", "fill_"), ("new_full",))):
    op(*_names)(lambda low, out, *arguments, place=_place, **_: filled(low, out, arguments[place]))
op("zeros", "new_zeros", "zeros_like")(lambda low, out, *_, **__: filled(low, out, 0))
op("ones", "new_ones", "ones_like")(lambda low, out, *_, **__: filled(low, out, 1))


@op("arange")
def arange(low, out, *bounds, **_):
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    type, ops = ir_type(out.dtype), low.builder

    def element(indices):
        offset = ops.cast(indices[0], type)
        if step != 1:
            offset = ops.op("mul", offset, ops.const(step, type))
        return offset if start == 0 else ops.op("add", offset, ops.const(start, type))

    return low.array(out, out.shape, element)


@op("detach", "detach_copy")
def detach(low, out, a):
    return low.elementwise(out, lambda x: low.builder.op("stop_gradient", x) if x.type == "f32" else x, (a, a.type))


# ---- Views ----


def axis_of(array, dim):
    return dim % array.rank if array.rank else 0


op("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy")(lambda low, out, a, *_: low.reshaped(out, a))


@op("expand", "expand_copy")
def expand(low, out, a, *_, **__):
    return low.array(out, low.broadcast(out, [a]), lambda indices: low.value(a, indices, a.type), a)


@op("unsqueeze", "unsqueeze_copy")
def unsqueeze(low, out, a, dim):
    dim %= a.rank + 1
    extents = list(a.extents)
    extents.insert(dim, 1)
    return low.array(out, extents, lambda indices: a.at(indices[:dim] + indices[dim + 1 :]), a)


@op("squeeze", "squeeze_copy")
def squeeze(low, out, a, dims=None):
    dims = range(a.rank) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {axis for axis in (axis_of(a, dim) for dim in dims) if axis < a.rank and a.shape[axis] == 1}
    for axis in gone:
        low.fixed(a.extents[axis])
    return low.squeezed(out, a, gone)


op("permute", "permute_copy")(lambda low, out, a, dims: low.permuted(out, a, [dim % a.rank for dim in dims]))


@op("transpose", "transpose_copy")
def transpose(low, out, a, first, second):
    dims = list(range(a.rank))
    first, second = axis_of(a, first), axis_of(a, second)
    if a.rank:
        dims[first], dims[second] = dims[second], dims[first]
    return low.permuted(out, a, dims)


op("t", "t_copy", "numpy_T")(lambda low, out, a: low.permuted(out, a, reversed(range(a.rank))))


@op("select", "select_copy")
def select(low, out, a, dim, index):
    dim = axis_of(a, dim)
    index = low.inside(low.index(index), a.extents[dim])
    return low.array(out, a.extents[:dim] + a.extents[dim + 1 :], lambda rest: a.at(rest[:dim] + (index,) + rest[dim:]), a)


@op("slice", "slice_copy")
def slice_(low, out, a, dim=0, start=None, end=None, step=1):
    dim, starts, steps = axis_of(a, dim), [0] * a.rank, [1] * a.rank
    if out.shape[dim] != a.shape[dim] or step != 1:
        starts[dim], _, steps[dim] = slice(start, end, step).indices(low.fixed(a.extents[dim]))
    return low.sliced(out, a, starts, steps)


op("flip")(lambda low, out, a, dims: low.flipped(out, a, [dim % a.rank for dim in dims]))


@op("unbind", "unbind_copy")
def unbind(low, out, a, dim=0):
    return [select(low, meta, a, dim, index) for index, meta in enumerate(out)]


# ---- Put together ----


op("stack")(lambda low, out, arrays, dim=0: low.stacked(out, arrays, dim % out.dim(), most=64))
op("cat")(lambda low, out, arrays, dim=0: low.joined(out, arrays, dim % out.dim()))


# ---- Indexing ----


@op("index", "_unsafe_index")
def index(low, out, a, indices):
    given = {axis: array for axis, array in enumerate(indices) if array is not None}
    for array in given.values():
        if array.dtype in (torch.bool, torch.uint8):
            raise UntranslatableError("a tensor indexed by a tensor of bools: use torch.where")
    rank = max((array.rank for array in given.values()), default=0)
    axes = sorted(given)
    is_together = axes == list(range(axes[0], axes[0] + len(axes)))
    front = axes[0] if is_together else 0  # where the axes of the indices stand in the result
    shape = out.shape[front : front + rank]
    rest = [extent for axis, extent in enumerate(a.extents) if axis not in given]
    extents = [*rest[:front], *shape, *rest[front:]]

    def element(result):
        inner, others = result[front : front + rank], iter(result[:front] + result[front + rank :])
        return a.at(
            tuple(
                low.inside(low.value(given[axis], inner, given[axis].type), extent) if axis in given else next(others)
                for axis, extent in enumerate(a.extents)
            )
        )

    return low.array(out, extents, element, a, *given.values())


op("index_select")(lambda low, out, a, dim, positions: index(low, out, a, [None] * axis_of(a, dim) + [positions]))
op("embedding")(lambda low, out, a, positions, *_, **__: index(low, out, a, [positions]))


@op("gather")
def gather(low, out, a, dim, positions, **_):
    dim = axis_of(a, dim)

    def element(indices):
        found = low.inside(low.value(positions, indices, positions.type), a.extents[dim])
        return a.at(indices[:dim] + (found,) + indices[dim + 1 :])

    return low.array(out, positions.extents, element, a, positions)
