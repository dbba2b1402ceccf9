"""Tree attention: a token of a draft tree sees its ancestors (SpecInfer, Miao et al. 2023,
https://arxiv.org/abs/2305.09781, §4.2; Medusa, https://arxiv.org/abs/2401.10774). Tokens lie in depth-first order, so a
subtree is a range.

kv <= q < subtree_end[kv]
"""

from attnc import KV_LEN, i32

subtree_end: i32[KV_LEN]  # behind the last descendant; of a prompt before the tree, KV_LEN


def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx <= q_idx) & (q_idx < subtree_end[kv_idx])
