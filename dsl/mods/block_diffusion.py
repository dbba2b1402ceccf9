"""Training of block diffusion: the noised sequence stands before the clean one. A noised block sees itself and the
clean blocks before it. Clean blocks are causal, block by block (BD3-LM, Arriola et al. 2025,
https://arxiv.org/abs/2503.09573, §3.2 and appendix B.6).

Noised q: noised kv of its block, and clean kv of earlier blocks. Clean q: clean kv of its block and earlier blocks.
"""

import torch

BLOCK = 4  # tokens
half: int  # length of the sequence: Q_LEN = KV_LEN = 2 * half


def mask_mod(b, h, q_idx, kv_idx):
    first = max(half, 0)  # of the clean tokens
    q_clean, kv_clean = q_idx >= first, kv_idx >= first
    q_block = torch.where(q_clean, q_idx - first, q_idx) // BLOCK
    kv_block = torch.where(kv_clean, kv_idx - first, kv_idx) // BLOCK
    own = ~q_clean & ~kv_clean & (q_block == kv_block)
    before = ~q_clean & kv_clean & (q_block > kv_block)
    causal = q_clean & kv_clean & (q_block >= kv_block)
    return own | before | causal
