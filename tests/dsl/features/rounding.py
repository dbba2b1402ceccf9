"""Steps that land on one side in single precision and on another in double: f32 is what a mod means."""
import math
import torch

MAX_EXACT = 8
NUM_BUCKETS = 32
STRIDE = 0.1
scale: float


def bucket(distance):
    steps = torch.log(distance / MAX_EXACT) / math.log(128 / MAX_EXACT) * (NUM_BUCKETS // 2 - MAX_EXACT)
    return torch.where(distance < MAX_EXACT, distance, MAX_EXACT + steps.to(torch.long))


def score_mod(score, b, h, q_idx, kv_idx):
    near = bucket(torch.abs(q_idx * 3 - kv_idx * 2) + 1)
    step = torch.round(q_idx * STRIDE) + torch.floor(kv_idx * 0.7 / 0.7) + (kv_idx * 0.1 == 0.3) + kv_idx * 0.3 // 0.1
    return score + near + step + (q_idx * scale / 0.3).int() + (score.detach() * 0 + 0.1 == 0.1)


def mask_mod(b, h, q_idx, kv_idx):
    return (torch.round(q_idx * STRIDE) >= torch.floor(kv_idx * 0.7 / 0.7) * 0.1) | (kv_idx * 0.1 == q_idx * 0.1)
