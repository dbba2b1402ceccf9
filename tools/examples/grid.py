"""Neighborhood attention: each pixel of an image attends to the pixels around it.

The mod declares the grid, so kernels read boxes of the image where they lie. Without a GPU the CPU reference computes.

    pip install ./tools/python torch
    python tools/examples/grid.py
"""

import sys
import warnings

import torch

import attnc

B, H, HEIGHT, WIDTH, D, REACH = 1, 4, 24, 20, 64, 3
MOD = attnc.Mod.parse(
    """
from attnc import grid

REACH = 3
HEIGHT: int
WIDTH: int
image = grid(HEIGHT, WIDTH)

def mask_mod(b, h, q_idx, kv_idx):
    (qy, qx), (ky, kx) = image.coords(q_idx), image.coords(kv_idx)
    return (abs(qy - ky) <= REACH) & (abs(qx - kx) <= REACH)
""",
    defines={"REACH": REACH},
)

warnings.simplefilter("ignore", attnc.CpuWarning)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"computing on {torch.cuda.get_device_name()}" if device == "cuda" else "no GPU here: the CPU reference computes")

q, k, v = (torch.randn(B, H, HEIGHT * WIDTH, D, dtype=torch.bfloat16, device=device) for _ in range(3))
out = attnc.attention(MOD, q, k, v, captures={"HEIGHT": HEIGHT, "WIDTH": WIDTH})

# The same by the definition: all pairs of pixels, and a mask over them.
tokens = torch.arange(HEIGHT * WIDTH, device=device)
y, x = tokens // WIDTH, tokens % WIDTH
near = ((y[:, None] - y).abs() <= REACH) & ((x[:, None] - x).abs() <= REACH)
expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), near)
difference = float((out - expected).abs().max())

sees = near.sum(1)
print(f"{HEIGHT} x {WIDTH} pixels see {sees.min()} to {sees.max()} keys: largest difference {difference:.4f}")
sys.exit(0 if difference < 0.02 else "WRONG")
