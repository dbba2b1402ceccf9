"""The strided pattern of Sparse Transformers: the last `STRIDE` keys, and every `STRIDE`-th key before them (Child et
al. 2019, https://arxiv.org/abs/1904.10509, §4.2).

kv <= q and (q - kv < STRIDE or (q - kv) % STRIDE == 0)
"""

STRIDE = 128


def mask_mod(b, h, q_idx, kv_idx):
    distance = q_idx - kv_idx
    return (distance >= 0) & ((distance < STRIDE) | (distance % STRIDE == 0))
