"""ALiBi: a penalty linear in the distance, with one slope a head (Press et al. 2022, https://arxiv.org/abs/2108.12409)."""

from attnc import H, f32

slopes: f32[H]  # usually 2 ** (-8 * (h + 1) / H)
CAUSAL = True


def score_mod(score, b, h, q_idx, kv_idx):
    return score + slopes[h] * (kv_idx - q_idx)


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx if CAUSAL else True
