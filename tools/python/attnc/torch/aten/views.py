"""Array creation, views, concatenation and indexing. Nothing here does arithmetic on elements."""

import torch

from ..._arrays import Array, fold_index, ir_type
from ...errors import UntranslatableError
from .table import number_in, op


# ---- Made of nothing ----


def filled(low, out, number):
    type = ir_type(out.dtype)
    if isinstance(number, Array):
        return low.array(out, out.shape, lambda indices: low.value(number, indices, type), number)
    number = number_in(number, out.dtype, wraps=False)
    return low.array(out, out.shape, lambda indices: low.builder.const(number, type))


@op("full", "full_like")
def full(low, out, _, number, **__):
    return filled(low, out, number)


@op("new_full")
def new_full(low, out, _, __, number, **___):
    return filled(low, out, number)


@op("scalar_tensor")
def scalar_tensor(low, out, number, **_):
    return filled(low, out, number)


@op("zeros", "new_zeros", "zeros_like")
def zeros(low, out, *_, **__):
    return filled(low, out, 0)


@op("ones", "new_ones", "ones_like")
def ones(low, out, *_, **__):
    return filled(low, out, 1)


@op("fill", "fill_")
def fill(low, out, _, number):
    return filled(low, out, number)


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


@op("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy")
def view(low, out, a, *_):
    return low.reshaped(out, a)


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
    gone = {axis_of(a, dim) for dim in dims}
    gone = {axis for axis in gone if axis < a.rank and a.shape[axis] == 1}
    for axis in gone:
        low.fixed(a.extents[axis])

    def element(indices):
        rest = iter(indices)
        return a.at(tuple(low.index(0) if axis in gone else next(rest) for axis in range(a.rank)))

    return low.array(out, [extent for axis, extent in enumerate(a.extents) if axis not in gone], element, a)


@op("permute", "permute_copy")
def permute(low, out, a, dims):
    dims = [dim % a.rank for dim in dims]

    def element(indices):
        return a.at(tuple(indices[dims.index(axis)] for axis in range(a.rank)))

    return low.array(out, [a.extents[dim] for dim in dims], element, a)


@op("transpose", "transpose_copy")
def transpose(low, out, a, first, second):
    dims = list(range(a.rank))
    first, second = axis_of(a, first), axis_of(a, second)
    if a.rank:
        dims[first], dims[second] = dims[second], dims[first]
    return permute(low, out, a, dims)


@op("t", "t_copy", "numpy_T")
def t(low, out, a):
    return permute(low, out, a, list(reversed(range(a.rank))))


@op("select", "select_copy")
def select(low, out, a, dim, index):
    dim = axis_of(a, dim)
    index = low.inside(low.index(index), a.extents[dim])
    return low.array(
        out, a.extents[:dim] + a.extents[dim + 1 :], lambda rest: a.at(rest[:dim] + (index,) + rest[dim:]), a
    )


@op("slice", "slice_copy")
def slice_(low, out, a, dim=0, start=None, end=None, step=1):
    dim = axis_of(a, dim)
    if out.shape[dim] == a.shape[dim] and step == 1:
        return low.array(out, a.extents, a.at, a)
    first, _, _ = slice(start, end, step).indices(low.fixed(a.extents[dim]))
    extents, ops = list(a.extents), low.builder
    extents[dim] = out.shape[dim]

    def element(indices):
        moved = ops.op(
            "add", ops.op("mul", indices[dim], ops.const(step, indices[dim].type)), ops.const(first, indices[dim].type)
        )
        return a.at(indices[:dim] + (fold_index(ops, moved),) + indices[dim + 1 :])

    return low.array(out, extents, element, a)


@op("flip")
def flip(low, out, a, dims):
    sizes = {dim % a.rank: low.fixed(a.extents[dim % a.rank]) for dim in dims}
    ops = low.builder

    def element(indices):
        return a.at(
            tuple(
                fold_index(
                    ops,
                    ops.op(
                        "add", ops.const(sizes[axis] - 1, index.type), ops.op("mul", ops.const(-1, index.type), index)
                    ),
                )
                if axis in sizes
                else index
                for axis, index in enumerate(indices)
            )
        )

    return low.array(out, a.extents, element, a)


@op("unbind", "unbind_copy")
def unbind(low, out, a, dim=0):
    return [select(low, meta, a, dim, index) for index, meta in enumerate(out)]


# ---- Put together ----


@op("stack")
def stack(low, out, arrays, dim=0):
    dim %= out.dim()

    def element(indices):
        return choose(
            low,
            indices[dim],
            [lambda a=a: low.value(a, indices[:dim] + indices[dim + 1 :], ir_type(out.dtype)) for a in arrays],
        )

    return low.array(out, out.shape, element, *arrays)


@op("cat")
def cat(low, out, arrays, dim=0):
    dim %= out.dim()
    ops, type = low.builder, ir_type(out.dtype)
    starts, total = [], 0
    for a in arrays:
        starts.append(total)
        total += low.fixed(a.extents[dim])

    def element(indices):
        index, result = indices[dim], None
        for a, start in reversed(list(zip(arrays, starts))):
            if index.is_const and not start <= ops.number(index) < start + a.shape[dim]:
                continue
            moved = fold_index(ops, ops.op("add", index, ops.const(-start, index.type)))
            value = ops.cast(a.at(indices[:dim] + (moved,) + indices[dim + 1 :]), type)
            below = ops.compare("lt", index, ops.const(start + a.shape[dim], index.type))
            result = value if result is None else ops.select(below, value, result)
        return result

    return low.array(out, out.shape, element, *arrays)


def choose(low, index, candidates):
    """Returns the candidate at an index."""
    ops = low.builder
    if index.is_const:
        return candidates[ops.number(index)]()
    if len(candidates) > 64:
        raise UntranslatableError(f"an index into {len(candidates)} stacked values; at most 64 are chosen from")
    result = candidates[-1]()
    for place in reversed(range(len(candidates) - 1)):
        result = ops.select(ops.compare("le", index, ops.const(place, index.type)), candidates[place](), result)
    return result


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


@op("index_select")
def index_select(low, out, a, dim, positions):
    return index(low, out, a, [None] * axis_of(a, dim) + [positions])


@op("embedding")
def embedding(low, out, a, positions, *_, **__):
    return index(low, out, a, [positions])


@op("gather")
def gather(low, out, a, dim, positions, **_):
    dim = axis_of(a, dim)

    def element(indices):
        found = low.inside(low.value(positions, indices, positions.type), a.extents[dim])
        return a.at(indices[:dim] + (found,) + indices[dim + 1 :])

    return low.array(out, positions.extents, element, a, positions)
