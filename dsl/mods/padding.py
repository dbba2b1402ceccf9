"""Padded batches: keys beyond the length of their sequence are not seen (Vaswani et al. 2017, §3.1). The lengths may
also be given as `kv_lengths` of `attnc run`, which costs no mask.

kv < lengths[b], and kv <= q if causal
"""

from attnc import B, i32

lengths: i32[B]
CAUSAL = False


def mask_mod(b, h, q_idx, kv_idx):
    inside = kv_idx < lengths[b]
    return inside & (q_idx >= kv_idx) if CAUSAL else inside
