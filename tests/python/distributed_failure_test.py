#!/usr/bin/env python3
"""Checks what becomes of attention over several processes if one of them dies or is late: the others get the error of
their process group, within its time-out, and nothing is half written.

  ATTNC_LIBRARY=build/libattnc.so python3 tests/python/distributed_failure_test.py

Needs torch; prints SKIPPED without it."""

import datetime
import os
import time

import ranks  # first: it finds torch and attnc
import torch

from attnc.torch.distributed import ShardPlan, flex_attention, shard

PROCESSES = 4
FAILS = 3  # this rank
TIMEOUT = 4  # seconds of the process group
LIMIT = 60  # seconds: much more than the time-out, and much less than for ever
HEADS, LENGTH, WIDTH = 4, 256, 8


def everything(b, h, q, k):
    return q + k >= 0


def own_rows(b, h, q, k):
    """Nothing travels: only gradients of captured tensors meet."""
    return q // 64 == k // 64


def run(rank, path, mask_mod, options, fails_in, how):
    """One process. Exits with 0 if all is as it must be."""
    ranks.join(rank, path, PROCESSES, timeout=datetime.timedelta(seconds=TIMEOUT))
    plan = ShardPlan(mask_mod, (1, HEADS, HEADS, LENGTH, LENGTH), PROCESSES, block=64, layout="contiguous", **options)
    assert (plan.bytes_received == 0) == (mask_mod is own_rows and not options)
    drawn = torch.randn(3, 1, HEADS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    slopes = torch.zeros(HEADS, requires_grad=True)
    inputs = [shard(x, plan, rank).requires_grad_() for x in drawn]
    before = [x.detach().clone() for x in inputs]
    for x in (*inputs, slopes):
        x.grad = torch.full_like(x, 7)  # of an earlier step

    def fail(where):
        if rank != FAILS or where != fails_in:
            return
        if how == "dies":
            os._exit(0)
        time.sleep(3 * TIMEOUT)

    began, out, error = time.monotonic(), None, None
    try:
        fail("forward")
        out = flex_attention(*inputs, lambda s, b, h, q, k: s + slopes[h] * (q - k), mask_mod, plan=plan)
        fail("backward")
        began = time.monotonic()
        out.sum().backward()
    except RuntimeError as found:
        error = found
    taken = time.monotonic() - began
    if rank == FAILS:  # it was late, and may have any fate but that of writing half
        assert error is not None
    else:
        assert error is not None, "no error"
        assert taken < LIMIT, f"it took {taken} seconds"
        assert (out is None) == (fails_in == "forward")
        assert any(word in str(error) for word in ("gloo", "Connection", "imed out", "imeout")), error
    for x, was in zip(inputs, before):
        assert torch.equal(x, was)
    for x in (*inputs, slopes):
        assert torch.equal(x.grad, torch.full_like(x, 7)), "a gradient is half written"
    print(f"rank {rank}: {type(error).__name__} after {taken:.1f} s", flush=True)
    os._exit(0)  # the group's own end would wait for the dead


CASES = [
    # mask, options of the plan, where a rank fails, how
    (everything, {}, "forward", "dies"),
    (everything, {}, "backward", "dies"),
    (everything, {}, "forward", "is late"),
    (everything, {}, "backward", "is late"),
    (own_rows, {}, "backward", "dies"),
    (everything, {"head_groups": 2}, "backward", "dies"),
    (own_rows, {"head_groups": 2}, "backward", "dies"),
    (everything, {"head_groups": 4}, "forward", "dies"),
]


def main():
    for mask_mod, options, fails_in, how in CASES:
        print(f"{mask_mod.__name__} {options}: a rank {how} in the {fails_in} pass", flush=True)
        ranks.start(run, PROCESSES, mask_mod, options, fails_in, how)
    print("distributed: failures end in errors of the process group")


if __name__ == "__main__":
    main()
