#!/usr/bin/env python3
"""Times dropout under load on one GPU: attnc and FlashAttention-2, both behind PyTorch's scaled_dot_product_attention.

  ATTNC_LIBRARY=libattnc.so python3 bench/dropout_times.py --out FILE.jsonl

q, k and v are bf16, 2 x 16 x 8192 rows of 128 and of 64, causal or without a mask. Each is timed without dropout and with
dropout_p = 0.1, the forward pass and both passes, in turns (clocks.py). Prints what dropout leaves of the speed. Each call
chooses the implementation anew, which takes a millisecond of the host's time; a full queue hides it.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import clocks
import torch
from torch.nn.attention import SDPBackend, activate_flash_attention_impl, restore_flash_attention_impl, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import attnc.torch.flash

BATCH, HEADS, LENGTH, DROPOUT, BURST = 2, 16, 8192, 0.1, 1.0


def calls(kind, width, is_causal):
    """Returns {(peer, dropout_p): function}."""
    torch.manual_seed(0)
    draw = lambda: torch.randn(BATCH, HEADS, LENGTH, width, device="cuda", dtype=torch.bfloat16)
    leaves, dout = [draw().requires_grad_(kind != "forward") for _ in range(3)], draw()

    def call(peer, dropout_p):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            activate_flash_attention_impl("attnc") if peer == "attnc" else restore_flash_attention_impl()
            out = scaled_dot_product_attention(*leaves, is_causal=is_causal, dropout_p=dropout_p)
            return out if kind == "forward" else torch.autograd.grad(out, leaves, dout)

    return {(peer, p): lambda peer=peer, p=p: call(peer, p) for peer in ("attnc", "FlashAttention-2") for p in (0.0, DROPOUT)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=argparse.FileType("a"), required=True)
    out = parser.parse_args().out
    attnc.torch.flash.register()
    gpu = clocks.Gpu()
    about = clocks.about(gpu)
    for width in (128, 64):
        for kind in ("forward", "both passes"):
            for is_causal in (False, True):
                bursts, _ = clocks.abba(gpu, calls(kind, width, is_causal), BURST, 2)
                ms = {name: sum(burst.ms for burst in taken) / len(taken) for name, taken in bursts.items()}
                for peer in ("attnc", "FlashAttention-2"):
                    for p in (0.0, DROPOUT):
                        joules = sum(burst.joules for burst in bursts[peer, p]) / 2
                        row = {"kind": kind, "head_dim": width, "causal": is_causal, "peer": peer, "dropout_p": p}
                        row |= {"ms": round(ms[peer, p], 4), "joules": round(joules, 4)}
                        print(json.dumps({**row, **about}), file=out, flush=True)
                    print(
                        f"{kind} d{width} {'causal' if is_causal else 'no mask'}, {peer}: {ms[peer, DROPOUT]:.3f} ms, "
                        f"{ms[peer, 0.0] / ms[peer, DROPOUT]:.2f} of no dropout",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
