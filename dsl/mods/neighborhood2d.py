"""2-D neighborhood attention: pixels of a HEIGHT x WIDTH image see a window around them, moved inside at the border.

NATTEN: Hassani et al. 2023, https://arxiv.org/abs/2204.07143; dilation https://arxiv.org/abs/2209.15001; stride
https://arxiv.org/abs/2504.16922. Along each axis, tokens of the same index modulo dilation are counted by themselves.
There query i of n sees keys start to start + window - 1:

    leader = min(i // stride * stride + stride // 2, n - 1)
    start = min(max(leader - window // 2, 0), n - window)

If the axis is causal, it sees keys max(leader - window + 1, 0) to i. The leader is then the last of its stride:

    leader = min(i // stride * stride + stride - 1, n - 1)
"""

from attnc import grid

HEIGHT = 128
WIDTH = 128
WINDOW = (13, 13)  # rows, columns; WINDOW * DILATION is at most the extent
DILATION = (1, 1)
STRIDE = (1, 1)  # queries that share a window
CAUSAL = (False, False)
image = grid(HEIGHT, WIDTH)


def sees(q, kv, extent, window, dilation, stride, causal):
    together = True
    if dilation > 1:
        together = q % dilation == kv % dilation
        extent = (extent - q % dilation + dilation - 1) // dilation
        q, kv = q // dilation, kv // dilation
    leader = q
    if stride > 1:
        leader = min(q // stride * stride + (stride - 1 if causal else stride // 2), extent - 1)
    if causal:
        return together & (kv >= max(leader - (window - 1), 0)) & (kv <= q)
    start = min(max(leader - window // 2, 0), extent - window)
    return together & (kv >= start) & (kv < start + window)


def mask_mod(b, h, q_idx, kv_idx):
    q, kv = image.coords(q_idx), image.coords(kv_idx)
    rows = sees(q[0], kv[0], HEIGHT, WINDOW[0], DILATION[0], STRIDE[0], CAUSAL[0])
    columns = sees(q[1], kv[1], WIDTH, WINDOW[1], DILATION[1], STRIDE[1], CAUSAL[1])
    return rows & columns
