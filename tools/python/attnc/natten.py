"""NATTEN's neighborhood attention, over attnc's kernels: change the import, and nothing else.

    from attnc.natten import na2d  # was: from natten import na2d

Tokens lie on a grid of one to three axes: tensors are [B, X, H, D], [B, X, Y, H, D] or [B, X, Y, Z, H, D]. The mask is
that of dsl/mods/neighborhood2d.py, whose boxes of keys the kernels read.
"""

import functools
import math
import operator
import typing

import torch

from .launch import ALIGNED, Launch
from .mod import Mod
from .torch import create_block_mask, flex_attention
from .torch.autograd import attend, rows_of, wanted_by
from .torch.flex import _check as check
from .torch.flex import autocast
from .torch.graphs import is_recorded
from .torch.calls import line_of
from .torch.operator import attention_of, attention_op
from .torch.residues import as_heads, order_of, residues_of, tokens_of

__all__ = [
    "NeighborhoodAttention1D", "NeighborhoodAttention2D", "NeighborhoodAttention3D", "attention", "merge_attentions", "na1d",
    "na2d", "na3d", "neighborhood_attention_generic",
]  # fmt: skip

# What chooses among NATTEN's kernels. attnc chooses among its own.
_OF_KERNELS = frozenset((
    "attention_kwargs", "backend", "q_tile_shape", "kv_tile_shape", "backward_q_tile_shape", "backward_kv_tile_shape",
    "backward_kv_splits", "backward_use_pt_reduction", "run_persistent_kernel", "kernel_schedule", "torch_compile",
    "q_tile_size", "kv_tile_size", "backward_q_tile_size", "backward_kv_tile_size", "use_autograd_fix",
))  # fmt: skip


def _check_names(names):
    for name in names:
        if name not in _OF_KERNELS:
            raise TypeError(f"{name} is no argument of NATTEN's that attnc knows")


def _lines_of(at, behind, extent, size, window, stride, dilation, is_causal):
    """Returns statements of a text, and the conditions under which the query sees the key along axis `at`, whose tokens
    are `behind` apart: `extent` of them, of which the first `size` exist, a number or a text."""
    q, k, live, within = f"q{at}", f"k{at}", [], f" % {extent}" if at else ""
    lines = [f"{q} = q_idx // {behind}{within}", f"{k} = kv_idx // {behind}{within}"]
    if dilation > 1:  # tokens of the same index modulo dilation are an axis
        live.append(f"({q} % {dilation} == {k} % {dilation})")
        size = f"(({size + dilation - 1} - {q} % {dilation}) // {dilation})" if size % dilation else size // dilation
        q, k = f"({q} // {dilation})", f"({k} // {dilation})"
    leader = q
    if stride > 1:  # whose window all queries of the stride have
        leader = f"min({q} // {stride} * {stride} + {stride - 1 if is_causal else stride // 2}, {size} - 1)"
    if is_causal:
        return lines, [*live, f"({k} > {leader} - {window})", f"({k} <= {q})"]
    lines.append(f"start{at} = min(max({leader} - {window // 2}, 0), {size} - {window})")
    return lines, [*live, f"({k} >= start{at})", f"({k} < start{at} + {window})"]


@functools.lru_cache(maxsize=1024)
def _kept_text_of(shape, heads, residues, window, stride, dilation, is_causal):
    """Returns the mod of operands of residues.as_heads() in IR text; None: all tokens see each other. All numbers are
    constants, by which attnc's kernels of boxes are planned. `heads`: of a residue."""
    body, live = [], []
    extents = [-(-size // count) for size, count in zip(shape, residues)]
    for at, (size, count, *of_axis) in enumerate(zip(shape, residues, window, stride, dilation, is_causal)):
        if window[at] * count < size or is_causal[at]:
            length = extents[at]
            if size % count:  # later residues have a token less
                body.append(f"r{at} = h // {heads * math.prod(residues[at + 1 :])} % {count}")
                length = f"(({size + count - 1} - r{at}) // {count})"
            lines, conditions = _lines_of(at, math.prod(extents[at + 1 :]), extents[at], length, *of_axis)
            body, live = body + lines, live + conditions
    if not live:
        return None
    body.append(f"return {' & '.join(live)}")
    text = "\n    ".join(["def mask_mod(b, h, q_idx, kv_idx):", *body])
    return Mod.parse(text, name="<natten>").ir


def _text_of(*arguments):
    return _kept_text_of(*arguments)


_text_of._dynamo_marked_constant = True  # torch.compiler.assume_constant_result() loads the compiler


class _Owner:
    """What owns the lists of blocks that a kernel makes for a mod."""


@functools.lru_cache(maxsize=1024)
def _owner_of(text):
    return _Owner()


def _attend(query, key, value, text, scale, wants_lse):
    """Returns (out, lse or None) of operands [B, H, L, D] by a mod in IR text."""
    query, key, value = autocast(query, key, value)
    check(query, key, value, True, None)
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    gradients, deterministic = wanted_by(query, key, value, {})
    if torch.compiler.is_dynamo_compiling():
        operands, wanted = (rows_of(query), rows_of(key), rows_of(value)), None if gradients is None else ""
        return attention_op(line_of(text), *operands, [], [], scale, wanted, False, None, None, 0, None)[:2]
    launch = Launch({}, scale, _owner_of(text), ALIGNED, None, text, None, gradients, deterministic)
    if is_recorded(query, key, value):
        return attention_of(launch, rows_of(query), rows_of(key), rows_of(value), {})[:2]
    return attend(launch, query, key, value, {}, wants_lse)[:2]


def _of_axes(name, given, axes, kind):
    values = (given,) * axes if isinstance(given, kind) else given
    try:
        values = tuple(values)
    except TypeError:
        values = ()
    if len(values) != axes or not all(type(x) is kind and (kind is bool or x > 0) for x in values):
        what = "a bool" if kind is bool else "a positive int"
        raise ValueError(f"{name} is {given!r}; it must be {what}, or one for each of the {axes} axes")
    return values


def _arguments(axes, kernel_size, stride, dilation, is_causal):
    return (
        _of_axes("kernel_size", kernel_size, axes, int), _of_axes("stride", 1 if stride is None else stride, axes, int),
        _of_axes("dilation", 1 if dilation is None else dilation, axes, int),
        _of_axes("is_causal", False if is_causal is None else is_causal, axes, bool),
    )  # fmt: skip


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool = False, scale: float | None = None, *,
    return_lse: bool = False, **kernels: typing.Any,
) -> typing.Any:  # fmt: skip
    """Computes attention of query [B, L, H, D], key [B, S, HKV, D] and value [B, S, HKV, DV], with gradients. With
    `is_causal`, query i sees keys up to i. `kernels` are NATTEN's choices, and ignored.

    Returns out [B, L, H, DV]; with `return_lse`, (out, lse f32 [B, L, H])."""
    _check_names(kernels)
    mask = None
    if is_causal:
        mask = create_block_mask(
            lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, query.shape[1], key.shape[1], query.device
        )
    operands = (x.transpose(1, 2) for x in (query, key, value))
    found = flex_attention(*operands, None, mask, scale, enable_gqa=True, return_lse=return_lse)
    return tuple(x.transpose(1, 2) for x in found) if return_lse else found.transpose(1, 2)


def merge_attentions(
    outputs: typing.Sequence[torch.Tensor], lse_tensors: typing.Sequence[torch.Tensor], **kernels: typing.Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (out, lse) of the same queries over the keys of all: `outputs` [B, L, H, D], `lse_tensors` f32 [B, L, H].
    Gradients are those of attention over all keys."""
    _check_names(kernels)
    if len(outputs) != len(lse_tensors) or not outputs:
        raise ValueError(f"there are {len(outputs)} outputs and {len(lse_tensors)} lse_tensors; give one for each")
    every = torch.stack(tuple(lse_tensors))
    lse = every.logsumexp(0)
    weights = (every - lse).exp().unsqueeze(-1)
    return sum(w * out.float() for w, out in zip(weights, outputs)).to(outputs[0].dtype), lse


def neighborhood_attention_generic(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...] = 1, dilation: int | tuple[int, ...] = 1, is_causal: bool | tuple[bool, ...] = False,
    scale: float | None = None, additional_keys: torch.Tensor | None = None,
    additional_values: torch.Tensor | None = None, *, return_lse: bool = False, **kernels: typing.Any,
) -> typing.Any:  # fmt: skip
    """Computes neighborhood attention of query [B, X, H, D], key [B, X, HKV, D] and value [B, X, HKV, DV], where X is one
    to three axes, with gradients.

    Along an axis a query sees `kernel_size` tokens around it, moved inside at the border; if the axis `is_causal`, that
    many up to itself. `stride` queries share the window of their middle, or of their last if the axis is causal. With
    `dilation`, tokens of the same index modulo it are an axis of their own. A number stands for all axes. All queries see
    `additional_keys` [B, S, HKV, D] as well, with `additional_values`. `kernels` are NATTEN's choices, and ignored.

    Returns out [B, X, H, DV]; with `return_lse`, (out, lse f32 [B, X, H])."""
    _check_names(kernels)
    axes = query.dim() - 3
    if not 1 <= axes <= 3:
        raise ValueError(f"query has {query.dim()} dims; it must be [B, X, H, D], with one to three axes X")
    shape = tuple(map(operator.index, query.shape[1:-2]))  # in graphs: numbers
    for name, x in (("key", key), ("value", value)):
        if x.shape[:-2] != query.shape[:-2]:
            found, wanted = list(x.shape[:-2]), list(query.shape[:-2])
            raise ValueError(f"{name} has batch and tokens {found}, query {wanted}: they must be equal")
    window, stride, dilation, is_causal = _arguments(axes, kernel_size, stride, dilation, is_causal)
    for extent, size, step, gap in zip(shape, window, stride, dilation):
        if size * gap > extent:
            raise ValueError(f"kernel_size {size} with dilation {gap} needs {size * gap} tokens, and an axis has {extent}")
        if step > size:
            raise ValueError(f"stride {step} is larger than kernel_size {size}: tokens would be seen by no query")
    if (additional_keys is None) != (additional_values is None):
        raise ValueError("additional_keys or additional_values is None: give both, or neither")
    residues = residues_of(shape, window, dilation)
    gaps = tuple(gap // count for gap, count in zip(dilation, residues))
    text = _text_of(shape, operator.index(query.shape[-2]), residues, window, stride, gaps, is_causal)
    order = order_of(query, shape, residues)
    operands = [as_heads(x, residues, order) for x in (query, key, value)]
    wants_lse = return_lse or additional_keys is not None
    if text is None:
        found = attention(*operands, scale=scale, return_lse=wants_lse)
        out, lse = found if wants_lse else (found, None)
    else:
        out, lse = _attend(*(x.transpose(1, 2) for x in operands), text, scale, wants_lse)
        out, lse = out.transpose(1, 2), lse.transpose(1, 2) if wants_lse else None
    out = tokens_of(out, shape, residues, order)
    if not wants_lse:
        return out
    lse = tokens_of(lse.unsqueeze(-1), shape, residues, order).squeeze(-1)
    if additional_keys is not None:
        more = attention(query.flatten(1, axes), additional_keys, additional_values, scale=scale, return_lse=True)
        out, lse = merge_attentions(*zip((out, lse), (x.reshape_as(y) for x, y in zip(more, (out, lse)))))
    return (out, lse) if return_lse else out


def _on_grid(axes, query, *arguments, **options):
    if query.dim() != axes + 3:
        takes = ("[B, X, H, D]", "[B, X, Y, H, D]", "[B, X, Y, Z, H, D]")[axes - 1]
        raise ValueError(f"query has {query.dim()} dims, and na{axes}d takes {takes}")
    return neighborhood_attention_generic(query, *arguments, **options)


def na1d(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *arguments: typing.Any, **options: typing.Any
) -> typing.Any:  # fmt: skip
    """Computes neighborhood_attention_generic() of [B, X, H, D], with its arguments from `kernel_size` on."""
    return _on_grid(1, query, key, value, *arguments, **options)


def na2d(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *arguments: typing.Any, **options: typing.Any
) -> typing.Any:  # fmt: skip
    """Computes neighborhood_attention_generic() of [B, X, Y, H, D], with its arguments from `kernel_size` on."""
    return _on_grid(2, query, key, value, *arguments, **options)


def na3d(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *arguments: typing.Any, **options: typing.Any
) -> typing.Any:  # fmt: skip
    """Computes neighborhood_attention_generic() of [B, X, Y, Z, H, D], with its arguments from `kernel_size` on."""
    return _on_grid(3, query, key, value, *arguments, **options)


class _NeighborhoodAttention(torch.nn.Module):
    _AXES = 0

    def __init__(
        self, embed_dim: int, num_heads: int, kernel_size: int | tuple[int, ...], stride: int | tuple[int, ...] = 1,
        dilation: int | tuple[int, ...] = 1, is_causal: bool | tuple[bool, ...] = False, qkv_bias: bool = True,
        qk_scale: float | None = None, proj_drop: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
        found = _arguments(self._AXES, kernel_size, stride, dilation, is_causal)
        self.kernel_size, self.stride, self.dilation, self.is_causal = found
        self.num_heads, self.scale = num_heads, qk_scale
        self.qkv = torch.nn.Linear(embed_dim, 3 * embed_dim, bias=qkv_bias)
        self.proj, self.proj_drop = torch.nn.Linear(embed_dim, embed_dim), torch.nn.Dropout(proj_drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the layer's output for x [B, X, embed_dim], in the same shape."""
        operands = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        how = self.kernel_size, self.stride, self.dilation, self.is_causal, self.scale
        return self.proj_drop(self.proj(_on_grid(self._AXES, *operands, *how).flatten(-2)))


class NeighborhoodAttention1D(_NeighborhoodAttention):
    """A layer of neighborhood attention over [B, X, embed_dim], with NATTEN's parameters and names."""

    _AXES = 1


class NeighborhoodAttention2D(_NeighborhoodAttention):
    """A layer of neighborhood attention over [B, X, Y, embed_dim], with NATTEN's parameters and names."""

    _AXES = 2


class NeighborhoodAttention3D(_NeighborhoodAttention):
    """A layer of neighborhood attention over [B, X, Y, Z, embed_dim], with NATTEN's parameters and names."""

    _AXES = 3
