"""2-D neighborhood attention over a SIZE x SIZE image. Its pixels lie along a Morton curve, near in space at every
scale (FlexAttention's examples, https://pytorch.org/blog/flexattention; NATTEN, https://arxiv.org/abs/2204.07143).

The even bits of a pixel's index are its column, the odd ones its row.
"""

SIZE = 128  # a power of two, up to 256
WINDOW = (13, 13)  # rows, columns; odd


def even_bits(index):
    bits = index & 0x5555
    bits = (bits | bits >> 1) & 0x3333
    bits = (bits | bits >> 2) & 0x0F0F
    return (bits | bits >> 4) & 0x00FF


def mask_mod(b, h, q_idx, kv_idx):
    rows, columns = WINDOW[0] // 2, WINDOW[1] // 2
    q_row, q_column = even_bits(q_idx >> 1), even_bits(q_idx)
    kv_row, kv_column = even_bits(kv_idx >> 1), even_bits(kv_idx)
    near_row = (q_row.clamp(rows, SIZE - 1 - rows) - kv_row).abs() <= rows
    near_column = (q_column.clamp(columns, SIZE - 1 - columns) - kv_column).abs() <= columns
    return near_row & near_column
