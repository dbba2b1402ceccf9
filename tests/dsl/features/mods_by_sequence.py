"""A mod for each sequence. Drawn elements are 0 to 6, so some choices name no mod."""
import functools

from attnc import B, KV_LEN, choice, i32, u8

which: i32[B]
style: u8[B]
other: i32[B]
length: i32[B]


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def near(size, b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & (q_idx - kv_idx < size)


def prefix(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) | (kv_idx < length[b])


inner = choice(other, lambda score, *at: score, lambda score, b, h, q, k: h * 2)


score_mod = choice(
    style,
    lambda score, b, h, q_idx, kv_idx: score,
    lambda score, b, h, q_idx, kv_idx: score + 0.25 * (kv_idx - q_idx),
    lambda score, b, h, q_idx, kv_idx: inner(score * 2, b, h, q_idx, kv_idx),
    lambda score, b, h, q_idx, kv_idx: 7,
    lambda score, b, h, q_idx, kv_idx: score * h,
    lambda score, b, h, q_idx, kv_idx: score / 2,
    lambda score, b, h, q_idx, kv_idx: -score,
)
mask_mod = or_masks(
    choice(which, causal, prefix, functools.partial(near, 4), lambda b, h, q, k: True, and_masks(causal, prefix)),
    lambda b, h, q, k: q == k,
)
