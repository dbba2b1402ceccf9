#!/usr/bin/env python3
"""Figures 7, 8, 9 and 12 and section 4.2 of FlexAttention (arXiv:2412.05496), with attnc in them.

  ATTNC_LIBRARY=libattnc.so python3 bench/papers/flexattention.py --out FILE.jsonl --seconds 500

figure-7: forward and backward, causal, of 1k to 64k tokens, 65,536 in all, 16 heads of 64 with 16 or 2 KV heads; the seven
variants at 16k. figure-8: a query over caches of 1k to 128k, 131,072 tokens in all. figure-9: errors of out and gradients
against fp64 (accuracy.py). figure-12: caches in pages, next to contiguous ones under the same mask. full-blocks: causal
masks whose lists say which blocks are full, and the same blocks all called partial, for attnc and FlexAttention. million:
one head, causal, of up to a million tokens in one launch, which the paper has as a motive only.
"""

import dataclasses
import json
import os
import re
import types

import common
from common import Section, peers
from workloads import Workload

NAME = "flexattention"
TOKENS, CACHED, WIDTH = 65536, 131072, 64
LENGTHS = [1024 << i for i in range(7)]
CACHES = [1024 << i for i in range(8)]
VARIANTS = ("noop", "causal", "alibi", "sliding_window", "prefix_lm", "softcap", "document")
PAGES = (16, 32, 64, 128, 256)
KV_HEADS = (16, 2)
ACCURACY = [(variant, dtype) for dtype in ("bf16", "fp16") for variant in VARIANTS]


def case(kind, variant, length, kv_heads, width=WIDTH, **more):
    tokens = CACHED if kind == "decode" else TOKENS
    return Workload(kind, variant, tokens // length, 16, kv_heads, length, width, width, **more)


def both(variant, length, kv_heads):
    return [case(kind, variant, length, kv_heads) for kind in ("forward", "backward")]


BY_LENGTH = tuple(x for kv in KV_HEADS for n in LENGTHS for x in both("causal", n, kv))
BY_VARIANT = tuple(x for kv in KV_HEADS for variant in VARIANTS for x in both(variant, 16384, kv))
DECODE = tuple(case("decode", variant, n, kv) for variant in ("noop", "alibi", "softcap", "sliding_window")
               for kv in KV_HEADS for n in CACHES)  # fmt: skip
PAGED = (*(case("decode", "causal", 16384, 16, page=page) for page in PAGES),
         *(case("decode", "causal", n, 16, page=128) for n in CACHES if n != 16384))  # fmt: skip
LONG = tuple(Workload("forward", "causal", 1, 1, 1, 1 << bits, 128, 128) for bits in (18, 19, 20))
FULL = (*both("causal", 16384, 16), *(Workload(kind, "causal", 2, 16, 16, 8192, 128, 128) for kind in ("forward", "backward")))


def lists_of(case, is_partial, device):
    """Returns a BlockMask with lists of PyTorch; if it `is_partial`, full blocks are among the partial ones."""
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    mask_mod = case.mods(device)[1]
    mask = create_block_mask(mask_mod, None, None, case.length, case.length, device=device)
    if not is_partial:
        return mask
    live = mask.to_dense().int()
    order = live.argsort(dim=-1, descending=True, stable=True).int()
    return BlockMask.from_kv_blocks(live.sum(-1).int(), order, mask_mod=mask_mod, seq_lengths=(case.length,) * 2)


def with_lists(attention, is_partial):
    def ways(case, q, k, v):
        mask = lists_of(case, is_partial, q.device)
        call = attention()
        return {"": lambda: call(q, k, v, block_mask=mask)}

    return ways


def compiled():
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    # Without a reset: it would also forget what peers/flex.py compiled for the case.
    return torch.compile(flex_attention, dynamic=False)


def ours():
    from attnc.torch import flex_attention

    return flex_attention


def contiguous(case, q, k, v):
    from peers.ours import of_cache

    return {"": of_cache(dataclasses.replace(case, page=0), q, k, v)}


def extras(options):
    """Returns the peers of single sections. They are ways of attnc and FlexAttention."""
    known = {peer.NAME: peer for peer in peers.found([name for name in ("ours", "flex") if name in options.peers])}
    full = {case.id for case in (map(common.tiny, FULL) if options.is_dry else FULL)}
    in_full = lambda case: case.id in full
    found = []
    for name, attention in (("attnc", ours), ("flex", compiled)):
        if name in known:
            like = types.SimpleNamespace(version=known[name].version, is_heads_last=lambda case: False)
            found += [common.Extra(f"{name}_{what}", like, in_full, with_lists(attention, what == "partial"))
                      for what in ("lists", "partial")]  # fmt: skip
    if "attnc" in known:
        found.append(common.Extra("attnc_contiguous", known["attnc"], lambda case: bool(case.page), contiguous))
    return found


def accuracy(gpu, options):
    """Appends the lines of figure 9."""
    import accuracy as errors

    about = {"gpu": gpu.name, "driver": gpu.driver, "command": options.command}
    args = types.SimpleNamespace(
        attnc=os.environ.get("ATTNC_COMMAND", str(common.BENCH.parent / "build" / "attnc")), kernel_family="", length=64 if options.is_dry else 2048,
        peers="attnc,unfused,flex,sdpa_cudnn,sdpa_flash",
    )  # fmt: skip
    known, longest, begin = common.done(options).rmse, 0, gpu.now()
    for variant, dtype in ACCURACY[: 2 if options.is_dry else None][options.cases]:
        started = gpu.now()
        name = errors.id_of(variant, dtype, WIDTH, args)
        if name in known or not re.search(options.only, name):
            continue
        if started - begin + longest > options.seconds:
            print("time is up before figure 9: the same command goes on there")
            return
        lines = list(errors.measure(variant, dtype, WIDTH, args))
        with open(options.out, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps({**line, **about}) + "\n" for line in lines))
        longest = max(longest, gpu.now() - started)
        print(f"{lines[0]['id']}  ({gpu.now() - started:.0f} s)", flush=True)


SECTIONS = (
    Section("figure-7-variants", BY_VARIANT, "variant"),
    Section("full-blocks", FULL),
    Section("figure-12", PAGED),
    Section("figure-7", BY_LENGTH, "length"),
    Section("figure-8", DECODE, "length"),
    Section("million", LONG),
    Section("figure-9", ()),
)


def main(arguments=None):
    options = common.parsed(arguments, __doc__, modules=peers.ALL, burst=0.0, rounds=10)
    gpu = common.run(SECTIONS, options, () if options.list else extras(options))
    if gpu:
        with common.in_time(options):
            accuracy(gpu, options)


if __name__ == "__main__":
    main()
