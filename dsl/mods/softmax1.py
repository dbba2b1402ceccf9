"""Softmax plus one: the denominator has one more term, 1 (Miller 2023, "Attention Is Off By One",
https://www.evanmiller.org/attention-is-off-by-one.html). So a row of low scores attends to nothing.

exp(score) / (1 + sum of exp(score))
"""

CAUSAL = True


def sink_mod(b, h, q_idx):
    return 0.0


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx if CAUSAL else True
