"""3-D neighborhood attention: tokens of a video of FRAMES x HEIGHT x WIDTH see a window around them, moved inside at
the border (NATTEN, Hassani et al. 2023, https://arxiv.org/abs/2204.07143); frames are row-major, one behind the
other.
"""

FRAMES = 16
HEIGHT = 32
WIDTH = 32
WINDOW = (5, 9, 9)  # frames, rows, columns; odd


def near(q, kv, extent, window):
    half = window // 2
    return (q.clamp(half, extent - 1 - half) - kv).abs() <= half


def mask_mod(b, h, q_idx, kv_idx):
    area = HEIGHT * WIDTH
    frames = near(q_idx // area, kv_idx // area, FRAMES, WINDOW[0])
    rows = near(q_idx % area // WIDTH, kv_idx % area // WIDTH, HEIGHT, WINDOW[1])
    columns = near(q_idx % WIDTH, kv_idx % WIDTH, WIDTH, WINDOW[2])
    return frames & rows & columns
