"""Criss-cross attention: a pixel of an image sees its row and its column (CCNet, Huang et al. 2019,
https://arxiv.org/abs/1811.11721).

qy == ky or qx == kx
"""

from attnc import grid

HEIGHT = 64
WIDTH = 64
image = grid(HEIGHT, WIDTH)


def mask_mod(b, h, q_idx, kv_idx):
    (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)
    return (qy == ky) | (qx == kx)
