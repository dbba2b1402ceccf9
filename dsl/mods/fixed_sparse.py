"""The fixed pattern of Sparse Transformers: a query sees its own stretch of `STRIDE` keys. It also sees the last
`SUMMARY` keys of each earlier stretch (Child et al. 2019, https://arxiv.org/abs/1904.10509, §4.2).

kv <= q and (q // STRIDE == kv // STRIDE or kv % STRIDE >= STRIDE - SUMMARY)
"""

STRIDE = 128
SUMMARY = 8


def mask_mod(b, h, q_idx, kv_idx):
    same = q_idx // STRIDE == kv_idx // STRIDE
    summary = kv_idx % STRIDE >= STRIDE - SUMMARY
    return (q_idx >= kv_idx) & (same | summary)
