"""A learned bias for every head and pair of positions (AlphaFold's pair bias, https://doi.org/10.1038/s41586-021-03819-2)."""

from attnc import H, KV_LEN, Q_LEN, f32

bias: f32[H, Q_LEN, KV_LEN]


def score_mod(score, b, h, q_idx, kv_idx):
    return score + bias[h, q_idx, kv_idx]
