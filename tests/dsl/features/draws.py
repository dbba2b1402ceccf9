"""Random numbers by position. A mask of single bits sees each of the 24."""
import attnc
from attnc import random

seed: int
seeds: i64[B]


def bit(x, place):
    return (x * 2.0**place).int() % 2 == 1


def score_mod(score, b, h, q_idx, kv_idx):
    return score + random(seed, b, h, q_idx, kv_idx) * attnc.random(-5, 0, h, q_idx // 2, 1 << 20)


def mask_mod(b, h, q_idx, kv_idx):
    x, y = random(seed, b, h, q_idx, kv_idx), random(seeds[b] * 77777777777, b, h, q_idx - kv_idx, kv_idx * 1000003)
    return bit(x, 1) ^ bit(x, 8) ^ bit(x, 16) ^ bit(x, 24) ^ bit(y, 7) ^ bit(y, 9) ^ bit(y, 17)
