"""2-D neighborhood attention over an image whose pixels lie tile by tile. So a block of scores is near in space
(FlexAttention's examples, https://pytorch.org/blog/flexattention; NATTEN, https://arxiv.org/abs/2204.07143).

Pixel i is pixel i % (TILE * TILE) of tile i // (TILE * TILE). Tiles and their pixels are row-major.
"""

WIDTH = 128
HEIGHT = 128
TILE = 8
WINDOW = (13, 13)  # rows, columns; odd


def place(index):
    tile, inside = index // (TILE * TILE), index % (TILE * TILE)
    tiles = WIDTH // TILE
    return tile // tiles * TILE + inside // TILE, tile % tiles * TILE + inside % TILE


def mask_mod(b, h, q_idx, kv_idx):
    rows, columns = WINDOW[0] // 2, WINDOW[1] // 2
    q_row, q_column = place(q_idx)
    kv_row, kv_column = place(kv_idx)
    near_row = (q_row.clamp(rows, HEIGHT - 1 - rows) - kv_row).abs() <= rows
    near_column = (q_column.clamp(columns, WIDTH - 1 - columns) - kv_column).abs() <= columns
    return near_row & near_column
