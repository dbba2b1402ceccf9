"""Relative position bias: a learned table by head and distance, clipped to `MAX_DISTANCE` on both sides.

After Shaw et al. 2018 (https://arxiv.org/abs/1803.02155) with the scalar bias of T5 (https://arxiv.org/abs/1910.10683).
"""

import torch
from attnc import H, f32

MAX_DISTANCE = 128
bias: f32[H, 2 * MAX_DISTANCE + 1]


def score_mod(score, b, h, q_idx, kv_idx):
    distance = torch.clamp(kv_idx - q_idx, min=-MAX_DISTANCE, max=MAX_DISTANCE)
    return score + bias[h, distance + MAX_DISTANCE]
