"""Attention of a serving engine's layers: batches over pages, cut into launches. Knows no engine.

A batch is described by an object with these attributes, which are vLLM's: `num_reqs`; `query_start_loc` i32
[requests + 1] and `seq_lens` i32 [requests], the cumulative numbers of queries and the lengths with them;
`query_start_loc_cpu`, the same on the host; `block_table_tensor` i32 [requests, pages]; `seq_lens_cpu_upper_bound`
[requests] on the host or None; and `mm_req_doc_ranges`, which maps requests to first and last positions of images, or
None.
"""

import dataclasses
import importlib
import inspect
import itertools
import typing

import torch

from ..launch import Launch, Sequences
from ..names import choice
from .calls import call_of
from .fp8 import Rounding
from .kernels import ALIGNMENT
from .translation import translate

FP8 = torch.float8_e4m3fn


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring requests that share a launch: a ragged batch if their numbers of queries differ."""

    requests: slice
    tokens: slice  # their rows of q
    count: int  # requests
    q_len: int  # the most queries of a request
    sequences: Sequences
    images: torch.Tensor | None  # i32 [count, R, 2]: first and last position of each; empty ones end before they begin
    decodes: bool  # whether requests have few queries
    # What a layer's launch is made of, by what the layer has; all layers of a step share it.
    _kept: dict = dataclasses.field(init=False, repr=False, compare=False, default_factory=dict)

    def rows(self, of_all: torch.Tensor) -> torch.Tensor:
        """Returns their rows of q or out [tokens, H, D] as [B, H, q_len, D], or as the ragged batch [1, H, rows, D]."""
        batch = self.count if self.sequences.cu_seqlens_q is None else 1
        return of_all[self.tokens].view(batch, -1, *of_all.shape[1:]).transpose(1, 2)

    def rounded(self, q: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """Returns q / scales [H] as float8_e4m3fn; values beyond its range become its largest."""
        kind = q.dtype, q.shape, q.stride(), scales.stride()
        rounding = self._kept.get(kind)
        if rounding is None:
            rounding = self._kept[kind] = Rounding(q, scales)
        return rounding(q, scales)


def groups_of(batch: typing.Any, few: int) -> list[Group]:
    """Cuts a batch into launches, by what the host knows. Requests of at most `few` queries are decodes."""
    starts = batch.query_start_loc_cpu[: batch.num_reqs + 1].tolist()
    q_lens = [end - start for start, end in itertools.pairwise(starts)]

    def launch_of(request):
        # 1: for a decode kernel, which reads K and V once for all heads of a group; 2: for a forward kernel.
        return q_lens[request] and 1 + (q_lens[request] > few)

    groups = []
    for launch, requests in itertools.groupby(range(batch.num_reqs), launch_of):
        first, *others = requests
        if launch:  # else padding
            groups.append(_group(batch, slice(first, first + 1 + len(others)), starts, launch == 1))
    return groups


def group_of_all(batch: typing.Any, longest: int) -> Group:
    """Returns one launch for this batch, and for others of requests with up to `longest` queries in its tensors."""
    starts = batch.query_start_loc_cpu[: batch.num_reqs + 1].tolist()
    return _group(batch, slice(0, batch.num_reqs), starts, False, longest)


def _group(batch, requests, starts, decodes, longest=None):
    """Returns the launch of these requests: ragged if their numbers of queries differ, or will, up to `longest`."""
    first, end = requests.start, requests.stop
    q_lens = [starts[request + 1] - starts[request] for request in range(first, end)]
    sequences = Sequences(kv_lengths=batch.seq_lens[requests], page_table=batch.block_table_tensor[requests])
    if longest or min(q_lens) < max(q_lens):
        # Fewer values of Q_LEN are fewer kinds of launches.
        longest = longest or min(1 << (max(q_lens) - 1).bit_length(), starts[end] - starts[first])
        cu_q = batch.query_start_loc[first : end + 1]
        cu_q = cu_q - starts[first] if starts[first] else cu_q
        sequences = sequences._replace(cu_seqlens_q=cu_q, max_q_len=longest)
    ranges = batch.mm_req_doc_ranges or {}
    lengths = batch.seq_lens_cpu_upper_bound
    of_requests = []
    for request, q_len in zip(range(first, end), q_lens):
        # Images that end before the second query change nothing. The bound is exact while a prompt is read.
        first_query = 0 if lengths is None else int(lengths[request]) - q_len
        of_requests.append([pair for pair in ranges.get(request, ()) if pair[1] > first_query])
    most = max(map(len, of_requests))
    images = None
    if most:
        most = 1 << (most - 1).bit_length()  # a kernel serves all numbers up to it
        filled = [of + [(1, 0)] * (most - len(of)) for of in of_requests]
        images = torch.tensor(filled, dtype=torch.int32, pin_memory=batch.seq_lens.is_cuda)
        images = images.to(batch.seq_lens.device, non_blocking=True)
    tokens = slice(starts[first], starts[end])
    return Group(requests, tokens, end - first, sequences.max_q_len or q_lens[0], sequences, images, decodes)


def imported(name: str, setting: str) -> typing.Any:
    """Returns the user's object `name`, "module.attribute". Raises ValueError, which names the `setting`."""
    try:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'{setting} is {name!r}: give "module.name", which Python can import ({error})') from error


def _check_mods(mods, what):
    """Raises ValueError unless `mods` is a pair of a score_mod and a mask_mod, each of which may be None."""
    if not isinstance(mods, (tuple, list)) or len(mods) != 2:
        raise ValueError(f"{what} {mods!r}: give a pair (score_mod, mask_mod), each or None")
    for kind, mod, given in zip(("score_mod", "mask_mod"), mods, ("score, b, h, q_idx, kv_idx", "b, h, q_idx, kv_idx")):
        if mod is None:
            continue
        try:
            inspect.signature(mod).bind(*given.split(", "))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} {mod!r} as {kind}, which takes no {given}") from error


def mods_of_layers(name: str, setting: str) -> typing.Callable[[typing.Any], tuple]:
    """Returns the user's function `name`, "module.function", with its results checked: it maps a layer to a score_mod and a
    mask_mod or None. Raises ValueError, which names the `setting`."""
    function = imported(name, setting)

    def checked(layer):
        mods = function(layer)
        _check_mods(mods, f"{setting}: {name}({layer!r}) returns")
        return mods

    return checked


class NamedMods:
    """Mods from which requests choose: a dictionary from names to pairs (score_mod, mask_mod), where None is the layer's
    own. Requests without a name have the first pair. Raises ValueError, which says `where` the dictionary is from."""

    KEY = "attnc_mod"  # under which requests give a name

    def __init__(self, given: typing.Any, where: str):
        if not isinstance(given, dict) or not given:
            raise ValueError(f"{where} is {given!r}: give a dictionary from names to pairs (score_mod, mask_mod)")
        for key, mods in given.items():
            _check_mods(mods, f"{where}[{key!r}] is")
        self.pairs = [*given.values()]
        self._numbers = {key: number for number, key in enumerate(given)}

    def number_of(self, arguments: typing.Mapping[str, typing.Any] | None) -> int:
        """Returns the number of the mods that a request's arguments name. Raises ValueError."""
        name = (arguments or {}).get(self.KEY)
        if name is None:
            return 0
        if not isinstance(name, str) or name not in self._numbers:
            raise ValueError(f"{self.KEY} is {name!r}: give one of {', '.join(map(repr, self._numbers))}")
        return self._numbers[name]


class Chosen:
    """The mods that requests chose. `which` i32 [requests] has their numbers, and is read by each launch."""

    def __init__(self, mods: NamedMods, which: torch.Tensor):
        self.which, self._pairs = which, mods.pairs

    def of(self, group: Group, own: tuple, causal: bool = True) -> tuple:
        """Returns the score_mod and the mask_mod of a layer with mods of its `own`, for b among a group's requests. Kernels
        compute only what a request chose if that is read at b itself."""
        key = *own, causal
        if key not in group._kept:
            if "which" not in group._kept:
                start, stop = group.requests.start, group.requests.stop
                group._kept["which"] = self.which[start:stop].clone() if start else self.which[:stop]
            scores, masks = ([of if mine is None else mine for mine in all_of] for of, all_of in zip(own, zip(*self._pairs)))
            group._kept[key] = (
                self._joined(group, scores, lambda score, b, h, q_idx, kv_idx: score),
                self._joined(group, masks, _causal if causal else _everything),
            )
        return group._kept[key]

    def _joined(self, group, mods, otherwise):
        if all(mod is None for mod in mods):
            return None
        placed = [otherwise if mod is None else _behind(mod, group.requests.start) for mod in mods]
        return placed[0] if all(mod is mods[0] for mod in mods) else choice(group._kept["which"], *placed)

    def set(self, numbers: typing.Sequence[int]) -> None:
        """Writes the numbers of the first requests, without a wait for the GPU."""
        new = torch.tensor(numbers, dtype=torch.int32, pin_memory=self.which.is_cuda)
        self.which[: len(numbers)].copy_(new, non_blocking=True)


def _behind(mod, first):
    """Returns a mod that counts requests from `first`."""
    if not first:
        return mod
    return lambda *at: mod(*at[:-4], at[-4] + first, *at[-3:])


def _causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def _everything(b, h, q_idx, kv_idx):
    return kv_idx >= 0


class Scales(typing.NamedTuple):
    """Factors of rows of float8_e4m3fn: f32 tensors with one element, or with one for each head."""

    q: torch.Tensor  # what forward kernels divide queries by
    k: torch.Tensor
    v: torch.Tensor


class Attention:
    """The attention of a layer. `slopes` f32 [H] are those of ALiBi, and `sinks` [H] its sinks; None: it has none."""

    def __init__(
        self, heads: int, kv_heads: int, scale: float, window: int | None = None, soft_cap: float | None = None,
        slopes: torch.Tensor | None = None, sinks: torch.Tensor | None = None,
    ):  # fmt: skip
        self.heads, self.kv_heads, self.scale = heads, kv_heads, float(scale)
        self.window, self.soft_cap, self.slopes, self.sinks = window, soft_cap, slopes, sinks
        self._scales = None, {}, None

    def move_to(self, device: torch.device) -> None:
        """Moves the slopes."""
        if self.slopes is not None and self.slopes.device != device:
            self.slopes = self.slopes.to(device)

    def attend(
        self, group: Group, query: torch.Tensor, k: torch.Tensor, v: torch.Tensor, output: torch.Tensor,
        mods: tuple = (None, None), causal: bool = True, scales: Scales | None = None, first: int | None = None,
    ) -> None:  # fmt: skip
        """Writes a group's rows of `output` [tokens, H, D] for query [tokens, H, D]. k and v are pools of pages
        [pages, HKV, page_size, D]; they have the dtype of query, or float8_e4m3fn and `scales`. `mods` are a score_mod
        and a mask_mod, which replaces the causal mask; None: the layer's own. `first` is their b of the group's first request; None: its place in the batch."""
        q, out, sequences, form = group.rows(query), group.rows(output), group.sequences, None
        self.move_to(q.device)
        first = group.requests.start if first is None else first
        if scales is not None:
            of_cache, of_q = self._views_of(scales)
            sequences = sequences._replace(**of_cache)
            if not group.decodes:  # forward kernels need q of the dtype of k and v
                q_scales = of_q.reshape(self.heads)  # a copy only of those of KV heads
                q = group.rounded(q, q_scales)
                sequences = sequences._replace(q_scales=q_scales)
            form = out.stride()
        place = None
        if not (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT:
            place = (
                self.heads, self.window, self.soft_cap, id(self.slopes), *map(id, mods), causal, form, q.dtype, q.stride(),
                k.dtype, k.shape, k.stride(), scales and tuple(of.numel() for of in scales),
                first,
                self.sinks is not None and (self.sinks.dtype, self.sinks.stride(), self.sinks.data_ptr() % ALIGNMENT),
            )  # fmt: skip
        kept = group._kept.get(place)
        if kept is None:
            kept = self._call(group, q, k, v, out, mods, first, causal, sequences, form)
            if place is not None and (self.sinks is None) == (kept[3] is None):
                group._kept[place] = kept
        call, captures, numbers, place_of_sinks, _ = kept
        if place_of_sinks is not None:  # layers share a call, and each has its sinks
            captures = [*captures[:place_of_sinks], self.sinks, *captures[place_of_sinks + 1 :]]
        call.forward(Launch(numbers, self.scale, self, sequences), q, k, v, captures, out, None, None)

    def _views_of(self, scales):
        """Returns k_scales and v_scales of Sequences, and those of q [N, H / N]: views, so that later values are read."""
        of, of_cache, of_q = self._scales
        if of is None or any(x is not y for x, y in zip(of, scales)):
            of_head = lambda x: x.view(-1).expand(self.kv_heads)  # noqa: E731
            of_cache = {"k_scales": of_head(scales.k), "v_scales": of_head(scales.v)}
            of_q = scales.q.view(-1, 1).expand(-1, self.heads // scales.q.numel())
            self._scales = scales, of_cache, of_q
        return of_cache, of_q

    def _call(self, group, q, k, v, out, mods, first, causal, sequences, form):
        """Returns (call, captured tensors, numbers of the mods, the place of the sinks among the tensors or None, objects
        whose ids must stay theirs)."""
        problem = group.count, self.heads, self.kv_heads, group.q_len, sequences.page_table.shape[1] * k.shape[2]
        score_mod = self._score_mod(mods[0], first)
        mask_mod = self._mask_mod(mods[1], group, causal, first)
        sinks = self.sinks
        sink_mod = None if sinks is None else lambda b, h, q_idx: sinks[h]
        translation = translate(score_mod, mask_mod, sink_mod=sink_mod, device=q.device, problem=problem)
        text, captures, numbers = translation.given()
        launch = Launch(numbers, self.scale, self, sequences, None, text, None if form is None else out)
        tensors = [*captures.values()]
        place_of_sinks = next((place for place, tensor in enumerate(tensors) if tensor is sinks), None)
        return call_of(launch, q, k, v, captures), tensors, numbers, place_of_sinks, (mods, self.slopes)

    def _score_mod(self, own, first):
        slopes, cap = self.slopes, self.soft_cap
        if own is None and slopes is None and cap is None:
            return None

        def score_mod(score, b, h, q_idx, kv_idx):
            if own is not None:
                score = own(score, b + first, h, q_idx, kv_idx)
            if cap is not None:
                score = cap * torch.tanh(score / cap)
            return score if slopes is None else score + slopes[h] * (kv_idx - q_idx)

        return score_mod

    def _mask_mod(self, own, group, causal, first=0):
        window, images = self.window, group.images
        if own is None and not causal and window is None:
            return None

        def mask_mod(b, h, q_idx, kv_idx):
            seen = None if images is None else _images_of(images, b, q_idx)
            if own is None:
                # The tokens around the query and those of its image are one interval, by which loops are bounded.
                end = q_idx if causal else None if window is None else q_idx + (window - 1)
                begin = None if window is None else q_idx - (window - 1)
                if seen is not None:
                    end = None if end is None else torch.maximum(end, seen[1])
                    begin = None if begin is None else torch.minimum(begin, seen[0])
                return _all_of(end is not None and kv_idx <= end, begin is not None and kv_idx >= begin)
            live = own(b + first, h, q_idx, kv_idx)
            if window is not None:
                live = live & (q_idx - kv_idx < window) & (kv_idx - q_idx < window)
            return live if seen is None else live | (seen[0] <= kv_idx) & (kv_idx <= seen[1])

        return mask_mod


def _all_of(*conditions):
    """Returns the conjunction of those that are no False."""
    given = [x for x in conditions if x is not False]
    return given[0] if len(given) == 1 else given[0] & given[1]


_FAR = 1 << 24  # behind all positions


def _images_of(images, b, q_idx):
    """Returns first and last position of the image that has the query; if none has it, a first one behind the query and
    a last one before it. Both grow with q_idx, as attnc can prove."""
    first = last = None
    for number in range(images.shape[1]):
        start, end = (images[b, number, i].clamp(0, _FAR) for i in (0, 1))
        start, end = torch.where(q_idx <= end, start, _FAR), torch.where(start <= q_idx, end, -1)
        first = start if first is None else torch.minimum(first, start)
        last = end if last is None else torch.maximum(last, end)
    return first, last
