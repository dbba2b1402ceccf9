#!/usr/bin/env python3
"""Compares attention over several GPUs of one host with that of one GPU, and times both.

  ATTNC_LIBRARY=build/libattnc.so python3 bench/shards.py [--world 2] [--rows 16384,65536] [--head-groups 1]

First out and gradients of small problems are compared, RMS of the difference in units of one GPU's; then ms of one GPU
for the whole, t1, and of the slowest of all, t. The efficiency is t1 / (world t). `rows` are those of a rank; [1, 16,
world * rows, 128] in bf16. Needs torch with NCCL, and as many GPUs."""

import argparse
import functools
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools/python"))
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import attnc.torch as whole
from attnc.torch.distributed import ShardPlan, flex_attention, shard

HEADS, WIDTH = 16, 128
ALLOWED = 1e-2  # of bf16
PADDING = 100  # last rows, which checks leave out


def causal(length, device):
    return None, lambda b, h, q, k: q >= k, []


def documents(length, device):
    """Eight causal documents of random lengths."""
    starts = torch.zeros(length, dtype=torch.int32, device=device)
    starts[random.Random(2).sample(range(1, length), 7)] = 1
    of = starts.cumsum(0, dtype=torch.int32)
    return None, lambda b, h, q, k: (of[q] == of[k]) & (q >= k), []


def window(length, device):
    return None, lambda b, h, q, k: (q >= k) & (q - k < 1024), []


def alibi(length, device):
    slopes = torch.full((HEADS,), 0.01, device=device, requires_grad=True)
    return lambda s, b, h, q, k: s + slopes[h] * (k - q), lambda b, h, q, k: q >= k, [slopes]


def softcap(length, device):
    return lambda s, b, h, q, k: 5 * torch.tanh(s / 5), None, []


def padded(length, device):
    """The last rows and keys are padding, by addition."""
    first = length - PADDING
    return lambda s, b, h, q, k: s + torch.where(q < first, 0.0, -1e9) + torch.where(k < first, 0.0, -1e9), None, []


def operands(length, device):
    generator = torch.Generator(device).manual_seed(1)
    return [
        torch.randn(1, HEADS, length, WIDTH, generator=generator, device=device, dtype=torch.bfloat16) for _ in range(4)
    ]


def ways(make, length, rank, world, groups, device):
    """Returns (of all, of this rank): a function that computes out, the operands, dout, and what learns."""
    score_mod, mask_mod, learned = make(length, device)
    plan = ShardPlan(mask_mod, (1, HEADS, HEADS, length, length), world, head_groups=groups)
    mask = mask_mod and whole.create_block_mask(mask_mod, None, None, length, length, device=device)
    *inputs, dout = operands(length, device)
    mine = [shard(x, plan, rank) for x in inputs]
    of_all = functools.partial(whole.flex_attention, score_mod=score_mod, block_mask=mask)
    ours = functools.partial(flex_attention, score_mod=score_mod, block_mask=mask_mod, plan=plan)
    return plan, (of_all, inputs, dout, learned), (ours, mine, shard(dout, plan, rank), learned)


def train(run, inputs, dout, learned):
    """Returns out, and the gradients of the operands and of what learns."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    out = run(*inputs)
    return out, *torch.autograd.grad(out, [*inputs, *learned], dout)


def check(make, length, rank, world, groups, device):
    plan, of_all, ours = ways(make, length, rank, world, groups, device)
    of_all[2][:, :, -PADDING:] = 0
    counts = (plan.rows(rank) < length - PADDING).to(device).unsqueeze(1)
    ours[2].mul_(counts)
    worst = torch.zeros((), device=device)
    for at, (found, wanted) in enumerate(zip(train(*ours), train(*of_all))):
        wanted = (shard(wanted, plan, rank) if at < 4 else wanted).detach().double()
        if at == 0:
            found, wanted = found * counts, wanted * counts
        error = (found.double() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
        worst = torch.maximum(worst, error.float())
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{make.__name__:10} {length:7} rows  {worst.item():.1e}{'' if worst <= ALLOWED else '  WRONG'}", flush=True)


def milliseconds(run, device):
    """Returns the time of a call, of the slowest rank, after two calls that warm up."""
    run(), run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    count = torch.tensor(max(1, min(20, int(300 / begin.elapsed_time(end)))), device=device)
    dist.all_reduce(count, dist.ReduceOp.MIN)
    begin.record()
    for _ in range(int(count)):
        run()
    end.record()
    torch.cuda.synchronize()
    time = torch.tensor(begin.elapsed_time(end) / int(count), device=device)
    dist.all_reduce(time, dist.ReduceOp.MAX)
    return time.item()


def measure(make, length, rank, world, groups, device):
    plan, of_all, ours = ways(make, length, rank, world, groups, device)
    for name in ("forward", "training"):
        times = []
        for run, inputs, *others in (of_all, ours):
            call = functools.partial(run, *inputs) if name == "forward" else functools.partial(train, run, inputs, *others)
            times.append(milliseconds(call, device))
        if rank == 0:
            whole_time, time = times
            print(
                f"{make.__name__:10} {world} x {length // world:6} {plan.layout:10} {name:8} {whole_time:9.3f} "
                f"{time:9.3f}  {whole_time / (world * time):.3f}  (predicted {plan.efficiency:.3f})", flush=True,
            )  # fmt: skip


def run(rank, arguments, store):
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group(
        "nccl", init_method=f"file://{store}", rank=rank, world_size=arguments.world, device_id=device
    )
    if rank == 0:
        cards = f"{arguments.world} x {torch.cuda.get_device_name()}"
        print(f"torch {torch.__version__}, {cards}, head groups {arguments.head_groups}", flush=True)
    for make in (causal, documents, window, alibi, softcap, padded):
        check(make, 4001, rank, arguments.world, arguments.head_groups, device)
    if rank == 0:
        print("\nmask       ranks x rows layout    pass       t1 (ms)    t (ms)  efficiency", flush=True)
    for rows in map(int, arguments.rows.split(",")):
        for make in (causal, documents):
            measure(make, rows * arguments.world, rank, arguments.world, arguments.head_groups, device)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rows", default="16384,65536")
    parser.add_argument("--head-groups", type=int, default=1)
    arguments = parser.parse_args()
    if torch.cuda.device_count() < arguments.world:
        sys.exit(f"there are {torch.cuda.device_count()} GPUs, and {arguments.world} are needed")
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(run, (arguments, f"{folder}/store"), nprocs=arguments.world)


if __name__ == "__main__":
    main()
