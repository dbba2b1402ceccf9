"""Forgetting attention: each key fades with the forget gates between it and the query (Lin et al. 2025,
https://arxiv.org/abs/2503.02130, equation 7).

score + log_forget[b, h, q] - log_forget[b, h, kv], with the running sum `log_forget` of `log(sigmoid(gate))`
along a sequence.
"""

from attnc import B, H, KV_LEN, f32

log_forget: f32[B, H, KV_LEN]


def score_mod(score, b, h, q_idx, kv_idx):
    return score + (log_forget[b, h, q_idx] - log_forget[b, h, kv_idx])


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
