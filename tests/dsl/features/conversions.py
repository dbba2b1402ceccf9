"""Bools as numbers, numbers as bools, casts, mixed types."""
import torch


def score_mod(score, b, h, q_idx, kv_idx):
    flag = q_idx >= kv_idx
    x = flag + 1 + flag * 2 + (1 - flag) + flag * score + (flag & (h > 1)) * 0.5 + -flag + flag / 2
    x = x + flag.int() + flag.to(torch.float32) + score.int() + score.long() + h.float() / 3 + bool(h) + int(score) + float(h)
    x = x + (flag & 1) + (3 - flag) % 2 + (flag | 2) + (True + 2) + (not flag) + flag.float().exp()
    return x + score.type(torch.int64) % 3 + kv_idx.type_as(score) * 0.25 + torch.tensor(3, dtype=torch.float32) + (flag == (h > 1))


def mask_mod(b, h, q_idx, kv_idx):
    return bool(q_idx % 2) | (kv_idx % 3).bool() & (not (h - 1)) | ((q_idx > 3) == True)
