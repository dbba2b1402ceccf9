"""Tokens on grids: coordinates of queries and of keys, also beside a grid, and on grids that differ."""
from attnc import grid

WIDTH = 5
LAST = WIDTH * 2 - 4
image = grid(4, WIDTH, before=3)
small = grid(2, LAST // 2, before=3)
video = grid(2, 3, H)
line = grid(KV_LEN, before=1)


def distance(a, b):
    return sum([abs(x - y) for x, y in zip(a, b)])


def score_mod(score, b, h, q_idx, kv_idx):
    t, y, x = video.coords(kv_idx)
    (at,) = line.coords(q_idx + 1)
    return score + t * 100 + y * 10 + x - at / 2 + small.coords(17)[1] / 4


def mask_mod(b, h, q_idx, kv_idx):
    near = distance(image.coords(q_idx), small.coords(position=kv_idx)) <= 4
    both = image.contains(q_idx) & small.contains(kv_idx)
    return near | ~both
