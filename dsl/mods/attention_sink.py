"""Attention sinks: the first tokens stay visible in addition to a causal window, for endless generation (StreamingLLM,
Xiao et al. 2023, https://arxiv.org/abs/2309.17453, §3.2).

kv <= q and (q - kv <= window or kv < sinks)
"""

sinks: int  # usually 4
window: int


def mask_mod(b, h, q_idx, kv_idx):
    near = q_idx - kv_idx <= window
    return (q_idx >= kv_idx) & (near | (kv_idx < sinks))
