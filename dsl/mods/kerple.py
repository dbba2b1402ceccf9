"""KERPLE's logarithmic kernel: the penalty grows with the logarithm of the distance. It has two learned positive
numbers per head (Chi et al. 2022, https://arxiv.org/abs/2205.09921, equation 4).

score - scale[h] * log(1 + rate[h] * |q - kv|)
"""

import torch
from attnc import H, f32

scale: f32[H]
rate: f32[H]


def score_mod(score, b, h, q_idx, kv_idx):
    distance = torch.abs(q_idx - kv_idx)
    return score - scale[h] * torch.log1p(torch.abs(rate[h]) * distance)


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
