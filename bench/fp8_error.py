#!/usr/bin/env python3
"""Prints what rounding q, k and v to e4m3 costs attention whose operands have outliers, as a table.

  ATTNC_LIBRARY=libattnc.so python3 bench/fp8_error.py [--rows 1024]

Operands are those of FlashAttention-3 (arXiv:2407.08608, section 4.3): N(0, 1), and a thousandth of the elements plus
N(0, 100). The reference computes in fp64, over q, k and v and over what they are rounded to, so no GPU is needed. Needs
torch.
"""
import argparse
import pathlib
import sys
import warnings

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "python"))
import attnc  # noqa: E402

WAYS = {"scales of heads": {}, "rotated": {"rotate": 1}, "scales of blocks": {"by_block": True},
        "of blocks, rotated": {"by_block": True, "rotate": 1}}


def draw(rows, columns):
    shape = 1, 8, rows, columns
    return torch.randn(shape) + 10 * torch.randn(shape) * (torch.rand(shape) < 0.001)


def error_of(tensors, exact, how):
    """Returns the root mean square of what rounding changes in out."""
    of_v = {name: value for name, value in how.items() if name != "rotate"}
    (q, q_scales), (k, k_scales), (v, v_scales) = (attnc.quantise(x, **given) for x, given in zip(tensors, (how, how, of_v)))
    out = torch.empty_like(exact)
    attnc.attention("score", q, k, v, q_scales=q_scales, k_scales=k_scales, v_scales=v_scales, out=out)
    return float((out.double() - exact.double()).square().mean().sqrt())


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rows", type=int, default=1024)
    rows = args.parse_args().rows
    warnings.simplefilter("ignore", attnc.CpuWarning)
    print(f"RMSE of out, [1, 8, {rows}, D]\n")
    print("| head dim |", " | ".join(WAYS), "|\n|---|" + "---:|" * len(WAYS))
    for columns in (64, 128, 256):
        torch.manual_seed(columns)
        tensors = [draw(rows, columns) for _ in "qkv"]
        exact = attnc.attention("score", *tensors)
        print(f"| {columns} |", " | ".join(f"{error_of(tensors, exact, how):.2e}" for how in WAYS.values()), "|", flush=True)


if __name__ == "__main__":
    main()
