"""Plans of shards for torch: which rank owns which rows, and which keys travel to it in which stage."""

import bisect
import itertools
import typing
from ctypes import byref, pointer

import torch
from torch.nn.attention import flex_attention as flex

from .. import _spec as c
from .._library import Handle, check, library
from ..errors import ArgumentError
from .block_mask import has_lists
from .guards import describe
from .translation import parsed

MaskMod = typing.Callable[..., torch.Tensor]
_LAYOUTS = ("auto", "contiguous", "zigzag", "greedy")


def mask_mod_of(mask):
    """Returns the mask_mod of a BlockMask; returns a mask_mod and None as they are."""
    if not isinstance(mask, flex.BlockMask):
        return mask
    if has_lists(mask):
        raise ArgumentError("block_mask has lists of blocks, which shards do not follow", "give its mask_mod")
    return mask.mask_mod


def _device_of(mask_mod):
    """Returns where the captured tensors of a mask_mod are."""
    tensors = describe(mask_mod).tensors if mask_mod else ()
    return next((tensor.device for tensor in tensors if tensor.dim()), torch.device("cpu"))


class ShardPlan:
    """Who computes what, for masks that share one layout. It moves nothing, and is the same on every rank.

    plan = ShardPlan(mask_mod, (B, H, HKV, Q_LEN, KV_LEN), world)

    `masks` is a mask_mod, None for no mask, a BlockMask of create_block_mask, or a list of them; `layers` weights them by
    their numbers of layers. Tensors that they capture are read now: for new document ids, make a new plan. `shape` is
    that of the whole problem, `world` the number of ranks.

    `head_groups` is a divisor of the world and of the heads (Ulysses): as many neighbouring ranks form a team, which
    exchanges heads for rows, so that each rank computes the rows of its team for one group of heads. Keys travel between
    teams. So head_groups=1 is a ring of keys, head_groups=world only exchanges heads, and others are their product.

    `cu_seqlens` are the cumulative lengths of a packed batch, i32 [B + 1] or a list, or a pair of them for q and for k
    and v. Tensors are then [1, H, rows, D], `shape` has B sequences and at least their longest lengths, and mods see
    positions within their sequence.

    `layout` is auto, contiguous, zigzag or greedy; `stages` the
    most stages of transfers, 0 for a choice by prediction; `block` the rows and columns of the blocks that are judged:
    64, 128 or 256. `overlap` tells if attention hides transfers, for which partial results are merged; otherwise each
    rank waits for all keys, and attends to them in one launch, which is faster if few keys travel. None: by prediction,
    for each mask. `head_dim`, `head_dim_v`, `dtype`, `backward`, `flops` (1/s), `bandwidth` and `memory` (bytes/s of a
    rank) and `latency` (s of a stage) are what predictions assume; 0: a default.

    The plan has `masks`, `shape`, `world`, `head_groups`, and the `layout` that was taken. `efficiency` is the predicted time of one GPU
    over `world` times that of the slowest rank. `bytes_received` is what travels in the forward pass of all layers.

    Raises ArgumentError, RunError, and UntranslatableError for a mask_mod that attnc cannot translate."""

    masks: tuple[MaskMod | None, ...]
    shape: tuple[int, ...]
    world: int
    head_groups: int
    layout: str
    efficiency: float
    bytes_received: float

    def __init__(
        self, masks: typing.Any, shape: tuple[int, int, int, int, int], world: int, *,
        layers: typing.Sequence[float] | None = None, head_groups: int = 1, cu_seqlens: typing.Any = None,
        layout: str = "auto", stages: int = 0, overlap: bool | None = None, block: int = 128, head_dim: int = 128,
        head_dim_v: int | None = None, dtype: torch.dtype = torch.bfloat16, backward: bool = False, flops: float = 0,
        bandwidth: float = 0, memory: float = 0, latency: float = 0,
    ):  # fmt: skip
        self.masks = tuple(map(mask_mod_of, masks if isinstance(masks, (list, tuple)) else [masks]))
        self.shape = tuple(shape)
        if layout not in _LAYOUTS:
            raise ArgumentError(f"layout is {layout!r}", f"one of {', '.join(_LAYOUTS)}")
        if layers is not None and len(layers) != len(self.masks):
            raise ArgumentError(f"layers has {len(layers)} numbers for {len(self.masks)} masks", "give one for each mask")
        self._starts = _starts_of(cu_seqlens, self.shape)
        lengths = []
        if cu_seqlens is not None:
            lengths = [c.ShardLengths(q=q, kv=kv) for q, kv in zip(*map(_differences, self._starts))]
        entries, keep = [], []
        for mask_mod, count in zip(self.masks, layers or itertools.repeat(1)):
            mod, values, _ = parsed(None, mask_mod, _device_of(mask_mod), self.shape)
            captures, views = mod._given(values, on_gpu=False)
            keep += mod, captures, views
            entries.append(c.ShardMask(
                mod=mod._handle.address, captures=captures, capture_count=len(captures), layers=count
            ))  # fmt: skip
        options = c.ShardOptions(
            flops=flops, bandwidth=bandwidth, memory=memory or _MERGED, latency=latency, layout=_LAYOUTS.index(layout), stages=stages,
            block=block, head_dim=head_dim, head_dim_v=head_dim_v or head_dim, element_bytes=dtype.itemsize,
            backward=backward, head_groups=head_groups, lengths=(c.ShardLengths * len(lengths))(*lengths),
            length_count=len(lengths),
        )  # fmt: skip
        handle = Handle(
            "attnc_shard_plan_create", (c.ShardMask * len(entries))(*entries), len(entries),
            pointer(c.Problem(*self.shape)), world, byref(options), destroyer="attnc_shard_plan_destroy",
        )  # fmt: skip
        info = c.ShardPlanInfo()
        check(library().attnc_shard_plan_get_info(handle.address, byref(info)))
        self.world, self.layout, self.head_groups = info.world, _LAYOUTS[info.layout], info.head_groups
        self._is_ragged = cu_seqlens is not None
        self.efficiency, self.bytes_received = info.efficiency, info.bytes_received
        ranks = range(world)
        self._rows, self._keys = zip(*[_tokens(handle, rank) for rank in ranks])  # intervals, by rank
        works = [[_work(handle, mask, rank) for rank in ranks] for mask in range(len(self.masks))]
        self._pieces, self._stage_rows = ([[work[i] for work in of_mask] for of_mask in works] for i in range(2))
        self._stages, self._joins = {}, {}
        self._overlap, self._bandwidth, self._latency = overlap, bandwidth or 350e9, latency or 10e-6

    def _count(self, rank, keys):
        return _total((self._keys if keys else self._rows)[rank])

    def _length(self, keys):
        """Returns the number of all rows, of one batch entry or of a packed batch."""
        return self._starts[keys][-1]

    def _team(self, rank):
        """Returns the ranks that divide heads among themselves."""
        first = rank // self.head_groups * self.head_groups
        return range(first, first + self.head_groups)

    def _of_team(self, rank, keys):
        """Returns the intervals of a rank's team."""
        of = self._keys if keys else self._rows
        return _joined(interval for other in self._team(rank) for interval in of[other])

    def rows(self, rank: int) -> torch.Tensor:
        """Returns the positions of a rank's rows of q, in the order in which the rank holds them: i32 [rows]."""
        return _positions(self._rows[rank])

    def keys(self, rank: int) -> torch.Tensor:
        """Returns the positions of a rank's rows of k and v: i32 [keys]. They are rows() if Q_LEN equals KV_LEN."""
        return _positions(self._keys[rank])

    def stages_of(self, mask: int, rank: int, device: torch.device, joined: bool = False) -> "list[Stage]":
        """Returns what a rank does for a mask, stage by stage. All ranks have equally many stages. With `joined`, the
        second is the last, and has all work: its keys are the rank's own and all that came,
        in ascending order or behind them."""
        key = mask, rank, device, joined
        if key not in self._stages:
            last = max((piece[0] for pieces in self._pieces[mask] for piece in pieces), default=0)
            spans = self._spans(mask, rank)
            if joined and last:
                pieces = [[(min(stage, 1), *rest) for stage, *rest in of_rank] for of_rank in self._pieces[mask]]
                whole = slice(0, _total(self._of_team(rank, False)))
                stages = [Stage(self, pieces, rank, number, whole, device, number) for number in range(2)]
                stages[0].has_work = False
            else:
                pieces = self._pieces[mask]
                stages = [Stage(self, pieces, rank, number, spans[number], device) for number in range(last + 1)]
            self._stages[key] = stages
        return self._stages[key]

    def _spans(self, mask, rank):
        """Returns the slices of rows that stages compute. The first that has work takes all, so that out is whole."""
        slices = [slice(begin, end) for begin, end in self._stage_rows[mask][rank]]
        first = min((piece[0] for piece in self._pieces[mask][rank]), default=0)
        slices[first] = slice(0, _total(self._of_team(rank, False)))
        return slices

    def joins(self, mask: int, batch: int, heads: int, kv_heads: int, columns: int, columns_v: int, bytes: int) -> bool:
        """Returns whether ranks wait for all keys, by `overlap` or by prediction: the same on all ranks. Heads are those
        of a rank, `columns` of a key and its value, `columns_v` of out, `bytes` of an element."""
        if self._overlap is not None:
            return not self._overlap
        key = mask, batch, heads, kv_heads, columns, columns_v, bytes
        if key not in self._joins:
            self._joins[key] = self._predict_joins(*key)
        return self._joins[key]

    def _predict_joins(self, mask, batch, heads, kv_heads, columns, columns_v, bytes):
        moved, merging, waiting = [0] * self.world, 0.0, 0.0
        for rank, pieces in enumerate(self._pieces[mask]):
            for stage, owner, begin, end in pieces:
                moved[owner] += end - begin if stage else 0
        key = batch * kv_heads * columns * bytes
        for rank, pieces in enumerate(self._pieces[mask]):
            came = _total([piece[2:] for piece in pieces if piece[0]])
            numbers, spans = sorted({piece[0] for piece in pieces}), self._spans(mask, rank)
            merged = [spans[number].stop - spans[number].start for number in numbers[1:]]
            keys = _total(self._of_team(rank, True)) + came
            merging = max(merging, sum(40e-6 + batch * rows * heads * columns_v * 14 / _MEMORY for rows in merged))
            waiting = max(waiting, max(came, moved[rank]) * key / self._bandwidth + keys * key * 2 / _MEMORY)
        return _DOUBT * (waiting + self._latency) < merging


# What merging a partial result costs: a dozen small kernels, 40 us; and 14 bytes of memory an element, where plans count
# 8.
_MEMORY = 3e12  # bytes/s
_MERGED = _MEMORY * 8 / 14
_DOUBT = 1.5  # transfers may be slower than predicted, and merging is certain


class Stage:
    """A stage of one rank. `span` is the slice of rows of q that it computes. `rows` and `keys` map an index of these
    or of the stage's keys, in a mod, to its position; with cumulative lengths, `row_sequences` and `key_sequences` map it
    to its sequence. `key_count` is the number of keys, and `has_work` tells if any pair may live. `receives` are numbers
    of keys by the rank that owns them, in whose order they arrive. `sends` are intervals of own keys by the rank that
    needs them, and `sent` their lengths. In a joined stage `own` is the slice of own keys, among those that travel;
    otherwise it is None."""

    def __init__(self, plan, pieces, rank, number, span, device, joined=False):
        rows, keys = _cut(plan._of_team(rank, False), span), plan._of_team(rank, True)
        self.span = span
        own = sorted((owner, begin, end) for stage, owner, begin, end in pieces[rank] if stage == number)
        before = keys if joined or not number else []
        received = [piece[1:] for piece in own] if number else []
        # Keys in ascending order may be one interval, as in windows. Then kernels need no table of positions.
        lower = [interval for interval in received if before and interval[1] <= before[0][0]]
        intervals = lower + before + received[len(lower) :]
        if not joined or not _ascend(intervals):
            lower, intervals = [], before + received
        self.number, self.key_count = number, _total(intervals)
        self.own = slice(_total(lower), _total(lower) + _total(before)) if joined and before else None
        self.has_work = bool(rows and (pieces[rank] if joined else own))
        self.row_sequences = self.key_sequences = None
        if plan._is_ragged:
            self.rows, self.row_sequences = _in_sequences(rows, plan._starts[False], device)
            self.keys, self.key_sequences = _in_sequences(intervals, plan._starts[True], device)
        else:
            self.rows, self.keys = _place(rows, device), _place(intervals, device)
        self.receives = [_total([piece[1:] for piece in own if piece[0] == other]) for other in range(plan.world)]
        self.sends = []
        for needs in pieces:
            found = sorted(piece[2:] for piece in needs if number and piece[:2] == (number, rank))
            self.sends.append(_joined(_local(keys, *interval) for interval in found))
        self.sent = list(map(_total, self.sends))


def _cut(intervals, rows):
    """Returns the intervals of a slice of their rows."""
    cut, before = [], 0
    for begin, end in intervals:
        low, high = max(begin, begin + rows.start - before), min(end, begin + rows.stop - before)
        if low < high:
            cut.append((low, high))
        before += end - begin
    return cut


def _ascend(intervals):
    return all(end <= begin for (_, end), (begin, _) in itertools.pairwise(intervals))


def _place(intervals, device):
    """Returns a function from indices to positions. Kernels need no lists of blocks for one interval."""
    joined = _joined(intervals)
    if len(joined) == 1:
        begin = joined[0][0]
        return lambda index: index + begin
    positions = _positions(joined, device)
    return lambda index: positions[index]


def _in_sequences(intervals, starts, device):
    """Returns functions from indices to positions in their sequence, and to sequences."""
    tokens = _positions(intervals, device)
    bounds = torch.tensor(starts, dtype=torch.int32, device=device)
    sequences = (torch.searchsorted(bounds, tokens, right=True) - 1).int()  # behind empty ones
    positions = tokens - bounds[sequences.long()]
    return lambda index: positions[index], lambda index: sequences[index]


def _starts_of(cu_seqlens, shape):
    """Returns where sequences begin among the rows of q, and among those of k and v, and their numbers."""
    if cu_seqlens is None:
        return [0, shape[3]], [0, shape[4]]
    pair = cu_seqlens if isinstance(cu_seqlens, tuple) else (cu_seqlens, cu_seqlens)
    if len(pair) != 2:
        raise ArgumentError("cu_seqlens is a tuple of other than two", "give (cu_seqlens_q, cu_seqlens_kv)")
    starts = [x.tolist() if isinstance(x, torch.Tensor) else list(x) for x in pair]
    for x in starts:
        if len(x) != shape[0] + 1 or x[0] != 0 or any(length < 0 for length in _differences(x)):
            raise ArgumentError(
                f"cu_seqlens has {len(x)} numbers from {x[:1]} for {shape[0]} sequences",
                "give B + 1 numbers that begin at 0 and do not decrease",
            )
    return starts


def _differences(starts):
    return [end - begin for begin, end in itertools.pairwise(starts)]


def _tokens(handle, rank):
    """Returns the intervals of a rank's rows, and of its keys."""
    found = c.ShardTokens()
    check(library().attnc_shard_plan_get_tokens(handle.address, rank, byref(found)))
    return _intervals(found.rows, found.row_count), _intervals(found.keys, found.key_count)


def _intervals(array, count):
    return [(one.begin, one.end) for one in array[:count]]


def _work(handle, mask, rank):
    """Returns the pieces of a rank for a mask, (stage, owner, begin, end), and the rows that stages concern."""
    found = c.ShardWork()
    check(library().attnc_shard_plan_get_work(handle.address, mask, rank, byref(found)))
    pieces = found.pieces[: found.piece_count]
    rows = _intervals(found.stage_rows, found.stage_count)
    return [(piece.stage, getattr(piece, "from"), piece.begin, piece.end) for piece in pieces], rows


def _positions(intervals, device=None):
    parts = [torch.arange(begin, end, dtype=torch.int32, device=device) for begin, end in intervals]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int32, device=device)


def _total(intervals):
    return sum(end - begin for begin, end in intervals)


def _local(intervals, begin, end):
    """Returns where tokens of one interval lie among those of all."""
    at = bisect.bisect_right(intervals, (begin, float("inf"))) - 1
    before = _total(intervals[:at]) + begin - intervals[at][0]
    return before, before + end - begin


def _joined(intervals):
    all = []
    for begin, end in intervals:
        if all and all[-1][1] == begin:
            all[-1] = all[-1][0], end
        else:
            all.append((begin, end))
    return all
