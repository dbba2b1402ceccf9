"""attnc's kernels in place of the flash attention behind PyTorch's scaled_dot_product_attention and varlen_attn.

    import attnc.torch.flash
    attnc.torch.flash.register()
    torch.nn.attention.activate_flash_attention_impl("attnc")

PyTorch chooses flash attention as before. Then it calls these functions, which have the signatures of its operators.
"""

import functools
import operator

import torch

from ..launch import ALIGNED, Launch, Sequences
from .calls import call_of, rows_of, run_backward
from .flex import flex_attention, seed_like, with_prob
from .graphs import is_recorded
from .kernels import ANEW, like
from .masks import MASKS
from .translation import translate

__all__ = ["register"]


def mods_of(left=-1, right=-1, offset=0, *, chunk=0, softcap=0.0, slopes=None, first=None, end_q=None, end_k=None):
    """Returns the score_mod and the mask_mod of FlashAttention's arguments; None: it changes nothing.

    A query stands at the key q_idx + `offset`, which is a number, or i32 [B]. It sees keys from `left` before to `right`
    behind it (negative: all), of its chunk of `chunk` keys (0: all). `slopes` f32 [H] or [B, H] are those of ALiBi. i32
    [B]: the `first` key that is used, and the ends of queries and keys that are."""
    is_of_all, is_of_heads = not isinstance(offset, torch.Tensor), slopes is not None and slopes.dim() == 1

    def place(b, q_idx):
        return q_idx + (offset if is_of_all else offset[b])

    def score_mod(score, b, h, q_idx, kv_idx):
        if softcap:
            score = softcap * torch.tanh(score / softcap)
        if slopes is None:
            return score
        behind = kv_idx - place(b, q_idx)
        return score + (slopes[h] if is_of_heads else slopes[b, h]) * (behind if right == 0 else -behind.abs())

    def mask_mod(b, h, q_idx, kv_idx):
        at, live = place(b, q_idx), []
        if left >= 0:
            live.append(kv_idx >= at - left)
        if right >= 0:
            live.append(kv_idx <= at + right)
        if chunk:
            start = 0 if first is None else first[b]
            live.append((kv_idx - start) // chunk == (at - start) // chunk)
        if first is not None:
            live.append(kv_idx >= first[b])
        if end_q is not None:
            live.append(q_idx < end_q[b])
        if end_k is not None:
            live.append(kv_idx < end_k[b])
        return functools.reduce(operator.and_, live)

    masks = left >= 0 or right >= 0 or chunk or any(x is not None for x in (first, end_q, end_k))
    return score_mod if softcap or slopes is not None else None, mask_mod if masks else None


class _Problem:
    """Operands of a flash attention, [B, L, H, D] or, as a ragged batch, [ROWS, H, D], as those of attnc."""

    def __init__(
        self, q, k, v, cu_q, cu_k, max_q, max_k, dropout_p, is_causal, *, scale=None, window_size_left=None,
        window_size_right=None, rng_state=None,
    ):  # fmt: skip
        """`rng_state` is that of the forward pass, for its backward pass."""
        left = -1 if window_size_left is None else int(window_size_left)
        right = 0 if is_causal else -1 if window_size_right is None else int(window_size_right)
        self.is_ragged, sequences, batch, offset = cu_q is not None, ALIGNED, q.shape[0], k.shape[1] - q.shape[1]
        if self.is_ragged:
            cu_q, cu_k, max_q, max_k = cu_q.int(), cu_k.int(), int(max_q), int(max_k)
            sequences = Sequences(cu_seqlens_q=cu_q, cu_seqlens_kv=cu_k, max_q_len=max_q, max_kv_len=max_k)
            batch, offset = cu_q.shape[0] - 1, 0  # from lengths
        q, k, v = [rows_of(self.ours(x)) for x in (q, k, v)]
        scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        problem = batch, q.shape[1], k.shape[1], q.shape[2], k.shape[2]
        self.seed = None if not dropout_p else seed_like(q) if rng_state is None else rng_state.view(torch.int64)[0]
        score_mod, mask_mod = mods_of(left, right, offset)
        score_mod = with_prob(score_mod, None, dropout_p, lambda _: self.seed, q)
        text, captures, numbers = translate(score_mod, mask_mod, device=q.device, problem=problem).given()
        self.operands = q, k, v, captures
        self.launch = functools.partial(Launch, numbers, scale, ANEW, sequences, None, text)

    def ours(self, tensor):
        return tensor.transpose(0, 1)[None] if self.is_ragged else tensor.transpose(1, 2)

    def theirs(self, tensor):
        return tensor[0].transpose(0, 1) if self.is_ragged else tensor.transpose(1, 2)

    def forward(self, out=None):
        """Returns (out, lse, the seed or None) in the layout of PyTorch. `out` is written if it is given."""
        q, k, v, captures = self.operands
        mine = like(q, v.shape[-1]) if out is None else self.ours(out)
        lse = torch.empty(mine.shape[:3], dtype=torch.float32, device=mine.device)
        launch = self.launch(mine)
        call_of(launch, q, k, v, captures).forward(launch, q, k, v, captures.values(), mine, lse, None)
        return self.theirs(mine), lse[0] if self.is_ragged else lse, self.seed

    def backward(self, dout, out, lse):
        out, lse = rows_of(self.ours(out)), lse[None] if self.is_ragged else lse
        launch = self.launch(out, (), torch.are_deterministic_algorithms_enabled())
        call = call_of(launch, *self.operands)
        found, _ = run_backward(call, launch, *self.operands, out, lse.contiguous(), self.ours(dout), None)
        return tuple(map(self.theirs, found))


def _check(**given):
    for name, value in given.items():
        if value is not None:
            raise RuntimeError(f"attnc does not take {name} here: use attnc.torch.flex_attention, or another implementation")


def _states(query, seed):
    """Returns the state of random numbers, a seed or none, and what takes the place of an unused one and of the debug mask.
    """
    state, unused = (torch.zeros(shape, dtype=torch.int64, device=query.device) for shape in ((2,), ()))
    if seed is not None:
        state[0] = seed
    return state.view(torch.uint64), unused.view(torch.uint64), query.new_empty(0)


def _forward(out, *arguments, seqused_k=None, alibi_slopes=None, block_table=None, num_splits=None, **options):
    *operands, debug_mask = arguments
    _check(return_debug_mask=debug_mask or None, seqused_k=seqused_k, alibi_slopes=alibi_slopes, block_table=block_table)
    return _Problem(*operands, **options).forward(out)


def _flash_attention_forward(query, *arguments, **options):
    out, lse, seed = _forward(None, query, *arguments, **options)
    return out, lse, *_states(query, seed)


def _flash_attention_forward_no_dropout_inplace(out, *arguments, **options):
    return _forward(out, *arguments, **options)[1]


def _flash_attention_backward(grad_out, query, key, value, out, logsumexp, *arguments, **options):
    *operands, rng_state, _unused = arguments
    return _Problem(query, key, value, *operands, rng_state=rng_state, **options).backward(grad_out, out, logsumexp)


def _scaled_dot_product_flash_attention(
    query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):  # fmt: skip
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    out, lse, *states = _flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], dropout_p, is_causal, return_debug_mask, scale=scale
    )  # fmt: skip
    return out.transpose(1, 2), lse, None, None, query.shape[2], key.shape[2], *states


def _scaled_dot_product_flash_attention_backward(*arguments, scale=None):
    *tensors, logsumexp, _cum_seq_q, _cum_seq_k = arguments[:8]  # grad_out, query, key, value and out
    theirs = [x.transpose(1, 2) for x in tensors]
    found = _flash_attention_backward(*theirs, logsumexp, None, None, *arguments[8:], scale=scale)
    return tuple(x.transpose(1, 2) for x in found)


_sdpa = torch.ops.aten.scaled_dot_product_attention.default


def _scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
):  # fmt: skip
    """Computes with masks that are what a mask_mod says; PyTorch chooses what computes the others."""
    mask = None
    if attn_mask is not None and not is_causal and _takes(query, key, value, enable_gqa):
        mask = MASKS.of(attn_mask, query.shape[2], key.shape[2])
    if mask is None or not all(mine in (1, size) for mine, size in zip(mask.shape, query.shape[:2])):
        return _sdpa.decompose(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )  # fmt: skip
    return flex_attention(query, key, value, None, mask, scale, enable_gqa, dropout_p=dropout_p)


def _takes(query, key, value, enable_gqa):
    """Whether these are operands of a flash attention, which is not turned off."""
    batch, heads, _, width = query.shape if query.dim() == 4 else (0, 0, 0, 0)
    shape = batch, key.shape[1] if enable_gqa and key.dim() == 4 else heads, key.shape[-2]
    return (
        0 < width <= 256 and key.shape == (*shape, width) and value.shape[:-1] == shape and heads % max(1, shape[1]) == 0
        and value.shape[-1] <= 256 and query.dtype == key.dtype == value.dtype
        and query.dtype in (torch.bfloat16, torch.float16) and torch.backends.cuda.flash_sdp_enabled()
        and not is_recorded(query, key, value)
    )  # fmt: skip


class _Active:
    """The functions as PyTorch's operators, until remove()."""

    def __init__(self, key="CUDA"):
        self.library = torch.library.Library("aten", "IMPL")
        for where in (key, f"Autograd{key}"):  # before masks become floats
            self.library.impl("scaled_dot_product_attention", _scaled_dot_product_attention, where)
        for function in (
            _flash_attention_forward, _flash_attention_forward_no_dropout_inplace, _flash_attention_backward,
            _scaled_dot_product_flash_attention, _scaled_dot_product_flash_attention_backward,
        ):  # fmt: skip
            if hasattr(torch.ops.aten, function.__name__):
                self.library.impl(function.__name__, function, key)

    def remove(self):
        self.library = None


def register() -> None:
    """Registers attnc as an implementation of flash attention: `activate_flash_attention_impl("attnc")` of
    torch.nn.attention takes it, for this process, and `restore_flash_attention_impl()` goes back. It serves bfloat16 and
    float16 without key lengths in use, ALiBi slopes, and pages; for these it raises RuntimeError. It also serves
    `attn_mask` of scaled_dot_product_attention, if that is what a mask_mod says; see attnc.torch.infer_masks.

    Raises NotImplementedError if this PyTorch has no registry, which came with 2.11."""
    found = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if found is None:
        raise NotImplementedError(
            f"PyTorch {torch.__version__} has no torch.nn.attention.register_flash_attention_impl, which 2.11 has: "
            "install a later one, or use attnc.torch.flex_attention"
        )
    found("attnc", register_fn=_Active)
