"""Selected blocks: each block of queries causally sees the `TOP_K` blocks it chose (Native Sparse Attention, Yuan et
al. 2025, https://arxiv.org/abs/2502.11089, §3.3; MoBA, https://arxiv.org/abs/2502.13189).

kv <= q and kv // BLOCK in chosen[b, h, q // BLOCK]
"""

from __future__ import annotations  # Q_BLOCKS is a free name

BLOCK = 64
TOP_K = 8
chosen: i32[B, H, Q_BLOCKS, TOP_K]


def mask_mod(b, h, q_idx, kv_idx):
    mine = chosen[b, h, q_idx // BLOCK]
    return (q_idx >= kv_idx) & any(mine[i] == kv_idx // BLOCK for i in range(TOP_K))
