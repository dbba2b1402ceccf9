"""Causal attention to the last `window + 1` keys (Mistral 7B, https://arxiv.org/abs/2310.06825)."""

window: int


def mask_mod(b, h, q_idx, kv_idx):
    causal = q_idx >= kv_idx
    near = q_idx - kv_idx <= window
    return causal & near
