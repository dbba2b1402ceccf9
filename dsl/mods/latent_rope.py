"""The decoupled rope term of latent attention: scores gain `scale * (query_rope @ key_rope)`. All heads share its keys
(DeepSeek-V2, https://arxiv.org/abs/2405.04434, equations 14 to 18). Give the kernel this scale: 1 / sqrt(128 + 64)."""

from attnc import B, H, KV_LEN, Q_LEN, bf16

ROPE_DIM = 64
query_rope: bf16[B, H, Q_LEN, ROPE_DIM]  # rotated
key_rope: bf16[B, KV_LEN, ROPE_DIM]
scale: float


def score_mod(score, b, h, q_idx, kv_idx):
    return score + scale * (query_rope[b, h, q_idx] @ key_rope[b, kv_idx])


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
