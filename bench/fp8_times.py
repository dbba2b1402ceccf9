#!/usr/bin/env python3
"""Times attention and its gradients in fp8 next to bf16, in turns on one GPU.

  ATTNC_LIBRARY=libattnc.so python3 bench/fp8_times.py [--kinds block head row] [--out FILE]

q, k and v are bf16, 2 x 16 x 8192 rows of 128, causal. With fp8, the forward pass rounds them to e4m3 and computes over
these; the backward pass is in bf16 at the rounded values. All of that is in the times. --out: also gets JSON lines.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import torch
from in_turns import in_turns

from attnc.torch import create_block_mask, flex_attention

BATCH, HEADS, LENGTH, WIDTH, CALLS = 2, 16, 8192, 128, 10


def kernels_of(function):
    """Returns the microseconds of each kernel, of one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            function()
        torch.cuda.synchronize()
    return {event.key: event.device_time_total / CALLS for event in profile.key_averages() if event.device_time_total}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=argparse.FileType("a"))
    parser.add_argument("--kinds", nargs="*", default=["block", "head", "row"], help="what shares a scale")
    out, spans = vars(parser.parse_args()).values()
    torch.manual_seed(0)
    shape = BATCH, HEADS, LENGTH, WIDTH
    leaves = [torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, LENGTH, LENGTH, device="cuda")
    kinds = {"bf16": {}, **{f"fp8, {span}": {"fp8": span} for span in spans}}

    def forward(options):
        with torch.no_grad():
            return flex_attention(*leaves, block_mask=mask, kernel_options=options)

    def step(options):
        return torch.autograd.grad(flex_attention(*leaves, block_mask=mask, kernel_options=options), leaves, dout)

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for what, function in (("forward", forward), ("forward and backward", step)):
        times = in_turns({name: lambda o=options: function(o) for name, options in kinds.items()})
        print(f"{what:20} " + "  ".join(f"{name} {took:.3f} ms" for name, took in times.items()), flush=True)
        if out:
            shape_of = {"batch": BATCH, "heads": HEADS, "length": LENGTH, "head_dim": WIDTH, "mod": "causal"}
            row = {"what": what, "ms": times, **shape_of, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
            print(json.dumps(row), file=out, flush=True)
    for name, options in kinds.items():
        print(f"kernels of a step, {name}, in microseconds:")
        for kernel, took in sorted(kernels_of(lambda: step(options)).items(), key=lambda x: -x[1]):
            print(f"  {took:8.1f} {kernel[:100]}")


if __name__ == "__main__":
    main()
