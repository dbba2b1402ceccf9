"""T5's relative position bias: a learned table by head and bucket of distance (https://arxiv.org/abs/1910.10683, §2.1).
Each small distance has its own bucket. Larger distances share buckets that grow with the logarithm. All distances
beyond `MAX_DISTANCE` share the last one.

score + bias[h, bucket(kv - q)]
"""

import math
import torch
from attnc import H, f32

NUM_BUCKETS = 32
MAX_DISTANCE = 128
BIDIRECTIONAL = True  # False: a decoder's, of which keys ahead of the query have distance 0
bias: f32[H, NUM_BUCKETS]


def bucket_of(distance):
    buckets, first = NUM_BUCKETS, 0
    if BIDIRECTIONAL:
        buckets = NUM_BUCKETS // 2
        first = torch.where(distance > 0, buckets, 0)
        distance = torch.abs(distance)
    else:
        distance = -torch.clamp(distance, max=0)
    exact = buckets // 2
    growth = torch.log(torch.clamp(distance, min=1) / exact) / math.log(MAX_DISTANCE / exact)
    far = torch.clamp(exact + (growth * (buckets - exact)).to(torch.int32), max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)


def score_mod(score, b, h, q_idx, kv_idx):
    return score + bias[h, bucket_of(kv_idx - q_idx)]
