"""Prefix LM with a prefix of its own for each sequence (T5, https://arxiv.org/abs/1910.10683, §3.2.1; UniLM,
https://arxiv.org/abs/1905.03197).

kv < prefix[b] or kv <= q
"""

from attnc import B, i32

prefix: i32[B]


def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx < prefix[b]) | (q_idx >= kv_idx)
