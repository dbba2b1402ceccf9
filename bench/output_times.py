#!/usr/bin/env python3
"""Times outputs of mods under load on one GPU, next to the forward pass that they look at.

  ATTNC_LIBRARY=libattnc.so python3 bench/output_times.py --out FILE.jsonl

q, k and v are bf16, 2 x 16 x 8192 rows of 128 and of 64, causal or without a mask. In turns (clocks.py): the forward
pass; the same with column sums, with the entropy of rows, with the largest logit of heads and with row maxima, which
take no walk. Column sums and the largest logits are first compared with those of a matrix of scores, at 1280 rows.
Prints what each costs more, in forward passes.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import clocks
import torch

import attnc
from attnc.torch import AuxRequest, create_block_mask, flex_attention

BATCH, HEADS, LENGTH, BURST = 2, 16, 8192, 1.0


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def weight(prob, score, b, h, q_idx, kv_idx):
    return prob


def surprise(prob, score, b, h, q_idx, kv_idx):
    return torch.where(prob > 0, -prob * torch.log(prob), 0.0)


def logit(prob, score, b, h, q_idx, kv_idx):
    return score


OUTPUTS = {
    "column_sums": attnc.reduce_sum(weight, "B H KV_LEN"),
    "entropy": attnc.reduce_sum(surprise, "B H Q_LEN"),
    "max_logit": attnc.reduce_max(logit, "B H"),
}


def draw(length, width):
    return [torch.randn(BATCH, HEADS, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)]


def attend(operands, is_causal, **more):
    length = operands[0].shape[2]
    mask = create_block_mask(causal, None, None, length, length, device="cuda") if is_causal else None
    return lambda: flex_attention(*operands, block_mask=mask, **more)


def check(width, is_causal):
    operands = draw(1280, width)  # more steps than those of rows that always follow their maxima
    scores = operands[0].double() @ operands[1].double().mT / width**0.5
    if is_causal:
        scores.masked_fill_(torch.ones(1280, 1280, dtype=torch.bool, device="cuda").triu(1), -torch.inf)
    wanted = {"column_sums": scores.softmax(-1).sum(-2), "max_logit": scores.amax((-1, -2))}
    for name, want in wanted.items():
        aux = attend(operands, is_causal, outputs={name: OUTPUTS[name]}, return_aux=AuxRequest())()[1]
        off = float((getattr(aux, name) - want).abs().max())
        if not off < 1e-3:
            sys.exit(f"{name} is off by {off}")


def calls(width, is_causal):
    """Returns {name: function}."""
    operands = draw(LENGTH, width)
    return {
        "forward": attend(operands, is_causal),
        **{
            name: attend(operands, is_causal, outputs={name: output}, return_aux=AuxRequest())
            for name, output in OUTPUTS.items()
        },
        "max_scores": attend(operands, is_causal, return_aux=AuxRequest(max_scores=True)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=argparse.FileType("a"), required=True)
    out = parser.parse_args().out
    gpu = clocks.Gpu()
    torch.manual_seed(0)
    for width in (128, 64):
        for is_causal in (False, True):
            check(width, is_causal)
            ms = clocks.means(gpu, calls(width, is_causal), BURST, 1, out, head_dim=width, causal=is_causal)
            more = ", ".join(f"{name} {of / ms['forward'] - 1:.3f}" for name, of in ms.items() if name != "forward")
            print(
                f"d{width} {'causal' if is_causal else 'no mask'}: forward {ms['forward']:.3f} ms; more of it: {more}",
                flush=True,
            )


if __name__ == "__main__":
    main()
