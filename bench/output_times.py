#!/usr/bin/env python3
"""Times outputs of mods under load on one GPU, next to the forward pass that they look at; or their gradients, next to
the backward pass.

  ATTNC_LIBRARY=libattnc.so python3 bench/output_times.py [--backward] --out FILE.jsonl

q, k and v are bf16, 2 x 16 x 8192 rows of 128 and of 64, causal or without a mask. In turns (clocks.py): the forward
pass; the same with column sums, with the entropy of rows, with the largest logit of heads and with row maxima, which
take no walk. Column sums and the largest logits are first compared with those of a matrix of scores, at 1280 rows.
Prints what each costs more, in forward passes.

With --backward: the backward pass of a loss that reads out; the same if it also reads column sums, or entropies.
Gradients of q by column sums are first compared with those by a matrix. Prints what each costs more, in backward passes.
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
    operands[0].requires_grad_()
    q = operands[0].detach().double().requires_grad_()
    scores = q @ operands[1].double().mT / width**0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones(1280, 1280, dtype=torch.bool, device="cuda").triu(1), -torch.inf)
    wanted = {"column_sums": scores.softmax(-1).sum(-2), "max_logit": scores.amax((-1, -2))}
    found = {}
    for name, want in wanted.items():
        aux = attend(operands, is_causal, outputs={name: OUTPUTS[name]}, return_aux=AuxRequest())()[1]
        found[name] = getattr(aux, name)
        off = float((found[name] - want).abs().max())
        if not off < 1e-3:
            sys.exit(f"{name} is off by {off}")
    weighs = torch.randn_like(found["column_sums"])
    (is_,) = torch.autograd.grad((found["column_sums"] * weighs).sum(), operands[:1])
    (be,) = torch.autograd.grad((wanted["column_sums"] * weighs).sum(), q)
    off = float((is_ - be).abs().max() / be.abs().max())
    if not off < 2e-2:
        sys.exit(f"gradients of column sums are off by {off} of the largest")


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


def backward_calls(width, is_causal):
    """Returns {name: function}. A loss gives random numbers to what it reads."""
    operands = [x.requires_grad_() for x in draw(LENGTH, width)]

    def backward(results):
        given = [torch.randn_like(x) for x in results]
        return lambda: torch.autograd.grad(results, operands, given, retain_graph=True)

    found = {"backward": backward([attend(operands, is_causal)()])}
    for name in ("column_sums", "entropy"):
        out, aux = attend(operands, is_causal, outputs={name: OUTPUTS[name]}, return_aux=AuxRequest())()
        found[name] = backward([out, getattr(aux, name)])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=argparse.FileType("a"), required=True)
    parser.add_argument("--backward", action="store_true")
    arguments = parser.parse_args()
    of, timed = ("backward", backward_calls) if arguments.backward else ("forward", calls)
    gpu = clocks.Gpu()
    torch.manual_seed(0)
    for width in (128, 64):
        for is_causal in (False, True):
            check(width, is_causal)
            ms = clocks.means(gpu, timed(width, is_causal), BURST, 1, arguments.out, head_dim=width, causal=is_causal)
            more = ", ".join(f"{name} {time / ms[of] - 1:.3f}" for name, time in ms.items() if name != of)
            mask = "causal" if is_causal else "no mask"
            print(f"d{width} {mask}: {of} {ms[of]:.3f} ms; more of it: {more}", flush=True)


if __name__ == "__main__":
    main()
