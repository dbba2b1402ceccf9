"""Swin's shifted windows: an image is cut into windows of WINDOW x WINDOW patches, moved by SHIFT in every second
layer. A learned bias by distance is added (Liu et al. 2021, https://arxiv.org/abs/2103.14030, §3.2). Patches are
row-major and stay in place: only the cut shifts. Windows at the border are smaller.

score + bias[h, row distance, column distance], between patches of one window
"""

from attnc import H, f32, grid

HEIGHT = 56
WIDTH = 56
WINDOW = 7
SHIFT = 3  # 0: a layer without
bias: f32[H, 2 * WINDOW - 1, 2 * WINDOW - 1]
image = grid(HEIGHT, WIDTH)


def score_mod(score, b, h, q_idx, kv_idx):
    (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)
    rows = (qy - ky).clamp(1 - WINDOW, WINDOW - 1)
    columns = (qx - kx).clamp(1 - WINDOW, WINDOW - 1)
    return score + bias[h, rows + WINDOW - 1, columns + WINDOW - 1]


def mask_mod(b, h, q_idx, kv_idx):
    (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)
    rows = (qy - SHIFT) // WINDOW == (ky - SHIFT) // WINDOW
    columns = (qx - SHIFT) // WINDOW == (kx - SHIFT) // WINDOW
    return rows & columns
