"""Any order: tokens are predicted in a random order, each sees the tokens before it there (XLNet, Yang et al. 2019,
https://arxiv.org/abs/1906.08237, §2.2).

rank[b, kv] <= rank[b, q]
"""

from attnc import B, KV_LEN, i32

rank: i32[B, KV_LEN]  # the place of each token in the order


def mask_mod(b, h, q_idx, kv_idx):
    return rank[b, kv_idx] <= rank[b, q_idx]
