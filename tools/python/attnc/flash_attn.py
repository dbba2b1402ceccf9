"""FlashAttention's functions, over attnc's kernels: change the import, and nothing else.

    from attnc.flash_attn import flash_attn_func  # was: from flash_attn import flash_attn_func

Arguments have the order of FlashAttention 2.8; what FlashAttention-3 adds is given by name. Tensors are [B, L, H, D], or
[ROWS, H, D] in a ragged batch. attnc has more than these functions take: attnc.torch takes mods.
"""

import functools
import typing

import torch
from torch.nn.functional import pad

from .launch import Launch, Sequences
from .prob_mods import joined
from .torch import create_block_mask, flex_attention
from .torch.autograd import attend, wanted_by
from .torch.flash import mods_of
from .torch.flex import autocast, seed_like, with_prob
from .torch.graphs import attend_in_graph, attend_recorded, is_recorded, is_traced
from .torch.kernels import check_dtype
from .torch.translation import translate

__all__ = [
    "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
]  # fmt: skip


class Others(typing.TypedDict, total=False):
    """Arguments of FlashAttention-3, and `learnable_sink` [H] of FlashAttention-4. Those after it choose among its kernels, and are ignored."""

    attention_chunk: int
    qv: torch.Tensor | None
    q_descale: torch.Tensor | None
    k_descale: torch.Tensor | None
    v_descale: torch.Tensor | None
    learnable_sink: torch.Tensor | None
    num_splits: int
    pack_gqa: bool | None
    sm_margin: int
    scheduler_metadata: typing.Any


_EXPECTED = {
    3: "[ROWS, H, D]; flash_attn_func takes [B, L, H, D]", 4: "[B, L, H, D]; flash_attn_varlen_func takes [ROWS, H, D]"
}  # fmt: skip


def _check_rank(rank, **tensors):
    for name, tensor in tensors.items():
        if tensor.dim() != rank:
            raise ValueError(f"{name} has {tensor.dim()} dims; it must be {_EXPECTED[rank]}")


def _joined(q, k, v, others):
    """Returns operands whose scores are q k + qv v: longer rows, of which v is a part of k."""
    qv = others.get("qv")
    if qv is None:
        return q, k, v
    k = torch.cat((v, k), -1)
    return torch.cat((qv, q), -1), k, k[..., : v.shape[-1]]


def _window(causal, window_size, others):
    """Returns `left`, `right` and `chunk` of mods_of(), after a check of `others`."""
    for name in others:
        if name not in Others.__annotations__:
            raise TypeError(f"{name} is no argument of FlashAttention's that attnc knows")
    left, right = (-1 if size is None else int(size) for size in window_size)
    return left, 0 if causal else right, int(others.get("attention_chunk", 0))


_FP8 = torch.float8_e4m3fn


def _refuse_dropout(dropout_p):
    if dropout_p:
        raise NotImplementedError(f"there is no dropout with float8_e4m3fn: set dropout_p=0 (it is {dropout_p})")


def _sink_mod(others):
    sink = others.get("learnable_sink")
    return None if sink is None else lambda b, h, q_idx: sink[h]


def _scales(others, heads, kv_heads):
    """Returns members of Sequences: f32 [B, H] of q, [B, HKV] of k and v. q's are given for each group of heads."""
    of_q, of_k, of_v = (others.get(f"{name}_descale") for name in "qkv")
    of_q = None if of_q is None else of_q.repeat_interleave(heads // kv_heads, 1)
    return {"q_scales": of_q, "k_scales": of_k, "v_scales": of_v}


def _check_slopes(slopes, batch, heads):
    if slopes is not None and tuple(slopes.shape) not in ((heads,), (batch, heads)):
        raise ValueError(f"alibi_slopes are {list(slopes.shape)}; they must be [{heads}], or [{batch}, {heads}]")


def _padded(scale, q, k, v):
    """Returns the scale, and operands with columns of zeros up to the multiples of 8 that kernels take."""
    columns = (pad(x, (0, -x.shape[-1] % 8)) if x.shape[-1] % 8 else x for x in (q, k, v))
    return q.shape[-1] ** -0.5 if scale is None else float(scale), *columns


def _cut(out, v):
    return out[..., : v.shape[-1]] if v.shape[-1] % 8 else out


def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: typing.Sequence[int | None] = (-1, -1), softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
    **others: "typing.Unpack[Others]",
) -> typing.Any:  # fmt: skip
    """Computes attention of q [B, Q_LEN, H, D], k [B, KV_LEN, HKV, D] and v [B, KV_LEN, HKV, DV], with gradients.

    The last query stands at the last key. With `causal` it sees no later key; `window_size` is how many keys before and
    behind its place a query sees (-1 or None: all), and `attention_chunk` keeps it to the keys of its chunk. If `qv`
    [B, Q_LEN, H, DV] is given, its product with v is added to that of q and k. A score becomes softcap * tanh(score / softcap) if `softcap` is not 0; then `alibi_slopes` f32 [H] or [B, H], times the distance
    of the key, are subtracted. `learnable_sink` [H] is one more score of each row, without a value. `deterministic` asks for gradients that do not differ from run to run.

    q, k and v may be float8_e4m3fn, without gradients; their values are multiplied by `q_descale`, `k_descale` and
    `v_descale`, f32 [B, HKV], and the result is bfloat16.

    Returns out [B, Q_LEN, H, DV]; with `return_attn_probs`, (out, lse f32 [B, H, Q_LEN], None), since attnc writes no
    probabilities. A row that sees no key is 0, and its lse is -inf. `dropout_p` is that of attnc.torch.flex_attention;
    with q of float8_e4m3fn it is refused."""
    _check_rank(4, q=q, k=k, v=v)
    _check_slopes(alibi_slopes, q.shape[0], q.shape[2])
    left, right, chunk = _window(causal, window_size, others)
    q, k, v = _joined(q, k, v, others)
    q_len, kv_len = q.shape[1], k.shape[1]
    score_mod, mask_mod = mods_of(left, right, kv_len - q_len, chunk=chunk, softcap=softcap, slopes=alibi_slopes)
    mask = None if mask_mod is None else create_block_mask(mask_mod, None, None, q_len, kv_len, q.device)
    if q.dtype == _FP8:
        _refuse_dropout(dropout_p)
        sequences = Sequences(**_scales(others, q.shape[2], k.shape[2]))
        operands = (x.transpose(1, 2) for x in (q, k, v))
        mods = joined(score_mod, None, _sink_mod(others)), mask_mod
        out, lse = _attend_outside(*operands, mods, softmax_scale, sequences, return_attn_probs)
        return (out.transpose(1, 2), lse, None) if return_attn_probs else out.transpose(1, 2)
    scale, *operands = _padded(softmax_scale, *(x.transpose(1, 2) for x in (q, k, v)))
    options = {"deterministic": True} if deterministic else None
    found = flex_attention(
        *operands, score_mod, mask, scale, enable_gqa=True, return_lse=return_attn_probs, kernel_options=options,
        dropout_p=dropout_p, sink_mod=_sink_mod(others),
    )  # fmt: skip
    out, lse = found if return_attn_probs else (found, None)
    out = _cut(out.transpose(1, 2), v)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *arguments: typing.Any, **others: typing.Any) -> typing.Any:
    """Computes flash_attn_func() of qkv [B, L, 3, H, D], with its arguments from `dropout_p` on."""
    return flash_attn_func(*qkv.unbind(2), *arguments, **others)


def flash_attn_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, *arguments: typing.Any, **others: typing.Any
) -> typing.Any:
    """Computes flash_attn_func() of q and kv [B, KV_LEN, 2, HKV, D], with its arguments from `dropout_p` on."""
    return flash_attn_func(q, *kv.unbind(2), *arguments, **others)


def _attend(q, k, v, mods, scale, sequences, wants_lse, deterministic=False):
    """Returns (out, lse or None) of operands [B, H, L, D] by a launch with `sequences`."""
    if q.dtype != _FP8:
        check_dtype("q", q)
    given, (scale, q, k, v) = v, _padded(scale, q, k, v)
    is_traced_here = torch.compiler.is_dynamo_compiling()
    if is_traced_here or is_recorded(q, k, v):
        if is_traced_here:  # our own score_mods, which may be joined with dropout
            out, lse, _ = attend_in_graph(q, k, v, *mods, scale, sequences, mods=None)
        else:
            out, lse, _ = attend_recorded(q, k, v, *mods, scale, sequences)
        return _cut(out, given), lse
    batch = q.shape[0] if sequences.cu_seqlens_q is None else sequences.cu_seqlens_q.shape[0] - 1
    problem = batch, q.shape[1], k.shape[1], q.shape[2], k.shape[2]
    text, captures, numbers = translate(*mods, device=q.device, problem=problem).given()
    gradients, is_asked = (None, False) if q.dtype == _FP8 else wanted_by(q, k, v, captures)
    launch = Launch(numbers, scale, None, sequences, None, text, None, gradients, is_asked or deterministic)
    out, lse, _ = attend(launch, q, k, v, captures, wants_lse)
    return _cut(out, given), lse


def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: typing.Sequence[int | None] = (-1, -1), softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None, *, seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None, **others: "typing.Unpack[Others]",
) -> typing.Any:  # fmt: skip
    """Computes flash_attn_func() of each sequence of a ragged batch: q [Q_ROWS, H, D], k [KV_ROWS, HKV, D] and v.

    Sequence i has the rows cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1 of q, and those of `cu_seqlens_k` of k and v: i32
    [B + 1]. None is longer than `max_seqlen_q` and `max_seqlen_k`. Of these rows only the first `seqused_q` and
    `seqused_k`, i32 [B], are used, if given; out and lse of others are 0 and -inf. With `block_table` i32 [B, N], k and v
    are pools of pages [PAGES, PAGE_SIZE, HKV, D], `cu_seqlens_k` only gives lengths, and there are no gradients.

    Returns out [Q_ROWS, H, DV]; with `return_attn_probs`, (out, lse f32 [H, Q_ROWS], None)."""
    q, k, v = autocast(q, k, v)
    _check_rank(3, q=q, **({} if block_table is not None else {"k": k, "v": v}))
    cu_q, cu_k, is_one = cu_seqlens_q.int(), cu_seqlens_k.int(), cu_seqlens_k is cu_seqlens_q
    _check_slopes(alibi_slopes, cu_q.shape[0] - 1, q.shape[1])
    left, right, chunk = _window(causal, window_size, others)
    q, k, v = _joined(q, k, v, others)
    longest = min(int(max_seqlen_q), q.shape[0]), min(int(max_seqlen_k), k.shape[0])
    scales = _scales(others, q.shape[-2], k.shape[-2])
    sequences = Sequences(cu_seqlens_q=cu_q, max_q_len=longest[0], max_kv_len=longest[1], **scales)
    if block_table is None:
        sequences = sequences if is_one else sequences._replace(cu_seqlens_kv=cu_k)
        k, v = k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    else:
        table, k, v = _pages(block_table, k, v)
        sequences = sequences._replace(kv_lengths=cu_k.diff(), page_table=table, max_kv_len=0)
    offset, end_q = 0, None  # the last of the queries that are used stands at the last of such keys
    if seqused_q is not None:
        offset, end_q = cu_q.diff() - seqused_q, seqused_q + cu_k.diff() - cu_q.diff()
    if seqused_k is not None:
        offset = offset + seqused_k - cu_k.diff()
    mods = mods_of(
        left, right, offset, chunk=chunk, softcap=softcap, slopes=alibi_slopes, end_q=end_q, end_k=seqused_k
    )  # fmt: skip
    if q.dtype == _FP8:
        _refuse_dropout(dropout_p)
    mods = with_prob(mods[0], None, dropout_p, seed_like, q, _sink_mod(others)), mods[1]
    stays = is_traced and is_one and block_table is None and not deterministic and q.dtype != _FP8  # in a graph
    attend_here = _attend if stays or not torch.compiler.is_dynamo_compiling() else _attend_outside
    q = q.transpose(0, 1)[None]
    out, lse = attend_here(q, k, v, mods, softmax_scale, sequences, return_attn_probs, deterministic)
    out = out[0].transpose(0, 1)
    return (out, lse[0], None) if return_attn_probs else out


_attend_outside = torch._disable_dynamo(_attend)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, *arguments: typing.Any, **others: typing.Any
) -> typing.Any:
    """Computes flash_attn_varlen_func() of qkv [ROWS, 3, H, D], with its arguments from `dropout_p` on."""
    return flash_attn_varlen_func(
        *qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **others
    )


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, *arguments: typing.Any, **others: typing.Any
) -> typing.Any:
    """Computes flash_attn_varlen_func() of q and kv [KV_ROWS, 2, HKV, D], with its arguments from `cu_seqlens_q` on."""
    return flash_attn_varlen_func(q, *kv.unbind(1), *arguments, **others)


_MOST_ROWS = 256  # of a page


def _pages(table, *caches):
    """Returns (table, pools [PAGES, HKV, PAGE_SIZE, D]...) for caches of pages [PAGES, PAGE_SIZE, HKV, D] of any size:
    kernels take powers of two, of which these are parts."""
    size = caches[0].shape[1]
    part = min(size & -size, _MOST_ROWS)
    if part < size:
        parts = torch.arange(size // part, dtype=torch.int32, device=table.device)
        table = (table.int()[..., None] * (size // part) + parts).flatten(1)
        caches = [cache.unflatten(1, (-1, part)).flatten(0, 1) for cache in caches]
    return table.int(), *(cache.transpose(1, 2) for cache in caches)


def _places(starts, rows, cu):
    """Returns the sequence and the position of each of `rows`, [B, L] or, if `cu` are given, [ROWS]. Sequences begin at
    positions `starts` [B]."""
    row = torch.arange(rows.shape[1] if cu is None else rows.shape[0], device=rows.device)
    if cu is None:
        return torch.arange(len(rows), device=rows.device)[:, None], starts[:, None] + row
    sequence = torch.bucketize(row, cu[1:], right=True)
    return sequence, starts[sequence] + row - cu[sequence]


def _rotated(x, cos, sin, places, interleaved):
    """Returns x [..., H, D] with its first columns rotated by angles of `places` [...]."""
    cos, sin = cos[places].unsqueeze(-2).float(), sin[places].unsqueeze(-2).float()
    turned, rest = x.split([2 * cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]], -1)
    a, b = turned.float().unflatten(-1, (-1, 2)).unbind(-1) if interleaved else turned.float().chunk(2, -1)
    pair = a * cos - b * sin, a * sin + b * cos
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat((turned.to(x.dtype), rest), -1)


@torch._disable_dynamo
@torch.no_grad()
def flash_attn_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor | None = None,
    v: torch.Tensor | None = None, rotary_cos: torch.Tensor | None = None, rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None, cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None, block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: typing.Sequence[int | None] = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: torch.Tensor | None = None, num_splits: int = 0,
    return_softmax_lse: bool = False, *, page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None, cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None, rotary_seqlens: torch.Tensor | None = None, **others: "typing.Unpack[Others]",
) -> typing.Any:  # fmt: skip
    """Computes attention of q over a cache, without gradients. First writes k and v, if given, behind its rows.

    k_cache [B_CACHE, KV_LEN, HKV, D] and v_cache have `cache_seqlens` rows in use, i32 [B] or a number (default: all).
    Sequence i has row cache_batch_idx[i] of them. With `block_table` i32 [B, N], which FlashAttention-3 calls `page_table`,
    they are pools of pages [PAGES, PAGE_SIZE, HKV, D]. Keys before `cache_leftpad` i32 [B] are not seen. q is
    [B, Q_LEN, H, D], or [ROWS, H, D] of a ragged batch by `cu_seqlens_q`; k and v are like it, by `cu_seqlens_k_new`.

    By `rotary_cos` and `rotary_sin` [POSITIONS, ROTARY_DIM / 2], q and k are rotated as of positions from `cache_seqlens`
    (or `rotary_seqlens`) on; all of q as of the first of them if no window is given. Other arguments: flash_attn_func().

    Returns out like q; with `return_softmax_lse`, (out, lse f32 [B, H, Q_LEN], or [H, ROWS])."""
    del num_splits
    left, right, chunk = _window(causal, window_size, others)
    if others.get("qv") is not None:
        raise NotImplementedError("qv of a cache is given: keep rows of v and k in one cache, torch.cat((v, k), -1), as k_cache")
    if (k is None) != (v is None) or (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("one of k and v, or of rotary_cos and rotary_sin, is None: give both, or neither")
    table, is_ragged = block_table if page_table is None else page_table, cu_seqlens_q is not None
    _check_rank(3 if is_ragged else 4, q=q)
    batch = len(cu_seqlens_q) - 1 if is_ragged else len(q)
    _check_slopes(alibi_slopes, batch, q.shape[-2])
    if cache_batch_idx is not None:
        table = cache_batch_idx[:, None] if table is None else table[cache_batch_idx.long()]
    elif table is None and is_ragged:
        table = torch.arange(batch, device=q.device)[:, None]
    lengths = k_cache.shape[1] * (1 if table is None else table.shape[1]) if cache_seqlens is None else cache_seqlens
    lengths = lengths.int() if isinstance(lengths, torch.Tensor) else torch.full((batch,), lengths, device=q.device).int()
    if rotary_cos is not None:
        starts = lengths if rotary_seqlens is None else rotary_seqlens
        rotate = functools.partial(_rotated, cos=rotary_cos, sin=rotary_sin, interleaved=rotary_interleaved)
        sequence, place = _places(starts, q, cu_seqlens_q)
        q = rotate(q, places=place if max(left, right) >= 0 else starts[sequence])
        k = k if k is None else rotate(k, places=_places(starts, k, cu_seqlens_k_new)[1])
    sequences = Sequences(**_scales(others, q.shape[-2], k_cache.shape[-2]))
    if k is not None:
        is_like_q = cu_seqlens_k_new is None and not is_ragged and k.shape[1] == q.shape[1]
        is_view = table is None or k_cache.is_contiguous() and v_cache.is_contiguous()  # what the kernel is given
        if is_like_q and is_view and q.dtype != _FP8 and not (k.shape[-1] | v.shape[-1]) % 8:
            sequences = sequences._replace(new_k=k.transpose(1, 2), new_v=v.transpose(1, 2))  # which the kernel writes
        else:
            sequence, place = _places(lengths, k, cu_seqlens_k_new)
            if table is not None:
                sequence, place = table[sequence, place // k_cache.shape[1]], place % k_cache.shape[1]
            for cache, rows in ((k_cache, k), (v_cache, v)):
                as_bytes = torch.uint8 if cache.dtype == _FP8 else cache.dtype
                cache.view(as_bytes)[sequence, place] = rows.view(as_bytes)
        lengths = lengths + (k.shape[1] if cu_seqlens_k_new is None else cu_seqlens_k_new.diff())
    if table is not None:
        table, k_cache, v_cache = _pages(table, k_cache, v_cache)
    else:
        k_cache, v_cache = k_cache[:batch].transpose(1, 2), v_cache[:batch].transpose(1, 2)
    sequences = sequences._replace(kv_lengths=lengths, page_table=table)
    if is_ragged:
        longest = min(int(max_seqlen_q or 0), q.shape[0])
        sequences = sequences._replace(cu_seqlens_q=cu_seqlens_q.int(), max_q_len=longest)
    score_mod, mask_mod = mods_of(left, right, chunk=chunk, softcap=softcap, slopes=alibi_slopes, first=cache_leftpad)
    mods = joined(score_mod, None, _sink_mod(others)), mask_mod
    q = q.transpose(0, 1)[None] if is_ragged else q.transpose(1, 2)
    out, lse = _attend(q, k_cache, v_cache, mods, softmax_scale, sequences, return_softmax_lse)
    out = out[0].transpose(0, 1) if is_ragged else out.transpose(1, 2)
    return (out, lse[0] if is_ragged else lse) if return_softmax_lse else out
