#!/usr/bin/env python3
"""Predicts attention over several GPUs on one: each rank computes by itself, one after the other, and transfers are
modelled.

  ATTNC_LIBRARY=build/libattnc.so python3 bench/shards_predicted.py > results.jsonl

Plans, kernels, packing and merging are those of attnc.torch.distributed; a process group that moves nothing stands in for
NCCL. Times of computing are measured, bytes are counted, and shards_model.py adds transfers at 300 and 450 GB/s a rank. The
efficiency is the time of one process that computes the whole, t1, over the world times that of the slowest rank. It is a
prediction: nothing travels.

Lines are JSON: what ran, then one for each mask, world and rows of a rank: [1, heads, world * rows, 128] in bf16. With 8192
rows there are 64 heads and 8 KV heads, as in MagiAttention's figures. bench/shards_report.py makes a table of them."""

import argparse
import contextlib
import datetime
import functools
import json
import statistics
import sys
import time

import shards  # first: it finds attnc
import torch
import torch.distributed as dist
from shards_model import Begin, Wait, computed, ends, received
from torch.testing._internal.distributed.fake_pg import FakeStore

import attnc.torch as whole
from attnc.torch.distributed import ShardPlan, flex_attention, shard

BANDWIDTHS = 300e9, 450e9
HEADS_OF = {8192: (64, 8), 32768: (16, 2), 131072: (4, 1)}  # fewer heads for longer rows, to end in time
HEADS = 16, 2
MS_OF_REPETITIONS, MOST_REPETITIONS = 40, 5
LEAD = 7_000_000  # cycles, about 4 ms: the host enqueues before the GPU begins, so that no gap between kernels is its own


def softcap(length, device, heads):
    return lambda s, b, h, q, k: 30 * torch.tanh(s / 30), lambda b, h, q, k: q >= k, []


MASKS = {"causal": shards.causal, "window": shards.window4096, "documents": shards.documents}
MODS = {"alibi": shards.alibi, "softcap": softcap}  # over a causal mask


class Trace:
    """The steps of a call, for shards_model.py. Stands in for the collectives that it makes."""

    def __init__(self, clock):
        self.clock, self.steps, self.count = clock, [], 0
        self.begin = clock.mark()

    def cut(self, step=None):
        self.steps.append((self.begin, self.clock.mark()))
        if step is not None:
            self.steps.append(step)

    def resume(self):
        self.begin = self.clock.mark()

    def all_to_all_single(self, output, input, output_splits, input_splits, group=None, async_op=False):
        rank = dist.get_rank(group)
        row = input[0].numel() * input.element_size() if len(input) else 0
        sent, come = (
            sum(count for peer, count in enumerate(splits) if peer != rank) for splits in (input_splits, output_splits)
        )
        row = row or (output[0].numel() * output.element_size() if len(output) else 0)
        return self.transfer(sent * row, come * row, async_op, output)

    def all_reduce(self, tensor, op=None, group=None, async_op=False):
        bytes = 2 * tensor.numel() * tensor.element_size()  # as by a ring
        return self.transfer(bytes, bytes, async_op)

    def transfer(self, sent, come, is_async, output=None):
        self.cut(Begin(sent, come))
        if output is not None:
            output.normal_()  # what lay there could be huge, and scores with it
        self.resume()
        work = Work(self, self.count)
        self.count += 1
        return work if is_async else work.wait()

    def of_ms(self):
        return [self.clock.between(*step) if type(step) is tuple else step for step in self.steps]


class Work:
    def __init__(self, trace, number):
        self.trace, self.number = trace, number

    def wait(self):
        self.trace.cut(Wait(self.number))
        self.trace.resume()


@contextlib.contextmanager
def collectives(trace):
    names = "all_to_all_single", "all_reduce"
    kept = [getattr(dist, name) for name in names]
    for name in names:
        setattr(dist, name, getattr(trace, name))
    try:
        yield
    finally:
        for name, function in zip(names, kept):
            setattr(dist, name, function)


def traced(run, clock):
    """Returns the steps of a call, and what it returns."""
    if clock.is_gpu:
        torch.cuda._sleep(LEAD)
    trace = Trace(clock)
    with collectives(trace):
        result = run()
    trace.cut()
    clock.wait()
    return trace.of_ms(), result


def steps_of(run, clock):
    """Returns the steps of a call, the median of several after one that warms up, and what it returns."""
    traced(run, clock)
    all, result = [], None
    while len(all) < MOST_REPETITIONS and (not all or sum(map(computed, all)) < MS_OF_REPETITIONS):
        result = None  # its memory is free for the next
        steps, result = traced(run, clock)
        all.append(steps)
    return [step[0] if isinstance(step[0], (Begin, Wait)) else statistics.median(step) for step in zip(*all)], result


def both_passes(run, inputs, dout, learned, clock):
    """Returns the steps of the forward pass, and of the backward pass."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    forward, out = steps_of(lambda: run(*inputs), clock)
    differentiate = functools.partial(torch.autograd.grad, out, [*inputs, *learned], dout, retain_graph=True)
    return forward, steps_of(differentiate, clock)[0]


def drawn(rows, heads, kv_heads, device):
    """Returns ([q, k, v], dout)."""
    q, k, v, dout = (
        torch.randn(1, count, rows, shards.WIDTH, device=device, dtype=torch.bfloat16)
        for count in (heads, kv_heads, kv_heads, heads)
    )
    return [q, k, v], dout


def of_one(mod, length, heads, clock, device):
    score_mod, mask_mod, learned = mod
    mask = whole.create_block_mask(mask_mod, None, None, length, length, device=device)
    run = functools.partial(whole.flex_attention, score_mod=score_mod, block_mask=mask, enable_gqa=True)
    return [computed(steps) for steps in both_passes(run, *drawn(length, *heads, device), learned, clock)]


def of_rank(mod, plan, rank, heads, clock, device):
    score_mod, mask_mod, learned = mod
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=plan.world)
    try:
        run = functools.partial(
            flex_attention, score_mod=score_mod, block_mask=mask_mod, plan=plan, enable_gqa=True
        )
        return both_passes(run, *drawn(len(plan.rows(rank)), *heads, device), learned, clock)
    finally:
        dist.destroy_process_group()


def predict(name, world, rows, heads, groups, device):
    """Returns the line of a case."""
    clock, length, heads = shards.Clock(device), world * rows, heads or HEADS_OF.get(rows, HEADS)
    mod = {**MASKS, **MODS}[name](length, device, heads[0])
    plan = ShardPlan(mod[1], (1, *heads, length, length), world, head_groups=groups)
    before = of_one(mod, length, heads, clock, device)
    passes = list(zip(*[of_rank(mod, plan, rank, heads, clock, device) for rank in range(world)]))
    # Of a GPU as warm as that of the ranks. Long ones are the same before and after.
    after = of_one(mod, length, heads, clock, device) if sum(before) < 500 else before
    line = {
        "mask": name, "world": world, "rows": rows, "heads": heads[0], "kv_heads": heads[1], "head_groups": groups,
        "layout": plan.layout, "transfers": sum(isinstance(step, Begin) for step in passes[0][0]),
        "planned_bytes": plan.bytes_received, "planned": round(plan.efficiency, 3),
        "joined": plan.joins(0, 1, heads[0] // groups, heads[1] // groups, 2 * shards.WIDTH, shards.WIDTH, 2),
    }  # fmt: skip
    t1 = [(x + y) / 2 for x, y in zip(before, after)]
    for name, number, ranks in (("forward", 1, [passes[0]]), ("both", 2, passes)):
        found = {
            "t1_ms": round(sum(t1[:number]), 4),
            "ranks_ms": [round(sum(map(computed, of_rank)), 4) for of_rank in zip(*ranks)],
            "bytes": sum(received(steps) for of_pass in ranks for steps in of_pass),
            "most_bytes": max(sum(map(received, of_rank)) for of_rank in zip(*ranks)),
        }
        for bandwidth in BANDWIDTHS:
            t = sum(max(ends(of_pass, bandwidth)) for of_pass in ranks)
            found[f"t_ms_{bandwidth / 1e9:.0f}"] = round(t, 4)
            found[f"efficiency_{bandwidth / 1e9:.0f}"] = round(found["t1_ms"] / (world * t), 4)
        line[name] = found
    return line


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=numbers, default=[8, 4, 2], help="default: 8,4,2")
    parser.add_argument("--rows", type=numbers, default=list(HEADS_OF), help="of a rank; default: 8192,32768,131072")
    parser.add_argument("--mods-rows", type=numbers, default=[8192], help="of ALiBi and softcap; default: 8192")
    parser.add_argument("--heads", type=numbers, help="of q, and of k and v; default: 64,8, then 16,2, then 4,1")
    parser.add_argument("--head-groups", type=int, default=1)
    parser.add_argument("--limit", type=float, default=200, help="seconds after which no case begins; default: 200")
    parser.add_argument("--device", default="cuda", help="cpu: to try the program")
    arguments = parser.parse_args()
    device = torch.device(arguments.device, 0)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no GPU: --device cpu tries the program")
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "none"
    head = {"gpu": gpu, "torch": torch.__version__, "date": str(datetime.date.today()), "prediction": True,
            "command": " ".join(["bench/shards_predicted.py", *sys.argv[1:]])}  # fmt: skip
    print(json.dumps(head), flush=True)
    start = time.perf_counter()
    for world in arguments.worlds:
        cases = [(name, rows) for rows in arguments.rows for name in MASKS]
        if world == arguments.worlds[0]:
            cases += [(name, rows) for rows in arguments.mods_rows for name in MODS]
        for name, rows in cases:
            spent = time.perf_counter() - start
            if spent > arguments.limit:
                print(json.dumps({"mask": name, "world": world, "rows": rows, "error": "left out: --limit"}), flush=True)
                continue
            try:
                line = predict(name, world, rows, arguments.heads, arguments.head_groups, device)
            except Exception as error:  # the others are still worth their figures
                line = {"mask": name, "world": world, "rows": rows, "error": f"{type(error).__name__}: {error}"}
            if device.type == "cuda":
                torch.cuda.empty_cache()
            line["seconds"] = round(time.perf_counter() - start - spent, 1)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
