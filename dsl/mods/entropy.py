"""The entropy of each query's weights: low where attention collapses to few keys (Zhai et al. 2023,
https://arxiv.org/abs/2303.06296, §3).

-sum over kv of p log p, an output
"""

import torch

from attnc import B, H, Q_LEN, f32, reduce_sum


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def surprise(prob, score, b, h, q_idx, kv_idx):
    return torch.where(prob > 0, -prob * torch.log(prob), 0.0)


entropy: f32[B, H, Q_LEN] = reduce_sum(surprise)
