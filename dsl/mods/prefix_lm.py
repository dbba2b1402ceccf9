"""Prefix LM: all see the first `prefix` keys, the rest is causal (T5, https://arxiv.org/abs/1910.10683, §3.2.1)."""

prefix: int


def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx < prefix) | (q_idx >= kv_idx)
