#!/usr/bin/env python3
"""Prints what rounding q, k and v to e4m3 costs attention whose operands have outliers, as a table.

  ATTNC_LIBRARY=libattnc.so python3 bench/fp8_error.py [--rows 1024] [--gradients]

Operands are those of FlashAttention-3 (arXiv:2407.08608, section 4.3): N(0, 1), and a thousandth of the elements plus
N(0, 100). The reference computes in fp64, over q, k and v and over what they are rounded to, so no GPU is needed. With
--gradients, prints what it costs gradients that pass straight through. Needs torch.
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
        "of blocks, rotated": {"by_block": True, "rotate": 1}, "of rows, rotated": {"by_row": True, "rotate": 1}}
SPANS = {"head": {}, "block": {"by_block": True}, "row": {"by_row": True}}


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


def gradients_at(q, k, v, out, lse, dout):
    """Returns dq, dk and dv by definition, from out and lse of a forward pass."""
    scale = q.shape[-1] ** -0.5
    weights = (q @ k.mT * scale - lse.unsqueeze(-1)).exp()
    dscore = weights * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) * scale
    return dscore @ k, dscore.mT @ q, weights.mT @ dout


def attention_of(q, k, v):
    score = q @ k.mT * q.shape[-1] ** -0.5
    return score.softmax(-1) @ v, score.logsumexp(-1)


def rounded(x, span, **how):
    values, scales = attnc.quantise(x.float(), scale_bits=4, **SPANS[span], **how)
    rows = {"head": x.shape[2], "block": 128, "row": 1}[span]
    scales = scales.double().view(*x.shape[:2], -1).repeat_interleave(rows, -1)[:, :, : x.shape[2], None]
    return values.double() * scales


def draws(rows, columns):
    """Yields a name, and q, k and v."""
    q, k, v = (torch.randn(1, 8, rows, columns).double() for _ in "qkv")
    yield "N(0, 1)", q, k, v
    yield "outliers", *(draw(rows, columns).double() for _ in "qkv")
    yield "q and k twice as large", 2 * q, 2 * k, v
    yield "q near its key", 2 * k + q, 2 * k, v


def gradients(rows, columns):
    """Prints relative errors of dq, dk and dv whose forward pass is over rounded operands."""
    print(f"relative errors of dq, dk, dv, [1, 8, {rows}, {columns}]\n")
    print("| q, k, v |", " | ".join(f"scales of {span}s" for span in SPANS), "| of blocks, at the given q, k, v |")
    print("|---" * (len(SPANS) + 2) + "|")
    values, _ = attnc.quantise(torch.eye(columns)[None, None], rotate=1)
    turn = values.double().sign() * (columns & -columns) ** -0.5
    torch.manual_seed(columns)
    for name, q, k, v in draws(rows, columns):
        dout = torch.randn_like(v)
        given = q @ turn, k @ turn, v
        exact = gradients_at(*given, *attention_of(*given), dout)
        forward = {span: (rounded(q, span, rotate=1), rounded(k, span, rotate=1), rounded(v, span)) for span in SPANS}
        cells = []
        for span, operands in (*((of, [x.bfloat16().double() for x in xs]) for of, xs in forward.items()), ("block", given)):
            found = gradients_at(*operands, *attention_of(*forward[span]), dout)
            cells.append(", ".join(f"{float((x - y).norm() / y.norm()):.2g}" for x, y in zip(found, exact)))
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rows", type=int, default=1024)
    args.add_argument("--gradients", action="store_true")
    rows, of_gradients = vars(args.parse_args()).values()
    warnings.simplefilter("ignore", attnc.CpuWarning)
    if of_gradients:
        return gradients(rows, 128)
    print(f"RMSE of out, [1, 8, {rows}, D]\n")
    print("| head dim |", " | ".join(WAYS), "|\n|---|" + "---:|" * len(WAYS))
    for columns in (64, 128, 256):
        torch.manual_seed(columns)
        tensors = [draw(rows, columns) for _ in "qkv"]
        exact = attnc.attention("score", *tensors)
        print(f"| {columns} |", " | ".join(f"{error_of(tensors, exact, how):.2e}" for how in WAYS.values()), "|", flush=True)


if __name__ == "__main__":
    main()
