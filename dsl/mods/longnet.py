"""LongNet's dilated attention: within a segment each head sees every `DILATION`-th token, and heads take turns (Ding et
al. 2023, https://arxiv.org/abs/2307.02486, §3.2). This is one pair of segment length and dilation; a model mixes
several.

q // SEGMENT == kv // SEGMENT and q % DILATION == kv % DILATION == h % DILATION
"""

SEGMENT = 2048
DILATION = 4
CAUSAL = True


def mask_mod(b, h, q_idx, kv_idx):
    turn = h % DILATION
    mine = (q_idx % DILATION == turn) & (kv_idx % DILATION == turn)
    live = mine & (q_idx // SEGMENT == kv_idx // SEGMENT)
    return live & (q_idx >= kv_idx) if CAUSAL else live
