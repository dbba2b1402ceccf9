"""Dilated sliding window: a causal window with gaps, which reaches further at the same cost (Longformer, Beltagy et
al. 2020, https://arxiv.org/abs/2004.05150, §3.1).

0 <= q - kv <= window * DILATION and (q - kv) % DILATION == 0
"""

window: int  # keys besides the query itself
DILATION = 4


def mask_mod(b, h, q_idx, kv_idx):
    distance = q_idx - kv_idx
    near = (distance >= 0) & (distance <= window * DILATION)
    return near & (distance % DILATION == 0)
