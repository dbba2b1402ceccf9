"""Soft-capped scores: cap * tanh(score / cap) (Gemma 2, https://arxiv.org/abs/2408.00118, §2)."""

import torch

cap: float
CAUSAL = True


def score_mod(score, b, h, q_idx, kv_idx):
    return cap * torch.tanh(score / cap)


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx if CAUSAL else True
