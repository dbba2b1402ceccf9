"""Graphormer's spatial encoding: a learned bias by head and by the distance of two nodes of a graph (Ying et al. 2021,
https://arxiv.org/abs/2106.05234, equation 6). Nodes that no path joins do not see each other.

score + bias[h, hops[b, q, kv]]. `hops` is -1 if there is no path.
"""

import torch
from attnc import B, H, KV_LEN, Q_LEN, f32, i32

MAX_HOPS = 20
hops: i32[B, Q_LEN, KV_LEN]
bias: f32[H, MAX_HOPS + 1]


def score_mod(score, b, h, q_idx, kv_idx):
    return score + bias[h, torch.clamp(hops[b, q_idx, kv_idx], 0, MAX_HOPS)]


def mask_mod(b, h, q_idx, kv_idx):
    return hops[b, q_idx, kv_idx] >= 0
