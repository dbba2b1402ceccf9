#!/usr/bin/env python3
"""Times derivatives of attention under load on one GPU, next to the passes that they differentiate.

  ATTNC_LIBRARY=libattnc.so python3 bench/tangent_times.py --out FILE.jsonl

q, k and v are bf16, 2 x 16 x 8192 rows of 128 and of 64, causal or without a mask. In turns (clocks.py): the forward
pass; torch.func.jvp, which is a forward pass and tangents; the backward pass; and a backward pass of the backward pass,
for q, k, v and dout. If the package jvp_flash_attention can be imported, also its Triton kernel with tangents, whose results are
compared with attnc's.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import clocks
import torch

from attnc.torch import create_block_mask, flex_attention

try:
    from jvp_flash_attention.jvp_attention import JVPAttn
except ImportError as error:
    print(f"without jvp_flash_attention: {error}", file=sys.stderr)
    JVPAttn = None

LIMIT = 0.03  # of differences of tangents, relative to their norm
BATCH, HEADS, LENGTH, BURST = 2, 16, 8192, 1.0


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def right(others, call):
    """Returns those of the functions whose results and tangents are those of `call`, and tells why others are not timed."""
    found, expected = {}, call() if others else ()
    for name, function in others.items():
        try:
            off = max(float((x.float() - y.float()).norm() / y.float().norm()) for x, y in zip(function(), expected))
            if off <= LIMIT:
                found[name] = function
            else:
                print(f"{name}: differs by {off:.1e}", flush=True)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    return found


def calls(width, is_causal):
    """Returns {name: function}."""
    torch.manual_seed(0)
    draw = lambda: torch.randn(BATCH, HEADS, LENGTH, width, device="cuda", dtype=torch.bfloat16)
    operands, directions = [draw() for _ in range(3)], [draw() for _ in range(4)]
    leaves, dout = [x.clone().requires_grad_() for x in operands], draw().requires_grad_()
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cuda") if is_causal else None
    attend = lambda q, k, v: flex_attention(q, k, v, block_mask=mask)
    out = attend(*leaves)
    gradients = torch.autograd.grad(out, leaves, dout, create_graph=True)
    jvp_of = lambda attend: lambda: torch.func.jvp(attend, tuple(operands), tuple(directions[:3]))
    others = {}
    if JVPAttn:
        others["jvp of jvp_flash_attention"] = jvp_of(lambda q, k, v: JVPAttn.fwd_dual(q, k, v, causal=is_causal))
    return {
        "forward": lambda: attend(*operands),
        "jvp": jvp_of(attend),
        **right(others, jvp_of(attend)),
        "backward": lambda: torch.autograd.grad(out, leaves, dout.detach(), retain_graph=True),
        "backward of backward": lambda: torch.autograd.grad(
            gradients, [*leaves, dout], directions[:3], retain_graph=True
        ),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=argparse.FileType("a"), required=True)
    out = parser.parse_args().out
    gpu = clocks.Gpu()
    about = clocks.about(gpu)
    for width in (128, 64):
        for is_causal in (False, True):
            bursts, _ = clocks.abba(gpu, calls(width, is_causal), BURST, 1)
            ms = {name: sum(burst.ms for burst in taken) / len(taken) for name, taken in bursts.items()}
            for name, taken in bursts.items():
                row = {"kind": name, "head_dim": width, "causal": is_causal, "ms": round(ms[name], 4)}
                row |= {"joules": round(sum(burst.joules for burst in taken) / len(taken), 4)}
                print(json.dumps({**row, **about}), file=out, flush=True)
            print(
                f"d{width} {'causal' if is_causal else 'no mask'}: forward {ms['forward']:.3f} ms, "
                f"jvp {ms['jvp'] / ms['forward']:.2f} of it; backward {ms['backward']:.3f} ms, "
                f"backward of it {ms['backward of backward'] / ms['backward']:.2f} of it",
                flush=True,
            )


if __name__ == "__main__":
    main()
