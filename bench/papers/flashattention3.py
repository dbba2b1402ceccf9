#!/usr/bin/env python3
"""Figures of FlashAttention-3 (arXiv:2407.08608), with attnc in them, and the lengths at which unfused attention wins.

  ATTNC_LIBRARY=libattnc.so python3 bench/papers/flashattention3.py --out FILE.jsonl --seconds 300

forward, backward, fp8: bf16 and e4m3 of head dims 64, 128 and 256, 512 to 16k tokens, 16,384 in all, heads of 2048 columns in all,
causal and not. short: 64 to 512 tokens, next to two products with the weights in memory between them, in CUDA graphs.
accuracy: root mean squared errors of out over q, k and v with outliers, N(0, 1) and a thousandth plus N(0, 100), against fp64.
"""

import json
import re

import common
from common import Section, peers
from workloads import Workload

NAME = "flashattention3"
TOKENS, COLUMNS = 16384, 2048
WIDTHS = (128, 64, 256)
LENGTHS = [512 << i for i in range(6)]
PEERS = ("ours", "flash2", "flash3", "flash3_vllm", "flash4", "cudnn", "unfused")
SHORT = (64, 128, 256, 512)
MODS = ("noop", "causal")


def case(kind, variant, length, width, **more):
    heads = COLUMNS // width
    return Workload(kind, variant, TOKENS // length, heads, heads, length, width, width, **more)


def cases(kind, lengths=LENGTHS, widths=WIDTHS, **more):
    return tuple(case(kind, variant, n, width, **more) for width in widths for variant in MODS for n in lengths[::-1])


SECTIONS = (
    Section("fp8", cases("forward", dtype="e4m3"), "length"),
    Section("short", cases("forward", SHORT, (128, 64)), "length"),
    Section("forward", cases("forward"), "length"),
    Section("backward", cases("backward"), "length"),
    Section("accuracy", ()),
)


def outliers(width, length, device):
    """Returns q, k and v of the paper's section 4.3, in fp64."""
    import torch

    generator = torch.Generator(device).manual_seed(width)
    shape = 1, 8, length, width
    draw = lambda of: of(shape, generator=generator, device=device, dtype=torch.float64)
    return [draw(torch.randn) + 10 * draw(torch.randn) * (draw(torch.rand) < 0.001) for _ in "qkv"]


def attentions(q, k, v):
    """Returns {peer: function that returns out [B, H, L, D]} of fp64 operands: 16-bit ones, and those of e4m3."""
    import attnc
    import torch

    mod = attnc.Mod.parse("score")

    def rounded(x, **how):
        """Returns x in e4m3 and its scales; `rotate` is only of q and k."""
        return attnc.quantise(x.bfloat16().contiguous(), **how)

    def ours(**how):
        of_v = {name: value for name, value in how.items() if name != "rotate"}
        (q8, qs), (k8, ks), (v8, vs) = rounded(q, **how), rounded(k, **how), rounded(v, **of_v)
        return attnc.attention(mod, q8, k8, v8, q_scales=qs, k_scales=ks, v_scales=vs)

    def unfused(dtype):
        score = q.to(dtype) @ k.to(dtype).mT * q.shape[-1] ** -0.5
        return score.float().softmax(-1).to(dtype) @ v.to(dtype)

    found = {"unfused_fp16": lambda: unfused(torch.float16), "unfused": lambda: unfused(torch.bfloat16)}
    for dtype, suffix in ((torch.float16, "_fp16"), (torch.bfloat16, "")):
        found[f"attnc{suffix}"] = lambda dtype=dtype: attnc.attention(mod, *(x.to(dtype) for x in (q, k, v)))
    found |= {
        "attnc_e4m3": ours, "attnc_e4m3_rotated": lambda: ours(rotate=1), "attnc_e4m3_block": lambda: ours(by_block=True),
        "attnc_e4m3_block_rotated": lambda: ours(by_block=True, rotate=1),
    }  # fmt: skip
    for fa3 in peers.found(["flash3", "flash3_vllm"]):

        def call(operands, scales=(), attention=fa3.attention):
            scales = dict(zip(("q_descale", "k_descale", "v_descale"), scales))
            return attention(*(x.transpose(1, 2).contiguous() for x in operands), **scales).transpose(1, 2)

        found[f"{fa3.NAME}_fp16"] = lambda call=call: call([x.half() for x in (q, k, v)])
        found[fa3.NAME] = lambda call=call: call([x.bfloat16() for x in (q, k, v)])
        found[f"{fa3.NAME}_e4m3"] = lambda call=call: call(*zip(*map(rounded, (q, k, v))))
    return found


def accuracy(gpu, options):
    """Appends the lines of the accuracy table."""
    import torch

    about = {"gpu": gpu.name, "driver": gpu.driver, "command": options.command}
    length, device = (64, "cpu") if options.is_dry else (2048, "cuda")
    known = common.done(options).rmse
    with open(options.out, "a", encoding="utf-8") as file, torch.no_grad():
        for width in WIDTHS[: 1 if options.is_dry else None]:
            name = f"accuracy-outliers-b1h8k8-q{length}k{length}-d{width}"
            if name in known or not re.search(options.only, name):
                continue
            q, k, v = outliers(width, length, device)
            exact = (q @ k.mT * width**-0.5).softmax(-1) @ v
            for peer, call in attentions(q, k, v).items():
                line = {"id": name, "peer": peer, **about}
                try:
                    line["rmse"] = {"out": float(f"{float((call().double() - exact).square().mean().sqrt()):.4g}")}
                except Exception as error:  # a peer may not take a case
                    line["error"] = peers.reason(error)
                file.write(json.dumps(line) + "\n")
                print(f"{name}  {peer:26} {line.get('rmse') or line['error']}", flush=True)


def main(arguments=None):
    options = common.parsed(arguments, __doc__, modules=PEERS, burst=0.0, rounds=10)
    gpu = common.run(SECTIONS, options)
    if gpu:
        with common.in_time(options):
            accuracy(gpu, options)


if __name__ == "__main__":
    main()
