"""Residues as heads: tokens of a grid of the same index modulo a gap become heads, by a view or by a copy in another order.

A window with gaps among tokens then has none among those of a head. NATTEN calls it token permutation.
"""

import functools
import math
import typing

import torch

from .graphs import is_recorded

_MANY, _FEW = 1000, 64  # tokens: of a window with its gaps, and of a residue


def residues_of(shape, window, dilation):
    """Returns how many residues of the tokens of each axis modulo its dilation become heads. `shape`, `window` and `dilation`
    have a number of tokens for each axis. A window then has no gaps. Residues of the last axis become heads by a view. Others
    take copies, which pay off if a query's window spans many tokens and residues are no less than half a tile of rows."""
    last = dilation[-1] if shape[-1] % dilation[-1] == 0 else 1
    spanned = min(shape[0], window[0] * dilation[0] + 1) * math.prod(shape[1:]) // last
    tokens = math.prod([-(-size // gap) for size, gap in zip(shape, dilation)])
    if spanned >= _MANY and tokens >= _FEW and any(gap > 1 for gap in (*dilation[:-1], dilation[-1] // last)):
        return dilation
    return (*(1 for _ in dilation[1:]), last)


class Order(typing.NamedTuple):
    """Tokens of all batch entries in the order of a grid, and by residues. Axes have rows without a token up to a multiple of
    their residues. Indices are i64, on the device of the tokens."""

    token_of_row: torch.Tensor
    row_of_token: torch.Tensor
    holes: torch.Tensor | None  # rows without a token; None: there are none


def _order(batch, shape, residues, device):
    extents, count = [-(-size // count) for size, count in zip(shape, residues)], math.prod(residues)
    rows, tokens = math.prod(extents) * count, math.prod(shape)
    row, token = (torch.arange(batch * n, device=device) for n in (rows, tokens))
    token_of_row, row_of_token, is_hole = row // rows, token // tokens * math.prod(extents), False
    of_tokens = 0  # the residue of each token, among those of all axes
    for at, (size, extent, gap) in enumerate(zip(shape, extents, residues)):
        x = row // (math.prod(extents[at + 1 :]) * count) % extent * gap + row // math.prod(residues[at + 1 :]) % gap
        is_hole = is_hole | (x >= size)
        token_of_row = token_of_row * size + x.clamp(max=size - 1)
        y = token // math.prod(shape[at + 1 :]) % size
        row_of_token = row_of_token + y // gap * math.prod(extents[at + 1 :])
        of_tokens = of_tokens * gap + y % gap
    many = batch * (rows - tokens)
    holes = is_hole.byte().argsort(descending=True)[:many] if many else None  # without a look at the numbers by the host
    return Order(token_of_row, row_of_token * count + of_tokens, holes)


@functools.lru_cache(maxsize=8)  # 16 bytes a token
def _kept_order(stream, *arguments):
    """Returns the order that one stream makes and reads."""
    with torch.inference_mode(False):  # tensors of inference cannot be saved for a backward pass
        return _order(*arguments)


def order_of(x, shape, residues):
    """Returns the order of tokens [B, ...] of `shape`, or None if both orders are one but for a view."""
    if all(gap == 1 for gap in residues[:-1]) and shape[-1] % residues[-1] == 0:
        return None
    is_recorded_here = torch.compiler.is_dynamo_compiling() or is_recorded(x)
    arguments = len(x), shape, residues, x.device
    if is_recorded_here or x.is_cuda and torch.cuda.is_current_stream_capturing():
        return _order(*arguments)
    return _kept_order(torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None, *arguments)


def _selected(x, places, back, holes, has_holes):
    found = x.index_select(0, places)
    return found.index_fill_(0, holes, 0) if has_holes and holes is not None else found


class _Reordered(torch.autograd.Function):
    """Rows of x [N, ...] at `places`, with zeros in `holes` if it `has_holes`. `back`: the places of the rows of x. So the
    gradient is read as well, where that of index_select() adds."""

    generate_vmap_rule = True
    forward = staticmethod(_selected)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, places, back, holes, ctx.has_holes = inputs
        ctx.save_for_backward(places, back, holes)
        ctx.save_for_forward(places, back, holes)

    @staticmethod
    def backward(ctx, gradient):
        places, back, holes = ctx.saved_tensors
        return _Reordered.apply(gradient, back, places, holes, not ctx.has_holes), None, None, None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return _Reordered.apply(tangent, *ctx.saved_tensors, ctx.has_holes)


def _reordered(*arguments):
    return (_selected if torch.compiler.is_dynamo_compiling() else _Reordered.apply)(*arguments)


def as_heads(x, residues, order):
    """Returns [B, L, RH, D] of x, [B, X, H, D]: a view if there is no `order`."""
    length = math.prod([-(-size // gap) for size, gap in zip(x.shape[1:-2], residues)])
    shape = len(x), length, math.prod(residues) * x.shape[-2], x.shape[-1]
    if order is not None:
        x = _reordered(x.flatten(0, -3), order.token_of_row, order.row_of_token, order.holes, True)
    return x.reshape(shape)


def tokens_of(x, shape, residues, order):
    """Returns [B, X, H, D] of x, [B, L, RH, D]: the inverse of as_heads() for tokens of `shape`."""
    shape = len(x), *shape, x.shape[-2] // math.prod(residues), x.shape[-1]
    if order is not None:
        x = x.reshape(-1, *shape[-2:])
        x = _reordered(x, order.row_of_token, order.token_of_row, order.holes, False)
    return x.reshape(shape)
