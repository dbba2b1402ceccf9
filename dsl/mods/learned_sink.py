"""Learned sinks: a logit of each head is one more term of the softmax's denominator, without a value (gpt-oss, OpenAI
2025, https://arxiv.org/abs/2508.10925, §2.2). So a head may attend to nothing.

exp(score) / (exp(sink[h]) + sum of exp(score))
"""

from attnc import H, f32

sink: f32[H]
CAUSAL = True


def sink_mod(b, h, q_idx):
    return sink[h]


def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx if CAUSAL else True
