"""Scalable softmax: scores grow with the logarithm of the number of keys that a row sees. So attention does not fade
over long contexts (Nakanishi 2025, https://arxiv.org/abs/2501.19399, equation 3).

factor[h] * log(q + 1) * score, causal: row q sees q + 1 keys.
"""

import torch
from attnc import H, f32

factor: f32[H]  # learned


def score_mod(score, b, h, q_idx, kv_idx):
    return score * (factor[h] * torch.log((q_idx + 1).to(torch.float32)))


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
