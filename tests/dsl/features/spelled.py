"""Operators spelled as functions of torch."""
import torch


def score_mod(score, b, h, q_idx, kv_idx):
    x = torch.add(score, 2, alpha=3) if False else torch.add(score, 2)
    x = torch.sub(x, 0.5).mul(1.5).div(2) + torch.div(q_idx - kv_idx, 3, rounding_mode="floor")
    x = x + torch.div(q_idx - kv_idx, 3, rounding_mode="trunc") + torch.div(score, 2, rounding_mode="trunc")
    x = x + torch.true_divide(h, 2) + torch.floor_divide(kv_idx, 4) + torch.neg(score) + score.pow(2) + torch.abs(score)
    x = x + torch.fmod(q_idx - kv_idx, 5) + torch.remainder(q_idx - kv_idx, 5) + (q_idx - kv_idx).sign()
    x = x + torch.bitwise_and(q_idx, 6) + torch.bitwise_or(q_idx, 1) + torch.bitwise_xor(q_idx, kv_idx) + torch.bitwise_not(h)
    return x + torch.bitwise_left_shift(h, 2) + torch.bitwise_right_shift(kv_idx, 1) + torch.max(score, x) + torch.min(x, score)


def mask_mod(b, h, q_idx, kv_idx):
    m = torch.logical_and(torch.ge(q_idx, kv_idx), torch.logical_not(kv_idx.eq(3)))
    m = torch.logical_or(m, torch.logical_xor(q_idx.lt(5), kv_idx.gt(9)))
    return m & (q_idx.ne(7) | torch.le(kv_idx, 30)) * (h.long() >= 0)
