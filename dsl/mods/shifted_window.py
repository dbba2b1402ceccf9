"""Swin's shifted windows: an image is cut into windows of WINDOW x WINDOW patches, moved by SHIFT in every second
layer; a learned bias by distance is added (Liu et al. 2021, https://arxiv.org/abs/2103.14030, §3.2). Patches are
row-major and stay where they are: what shifts is the cut, and windows at the border are smaller.

score + bias[h, row distance, column distance], between patches of one window
"""

WIDTH = 56
WINDOW = 7
SHIFT = 3  # 0: a layer without
bias: f32[H, 2 * WINDOW - 1, 2 * WINDOW - 1]


def score_mod(score, b, h, q_idx, kv_idx):
    rows = (q_idx // WIDTH - kv_idx // WIDTH).clamp(1 - WINDOW, WINDOW - 1)
    columns = (q_idx % WIDTH - kv_idx % WIDTH).clamp(1 - WINDOW, WINDOW - 1)
    return score + bias[h, rows + WINDOW - 1, columns + WINDOW - 1]


def window_of(index):
    row, column = index // WIDTH, index % WIDTH
    return (row + WINDOW - SHIFT) // WINDOW, (column + WINDOW - SHIFT) // WINDOW


def mask_mod(b, h, q_idx, kv_idx):
    q_row, q_column = window_of(q_idx)
    kv_row, kv_column = window_of(kv_idx)
    return (q_row == kv_row) & (q_column == kv_column)
