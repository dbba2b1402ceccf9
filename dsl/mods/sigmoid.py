"""Sigmoid attention: each weight is the sigmoid of its score, without a sum over the row (Ramapuram et al. 2024,
https://arxiv.org/abs/2409.04431). The logarithm of the number of keys keeps the first outputs small.

sigmoid(score - log(KV_LEN))
"""

import math

import torch
from attnc import KV_LEN

CAUSAL = True


def weight_mod(score, b, h, q_idx, kv_idx):
    return torch.sigmoid(score - math.log(KV_LEN))


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx if CAUSAL else True
