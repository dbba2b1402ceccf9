"""Dropout: each weight of the softmax is dropped with probability P (Vaswani et al. 2017, §5.4; Srivastava et al. 2014,
https://jmlr.org/papers/v15/srivastava14a.html). The weights left are divided by 1 - P.

prob / (1 - P) if random(seed, b, h, q, kv) >= P, else 0
"""
import torch
from attnc import i64, random

P = 0.1
seed: i64  # in memory, so that a CUDA graph that is replayed reads a new one


def prob_mod(prob, b, h, q_idx, kv_idx):
    return torch.where(random(seed, b, h, q_idx, kv_idx) < P, 0.0, prob / (1 - P))
