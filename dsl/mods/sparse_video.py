"""A video behind its prompt; each head looks along space or along time (Sparse VideoGen, Xi et al. 2025,
https://arxiv.org/abs/2502.01776).

The prompt sees all and is seen by all. In a spatial head, a token of the video sees frames at most NEAR_FRAMES away. In
a temporal head, it sees pixels of all frames at most NEAR_PIXELS away along both axes.
"""

import torch
from attnc import H, bool, grid

FRAMES = 16
HEIGHT = 24
WIDTH = 40
TEXT = 128  # tokens of the prompt, before the video
NEAR_FRAMES = 1
NEAR_PIXELS = 3
temporal: bool[H]
video = grid(FRAMES, HEIGHT, WIDTH, before=TEXT)


def mask_mod(b, h, q_idx, kv_idx):
    qt, qy, qx = video.coords(q_idx)
    kt, ky, kx = video.coords(kv_idx)
    space = abs(qt - kt) <= NEAR_FRAMES
    time = (abs(qy - ky) <= NEAR_PIXELS) & (abs(qx - kx) <= NEAR_PIXELS)
    both = video.contains(q_idx) & video.contains(kv_idx)
    return ~both | torch.where(temporal[h], time, space)
