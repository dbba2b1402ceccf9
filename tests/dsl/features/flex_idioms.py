"""Mods as FlexAttention programs have them: ALiBi from a factory, T5 buckets, documents around an inner mask."""
import math

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import _mask_mod_signature, _score_mod_signature, and_masks, flex_attention

document_id: i64[KV_LEN]
offsets: i32[N]
table: f32[32, H]
num_global: int


def generate_alibi(heads: int) -> _score_mod_signature:
    """The slopes are a power of two."""

    def alibi_mod(score, b, h, q_idx, kv_idx):
        scale = torch.exp2(-((h + 1) * 8.0 / heads))
        bias = (kv_idx - q_idx) * scale
        return score + bias

    return alibi_mod


def relative_position_bucket(relative_position: Tensor, num_buckets=32, max_distance=16):
    ret = 0
    n = -relative_position
    num_buckets //= 2
    ret += (n < 0).to(torch.long) * num_buckets
    n = torch.abs(n)
    max_exact = num_buckets // 2
    is_small = n < max_exact
    val_if_large = max_exact + (
        torch.log(n.float() / max_exact + 1e-3) / math.log(max_distance / max_exact) * (num_buckets - max_exact)
    ).to(torch.long)
    val_if_large = torch.min(val_if_large, torch.full_like(val_if_large, num_buckets - 1))
    ret += torch.where(is_small, n, torch.max(val_if_large, torch.zeros_like(val_if_large)))
    return ret


def generate_doc_mask_mod(mask_mod: _mask_mod_signature, document_id: Tensor, offsets: Tensor):
    def doc_mask_mod(b, h, q_idx, kv_idx):
        same_doc = document_id[q_idx] == document_id[kv_idx]
        q_logical = q_idx - offsets[document_id[q_idx]]
        kv_logical = kv_idx - offsets[document_id[kv_idx]]
        inner_mask = mask_mod(b, h, q_logical, kv_logical)
        return same_doc & inner_mask

    return doc_mask_mod


def dilated(window_size: int, dilation: int):
    def dilated_mask_mod(b, h, q_idx, kv_idx):
        diff = torch.abs(q_idx - kv_idx)
        in_window = diff <= window_size
        is_dilated = (diff % dilation) == 0
        return (in_window & is_dilated) | (kv_idx < num_global)

    dilated_mask_mod.__name__ = f"dilated_{window_size}_{dilation}"
    return dilated_mask_mod


alibi = generate_alibi(H)


def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    bias = table[relative_position_bucket(kv_idx - q_idx), h].to(score.dtype)
    capped = torch.where(q_idx + 30 >= kv_idx, score, torch.tensor(-1e4, dtype=score.dtype, device=score.device))
    return alibi(torch.where(q_idx == 0, 0.0, capped) + bias, b, h // (H // HKV), q_idx, kv_idx)


mask_mod = and_masks(*[dilated(12, 2), generate_doc_mask_mod(lambda b, h, q, kv: q >= kv - 3, document_id, offsets)])
