"""Attention over several GPUs, by a plan of shards.

    from attnc.torch.distributed import ShardPlan, flex_attention, shard

    plan = ShardPlan(mask_mod, (B, H, HKV, L, L), world)     # the same on every rank
    x = shard(x, plan, rank)                                 # this rank's rows, in the plan's order
    out = flex_attention(q, k, v, score_mod, mask_mod, plan=plan)

Each rank holds the rows that the plan deals to it. Live keys and values travel by all-to-all, stage by stage, and the
attention of a stage hides the transfers of the next. Partial results are merged in fp32 (attnc/shard.h):

    w_s = exp(lse_s - max(lse_s))    lse = max(lse_s) + log(sum(w_s))    out = sum(w_s * out_s) / sum(w_s)

A stage computes the rows that may see its keys (Stage.span); the first that has work computes all. If few keys travel,
ranks wait for them and compute all in one stage, so that nothing is merged (ShardPlan.joins).

In a backward pass keys and values travel again, and their gradients travel back. With groups of heads, ranks of a team
exchange heads for rows before, and rows for heads afterwards (team.py).
"""

import contextlib
import typing

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from ..launch import Launch
from ..prob_mods import joined, parts
from .calls import call_of, rows_of, run_backward
from .flex import _check, _check_classes, _is_any_autocast_enabled, autocast, seed_like, with_prob
from .kernels import like, mod_of
from .shards import ShardPlan, Stage, mask_mod_of
from .team import Team
from .translation import translate

__all__ = ["ShardPlan", "flex_attention", "shard", "unshard"]


def _group_of(group):
    """Returns the process group of a group, a DeviceMesh of one dim, or None."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("torch.distributed is not initialised: call torch.distributed.init_process_group() first")
    return group.get_group() if hasattr(group, "get_group") else group or dist.group.WORLD


def _rank_in(group, plan):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this process is not in the group")
    if size != plan.world:
        raise ValueError(f"the plan is for {plan.world} ranks, and the group has {size}: plan for the size of the group")
    return rank


def _index(plan, rank, keys, device):
    return (plan.keys(rank) if keys else plan.rows(rank)).to(device, torch.int64)


def shard(tensor: torch.Tensor, plan: ShardPlan, rank: int, dim: int = -2, *, keys: bool = False) -> torch.Tensor:
    """Returns the rows of a rank of a whole tensor, along `dim`, as a copy with gradients. `keys`: rows of k and v, which
    are others than those of q only if Q_LEN and KV_LEN differ."""
    length = plan._length(keys)
    if tensor.shape[dim] != length:
        raise ValueError(f"the tensor has {tensor.shape[dim]} rows along dim {dim}, the plan is of {length}")
    return tensor.index_select(dim, _index(plan, rank, keys, tensor.device))


def unshard(
    tensor: torch.Tensor, plan: ShardPlan, dim: int = -2, *, keys: bool = False, group: typing.Any = None
) -> torch.Tensor:
    """Returns the whole tensor, on every rank, of the rows that all ranks hold along `dim`. It has no gradients, so losses
    are computed from shards."""
    group = _group_of(group)
    rank = _rank_in(group, plan)
    indices = [_index(plan, other, keys, tensor.device) for other in range(plan.world)]
    if tensor.shape[dim] != len(indices[rank]):
        raise ValueError(f"the tensor has {tensor.shape[dim]} rows along dim {dim}, rank {rank} owns {len(indices[rank])}")
    rows = tensor.detach().movedim(dim, 0)
    longest = rows.new_zeros(max(map(len, indices)), *rows.shape[1:])
    longest[: len(rows)] = rows
    parts = [torch.empty_like(longest) for _ in indices]
    dist.all_gather(parts, longest, group=group)
    whole = rows.new_empty(plan._length(keys), *rows.shape[1:])
    for index, part in zip(indices, parts):
        whole[index] = part[: len(index)]
    return whole.movedim(0, dim)


class _Work(typing.NamedTuple):
    """The launch of a stage, and the `places` of its captured tensors among those of all stages."""

    stage: Stage
    launch: Launch
    places: dict[str, int]

    def call(self, q, k, v, captured):
        """Returns (Call, Launch, captured tensors by name)."""
        captures = {name: captured[place] for name, place in self.places.items()}
        return call_of(self.launch, q, k, v, captures), self.launch, captures


class _How(typing.NamedTuple):
    """A call. `works` has one entry for each stage, None for one without work. `learned` are the places of captured
    tensors that want gradients. `team` exchanges heads for rows; None if there is one group of heads."""

    stages: list[Stage]
    works: list[_Work | None]
    learned: list[int]
    group: typing.Any
    team: Team | None
    wants_lse: bool
    reduces_captured: bool


class _Transfer:
    """Rows of two tensors that travel in a stage, in one message: a second one would wait for SMs of the attention.
    `pairs` hold rows of both, [rows, B, HKV, D] each, in the order of ranks. wait() returns what came,
    [B, HKV, rows, D]."""

    def __init__(self, pairs, sent, received, group):
        first, second = pairs[0]
        self.widths = [first.shape[-1], second.shape[-1]]
        self.message = first.new_empty(sum(sent), *first.shape[1:3], sum(self.widths))  # kept until it is gone
        for parts, to in zip(zip(*pairs), self.message.split(self.widths, -1)):
            for part, place in zip(parts, to.split([len(part) for part in parts])):
                place.copy_(part)
        self.come = self.message.new_empty(sum(received), *self.message.shape[1:])
        self.work = dist.all_to_all_single(self.come, self.message, received, sent, group=group, async_op=True)

    def wait(self):
        self.work.wait()
        return self.come.permute(1, 2, 0, 3).split(self.widths, -1)


def _rows_first(*tensors):
    return [tensor.permute(2, 0, 1, 3) for tensor in tensors]


def _bring(how, number, k, v):
    """Begins to bring the keys and values of a stage. None: there is no such stage."""
    if number == len(how.stages):
        return None
    stage, (k, v) = how.stages[number], _rows_first(k, v)
    parts = [interval for intervals in stage.sends for interval in intervals] or [(0, 0)]
    return _Transfer([(k[begin:end], v[begin:end]) for begin, end in parts], stage.sent, stage.receives, how.group)


def _each_stage(how, k, v):
    """Yields (stage, its work, its keys, its values). The transfers of the next stage have begun."""
    coming = joint = None
    for number, (stage, work) in enumerate(zip(how.stages, how.works)):
        keys = coming.wait() if coming else (k, v)
        if joint:
            for whole, part in zip(joint, keys):
                whole[:, :, : stage.own.start] = part[:, :, : stage.own.start]
                whole[:, :, stage.own.stop :] = part[:, :, stage.own.start :]
            keys = joint
        coming = _bring(how, number + 1, k, v)
        if coming and how.stages[number + 1].own:
            joint = [_room_around(x, how.stages[number + 1]) for x in (k, v)]  # while the others travel
        yield stage, work, *keys


def _room_around(own, stage):
    """Returns own keys or values, with room for those that come."""
    joint = own.new_empty(*own.shape[:2], stage.key_count, own.shape[3])
    joint[:, :, stage.own] = own
    return joint


def _weight(part, largest):
    """Returns exp(part - largest), and 0 where no score of the part lives."""
    return (part - largest.clamp(min=_LEAST)).exp()  # -inf - -inf is no number


_LEAST = torch.finfo(torch.float32).min


class _Sum(typing.NamedTuple):
    """What a row's stages add up to: exp(lse) is `total` times exp(`largest`). Apart, since lse near -1e9 has no digits
    for a logarithm."""

    largest: torch.Tensor
    total: torch.Tensor | None  # 1 or more; where no score lives, 0. None: one stage, and `largest` is its lse

    @classmethod
    def of(cls, lse):
        return cls(lse, (lse != -torch.inf).float())

    def lse(self):
        return self.largest if self.total is None else self.largest + self.total.clamp(min=1).log()

    def share(self, part):
        """Returns the share of a stage with this lse, as a factor of its rows."""
        weight = _weight(part, self.largest)
        return (weight if self.total is None else weight / self.total.clamp(min=1)).unsqueeze(-1)

    def of_rows(self, rows):
        """Returns views of some rows."""
        return _Sum(*(x if x is None else x[:, :, rows] for x in self))


def _exchanged(how, gives_heads, keys, *tensors):
    """Returns tensors of one group of heads and the rows of the team, for all heads of own rows; or the reverse."""
    return how.team.exchange(gives_heads, keys, tensors) if how.team else tensors


def _results(how, out, lse):
    """Returns out and lse of own rows; None for an lse that is not wanted."""
    given = _exchanged(how, False, (False, False), out, lse) if how.wants_lse else _exchanged(how, False, (False,), out)
    return (*given, None)[:2]


def _forward(how, q, k, v, captured):
    """Returns out, and the _Sum of its rows."""
    out = rows = later = None
    for stage, work, keys, values in _each_stage(how, k, v):
        if work is None:
            continue
        of_stage = q[:, :, stage.span]
        call, launch, captures = work.call(of_stage, keys, values, captured)
        part, of_part, _ = call.outcome(of_stage, values)
        call.forward(launch, of_stage, keys, values, captures.values(), part, of_part, None)
        if out is None:
            out, later = part, _LaterRows(how, part)
            rows = _Sum.of(of_part) if later.left else _Sum(of_part, None)
        else:
            later.merge(stage.span, part, of_part, rows)
    if out is None:
        return like(q, v.shape[-1]).zero_(), _Sum(q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32), None)
    later.finish()
    return out, rows


class _LaterRows:
    """The rows of a result, [B, H, rows, D], to which stages behind the first add. They add up in fp32, and are rounded
    once, behind the last; one stage adds in place."""

    def __init__(self, how, result):
        slices = [work.stage.span for work in how.works if work][1:]
        self.rows = slice(min((x.start for x in slices), default=0), max((x.stop for x in slices), default=0))
        self.result = result[:, :, self.rows]
        self.sum, self.left = self.result, len(slices)

    def add(self, span, part):
        """Adds a part of rows `span`."""
        self.left -= 1
        self._sum_of(span).add_(part)

    def merge(self, span, part, of_part, rows):
        """Merges a part of out and lse, of rows `span`. `rows` is the _Sum of all."""
        rows, self.left = rows.of_rows(span), self.left - 1
        largest = torch.maximum(rows.largest, of_part)
        before, now = rows.total * _weight(rows.largest, largest), _weight(of_part, largest)
        rows.largest.copy_(largest)
        torch.add(before, now, out=rows.total)
        total = rows.total.clamp(min=1)
        before, now = (before / total).unsqueeze(-1), (now / total).unsqueeze(-1)
        if span == self.rows:
            # In fp32, by the types of the weights.
            to = torch.empty_like(part, dtype=torch.float32) if self.left else self.result
            self.sum = torch.addcmul(self.sum * before, part, now, out=to)
        else:
            self._sum_of(span).mul_(before).addcmul_(part, now)

    def _sum_of(self, span):
        if self.left and self.sum.dtype != torch.float32:
            self.sum = self.sum.float()
        return self.sum[:, :, span.start - self.rows.start : span.stop - self.rows.start]

    def finish(self):
        if self.sum is not self.result:
            self.result.copy_(self.sum)


_CPU_HAS_LARGE = True  # the reference always normalises by the keys that it gets


class _HasLarge:
    """Whether backward kernels must normalise by the sums of their own keys, since lse is large (docs/training.md). Known
    without waiting for the GPU, if that is done with the forward pass."""

    LIMIT = 4096

    def __init__(self, lse):
        self.largest, self.event = torch.zeros((), dtype=lse.dtype, device="cpu", pin_memory=True), torch.cuda.Event()
        if lse.numel():
            finite = lse.nan_to_num(nan=0, posinf=0, neginf=0)
            self.largest.copy_(torch.linalg.vector_norm(finite, torch.inf), non_blocking=True)
        self.event.record()

    def __bool__(self):
        self.event.synchronize()
        return self.largest.item() > self.LIMIT


def _run_backward(work, q, k, v, captured, out, rows, dout, dlse, has_large):
    """Returns (dq, dk, dv) of a stage's rows and keys, and the gradients of captures by name. By out and lse of all
    stages, unless `has_large`: then by those of the stage, which are computed again."""
    span = work.stage.span
    q, out, dout = (x[:, :, span] for x in (q, out, dout))
    rows, dlse = rows.of_rows(span), dlse if dlse is None else dlse[:, :, span]
    call, launch, captures = work.call(q, k, v, captured)
    lse = rows.lse()
    dense = call.outcome(q, v, False)[0]
    if not has_large and out.stride() != dense.stride():
        out = dense.copy_(out)  # kernels are prepared for dense rows; dout follows out in run_backward()
    if has_large:
        # w: the stage's share    dout_s = w dout    dlse_s = w (dout (out_s - out) + dlse)
        part, of_part, _ = call.outcome(q, v)
        call.forward(launch, q, k, v, captures.values(), part, of_part, None)
        weight = rows.share(of_part)
        change = (dout.float() * (part.float() - out)).sum(-1) + (0 if dlse is None else dlse)
        out, lse, dout, dlse = part, of_part, (weight * dout).to(dout.dtype), weight.squeeze(-1) * change
    return run_backward(call, launch, q, k, v, captures, out, lse, dout, dlse)


_OF_KEYS = False, True, True  # which of q, k and v have rows of keys


def _gradients_of(how, q, out, lse, dout, dlse):
    """Returns the gradients of out and lse that come with own rows, for the rows of the team."""
    if how.team is None:
        return torch.zeros_like(out) if dout is None else dout, dlse
    shape = q.shape[0], q.shape[1] * how.team.size, how.team.own_rows
    dout = out.new_zeros(*shape, out.shape[-1]) if dout is None else dout
    if not how.wants_lse:
        return *_exchanged(how, True, (False,), dout), None
    return _exchanged(how, True, (False, False), dout, lse.new_zeros(shape) if dlse is None else dlse)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, how, q, k, v, *captured):
        # One function with the exchange of heads: if a rank fails in a backward pass, no gradient has been written.
        q, k, v = map(rows_of, _exchanged(how, True, _OF_KEYS, q, k, v))
        out, rows = _forward(how, q, k, v, captured)
        lse = rows.lse()
        ctx.how, ctx.has_large = how, _HasLarge(lse) if q.is_cuda else _CPU_HAS_LARGE
        ctx.save_for_backward(q, k, v, out, *rows, *captured)
        ctx.set_materialize_grads(False)
        # A copy, since the caller may change it, and what is saved is the same on all ranks.
        return _results(how, out, lse.clone() if how.wants_lse and lse is rows.largest else lse)

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dlse):
        how, (q, k, v, out, largest, total, *captured) = ctx.how, ctx.saved_tensors
        rows = _Sum(largest, total)
        dout, dlse = _gradients_of(how, q, out, largest, dout, dlse)
        dtype = torch.float32 if len(how.stages[0].sends) > 2 else q.dtype  # a sum of two is rounded once
        dq = dk = dv = later = None
        learned = {place: torch.zeros_like(captured[place], dtype=torch.float32) for place in how.learned}
        has_large, leaving = bool(ctx.has_large), None
        for stage, work, keys, values in _each_stage(how, k, v):
            if work is not None:
                (of_q, *of_keys), of_captures = _run_backward(
                    work, q, keys, values, captured, out, rows, dout, dlse, has_large
                )  # fmt: skip
                if dq is None:
                    dq, later = of_q, _LaterRows(how, of_q)
                else:
                    later.add(stage.span, of_q)
                for name, gradient in of_captures.items():
                    learned[work.places[name]] += gradient
            else:
                of_keys = torch.zeros_like(keys), torch.zeros_like(values)
            if stage.number == 0:
                dk, dv = (x.to(dtype) for x in of_keys)
                continue
            if stage.own:
                dk, dv = (x[:, :, stage.own].to(dtype) for x in of_keys)
                of_keys = [torch.cat([x[:, :, : stage.own.start], x[:, :, stage.own.stop :]], 2) for x in of_keys]
            if leaving:
                _add(*leaving, dk, dv)
            leaving = stage, _Transfer([_rows_first(*of_keys)], stage.receives, stage.sent, how.group)
        if leaving:
            _add(*leaving, dk, dv)
        if learned and how.reduces_captured:
            flat = torch.cat([gradient.flatten() for gradient in learned.values()])
            dist.all_reduce(flat, group=how.group)
            parts = flat.split([gradient.numel() for gradient in learned.values()])
            learned = {place: part.view_as(learned[place]) for place, part in zip(learned, parts)}
        learned = {place: gradient.to(captured[place].dtype) for place, gradient in learned.items()}
        if later:
            later.finish()
        dq = torch.zeros_like(q) if dq is None else dq
        dq, dk, dv = _exchanged(how, False, _OF_KEYS, *(x.to(q.dtype) for x in (dq, dk, dv)))
        return None, dq, dk, dv, *(learned.get(place) for place in range(len(captured)))


def _infer(how, q, k, v, *captured):
    q, k, v = map(rows_of, _exchanged(how, True, _OF_KEYS, q, k, v))
    out, rows = _forward(how, q, k, v, captured)
    return _results(how, out, rows.lse())


def _add(stage, transfer, dk, dv):
    """Adds gradients that came back, in the order of ranks."""
    for total, come in zip((dk, dv), transfer.wait()):
        at = 0
        for begin, end in (interval for intervals in stage.sends for interval in intervals):
            total[:, :, begin:end] += come[:, :, at : at + end - begin]
            at += end - begin


def _from_head(mod, first):
    return mod and (lambda *at: mod(*at[:-3], at[-3] + first, *at[-2:]))


def _placed(score_mod, prob_mod, mask_mod, stage, first_head):
    """Returns score_mod, with a prob_mod, and mask_mod, of the rows and keys of a stage and of heads from `first_head` on.
    """
    rows, keys, row_sequences, key_sequences = stage.rows, stage.keys, stage.row_sequences, stage.key_sequences
    if first_head:
        score_mod, prob_mod, mask_mod = (_from_head(mod, first_head) for mod in (score_mod, prob_mod, mask_mod))

    # Few closures, since each call looks up what they hold.
    if row_sequences is None:
        placed = lambda mod: mod and (lambda x, b, h, q_idx, kv_idx: mod(x, b, h, rows(q_idx), keys(kv_idx)))
        placed_mask = lambda b, h, q_idx, kv_idx: mask_mod(b, h, rows(q_idx), keys(kv_idx))
        return joined(placed(score_mod), placed(prob_mod)), mask_mod and placed_mask

    def placed(mod):
        return mod and (lambda x, b, h, q_idx, kv_idx: mod(x, row_sequences(q_idx), h, rows(q_idx), keys(kv_idx)))

    def placed_mask(b, h, q_idx, kv_idx):
        sequence = row_sequences(q_idx)
        is_one = sequence == key_sequences(kv_idx)
        return is_one & mask_mod(sequence, h, rows(q_idx), keys(kv_idx)) if mask_mod else is_one

    return joined(placed(score_mod), placed(prob_mod)), placed_mask


def _seed_of(group, like):
    """Returns the seed that the first rank of a group draws, on all of them. Each moves its own generator."""
    seed = seed_like(like)
    dist.broadcast(seed, dist.get_global_rank(group, 0), group=group)
    return seed


def _check_plan(query, key, value, mask_mod, plan, rank):
    if mask_mod not in plan.masks:
        raise ValueError(
            "the plan has no such mask: give flex_attention the same function that the plan was made of, and a plan of "
            "several masks all of them"
        )
    if plan._is_ragged and query.shape[0] != 1:
        raise ValueError(f"query has batch {query.shape[0]}, the plan is of a packed batch: give [1, H, rows, D]")
    for name, tensor in (("query", query), ("key", key)):
        if tensor.shape[1] % plan.head_groups:
            raise ValueError(f"{name} has {tensor.shape[1]} heads, the plan divides them into {plan.head_groups} groups")
    for axis, what in enumerate(("batch", "heads")):
        if query.shape[axis] > plan.shape[axis]:
            raise ValueError(f"query has {what} {query.shape[axis]}, the plan is of {plan.shape[axis]}: plan for that many")
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        owned = plan._count(rank, name != "query")
        if tensor.shape[2] != owned:
            raise ValueError(
                f"{name} has {tensor.shape[2]} rows, rank {rank} of the plan owns {owned}: deal them by "
                "shard(tensor, plan, rank)"
            )


@torch._disable_dynamo
def flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    score_mod: typing.Callable[..., torch.Tensor] | None = None, block_mask: typing.Any = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, *, plan: ShardPlan,
    group: typing.Any = None, reduce_captured: bool = True,
    prob_mod: typing.Callable[..., torch.Tensor] | None = None, dropout_p: float = 0.0,
) -> typing.Any:  # fmt: skip
    """Computes attention over all ranks of a group, like attnc.torch.flex_attention on one.

    Each rank gives its own rows of query, key and value, [B, H, rows, D], in the order of `plan`, and gets its own rows
    of out (and of lse, f32). A rank may own none. Mods see positions of the whole problem; tensors that they capture are
    whole on each rank. `block_mask` is one of the plan's masks. `group` is a process group, a DeviceMesh of one dim, or
    None for all processes. All ranks call it, and its backward pass, in the same order. The seed of `dropout_p` is that of
    the first rank.

    Gradients of captured tensors are sums over all ranks, the same on each; without `reduce_captured`, each rank has the
    part of its rows, for wrappers that reduce all gradients of a module, such as FSDP2. Those of query, key and value are of the
    rank's own rows. All are added in the order of stages and ranks; torch.use_deterministic_algorithms() chooses
    deterministic kernels. A call breaks a graph of torch.compile.

    Raises ValueError for operands and groups that do not fit the plan, and what attnc.torch.flex_attention raises. If a
    rank dies, the others get the error of their process group."""
    group = _group_of(group)
    rank = _rank_in(group, plan)
    _check_classes(query, key, value)
    if _is_any_autocast_enabled():
        query, key, value = autocast(query, key, value)
    _check(query, key, value, enable_gqa, None)
    for name, tensor in ("key", key), ("value", value):
        if tensor.dtype != query.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, query is {query.dtype}: give all three one dtype")
    mask_mod = mask_mod_of(block_mask)
    _check_plan(query, key, value, mask_mod, plan, rank)
    score_mod, prob_mod, *_ = parts(with_prob(score_mod, prob_mod, dropout_p, lambda like: _seed_of(group, like), query))
    device = query.device
    batches = plan.shape[0] if plan._is_ragged else query.shape[0]
    problem = batches, query.shape[1], key.shape[1], *plan.shape[3:]
    whole = translate(score_mod, mask_mod, prob_mod=prob_mod, device=device, problem=problem)
    if prob_mod is not None and mod_of(whole.given()[0]).walks_twice:
        raise NotImplementedError(
            "this prob_mod is not proved to be prob times a factor, and no rank knows the lse of whole rows before the end: "
            "write prob * factor, or call flex_attention on one GPU"
        )
    team = Team(plan, rank, group) if plan.head_groups > 1 else None
    batch, head_dim, heads, kv_heads = query.shape[0], query.shape[3], query.shape[1], key.shape[1]
    if team:
        heads, kv_heads = heads // team.size, kv_heads // team.size
    captured, learned = {}, []  # id of a tensor -> its place, and itself

    def place(tensor):
        return captured.setdefault(id(tensor), (len(captured), tensor))[0]

    # In the order of the whole mod, so that all ranks agree.
    if torch.is_grad_enabled():
        learned = [place(x) for x in whole.tensors.values() if x.requires_grad and x.is_floating_point()]
    is_training = torch.is_grad_enabled() and bool(learned or any(x.requires_grad for x in (query, key, value)))
    is_deterministic = is_training and torch.are_deterministic_algorithms_enabled()
    mask, scale = plan.masks.index(mask_mod), head_dim**-0.5 if scale is None else float(scale)
    columns_v = value.shape[3]
    joins = plan.joins(mask, batch, heads, kv_heads, head_dim + columns_v, columns_v, query.element_size())
    stages = plan.stages_of(mask, rank, device, joins)
    works = []
    for stage in stages:
        if not stage.has_work or not batch or not heads:
            works.append(None)
            continue
        mods = _placed(score_mod, prob_mod, mask_mod, stage, team.group * heads if team else 0)
        problem = batch, heads, kv_heads, stage.span.stop - stage.span.start, stage.key_count
        text, tensors, numbers = translate(*mods, device=device, problem=problem).given()
        places = {name: place(tensor) for name, tensor in tensors.items()}
        launch = Launch(
            numbers, scale, stage if mods[1] else None, mod=text, deterministic=is_deterministic,
            gradients=tuple(name for name, at in places.items() if at in learned) if is_training else None,
            form=(enable_gqa, "shards", stage.number),  # each stage keeps its lists of blocks
        )  # fmt: skip
        works.append(_Work(stage, launch, places))
    how = _How(stages, works, learned, group, team, return_lse, reduce_captured)
    run = _Attention.apply if is_training else _infer
    with torch.cuda.device(device) if query.is_cuda else contextlib.nullcontext():  # where kernels are launched
        out, lse = run(how, query, key, value, *(tensor for _, tensor in captured.values()))
    return (out, lse) if return_lse else out
