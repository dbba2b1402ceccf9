#!/usr/bin/env python3
"""Checks attention over several processes next to PyTorch's own ways to divide a model: FSDP2, tensor parallel,
context_parallel, DDP. Results and gradients are those of one process.

  ATTNC_LIBRARY=build/libattnc.so python3 tests/python/distributed_beside_test.py [NAME]

Needs torch; prints SKIPPED without it."""

import os
import sys
import traceback

import ranks  # first: it finds torch and attnc

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_tensor
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(0)
import torch
import torch.distributed as dist
from attention import relative_error

import attnc.torch as whole
from attnc.torch.distributed import ShardPlan, flex_attention, shard

PROCESSES, BATCH, HEADS, WIDTH, LENGTH = 4, 2, 4, 8, 157
MODEL = HEADS * WIDTH


def causal(b, h, q, k):
    return q >= k


class Attention(torch.nn.Module):
    """Attention with a slope for each head. `attend` computes it; `first_head` is the first of this process."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        # The bias of keys has a gradient of 0, of which only rounding is left.
        self.q, self.k, self.v, self.out = (torch.nn.Linear(MODEL, MODEL, bias=i != 1) for i in range(4))
        self.slopes = torch.nn.Parameter(torch.linspace(0, 0.1, HEADS))

    def forward(self, x, attend, first_head=0):
        slopes = self.slopes
        q, k, v = (of(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2) for of in (self.q, self.k, self.v))
        out = attend(q, k, v, lambda s, b, h, q, k: s + slopes[h + first_head] * (k - q))
        return self.out(out.transpose(1, 2).flatten(2))


def drawn():
    return torch.randn(BATCH, LENGTH, MODEL, generator=torch.Generator().manual_seed(1))


def by_one(x):
    """Returns the model's result, and its gradients by name."""
    model = Attention()
    mask = whole.create_block_mask(causal, None, None, LENGTH, LENGTH, device="cpu")
    out = model(x, lambda q, k, v, score_mod: whole.flex_attention(q, k, v, score_mod, mask))
    out.square().sum().backward()
    return out.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def compare(what, found, wanted):
    error = relative_error(found, wanted)
    assert error <= 2e-5, f"{what} differs by {error}"


def fsdp2(rank):
    """FSDP2 averages all gradients, those of captured parameters as well. Before PyTorch 2.9 it adds them over gloo."""
    if not hasattr(torch.cpu.Stream, "record_event"):
        return  # FSDP2 of this PyTorch needs a GPU
    x = drawn()
    out, wanted = by_one(x)
    for options in ({}, {"head_groups": 2}):
        plan = ShardPlan(causal, (BATCH, HEADS, HEADS, LENGTH, LENGTH), PROCESSES, block=64, **options)
        model = fully_shard(Attention())
        attend = lambda q, k, v, mod: flex_attention(q, k, v, mod, causal, plan=plan, reduce_captured=False)
        mine = model(shard(x, plan, rank), attend)
        compare("out", mine, shard(out, plan, rank))
        mine.square().sum().backward()
        found = {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}
        factor = round((wanted["out.bias"].norm() / found["out.bias"].norm()).item())
        assert factor in (1, PROCESSES)
        for name, gradient in found.items():
            compare(name, gradient * factor, wanted[name])


def ddp(rank):
    x = drawn()
    out, wanted = by_one(x)
    plan = ShardPlan(causal, (BATCH, HEADS, HEADS, LENGTH, LENGTH), PROCESSES, block=64)
    model = torch.nn.parallel.DistributedDataParallel(Attention())
    attend = lambda q, k, v, mod: flex_attention(q, k, v, mod, causal, plan=plan, reduce_captured=False)
    mine = model(shard(x, plan, rank), attend)
    compare("out", mine, shard(out, plan, rank))
    mine.square().sum().backward()
    for name, parameter in model.module.named_parameters():
        compare(name, parameter.grad * PROCESSES, wanted[name])


def tensor_parallel(rank):
    """Heads by tensor parallel, rows by a plan, in a mesh of two dims."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "heads"))
    row_rank, head_rank = mesh["rows"].get_local_rank(), mesh["heads"].get_local_rank()
    x = drawn()
    out, wanted = by_one(x)
    plan = ShardPlan(causal, (BATCH, HEADS // 2, HEADS // 2, LENGTH, LENGTH), 2, block=64)
    ways = {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel()}
    model = parallelize_module(Attention(), mesh["heads"], ways)
    attend = lambda q, k, v, mod: flex_attention(q, k, v, mod, causal, plan=plan, group=mesh["rows"])
    mine = model(shard(x, plan, row_rank), attend, first_head=head_rank * HEADS // 2)
    compare("out", mine, shard(out, plan, row_rank))
    mine.square().sum().backward()
    for name, parameter in model.named_parameters():
        if name == "slopes":  # whole over rows; each rank has those of its heads
            found = parameter.grad.clone()
            dist.all_reduce(found, group=mesh.get_group("heads"))
        else:
            found = parameter.grad.full_tensor().clone()
            dist.all_reduce(found, group=mesh.get_group("rows"))
        compare(name, found, wanted[name])


def inside_context_parallel(rank):
    """Its buffers are dealt as the layout zigzag deals rows, if 2 x world divides the length."""
    length = 160
    mesh = init_device_mesh("cpu", (PROCESSES,))
    q, k, v = torch.randn(3, 1, HEADS, length, WIDTH, generator=torch.Generator().manual_seed(1))
    plan = ShardPlan(causal, (1, HEADS, HEADS, length, length), PROCESSES, block=64, layout="zigzag")
    mine = [x.clone() for x in (q, k, v)]
    with context_parallel(mesh, buffers=mine, buffer_seq_dims=[2, 2, 2]):
        out = flex_attention(*mine, None, causal, plan=plan, group=mesh)
    mask = whole.create_block_mask(causal, None, None, length, length, device="cpu")
    compare("out", out, shard(whole.flex_attention(q, k, v, None, mask), plan, rank))


def refused(rank):
    mesh = init_device_mesh("cpu", (PROCESSES,))
    plan = ShardPlan(causal, (1, HEADS, HEADS, LENGTH, LENGTH), PROCESSES, block=64)
    q = distribute_tensor(torch.zeros(1, HEADS, LENGTH, WIDTH), mesh)
    try:
        flex_attention(q, q, q, None, causal, plan=plan, group=mesh)
    except NotImplementedError as error:
        assert "DTensor" in str(error) and "to_local()" in str(error)
    else:
        raise AssertionError("a DTensor is not refused")
    plane = init_device_mesh("cpu", (2, 2))
    x = shard(torch.zeros(1, HEADS, LENGTH, WIDTH), plan, rank)
    try:
        flex_attention(x, x, x, None, causal, plan=plan, group=plane)
    except (RuntimeError, ValueError) as error:
        assert "dim" in str(error), error
    else:
        raise AssertionError("a mesh of two dims is not refused")


def run(rank, path, chosen):
    ranks.join(rank, path, PROCESSES)
    for test in (fsdp2, ddp, tensor_parallel, inside_context_parallel, refused):
        if chosen not in test.__name__:
            continue
        try:
            test(rank)
        except Exception:
            print(f"{test.__name__}, rank {rank}: {traceback.format_exc()}", flush=True)
            os._exit(1)  # the others would wait
    dist.barrier()
    dist.destroy_process_group()


def main():
    ranks.start(run, PROCESSES, "".join(sys.argv[1:2]))
    print("distributed: next to FSDP2, DDP, tensor parallel and context_parallel, results are those of one process")


if __name__ == "__main__":
    main()
