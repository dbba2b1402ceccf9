#!/usr/bin/env python3
"""Tables 1 to 4 of Faster Neighborhood Attention (arXiv:2403.04690): a sample of problems, with attnc in them.

  ATTNC_LIBRARY=libattnc.so python3 bench/papers/fna.py --out FILE.jsonl --seconds 300

The paper's 14,274 problems are not published as a list, so problems are drawn, by their number: one to three axes, 1k to 32k
tokens, 65,536 with the batch, evenly by logarithm; 4 to 16 heads of 64 or 128; windows from 3 tokens to the whole axis, evenly by
logarithm; half of them dilated, a quarter causal along the first axis. All are timed forward in bf16, and each fourth one backward.
One in six is also timed in fp16, and one in six in fp32, of each a fourth backward. Next to NATTEN, its reference kernels on small
problems, and self attention by cuDNN, for fp32 by PyTorch's memory-efficient kernels, which computes another function: an upper bound
of work. NATTEN's Hopper kernels take no fp32.

Kernels of attnc are compiled first, by --processes at a time, into the cache that they share, for at most a third of --seconds.
"""

import argparse
import dataclasses
import math
import os
import random
import subprocess
import sys
import time
import types

import common
from common import Section, peers, speed

NAME = "fna"
PROBLEMS, EVERY = 360, 4  # of which a fourth is also timed backward
OTHERS = {"fp16": 1, "fp32": 4}  # dtypes besides bf16: of problems whose number is this, modulo 6
FEW = 16  # one in that many problems is timed with NATTEN's reference kernels, or where only FlexAttention can compute it
SMALL = 4096  # tokens of problems that reference kernels are timed on: they take seconds
TOKENS = 65536
AXES = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A case of speed.run(). `window`, `dilation` and `is_causal` have an entry for each axis of `extents`."""

    kind: str
    number: int
    batch: int
    heads: int
    width: int
    extents: tuple
    window: tuple
    dilation: tuple
    is_causal: tuple
    dtype: str = "bf16"
    variant = "neighborhood"
    page, is_packed, is_latent = 0, False, False

    kv_heads = property(lambda self: self.heads)
    width_v = property(lambda self: self.width)
    length = property(lambda self: math.prod(self.extents))
    is_short = property(lambda self: self.kind == "forward")

    @property
    def id(self):
        of = lambda values: "x".join(map(str, values))
        more = f"-by{of(self.dilation)}" if max(self.dilation) > 1 else ""
        more += ("-causal" if any(self.is_causal) else "") + (f"-{self.dtype}" if self.dtype != "bf16" else "")
        sizes = f"b{self.batch}h{self.heads}-{of(self.extents)}-w{of(self.window)}{more}-d{self.width}"
        return f"{self.kind}-{len(self.extents)}d-{self.number}-{sizes}"

    def sequences(self):
        return self.batch, self.length

    def pairs(self):
        """Returns the unmasked pairs of all sequences and heads."""
        found = self.batch * self.heads
        for extent, window, dilation, is_causal in zip(self.extents, self.window, self.dilation, self.is_causal):
            found *= sum(min(i // dilation + 1, window) for i in range(extent)) if is_causal else extent * window
        return found

    def flops(self):
        return (10 if self.kind == "backward" else 4) * self.pairs() * self.width

    def rate(self, ms):
        return {"tflops": float(f"{self.flops() / ms / 1e9:.5g}")}

    def tiny(self):
        extents = {1: (48,), 2: (8, 6), 3: (4, 4, 4)}[len(self.extents)]
        dilation = tuple(min(d, 2) for d in self.dilation)
        window = tuple(min(w, max(2, n // d * 2 // 3)) for w, n, d in zip(self.window, extents, dilation))
        return dataclasses.replace(self, batch=1, heads=2, width=16, extents=extents, window=window, dilation=dilation)


def problem(number, kind="forward", dtype="bf16"):
    """Returns the problem of a number: the same on all machines, and for all dtypes."""
    draw = random.Random(f"neighborhood {number}")
    axes = AXES[number % len(AXES)]
    between = lambda low, high: low * (high / low) ** draw.random()  # evenly by logarithm
    side = between(1024, 32768) ** (1 / axes)
    extents = tuple(max(6, 2 * round(between(side / 1.5, side * 1.5) / 2)) for _ in range(axes))
    is_dilated, is_causal = draw.random() < 0.5, draw.random() < 0.25
    dilation = tuple(int(between(1, n / 3)) if is_dilated else 1 for n in extents)
    window = tuple(min(n // d, round(between(3, n // d))) for n, d in zip(extents, dilation))
    heads, width = draw.choice((4, 8, 16)), draw.choice((64, 128))
    batch = max(1, TOKENS // math.prod(extents))
    return Problem(kind, number, batch, heads, width, extents, window, dilation, (is_causal,) + (False,) * (axes - 1), dtype)


FORWARD = tuple(problem(number) for number in range(PROBLEMS))
BACKWARD = tuple(problem(number, "backward") for number in range(0, PROBLEMS, EVERY))


def of_dtype(dtype):
    numbers = range(OTHERS[dtype], PROBLEMS, 6)
    forward = tuple(problem(number, "forward", dtype) for number in numbers)
    return forward + tuple(problem(number, "backward", dtype) for number in numbers[::EVERY])


SECTIONS = (Section("tables-1-3", FORWARD, "ratios"), Section("table-4", BACKWARD, "ratios"),
            *(Section(dtype, of_dtype(dtype), "ratios") for dtype in OTHERS))  # fmt: skip


def ours(case, q, k, v):
    from attnc import natten

    of_axes, shape = getattr(natten, f"na{len(case.extents)}d"), q.shape
    on_grid = lambda x: x.view(len(x), *case.extents, *x.shape[2:])
    options = {"kernel_size": case.window, "dilation": case.dilation, "is_causal": case.is_causal}
    return {"": lambda: of_axes(*map(on_grid, (q, k, v)), **options).reshape(shape)}


def self_attention(case, q, k, v):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]  # the last takes fp32

    def call():
        with sdpa_kernel(backends, set_priority=True):
            return scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

    return {"": call}


def modules():
    """Returns the peers, attnc first."""
    import attnc
    import torch

    every = lambda case: True
    like = types.SimpleNamespace(version=lambda: f"attnc {attnc.version()}", is_heads_last=every)
    torchs = types.SimpleNamespace(version=lambda: f"torch {torch.__version__}", is_heads_last=every)
    found = [common.Extra(speed.OURS, like, every, ours)]
    for peer in peers.found(["natten"]):
        if peer.natten.HAS_LIBNATTEN:
            is_small = lambda case: (case.number % FEW == 10 or case.dtype == "fp32") and case.length <= SMALL
            found += [peer, common.Extra("natten_reference", peer, is_small, peer.reference)]
        else:  # FlexAttention compiles for seconds
            found.append(common.Extra(peer.NAME, peer, lambda case: case.number % FEW == 0, peer.ways))
    return [*found, common.Extra("self_attention", torchs, every, self_attention, is_other=True)]


def warm(cases, part, of, operands_of=speed.Operands):
    """Calls attnc once for each `of`-th case, so that its kernels are in the cache on disk."""
    for case in cases[part::of]:
        operands = operands_of(case)
        peer = types.SimpleNamespace(ways=ours, is_heads_last=lambda case: True)
        try:
            with operands.gradients():
                operands.runs(peer)[""]()[1]()
        except Exception as error:  # told when it is timed
            print(f"{case.id}: {peers.reason(error)}", file=sys.stderr)
        operands.release()


def warm_by(options, seconds):
    """Returns what compiles the cases that no run has timed, by processes that end within these seconds."""

    def before(cases):
        known = common.done(options)
        if not any(case.id not in known.rows for case in cases):
            return
        command = [sys.executable, __file__, "--out", options.out, "--only", options.only, "--part", options.part]
        command += ["--dry"] if options.is_dry else []
        begun = [subprocess.Popen([*command, "--warm", f"{i}/{options.processes}"]) for i in range(options.processes)]
        end = time.monotonic() + seconds
        for process in begun:
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    return before


def main(arguments=None):
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    own.add_argument("--warm")
    mine, rest = own.parse_known_args(arguments)
    options = common.parsed(rest, __doc__, modules=(), burst=0.0, rounds=6)
    options.processes = mine.processes
    if mine.warm:
        part, of = map(int, mine.warm.split("/"))
        known = common.done(options).rows
        cases = [case for case in common.cases_of(SECTIONS, options) if case.id not in known]
        return warm(cases, part, of, common.DryOperands if options.is_dry else speed.Operands)
    before = warm_by(options, min(options.seconds, 600) / 3) if options.processes else None
    common.run(SECTIONS, options, () if options.list else modules(), before)


if __name__ == "__main__":
    main()
