"""Causal attention: a query sees the keys up to its own position (Vaswani et al. 2017, §3.2.3)."""


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
