"""The lists of a block mask that create_block_mask made. The library judges blocks by intervals, on the CPU. It reads
captured tensors there, whatever the device of the lists.
"""

import math
import re
from ctypes import byref, c_int32

import torch
from torch.nn.attention import flex_attention as flex

from .._library import Handle, check, library
from .._spec import BlockMaskShape, BlockMaskView, Problem
from .errors import UntranslatableError
from .tracing import is_watched
from .translation import parsed

_SIZES = 256, 128, 64  # of the library's blocks


def lists_of(mask_mod, batch, heads, lengths, device, block_size, options):
    """Returns the lists of PyTorch's create_block_mask, by the names of a BlockMask's attributes. PyTorch evaluates the
    mask if attnc cannot translate mask_mod, if nothing may be computed yet, and for blocks of other sizes than multiples
    of 64."""
    kinds = None
    if all(lengths) and not torch.compiler.is_dynamo_compiling() and not is_watched():
        kinds = _kinds(mask_mod, batch, heads, lengths, device, block_size)
    if kinds is None:
        return vars(
            flex.create_block_mask(mask_mod, batch, heads, *lengths, device=device, BLOCK_SIZE=block_size, **options)
        )
    kinds = kinds.to(device).expand(batch, heads, -1, -1)
    if options:  # which PyTorch knows; a full block here has two live rows, a partial one has the first
        return vars(flex.create_block_mask(
            lambda b, h, row, column: kinds[b, h, row // 2, column] > row % 2, batch, heads, 2 * kinds.shape[2],
            kinds.shape[3], device=device, BLOCK_SIZE=(2, 1), **options,
        ))  # fmt: skip
    found = {}
    for prefix, kind in (("", 1), ("full_", 2)):
        for axis, of_axis in (("kv", kinds), ("q", kinds.mT.contiguous())):
            count, found[f"{prefix}{axis}_indices"] = _ordered(of_axis == kind)
            found[f"{prefix}{axis}_num_blocks"] = count
    return found


def _ordered(listed):
    """Returns the number of listed blocks in each row; and indices, of those first, then of others, in increasing order."""
    ends, width = listed.cumsum(-1, dtype=torch.int32), listed.shape[-1]
    count = ends[..., -1:].clone(memory_format=torch.contiguous_format)
    places = torch.arange(width, dtype=torch.int32, device=listed.device)
    rest = torch.sub(places, ends).add_(count)
    target = torch.where(listed, ends.sub_(1), rest, out=rest).long()
    return count[..., 0], ends.scatter_(-1, target, places.expand_as(ends))


def _kinds(mask_mod, batch, heads, lengths, device, block_size):
    """Returns u8 [batch or 1, heads or 1, ROWS, COLUMNS]: 0 for empty blocks, 1 partial, 2 full. None: it is not known."""
    sizes = [next((size for size in _SIZES if wanted % size == 0), 0) for wanted in block_size]
    if not all(sizes):
        return None
    try:
        mod, captures, _ = parsed(None, mask_mod, device, (batch, heads, heads, *lengths))
    except UntranslatableError:
        return None
    batches, of_heads = (size if re.search(rf"%{name}\b", mod.ir) else 1 for name, size in (("b", batch), ("h", heads)))
    array, _keep = mod._given(captures, on_gpu=False)
    handle = Handle(
        "attnc_block_mask_build", mod._handle.address, array, len(array), byref(Problem(batch, heads, heads, *lengths)),
        byref(BlockMaskShape(batches, of_heads, *lengths, *sizes)), destroyer="attnc_block_mask_destroy",
    )  # fmt: skip
    view = BlockMaskView()
    check(library().attnc_block_mask_get_view(handle.address, byref(view)))
    blocks = [-(-length // size) for length, size in zip(lengths, sizes)]
    kinds = torch.zeros(batches, of_heads, *blocks, dtype=torch.uint8)
    lists = view.rows
    for kind, count, index in ((1, lists.partial_count, lists.partial_index), (2, lists.full_count, lists.full_index)):
        counts, indices = (_read(at, (*kinds.shape[:3], *more)) for at, more in ((count, ()), (index, (lists.index_stride,))))
        listed = torch.arange(lists.index_stride) < counts[..., None]
        flat = torch.arange(counts.numel()).view(counts.shape) * blocks[1]
        kinds.view(-1)[(flat[..., None] + indices)[listed]] = kind
    return _coarser(kinds, [wanted // size for wanted, size in zip(block_size, sizes)])


def _read(address, shape):
    return torch.frombuffer((c_int32 * math.prod(shape)).from_address(address), dtype=torch.int32).view(shape)


def _coarser(kinds, factors):
    """Returns the kinds of larger blocks. One that exceeds the mask is not full."""
    if factors == [1, 1]:
        return kinds
    rows, columns = (-(-extent // factor) for extent, factor in zip(kinds.shape[2:], factors))
    missing = 0, columns * factors[1] - kinds.shape[3], 0, rows * factors[0] - kinds.shape[2]
    parts = torch.nn.functional.pad(kinds, missing).view(*kinds.shape[:2], rows, factors[0], columns, factors[1])
    return (parts.amax((3, 5)) > 0).byte() + (parts.amin((3, 5)) == 2).byte()
