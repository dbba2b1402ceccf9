"""Sliding tile attention: a video lies tile by tile, and a tile of queries sees whole tiles around it. These are moved
inside at the border. No block of scores is partial if a tile is a block (Zhang et al. 2025,
https://arxiv.org/abs/2502.04507, §3.1).

Token i is in tile i // TILE_TOKENS. Tiles are row-major in frames, rows, columns.
"""

TILE_TOKENS = 384  # 6 x 8 x 8
TILES = (5, 6, 10)  # of the video: frames, rows, columns
WINDOW = (3, 3, 5)  # in tiles; odd


def near(q, kv, extent, window):
    half = window // 2
    return (q.clamp(half, extent - 1 - half) - kv).abs() <= half


def mask_mod(b, h, q_idx, kv_idx):
    q_tile, kv_tile = q_idx // TILE_TOKENS, kv_idx // TILE_TOKENS
    area = TILES[1] * TILES[2]
    frames = near(q_tile // area, kv_tile // area, TILES[0], WINDOW[0])
    rows = near(q_tile % area // TILES[2], kv_tile % area // TILES[2], TILES[1], WINDOW[1])
    columns = near(q_tile % TILES[2], kv_tile % TILES[2], TILES[2], WINDOW[2])
    return frames & rows & columns
