"""where, clamp, minimum, literal arms, infinities, tests for them."""
import torch

NEG = -float("inf")


def score_mod(score, b, h, q_idx, kv_idx):
    s = torch.where(q_idx >= kv_idx, score, NEG)
    s = torch.where(torch.isinf(s), torch.where(h == 1, -5, 2.5), s)
    s = s + torch.where(kv_idx > 3, 1, 0) + torch.clamp(score, min=-1.0, max=2) + score.clamp(max=0.5) + score.clip(-3, 3)
    s = s + torch.minimum(score, s) + torch.maximum(s, torch.tensor(1.0)) + min(q_idx, kv_idx, 7) + max(h, 2)
    s = s + (score > 0).where(torch.isfinite(s), False) + score.masked_fill(kv_idx % 3 == 0, 0.0)
    s = s + torch.isnan(s).float() + torch.full_like(score, 3) + torch.zeros_like(q_idx) + torch.ones_like(score)
    return s + (score * torch.inf).isinf().int() + score.to(torch.int32) + score.to(q_idx.dtype).float()
