"""Packed documents that each begin with a prefix: the whole document sees its prefix, and the rest is causal
(PaliGemma, https://arxiv.org/abs/2407.07726, §3.1, packed).

document[q] == document[kv] and (in_prefix[kv] or kv <= q)
"""

from attnc import KV_LEN, bool, i32

document: i32[KV_LEN]
in_prefix: bool[KV_LEN]


def mask_mod(b, h, q_idx, kv_idx):
    same = document[q_idx] == document[kv_idx]
    return same & (in_prefix[kv_idx] | (q_idx >= kv_idx))
