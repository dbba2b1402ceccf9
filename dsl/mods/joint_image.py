"""Joint attention of text and an image in a diffusion transformer. Image tokens see a neighborhood (as in CLEAR, Liu et
al. 2024, https://arxiv.org/abs/2412.16112, and FLUX with NATTEN, https://arxiv.org/abs/2504.16922).

TEXT tokens stand before the HEIGHT x WIDTH tokens of the image. Text sees all and is seen by all. Within the image, a
query sees the WINDOW x WINDOW keys around it. The window is moved inside at the border.
"""

from attnc import grid

HEIGHT = 64
WIDTH = 64
TEXT = 512
WINDOW = 17  # at most the extents
image = grid(HEIGHT, WIDTH, before=TEXT)


def near(q, kv, extent):
    start = min(max(q - WINDOW // 2, 0), extent - WINDOW)
    return (kv >= start) & (kv < start + WINDOW)


def mask_mod(b, h, q_idx, kv_idx):
    qy, qx = image.coords(q_idx)
    ky, kx = image.coords(kv_idx)
    neighbors = near(qy, ky, HEIGHT) & near(qx, kx, WIDTH)
    return neighbors | ~image.contains(q_idx) | ~image.contains(kv_idx)
