"""DropKey: each score drops a random share of the keys before the softmax, as a regulariser of training (Li et al., CVPR
2023, https://arxiv.org/abs/2208.02646, §3.2). The softmax of those left still sums to 1.

score if random(seed, b, h, q, kv) >= RATE, else -inf
"""
from attnc import random

RATE = 0.125
seed: int


def mask_mod(b, h, q_idx, kv_idx):
    return random(seed, b, h, q_idx, kv_idx) >= RATE
