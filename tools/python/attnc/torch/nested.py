"""FlexAttention over NestedTensors of the jagged layout: ragged batches, whose values and offsets kernels read in place."""

import torch
from torch.nested._internal.nested_tensor import nested_view_from_values_offsets

from .. import _spec as c
from .._diagnostics import check_mask_sizes
from .._suspicions import warn_of_mask
from ..launch import Launch, Sequences
from .autograd import attend, wanted_by
from .block_mask import has_lists
from .errors import OperandError
from .graphs import is_recorded
from .mistakes import TORCH
from .translation import translate


def check_nested(query, key, value, kernel_options, outputs):
    """Raises ValueError for operands that are not all nested, and NotImplementedError for what kernels do not take."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not tensor.is_nested:
            raise ValueError(f"{name} is not a NestedTensor, but another operand is: give three of them")
        if tensor.layout != torch.jagged:
            raise NotImplementedError(
                f"{name} is a NestedTensor of the strided layout: give torch.nested.as_nested_tensor({name}.unbind(), "
                "layout=torch.jagged)"
            )
        if tensor.dim() != 4 or tensor._ragged_idx != 2:
            raise NotImplementedError(
                f"{name} is a NestedTensor of {tensor.dim()} dims, ragged in dim {tensor._ragged_idx}: it must be "
                "[B, H, j, E], as transpose(1, 2) of [B, j, H, E] is"
            )
        if tensor.lengths() is not None:
            raise NotImplementedError(f"{name} is a NestedTensor with holes: give {name}.contiguous()")
    if key.offsets() is not value.offsets():
        raise ValueError("key and value have other offsets: make both with one tensor of offsets")
    if outputs or kernel_options and kernel_options.get("fp8"):
        raise NotImplementedError("outputs and fp8 are not computed over NestedTensors: leave them out")


def check_mask_of_nested(block_mask, query, key):
    """Raises NotImplementedError, ValueError and OperandError for a block mask that is not of each sequence."""
    longest = query._get_max_seqlen(), key._get_max_seqlen()
    call = f"attnc.torch.create_block_mask(mask_mod, B, H, {longest[0]}, {longest[1]})"
    if has_lists(block_mask):
        raise NotImplementedError(f"block_mask has lists of blocks, which NestedTensors do not take: give {call}")
    check_mask_sizes(query, block_mask._of[:2])
    lengths = block_mask.seq_lengths
    if lengths[0] < longest[0] or lengths[1] < longest[1]:
        raise OperandError(
            f"block_mask is of {lengths[0]} queries and {lengths[1]} keys, the longest sequences have {longest[0]} and "
            f"{longest[1]}: give {call}"
        )


def attend_nested(query, key, value, score_mod, mask_mod, scale, wants_max, wants_lse, options):
    """Returns (out, lse, row_max) as attend() does, nested as query is. Mods see the sequence as b, and positions in it."""
    q, k, v = (x.values()[None] for x in (query, key, value))
    if is_recorded(q, k, v):
        raise NotImplementedError(
            "query is a NestedTensor where operations are recorded: leave the mode or the transform for this call"
        )
    longest = query._get_max_seqlen(), key._get_max_seqlen()
    sequences = Sequences(cu_seqlens_q=query.offsets().int(), max_q_len=longest[0], max_kv_len=longest[1])
    if key.offsets() is not query.offsets():
        sequences = sequences._replace(cu_seqlens_kv=key.offsets().int())
        options = ("offsets", c.OFFSETS_NONE), *options
    problem = *query.shape[:2], key.shape[1], *longest
    text, captures, numbers = translate(score_mod, mask_mod, device=q.device, problem=problem).given()
    if mask_mod is not None:
        warn_of_mask(mask_mod, text, TORCH)
    # Lists of blocks depend on offsets, so that no mask owns them.
    launch = Launch(numbers, scale, None, sequences, None, text, None, *wanted_by(q, k, v, captures), wants_max, options)
    results = attend(launch, q, k, v, captures, wants_lse)
    return tuple([x if x is None else _like(query, x[0]) for x in results])


def _like(query, values):
    return nested_view_from_values_offsets(  # nested_tensor_from_jagged() logs a warning in PyTorch 2.11
        values, query.offsets(), 2, query._maybe_min_seqlen, query._maybe_max_seqlen
    )
