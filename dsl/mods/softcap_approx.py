"""Soft-capped scores with the GPU's own tanh: relative error up to about 2e-4, one instruction (PTX tanh.approx.f32).

The formula is that of softcap.py. `tanh_approx` is a function of attnc, not of torch.
"""

from attnc import tanh_approx

cap: float
CAUSAL = True


def score_mod(score, b, h, q_idx, kv_idx):
    return cap * tanh_approx(score / cap)


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx if CAUSAL else True
