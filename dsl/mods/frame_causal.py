"""Frame by frame: a token of a video sees its whole frame and all frames before it (Self Forcing, Huang et al. 2025,
https://arxiv.org/abs/2506.08009, §3.1).

kv // FRAME <= q // FRAME
"""

FRAME = 1560  # tokens


def mask_mod(b, h, q_idx, kv_idx):
    return kv_idx // FRAME <= q_idx // FRAME
