"""Axial attention: a pixel of an image sees its row and its column (Ho et al. 2019, https://arxiv.org/abs/1912.12180).
The image is row-major.

q // WIDTH == kv // WIDTH or q % WIDTH == kv % WIDTH
"""

WIDTH = 64


def mask_mod(b, h, q_idx, kv_idx):
    return (q_idx // WIDTH == kv_idx // WIDTH) | (q_idx % WIDTH == kv_idx % WIDTH)
