#!/usr/bin/env python3
"""Times derivatives of attention under load on one GPU, next to the passes that they differentiate.

  ATTNC_LIBRARY=libattnc.so python3 bench/tangent_times.py --out FILE.jsonl

q, k and v are bf16, 2 x 16 x 8192 rows of 128 and of 64, causal or without a mask. In turns (clocks.py): the forward
pass; torch.func.jvp, which is a forward pass and tangents; the backward pass; and a backward pass of the backward pass,
for q, k, v and dout. If jvp_flash_attention can be imported (a Triton kernel, on PyPI), its jvp as well, once its
results agree with attnc's within 2 % of their norm.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import clocks
import peers
import torch

from attnc.torch import create_block_mask, flex_attention

BATCH, HEADS, LENGTH, BURST = 2, 16, 8192, 1.0


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def peer_jvp(operands, directions, is_causal, expected):
    """Returns a function for jvp_flash_attention's jvp; None, with a word why, if it has none that is right."""
    try:
        from jvp_flash_attention.jvp_attention import JVPAttn

        attend = lambda q, k, v: JVPAttn.fwd_dual(q, k, v, causal=is_causal)
        run = lambda: torch.func.jvp(attend, operands, directions)
        off = [float((a - b).float().norm() / b.float().norm()) for a, b in zip(run(), expected)]
    except Exception as error:
        return print(f"jvp_flash_attention: {peers.reason(error)}")
    return run if max(off) < 0.02 else print(f"jvp_flash_attention: off by {off}")


def calls(width, is_causal):
    """Returns {name: function}."""
    torch.manual_seed(0)
    draw = lambda: torch.randn(BATCH, HEADS, LENGTH, width, device="cuda", dtype=torch.bfloat16)
    operands, directions = tuple(draw() for _ in range(3)), tuple(draw() for _ in range(3))
    leaves, dout = [x.clone().requires_grad_() for x in operands], draw().requires_grad_()
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cuda") if is_causal else None
    attend = lambda q, k, v: flex_attention(q, k, v, block_mask=mask)
    out = attend(*leaves)
    gradients = torch.autograd.grad(out, leaves, dout, create_graph=True)
    jvp = lambda: torch.func.jvp(attend, operands, directions)
    peer = peer_jvp(operands, directions, is_causal, jvp())
    return {
        "forward": lambda: attend(*operands),
        "jvp": jvp,
        **({"jvp by jvp_flash_attention": peer} if peer else {}),
        "backward": lambda: torch.autograd.grad(out, leaves, dout.detach(), retain_graph=True),
        "backward of backward": lambda: torch.autograd.grad(
            gradients, [*leaves, dout], directions, retain_graph=True
        ),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=argparse.FileType("a"), required=True)
    out = parser.parse_args().out
    gpu = clocks.Gpu()
    for width in (128, 64):
        for is_causal in (False, True):
            ms = clocks.means(gpu, calls(width, is_causal), BURST, 1, out, head_dim=width, causal=is_causal)
            print(
                f"d{width} {'causal' if is_causal else 'no mask'}: forward {ms['forward']:.3f} ms, "
                f"jvp {ms['jvp'] / ms['forward']:.2f} of it; backward {ms['backward']:.3f} ms, "
                f"backward of it {ms['backward of backward'] / ms['backward']:.2f} of it"
                + "".join(f"; {name} {ms[name] / ms['jvp']:.2f} of attnc's" for name in ms if " by " in name),
                flush=True,
            )


if __name__ == "__main__":
    main()
