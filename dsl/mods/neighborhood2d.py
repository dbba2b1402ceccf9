"""2-D neighborhood attention: pixels of a HEIGHT x WIDTH image see a window around them, moved inside at the border.

NATTEN (Hassani et al. 2023, https://arxiv.org/abs/2204.07143); the image is row-major.
"""

WIDTH = 128
HEIGHT = 128
WINDOW = (13, 13)  # rows, columns; odd


def mask_mod(b, h, q_idx, kv_idx):
    rows, columns = WINDOW[0] // 2, WINDOW[1] // 2
    q_row, q_column = q_idx // WIDTH, q_idx % WIDTH
    kv_row, kv_column = kv_idx // WIDTH, kv_idx % WIDTH
    center_row = q_row.clamp(rows, HEIGHT - 1 - rows)
    center_column = q_column.clamp(columns, WIDTH - 1 - columns)
    return ((center_row - kv_row).abs() <= rows) & ((center_column - kv_column).abs() <= columns)
