"""Streaming speech: a frame sees its whole chunk and `left` chunks before it. So latency is one chunk (WeNet, Zhang et
al. 2020, https://arxiv.org/abs/2012.05481, §2.2).

0 <= q // CHUNK - kv // CHUNK <= left
"""

CHUNK = 16
left: int


def mask_mod(b, h, q_idx, kv_idx):
    behind = q_idx // CHUNK - kv_idx // CHUNK
    return (behind >= 0) & (behind <= left)
