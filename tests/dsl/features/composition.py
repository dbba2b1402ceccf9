"""and_masks, or_masks, noop_mask, score and mask together, one score_mod calling another."""
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

window: int
prefix: int
cap: float
enabled: bool


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def local(b, h, q_idx, kv_idx):
    return q_idx - kv_idx <= window


def prefix_mask(b, h, q_idx, kv_idx):
    return kv_idx < prefix


def capped(score, b, h, q_idx, kv_idx):
    return score / cap


def score_mod(score, b, h, q_idx, kv_idx):
    return capped(score + 1, b, h, q_idx, kv_idx) * 2 + enabled + window / 3


mask_mod = or_masks(and_masks(causal, local, noop_mask), prefix_mask, lambda b, h, q, kv: ~enabled)
