#!/usr/bin/env python3
"""Times a mod for each sequence under load on one GPU, next to each of the mods by itself over the same sequences.

  ATTNC_LIBRARY=libattnc.so python3 bench/choice_times.py --out FILE.jsonl

q, k and v are bf16, 6 x 16 x 8192 rows of 128 and of 64. Masks: causal, a prefix and a window. Scores: as they are, ALiBi
and a soft cap, all causal. A mixture in which two sequences have each mod is one launch; each mod by itself is launched
over its two sequences. All take turns (clocks.py). Prints the mixture's time over the sum of theirs; and the same where all
sequences have one mod, in the kernel of the choice and in the mod's own.
"""

import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import clocks
import torch

import attnc

BATCH, HEADS, LENGTH, BURST = 6, 16, 8192, 1.0
CAUSAL = "def mask_mod(b, h, q, k): return q >= k\n"
CHOICES = {
    "masks": {
        "causal": CAUSAL,
        "prefix": "prefix: i32[B]\ndef mask_mod(b, h, q, k): return (q >= k) | (k < prefix[b])\n",
        "window": "def mask_mod(b, h, q, k): return (q >= k) & (q - k < 1024)\n",
    },
    "scores": {
        "noop": CAUSAL,
        "alibi": "slopes: f32[H]\ndef score_mod(s, b, h, q, k): return s + slopes[h] * (k - q)\n" + CAUSAL,
        "softcap": "def score_mod(s, b, h, q, k): return 30 * tanh(s / 30)\n" + CAUSAL,
    },
}


def calls(texts, width):
    """Returns {name: function}: "mixture"; the name of a mod, over its sequences; and "all NAME" with "own NAME"."""
    torch.manual_seed(0)
    draw = lambda: torch.randn(BATCH, HEADS, LENGTH, width, device="cuda", dtype=torch.bfloat16)
    q, k, v = draw(), draw(), draw()
    mods = {name: attnc.Mod.parse(text, name=name) for name, text in texts.items()}
    mixed = attnc.Mod.choice(mods.values(), "which: i32[B]")
    given = {
        "prefix": torch.full((BATCH,), LENGTH // 4, dtype=torch.int32, device="cuda"),
        "slopes": 2.0 ** -torch.arange(1, HEADS + 1, device="cuda").float(),
    }

    def call(mod, begin, end, which=None):
        captures = {one.name: which if one.name == "which" else given[one.name] for one in mod.captures}
        captures = {name: one[begin:end] if name in ("which", "prefix") else one for name, one in captures.items()}
        return lambda: attnc.attention(mod, q[begin:end], k[begin:end], v[begin:end], captures=captures)

    share = BATCH // len(mods)
    which = torch.arange(len(mods), dtype=torch.int32, device="cuda").repeat_interleave(share)
    made = {"mixture": call(mixed, 0, BATCH, which)}
    for i, (name, mod) in enumerate(mods.items()):
        made[name] = call(mod, i * share, (i + 1) * share)
        made[f"all {name}"] = call(mixed, 0, BATCH, torch.full_like(which, i))
        made[f"own {name}"] = call(mod, 0, BATCH)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=argparse.FileType("a"), required=True)
    parser.add_argument("--only", default="", metavar="REGEX", help="of names of mixtures, such as scores-d64")
    options = parser.parse_args()
    out = options.out
    gpu = clocks.Gpu()
    for width in (128, 64):
        for kind, texts in CHOICES.items():
            if not re.search(options.only, f"{kind}-d{width}"):
                continue
            ms = clocks.means(gpu, calls(texts, width), BURST, 2, out, "call", choice=kind, head_dim=width)
            alone = sum(ms[name] for name in texts)
            ratios = ", ".join(f"{name} {ms[f'all {name}'] / ms[f'own {name}']:.3f}" for name in texts)
            print(f"{kind} d{width}: mixture {ms['mixture']:.3f} ms, {ms['mixture'] / alone:.3f} of the mods by "
                  f"themselves; all sequences with one: {ratios}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
