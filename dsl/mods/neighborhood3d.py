"""3-D neighborhood attention: tokens of a video see a window around them, moved inside at the border.

NATTEN: Hassani et al. 2023, https://arxiv.org/abs/2204.07143; dilation https://arxiv.org/abs/2209.15001; stride
https://arxiv.org/abs/2504.16922. Along each axis, tokens of the same index modulo dilation are counted by themselves.
There query i of n sees keys start to start + window - 1:

    leader = min(i // stride * stride + stride // 2, n - 1)
    start = min(max(leader - window // 2, 0), n - window)

If the axis is causal, it sees keys max(leader - window + 1, 0) to i. The leader is then the last of its stride:

    leader = min(i // stride * stride + stride - 1, n - 1)
"""

from attnc import grid

FRAMES = 16
HEIGHT = 32
WIDTH = 32
WINDOW = (5, 9, 9)  # frames, rows, columns; WINDOW * DILATION is at most the extent
DILATION = (1, 1, 1)
STRIDE = (1, 1, 1)  # queries that share a window
CAUSAL = (False, False, False)
video = grid(FRAMES, HEIGHT, WIDTH)


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
    q, kv = video.coords(q_idx), video.coords(kv_idx)
    seen = True
    for axis, extent in enumerate((FRAMES, HEIGHT, WIDTH)):
        seen = seen & sees(q[axis], kv[axis], extent, WINDOW[axis], DILATION[axis], STRIDE[axis], CAUSAL[axis])
    return seen
