"""Names that CPython needs an import for: dtypes, extents, and attnc's functions."""
from __future__ import annotations
import attnc
from attnc import H, KV_LEN, Q_LEN as ROWS, and_masks, bool, f32, i32, noop_mask, tanh_approx

slopes: f32[H]
bias: attnc.f32[attnc.H, KV_LEN]
lives: bool[KV_LEN]
starts: i32[ROWS]


def score_mod(score, b, h, q_idx, kv_idx):
    return tanh_approx(score) + slopes[h] * (KV_LEN - ROWS) + bias[h, kv_idx] * bool(H > 1)


def alive(b, h, q_idx, kv_idx):
    return lives[kv_idx] & (starts[q_idx] < attnc.KV_LEN)


mask_mod = and_masks(alive, noop_mask)
