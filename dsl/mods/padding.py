"""Padded batches: keys beyond the length of their sequence are not seen (Vaswani et al. 2017, §3.1; `attnc run` takes
lengths as `kv_lengths`, too, which costs no mask).

kv < lengths[b], and kv <= q if causal
"""

lengths: i32[B]
CAUSAL = False


def mask_mod(b, h, q_idx, kv_idx):
    inside = kv_idx < lengths[b]
    return inside & (q_idx >= kv_idx) if CAUSAL else inside
