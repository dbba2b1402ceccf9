"""Times rounding to e4m3 with rotary embedding inside, next to rotary embedding by PyTorch and rounding behind it, in turns.

  ATTNC_LIBRARY=libattnc.so python3 bench/rotary_times.py

q is bf16, 2 x 16 x 8192 rows of 64, 128 or 256, rotated by signs and a Hadamard matrix, with scales of blocks.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import torch
from in_turns import in_turns

import attnc

BATCH, HEADS, LENGTH = 2, 16, 8192


@torch.compile(dynamic=False)
def embedded(x, cos, sin):
    """Returns what apply_rotary_pos_emb() of transformers does to q."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def main():
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds")
    for width in (64, 128, 256):
        x = torch.randn(BATCH, HEADS, LENGTH, width, device="cuda", dtype=torch.bfloat16)
        angles = torch.arange(LENGTH, device="cuda")[:, None] * 1e4 ** (-torch.arange(0, width, 2, device="cuda") / width)
        table = torch.cat((angles.cos(), angles.sin()), -1)
        cos, sin = (torch.cat((f, f), -1).bfloat16() for f in (angles.cos(), angles.sin()))
        rounded = lambda y, **options: attnc.quantise(y, by_block=True, rotate=1, **options)
        times = in_turns(
            {
                "rounding": lambda: rounded(x),
                "with rotary embedding": lambda: rounded(x, cos_sin=table),
                "embedded by torch.compile, then rounded": lambda: rounded(embedded(x, cos, sin)),
            }
        )
        print(f"d{width}: " + ", ".join(f"{name} {1000 * took:.1f}" for name, took in times.items()), flush=True)


if __name__ == "__main__":
    main()
