"""Several continuations of one prompt, packed behind it: each sees the prompt and itself, causally (Hydragen, Juravsky
et al. 2024, https://arxiv.org/abs/2402.05099).

kv <= q and (branch[kv] == 0 or branch[q] == branch[kv]). Branch 0 is the prompt.
"""

from attnc import KV_LEN, i32

branch: i32[KV_LEN]


def mask_mod(b, h, q_idx, kv_idx):
    visible = (branch[kv_idx] == 0) | (branch[q_idx] == branch[kv_idx])
    return (q_idx >= kv_idx) & visible
