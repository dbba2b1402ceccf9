"""Global tokens and a local window (Longformer, https://arxiv.org/abs/2004.05150; BigBird, https://arxiv.org/abs/2007.14062).

The first `global_tokens` positions see all and are seen by all; others see `window` positions to both sides.
"""

import torch

global_tokens: int
window: int


def mask_mod(b, h, q_idx, kv_idx):
    is_global = (q_idx < global_tokens) | (kv_idx < global_tokens)
    is_local = torch.abs(q_idx - kv_idx) <= window
    return is_global | is_local
