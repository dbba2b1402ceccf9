"""The largest logit of each head, by which QK-clip rescales the weights of q and k (Kimi K2, Moonshot AI 2025,
https://arxiv.org/abs/2507.20534, §2.1, algorithm 1).

max over q and kv of score, an output
"""

from attnc import B, H, f32, reduce_max


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def logit(prob, score, b, h, q_idx, kv_idx):
    return score


max_logit: f32[B, H] = reduce_max(logit)
