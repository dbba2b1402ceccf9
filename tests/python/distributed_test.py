#!/usr/bin/env python3
"""Checks attention over several processes: results and gradients are those of one process.

  ATTNC_LIBRARY=build/libattnc.so python3 tests/python/distributed_test.py

Four processes on the CPU exchange by gloo, in groups of 2, 3 and 4, as mods and layouts vary. Needs torch; prints
SKIPPED without it."""

import contextlib
import functools
import itertools
import os
import sys
import time
import traceback
from unittest import mock

import ranks  # first: it finds torch and attnc
import torch
import torch.distributed as dist
from attention import relative_error

import attnc
import attnc.torch as whole
from attnc import ArgumentError, RunError
from attnc.torch import distributed, flex, translation
from attnc.torch.distributed import ShardPlan, flex_attention, shard, unshard

PROCESSES = 4
TOLERANCE = 2e-5
BATCH, HEADS, KV_HEADS, WIDTH = 2, 4, 2, 8


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Each case makes (score_mod, mask_mod, tensors that learn) for lengths of q and kv.


def plain(q_len, kv_len):
    return None, None, []


def causal(q_len, kv_len):
    return None, lambda b, h, q, k: q >= k, []


def window(q_len, kv_len):
    return None, lambda b, h, q, k: (q >= k) & (q - k < 40), []


def documents(q_len, kv_len):
    of = (torch.arange(kv_len) * 7 % 67 < 7).cumsum(0).int()
    return None, lambda b, h, q, k: (of[q] == of[k]) & (q >= k), []


def alibi(q_len, kv_len):
    slopes = torch.tensor([0.5, 0.1, 0.02, 0.7], requires_grad=True)
    return lambda s, b, h, q, k: s + slopes[h] * (k - q) / 16, lambda b, h, q, k: q >= k, [slopes]


def bias(q_len, kv_len):
    of_distance = (drawn(3, HEADS, q_len + kv_len) / 2).requires_grad_()
    of_key = drawn(4, kv_len).requires_grad_()
    return lambda s, b, h, q, k: s + of_distance[h, q - k + kv_len] * of_key[k], None, [of_distance, of_key]


def prefix(q_len, kv_len):
    length = torch.tensor([30, 110])
    return None, lambda b, h, q, k: (k < length[b]) | (q >= k), []


def softcap(q_len, kv_len):
    return lambda s, b, h, q, k: 3 * torch.tanh(s / 3), lambda b, h, q, k: q >= k, []


def tree(q_len, kv_len):
    # Token i descends from (i - 1) // 3; it sees its ancestors and itself.
    entry = torch.zeros(kv_len, dtype=torch.int32)
    leave = torch.zeros(kv_len, dtype=torch.int32)
    clock, stack = 0, [(0, False)]
    while stack:
        node, is_done = stack.pop()
        clock += 1
        (leave if is_done else entry)[node] = clock
        if not is_done:
            stack += [(node, True)] + [(child, False) for child in range(3 * node + 1, min(3 * node + 4, kv_len))]
    return None, lambda b, h, q, k: (entry[k] <= entry[q]) & (leave[q] <= leave[k]), []


def padded(q_len, kv_len):
    return lambda s, b, h, q, k: torch.where(k < 120, s, -1e9), None, []


def few_rows(q_len, kv_len):
    return None, lambda b, h, q, k: (q > 150) & (k < 20), []


def of_heads(q_len, kv_len):
    return None, lambda b, h, q, k: (h >= 2) & (q >= k) | (k == 3), []


def ahead(q_len, kv_len):
    return None, lambda b, h, q, k: (k >= q) & (k - q < 100) | (q % 192 >= 128) & (k > kv_len - 14), []


def video(q_len, kv_len):
    """Frames of 5 x 8 tokens, of which each sees a neighborhood."""
    near = lambda x, y, most: (x - y).abs() <= most
    return None, lambda b, h, q, k: (
        near(q // 40, k // 40, 1) & near(q // 8 % 5, k // 8 % 5, 1) & near(q % 8, k % 8, 2)
    ), []


def nothing(q_len, kv_len):
    return None, lambda b, h, q, k: q < k - 1000, []


MADE = (plain, causal, window, documents, alibi, bias, prefix, softcap, tree, padded, few_rows, of_heads, nothing)


def gradients(out, lse, weights, inputs, learned):
    """Returns the gradients of a sum over out and lse."""
    of_out, of_lse = weights
    loss = (out * of_out).sum() + (lse.masked_fill(lse == -torch.inf, 0) * of_lse).sum()
    found = torch.autograd.grad(loss, [*inputs, *learned], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip([*inputs, *learned], found)]


def operands(q_len, kv_len, dtype=torch.float32):
    shapes = (HEADS, q_len), (KV_HEADS, kv_len), (KV_HEADS, kv_len)
    return [
        drawn(seed, BATCH, heads, length, WIDTH).to(dtype).requires_grad_() for seed, (heads, length) in enumerate(shapes)
    ]


@functools.cache
def expected(name, q_len, kv_len):
    """Returns (out, lse, gradients) of one process, in fp32, and the weights of the loss."""
    score_mod, mask_mod, learned = globals()[name](q_len, kv_len)
    inputs = operands(q_len, kv_len)
    mask = mask_mod and whole.create_block_mask(mask_mod, BATCH, HEADS, q_len, kv_len, device="cpu")
    out, lse = whole.flex_attention(*inputs, score_mod, mask, enable_gqa=True, return_lse=True)
    weights = drawn(5, *out.shape), drawn(6, *lse.shape)
    return out.detach(), lse.detach(), gradients(out, lse, weights, inputs, learned), weights


def compare(name, found, wanted, tolerance=TOLERANCE):
    assert found.shape == wanted.shape
    error = relative_error(found, wanted) if found.numel() else 0
    assert error <= tolerance, f"{name} differs by {error}"


def check(group, make, q_len=197, kv_len=197, **options):
    """Compares a case in a group with one process."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    out, lse, wanted, weights = expected(make.__name__, q_len, kv_len)
    score_mod, mask_mod, learned = make(q_len, kv_len)
    # So few rows would be joined by prediction.
    options = {"overlap": True, **options}
    plan = ShardPlan(mask_mod, (BATCH, HEADS, KV_HEADS, q_len, kv_len), world, block=64, **options)
    ours = lambda x, keys=False, dim=2: shard(x, plan, rank, dim, keys=keys)
    q, k, v = (ours(x, bool(at)).detach().requires_grad_() for at, x in enumerate(operands(q_len, kv_len)))
    my_out, my_lse = flex_attention(
        q, k, v, score_mod, mask_mod, enable_gqa=True, return_lse=True, plan=plan, group=group
    )
    compare("out", my_out, ours(out))
    compare("lse", my_lse, ours(lse))
    found = gradients(my_out, my_lse, [ours(x) for x in weights], [q, k, v], learned)
    for at, one in enumerate(wanted):
        compare(f"gradient {at}", found[at], ours(one, bool(at)) if at < 3 else one)
    assert torch.equal(unshard(ours(out), plan, group=group), out)
    return plan


def check_window(group):
    """Compares a window whose ranks wait for keys, which then lie in one interval."""
    plan, rank = check(group, window, layout="contiguous", overlap=False), dist.get_rank(group)
    stage = plan.stages_of(0, rank, torch.device("cpu"), True)[1]
    assert (stage.own.start > 0) == (rank > 0) and stage.own.stop <= stage.key_count
    index = torch.arange(stage.key_count, dtype=torch.int32)
    assert torch.equal(stage.keys(index), index + stage.keys(0))


def check_video(group, frames, **options):
    """Compares frames, of which each rank has whole ones: it computes by boxes."""
    make = functools.partial(check, group, video, frames * 40, frames * 40)
    plan, rank = make(**options), dist.get_rank(group)
    assert plan.layout == "contiguous" and not any(len(plan.rows(one)) % 40 for one in range(plan.world))
    stage = plan.stages_of(0, rank, torch.device("cpu"), not options.get("overlap"))[-1]
    if rank == 1 and not options.get("overlap"):
        mods = distributed._placed(None, None, plan.masks[0], stage, 0)
        problem = 1, HEADS, KV_HEADS, len(plan.rows(rank)), stage.key_count
        text, tensors, numbers = translation.translate(*mods, device=torch.device("cpu"), problem=problem).given()
        for training in (False, True):
            found = distributed.mod_of(text).explain(problem, captures={**tensors, **numbers}, arch="sm_90a", training=training)
            assert found["kernel"]["family"] == "grid", found["kernel"]


def cases_of(groups):
    """Yields the name, the group and the check of each test."""
    for make in MADE:
        for world in (2, 3, 4):
            yield f"{make.__name__} on {world}", groups[world], functools.partial(check, make=make)
    for layout in ("contiguous", "zigzag", "greedy"):
        yield layout, groups[4], functools.partial(check, make=alibi, layout=layout, stages=3)
    # Stages concern rows 64 to 191 of the first rank, and 128 to 191.
    spans = {"make": ahead, "layout": "contiguous", "stages": 3, "overlap": True}
    yield "spans of rows", groups[4], functools.partial(check, q_len=768, kv_len=768, **spans)
    yield "rows of a stage are dense", groups[4], dense_rows
    yield "spans of rows in bf16", groups[4], functools.partial(half, length=768, **spans)
    for make in MADE:
        yield f"{make.__name__} on 3, joined", groups[3], functools.partial(check, make=make, overlap=False)
    yield "joined, a window of one interval", groups[4], functools.partial(check_window)
    for world, frames in ((2, 7), (3, 10), (4, 12), (4, 3)):
        for overlap in (True, False):
            run = functools.partial(check_video, frames=frames, overlap=overlap, layout="contiguous")
            yield f"{frames} frames on {world}, overlap {overlap}", groups[world], run
    yield "frames, the layout by prediction", groups[4], functools.partial(check_video, frames=12, overlap=False)
    for options in ({"stages": 3}, {"head_groups": 2}, {"q_len": 3, "kv_len": 3}, {"q_len": 70}):
        yield f"joined, {options}", groups[4], functools.partial(check, make=prefix, overlap=False, **options)
    for make in MADE:
        for world in (2, 4):
            name = f"{make.__name__} on {world}, two groups of heads"
            yield name, groups[world], functools.partial(check, make=make, head_groups=2)
    yield "more teams than rows", groups[4], functools.partial(check, make=bias, q_len=3, kv_len=3, head_groups=2)
    yield "teams, other lengths of keys", groups[4], functools.partial(check, make=prefix, q_len=70, head_groups=2)
    for world, options in (
        (2, {}), (3, {"layout": "zigzag"}), (4, {"head_groups": 2}), (2, {"head_groups": 2}), (3, {"overlap": True}),
    ):  # fmt: skip
        yield f"packed on {world}", groups[world], functools.partial(packed, **options)
    yield "more ranks than rows", groups[4], functools.partial(check, make=alibi, q_len=3, kv_len=3)
    yield "other lengths of keys", groups[3], functools.partial(check, make=prefix, q_len=70)
    yield "mesh", groups[4], mesh
    for options in ({}, {"overlap": False}, {"head_groups": 2}, {"dropout_p": 0.375}):
        yield f"dropped, {options}", groups[2], functools.partial(dropped, **options)
    for test in (compiled, two_masks, half, padded_rows, changed_lse, without_gradients, of_shards, predicted, mistakes):
        yield test.__name__, groups[3 if test is two_masks else 2], test


def packed(group, **options):
    """A packed batch is its sequences, one by one; some are empty. Mods see sequences and positions in them."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    q_lengths, kv_lengths = [70, 0, 131, 1, 45], [70, 9, 80, 1, 0]
    cu_q, cu_kv = ([0, *itertools.accumulate(lengths)] for lengths in (q_lengths, kv_lengths))
    slopes = drawn(8, len(q_lengths), HEADS).requires_grad_()
    near = torch.tensor([30, 5, 64, 1, 7])
    score_mod = lambda s, b, h, q, k: s + slopes[b, h] * (q - k) / 64
    mask_mod = lambda b, h, q, k: (q - k < near[b]) & (q >= k - 3)
    shapes = (HEADS, cu_q[-1], WIDTH), (KV_HEADS, cu_kv[-1], WIDTH), (KV_HEADS, cu_kv[-1], WIDTH)
    inputs = [drawn(seed, 1, *shape).requires_grad_() for seed, shape in enumerate(shapes)]
    parts = []
    for at, (q_len, kv_len) in enumerate(zip(q_lengths, kv_lengths)):
        one = [x[:, :, cu[at] : cu[at + 1]] for x, cu in zip(inputs, (cu_q, cu_kv, cu_kv))]
        mods = lambda s, b, h, q, k, at=at: score_mod(s, at, h, q, k), lambda b, h, q, k, at=at: mask_mod(at, h, q, k)
        mask = whole.create_block_mask(mods[1], None, None, q_len, kv_len, device="cpu") if q_len and kv_len else None
        parts.append(whole.flex_attention(*one, mods[0], mask, enable_gqa=True) if mask else one[0] * 0)
    out, weights = torch.cat(parts, 2), drawn(9, *inputs[0].shape)
    wanted = torch.autograd.grad((out * weights).sum(), [*inputs, slopes])
    plan = ShardPlan(
        mask_mod, (len(q_lengths), HEADS, KV_HEADS, max(q_lengths), max(kv_lengths)), world, block=64,
        cu_seqlens=(torch.tensor(cu_q, dtype=torch.int32), cu_kv), **options,
    )  # fmt: skip
    ours = lambda x, at: shard(x, plan, rank, keys=bool(at))
    mine = [ours(x, at).detach().requires_grad_() for at, x in enumerate(inputs)]
    my_out = flex_attention(*mine, score_mod, mask_mod, enable_gqa=True, plan=plan, group=group)
    compare("out", my_out, ours(out, 0))
    assert torch.equal(ours(unshard(my_out, plan, group=group), 0), my_out)
    found = torch.autograd.grad((my_out * ours(weights, 0)).sum(), [*mine, slopes])
    for at, (one, of) in enumerate(zip(found, wanted)):
        compare(f"gradient {at}", one, ours(of, at) if at < 3 else of)


def dropped(group, dropout_p=0.0, **options):
    """A prob_mod sees positions and heads of the whole problem: ranks drop the weights that one process drops. With
    dropout_p, by the seed of the first rank."""
    torch.manual_seed(3)
    rank, seed = dist.get_rank(group), flex.seed_like(torch.zeros(()))
    torch.manual_seed(3 + rank)
    drop = lambda p, b, h, q, k: torch.where(attnc.random(seed, b, h, q, k) < 0.375, 0.0, p / 0.625)
    score_mod, mask_mod, learned = alibi(197, 197)
    inputs = operands(197, 197)
    mask = whole.create_block_mask(mask_mod, None, None, 197, 197, device="cpu")
    out = whole.flex_attention(*inputs, score_mod, mask, enable_gqa=True, prob_mod=drop)
    weights = drawn(5, *out.shape)
    wanted = torch.autograd.grad(out, [*inputs, *learned], weights)
    plan = ShardPlan(mask_mod, (BATCH, HEADS, KV_HEADS, 197, 197), dist.get_world_size(group), block=64, **options)
    ours = lambda x, at=0: shard(x, plan, rank, keys=bool(at)).detach()
    mine = [ours(x, at).requires_grad_() for at, x in enumerate(inputs)]
    try:
        flex_attention(*mine, score_mod, mask_mod, enable_gqa=True, plan=plan, group=group, prob_mod=lambda p, *at: p * p)
        raise AssertionError("a prob_mod of two walks was split")
    except NotImplementedError as error:
        assert "call flex_attention on one GPU" in str(error), error
    given = {"dropout_p": dropout_p} if dropout_p else {"prob_mod": drop}
    my_out = flex_attention(*mine, score_mod, mask_mod, enable_gqa=True, plan=plan, group=group, **given)
    compare("out", my_out, ours(out))
    for at, one in enumerate(torch.autograd.grad(my_out, [*mine, *learned], ours(weights))):
        compare(f"gradient {at}", one, ours(wanted[at], at) if at < 3 else wanted[at])


def mesh(group):
    """The group is a DeviceMesh of one dim."""
    from torch.distributed.device_mesh import init_device_mesh

    rank, q = dist.get_rank(group), drawn(1, 1, HEADS, 70, WIDTH)
    plan = ShardPlan(None, (1, HEADS, HEADS, 70, 70), 4, block=64)
    mine = shard(q, plan, rank)
    out = flex_attention(mine, mine, mine, plan=plan, group=init_device_mesh("cpu", (4,)))
    compare("out", out, shard(whole.flex_attention(q, q, q), plan, rank))


def compiled(group):
    """A call breaks a graph, and computes the same."""
    rank, q = dist.get_rank(group), drawn(1, 1, HEADS, 70, WIDTH)
    plan = ShardPlan(None, (1, HEADS, HEADS, 70, 70), 2, block=64)
    model = torch.compile(lambda x: flex_attention(x * 2, x, x, plan=plan, group=group) + 1, backend="eager")
    mine = shard(q, plan, rank)
    compare("out", model(mine), shard(whole.flex_attention(q * 2, q, q) + 1, plan, rank))


def predicted(group):
    """Ranks wait for few keys, and hide the transfers of many."""
    length = 65536
    shape, columns = (1, 16, 4, length, length), (256, 128, 2)
    far, near = causal(length, length)[1], lambda b, h, q, k: (q >= k) & (q - k < 512)
    plan = ShardPlan([far, near], shape, 4)
    assert [plan.joins(mask, 1, 16, 4, *columns) for mask in range(2)] == [False, True]
    slow = ShardPlan(near, shape, 4, bandwidth=1e9)
    assert not slow.joins(0, 1, 16, 4, *columns)
    alone = ShardPlan(far, shape, 1)
    assert not alone.joins(0, 1, 16, 4, *columns) and len(alone.stages_of(0, 0, torch.device("cpu"), True)) == 1


def two_masks(group):
    world, rank, length = dist.get_world_size(group), dist.get_rank(group), 150
    far, near = causal(length, length)[1], window(length, length)[1]
    plan = ShardPlan([far, near], (BATCH, HEADS, KV_HEADS, length, length), world, layers=[1, 5], block=64)
    results = []
    for mods in ((far, near), (near, far)):
        inputs = operands(length, length)
        mine = [shard(x, plan, rank) for x in inputs]
        x, y = inputs[0], mine[0]
        for mod in mods:
            mask = whole.create_block_mask(mod, None, None, length, length, device="cpu")
            x = whole.flex_attention(x, *inputs[1:], None, mask, enable_gqa=True)
            y = flex_attention(y, *mine[1:], None, mask, enable_gqa=True, plan=plan, group=group)
        compare("out", y, shard(x, plan, rank))
        x.square().sum().backward()
        wanted = [one.grad.clone() for one in inputs]
        for one in inputs:
            one.grad = None
        y.square().sum().backward()
        for at, (one, of) in enumerate(zip(inputs, wanted)):
            compare(f"gradient {at}", shard(one.grad, plan, rank), shard(of, plan, rank))
        results.append(y)
    assert not torch.equal(*results)


def padded_rows(group):
    """Rows whose scores are all -1e9 or -2e9 spoil no gradient; their weights add up to 1 as those of all rows do."""
    rank, length, first = dist.get_rank(group), 197, 150
    far = lambda at: torch.where(at < first, 0.0, -1e9)
    score_mod = lambda s, b, h, q, k: s + far(q) + far(k)
    plan = ShardPlan(None, (BATCH, HEADS, KV_HEADS, length, length), 2, block=64)
    inputs = operands(length, length)
    mine = [shard(x, plan, rank).detach().requires_grad_() for x in inputs]
    weights = drawn(7, BATCH, HEADS, length, WIDTH) * (torch.arange(length) < first).unsqueeze(1)
    whole.flex_attention(*inputs, score_mod, enable_gqa=True).mul(weights).sum().backward()
    out = flex_attention(*mine, score_mod, enable_gqa=True, plan=plan, group=group)
    out.mul(shard(weights, plan, rank)).sum().backward()
    for at, (one, of) in enumerate(zip(mine, inputs)):
        compare(f"gradient {at}", one.grad, shard(of.grad, plan, rank))
    q, k, v = (x.detach() for x in mine)
    ones = flex_attention(q, k, torch.ones_like(v), score_mod, enable_gqa=True, plan=plan, group=group)
    compare("out", ones, torch.ones_like(ones))


def half(group, make=causal, length=130, **options):
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    mask_mod = make(length, length)[1]
    plan = ShardPlan(mask_mod, (BATCH, HEADS, KV_HEADS, length, length), world, block=64, **options)
    q, k, v = (shard(x, plan, rank).detach().requires_grad_() for x in operands(length, length, torch.bfloat16))
    out = flex_attention(q, k, v, None, mask_mod, enable_gqa=True, plan=plan, group=group)
    out.float().mul(shard(expected(make.__name__, length, length)[3][0], plan, rank)).sum().backward()
    inputs = [x.float().detach().requires_grad_() for x in operands(length, length, torch.bfloat16)]
    mask = whole.create_block_mask(mask_mod, None, None, length, length, device="cpu")
    by_one = whole.flex_attention(*inputs, None, mask, enable_gqa=True)
    by_one.mul(expected(make.__name__, length, length)[3][0]).sum().backward()
    assert out.dtype == q.grad.dtype == torch.bfloat16
    compare("out", out, shard(by_one, plan, rank), 5e-3)
    for mine, one in zip((q, k, v), inputs):
        compare("gradient", mine.grad, shard(one.grad, plan, rank), 1e-2)


def dense_rows(group):
    """Backward kernels, which are prepared for dense rows of out and dout, get them of each stage. On the CPU the values
    are wrong then."""
    seen, run = [], distributed.run_backward

    def strides_of(x):
        return [stride for size, stride in zip(x.shape, x.stride()) if size > 1]

    def watched(call, launch, q, k, v, captures, out, lse, dout, *others):
        view = call.backward_operands.out.contents
        seen.append([stride for size, stride in zip(out.shape, view.stride) if size > 1] == strides_of(out))
        return run(call, launch, q, k, v, captures, out, lse, dout, *others)

    length, rank = 768, dist.get_rank(group)
    mask_mod = ahead(length, length)[1]
    plan = ShardPlan(
        mask_mod, (BATCH, HEADS, KV_HEADS, length, length), 4, block=64, layout="contiguous", stages=3, overlap=True
    )
    mine = [shard(x, plan, rank).detach().requires_grad_() for x in operands(length, length)]
    with mock.patch.multiple(distributed, run_backward=watched, _CPU_HAS_LARGE=False):
        flex_attention(*mine, None, mask_mod, enable_gqa=True, plan=plan, group=group).sum().backward()
    assert all(seen) and (rank or len(seen) == 3), seen


def changed_lse(group):
    """The caller may change lse on any rank, also on the first, which has one launch."""
    rank, mask_mod = dist.get_rank(group), window(256, 256)[1]
    plan = ShardPlan(mask_mod, (BATCH, HEADS, KV_HEADS, 256, 256), 2, block=64, layout="contiguous", overlap=True)
    mine = [shard(x, plan, rank).detach().requires_grad_() for x in operands(256, 256)]
    out, lse = flex_attention(*mine, None, mask_mod, enable_gqa=True, return_lse=True, plan=plan, group=group)
    lse.mul_(1.4427)
    out.sum().backward()


def without_gradients(group):
    rank, length = dist.get_rank(group), 100
    mask_mod = causal(length, length)[1]
    plan = ShardPlan(mask_mod, (BATCH, HEADS, HEADS, length, length), 2, block=64)
    mine = [shard(x, plan, rank) for x in (drawn(seed, BATCH, HEADS, length, WIDTH) for seed in range(3))]
    with torch.no_grad():
        out = flex_attention(*mine, None, mask_mod, scale=0.5, plan=plan, group=group)
    assert not out.requires_grad
    inputs = (drawn(seed, BATCH, HEADS, length, WIDTH) for seed in range(3))
    mask = whole.create_block_mask(mask_mod, None, None, length, length, device="cpu")
    compare("out", out, shard(whole.flex_attention(*inputs, None, mask, scale=0.5), plan, rank))


def of_shards(group):
    rank, length = dist.get_rank(group), 70
    plan = ShardPlan(causal(length, length)[1], (1, 1, 1, length, length), 2, block=64)
    x = drawn(1, length, 2).requires_grad_()
    shard(x, plan, rank).sum().backward()
    assert torch.equal(x.grad[plan.rows(rank).long()], torch.ones(len(plan.rows(rank)), 2))
    assert x.grad.sum() == 2 * len(plan.rows(rank))


@contextlib.contextmanager
def raises(kind, *parts):
    try:
        yield
    except kind as error:
        missing = [part for part in parts if part not in str(error)]
        assert not missing, f"`{missing[0]}` is not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def mistakes(group):
    rank, length = dist.get_rank(group), 130
    mask_mod = causal(length, length)[1]
    plan = ShardPlan(mask_mod, (1, HEADS, HEADS, length, length), 2, block=64)
    q = shard(drawn(1, 1, HEADS, length, WIDTH), plan, rank)
    run = functools.partial(flex_attention, q, q, q, None, plan=plan, group=group)
    with raises(ValueError, "the plan has no such mask", "the same function"):
        run(lambda b, h, q, k: q >= k)
    with raises(ValueError, "the plan is for 2 ranks, and the group has 4"):
        flex_attention(q, q, q, None, mask_mod, plan=plan)
    with raises(ValueError, f"query has {q.shape[2] - 1} rows, rank {rank} of the plan owns {q.shape[2]}", "shard("):
        flex_attention(q[:, :, 1:], q, q, None, mask_mod, plan=plan, group=group)
    with raises(ValueError, "query has batch 3, the plan is of 1"):
        flex_attention(*[q.expand(3, -1, -1, -1)] * 3, None, mask_mod, plan=plan, group=group)
    with raises(ValueError, "key is torch.float16"):
        flex_attention(q, q.half(), q, None, mask_mod, plan=plan, group=group)
    with raises(ValueError, "129 rows along dim -2, the plan is of 130"):
        shard(torch.zeros(129, 3), plan, rank)
    with raises(ArgumentError, "lists of blocks"):
        mask = torch.nn.attention.flex_attention.create_block_mask(mask_mod, None, None, length, length, device="cpu")
        run(mask)
    with raises(RunError, "3 groups of heads do not divide a world of 2, H = 4 and HKV = 4"):
        ShardPlan(mask_mod, (1, HEADS, HEADS, length, length), 2, head_groups=3)
    teams = ShardPlan(mask_mod, (1, HEADS, HEADS, length, length), 2, head_groups=2)
    with raises(ValueError, "query has 1 heads, the plan divides them into 2 groups"):
        flex_attention(q[:, :1], q[:, :1], q[:, :1], None, mask_mod, plan=teams, group=group)
    with raises(ArgumentError, "cu_seqlens has 2 numbers from [0] for 3 sequences"):
        ShardPlan(mask_mod, (3, HEADS, HEADS, length, length), 2, cu_seqlens=[0, length])
    one = ShardPlan(mask_mod, (2, HEADS, HEADS, length, length), 2, cu_seqlens=[0, 30, length])
    with raises(ValueError, "query has batch 2, the plan is of a packed batch"):
        flex_attention(*[q.expand(2, -1, -1, -1)] * 3, None, mask_mod, plan=one, group=group)
    with raises(ArgumentError, "layout is 'ring'"):
        ShardPlan(mask_mod, (1, 1, 1, length, length), 2, layout="ring")


def run(rank, path, chosen):
    ranks.join(rank, path, PROCESSES)
    groups = {world: dist.new_group(range(PROCESSES - world, PROCESSES)) for world in (2, 3, 4)}
    for name, group, work in cases_of(groups):
        if chosen not in name or dist.get_rank(group) < 0:
            continue
        try:
            work(group)
        except Exception:
            print(f"{name}, rank {rank}: {traceback.format_exc()}", flush=True)
            time.sleep(2)  # until others have told of theirs
            os._exit(1)  # the others would wait
    dist.barrier()
    dist.destroy_process_group()


def main():
    with raises(RuntimeError, "init_process_group"):
        unshard(torch.zeros(1), None)
    ranks.start(run, PROCESSES, "".join(sys.argv[1:2]))
    print("distributed: all processes agree with one")


if __name__ == "__main__":
    main()
