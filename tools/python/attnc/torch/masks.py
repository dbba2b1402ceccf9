"""Masks that are given as tensors, to models of transformers and to scaled_dot_product_attention.

In: a tensor of bools, or of floats that are added to scores. Out: a BlockMask whose mask_mod is equal to it, or None:
then kernels read the tensor. A tensor is looked at once, on its device. That it is the same is known by its memory and
by PyTorch's count of writes into it; a tensor of torch.inference_mode() has none, and is not looked at. Nor is any in a
graph, whose replays may find others in the same memory.
"""

import collections
import dataclasses
import logging
import threading
import time
import typing

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..inference import Inference, infer
from .block_mask import BlockMask
from .graphs import is_recorded

_log = logging.getLogger(__name__)
_DTYPES = {torch.bool, torch.float32, torch.bfloat16, torch.float16}
_FEWEST_QUERIES = 128  # a kernel's tile: fewer queries have little to skip
_MOST_MASKED = -1e4  # floats up to it mask, as in attnc.infer
_PART = 1 << 26  # elements that are looked at together, since each step makes a tensor of bools
_MOST_INFERRED = 1 << 28  # elements of a mask for which the host is asked
_LOOKS = 16  # tensors of a kind that are looked at and not used again, before no more are
_MOST_KNOWN = 64
_SLOW = 1.0  # seconds that are worth a warning


@dataclasses.dataclass
class _Seen:
    """What a mask was found to be. `rows` has the first live key of each row and the number of live ones, i32 [2, B, H, Q];
    None: live keys are not all neighbours. `mask_mod` is None if kernels must read the tensor."""

    form: tuple  # shape, number of queries, and device
    rows: torch.Tensor | None
    memory: StorageWeakRef  # of the newest tensor that is this mask
    mask_mod: typing.Callable | None = None
    inference: Inference | None = None


class Masks:
    """The masks of a process. Up to `most` of them are inferred, and known again if a tensor of the same values comes. Rows
    whose live keys are neighbours need no inference. These count as they are from then on if masks change: a tensor
    whose mask was inferred is gone, and another mask comes."""

    def __init__(self, most: int = 4):
        self.most, self.inferred = most, []  # what was inferred, in order
        self._known = {}  # where a tensor lies and what was written -> (its storage, BlockMask or None)
        self._looks = collections.Counter()  # by kind of tensor
        self._lock = threading.Lock()

    def of(self, tensor: torch.Tensor, q_len: int, kv_len: int) -> BlockMask | None:
        """Returns the BlockMask of a tensor that broadcasts to [B, H, q_len, kv_len]. None: kernels read it."""
        if not self.most or q_len < _FEWEST_QUERIES or not 2 <= tensor.dim() <= 4 or tensor.dtype not in _DTYPES:
            return None
        if not tensor.numel() or tensor.requires_grad or tensor.is_inference() or is_recorded(tensor):
            return None
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        storage = tensor.untyped_storage()
        key = (
            storage._cdata, tensor._version, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, q_len
        )  # fmt: skip
        kind = tensor.dtype, tensor.dim() == 4 and tensor.shape[1] > 1
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                if found[1] is not None:
                    self._looks[kind] = max(0, self._looks[kind] - 1)
                return found[1]
            if tensor.shape[-1] != kv_len or tensor.shape[-2] not in (1, q_len) or self._looks[kind] >= _LOOKS:
                return None
            self._looks[kind] += 1
            if self._looks[kind] == _LOOKS:
                _log.info("masks of %s change at each use, or are none: kernels read them from now on", tensor.dtype)
            with torch.no_grad():
                mask = self._looked_at(tensor[(None,) * (4 - tensor.dim())], q_len, StorageWeakRef(storage))
            if len(self._known) >= _MOST_KNOWN:
                self._known = {key: one for key, one in self._known.items() if not one[0].expired()}
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = StorageWeakRef(storage), mask
            return mask

    def _looked_at(self, tensor, q_len, memory):
        start = time.perf_counter()
        for axis in range(3):  # what broadcasts is looked at once
            if tensor.stride(axis) == 0 and tensor.shape[axis] > 1:
                tensor = tensor.narrow(axis, 0, 1)
        seen = self._seen(tensor, q_len, memory)
        if seen is None:
            return None
        changes = seen.rows is not None and any(x.rows is not None and x.memory.expired() for x in self.inferred)
        is_asked = not changes and len(self.inferred) < self.most and tensor.numel() <= _MOST_INFERRED
        if seen.inference is None and is_asked:
            found = infer(_live(tensor).cpu().expand(-1, -1, q_len, -1), name="an attention mask")
            captures = {name: capture.to(tensor.device) for name, capture in found.captures.items()}
            seen.inference = dataclasses.replace(found, captures=captures)
            self.inferred.append(seen)
            if found.form != "table":
                seen.mask_mod = seen.inference.mask_mod
            self._tell(seen, time.perf_counter() - start)
        if seen.mask_mod is None and seen.rows is not None:
            seen.mask_mod = _within(*seen.rows)
        if seen.mask_mod is None:
            return None
        batch, heads, _, kv_len = tensor.shape
        return BlockMask._lazy(seen.mask_mod, batch, heads, q_len, kv_len, tensor.device, (128, 128))

    def _seen(self, tensor, q_len, memory):
        """Returns what a tensor [B, H, Q, KV] is: one of those that were inferred, or new. None: it is no mask, or one of finite
        numbers that masks whole rows, whose results are the mean of all values."""
        parts = tensor.split(max(1, _PART // max(1, tensor.numel() // tensor.shape[2])), dim=2)
        rows, facts = (torch.cat(found, -1) for found in zip(*map(_rows_of, parts)))
        is_mask, is_right, is_interval = facts.all(-1).tolist()  # waits for the device
        if not is_mask or not is_right:
            return None
        form, rows = (tensor.shape, q_len, tensor.device), rows if is_interval else None
        for other in self.inferred:
            if other.form != form or (other.rows is None) != (rows is None) or other.mask_mod is None:
                continue
            if all(_is_equal(parts, other.mask_mod)) if rows is None else torch.equal(rows, other.rows):
                other.memory = memory
                return other
        return _Seen(form, rows, memory)

    def _tell(self, seen, seconds):
        found, slow = seen.inference, seconds > _SLOW
        advice = "; attnc.torch.infer_masks(0) leaves masks as they are" if slow else ""
        _log.log(
            logging.WARNING if slow else logging.INFO, "a mask %s on %s is %s: %s. Inferred in %.0f ms%s",
            list(seen.form[0]), seen.form[2], f"a {found.form}" if found.form != "intervals" else "intervals",
            "; ".join(found.recognised), seconds * 1e3, advice,
        )  # fmt: skip


def _live(tensor):
    return tensor if tensor.dtype == torch.bool else tensor == 0


def _rows_of(part):
    """Returns rows of _Seen for a part of a mask, and facts about its rows, bool [3, Q]: they are those of a mask, not wholly
    masked by finite numbers, and their live keys are neighbours."""
    live = _live(part)
    count = live.sum(-1, dtype=torch.int32)
    is_mask = is_right = torch.ones((), dtype=torch.bool, device=part.device)
    if part.dtype != torch.bool:
        is_mask = (live | (part <= _MOST_MASKED)).all(-1)
        is_right = (count > 0) | (part.amax(-1) == -torch.inf)
    begins = (live[..., 1:] > live[..., :-1]).sum(-1, dtype=torch.int32) + live[..., 0]
    facts = [x.expand(count.shape).flatten(0, 1).all(0) for x in (is_mask, is_right, begins <= 1)]
    return torch.stack([live.view(torch.uint8).argmax(-1).int(), count]), torch.stack(facts)


def _within(first, count):
    """Returns a mask_mod of rows whose live keys are neighbours."""
    end = first + count
    axes = [size > 1 for size in first.shape]

    def mask_mod(b, h, q_idx, kv_idx):
        at = tuple(index if is_many else 0 for index, is_many in zip((b, h, q_idx), axes))
        return (kv_idx >= first[at]) & (kv_idx < end[at])

    return mask_mod


def _is_equal(parts, mask_mod):
    """Yields for each part of a mask whether it is that of a mask_mod."""
    first = 0
    for part in parts:
        b, h, q, kv = (
            torch.arange(size, device=part.device).view([-1 if axis == at else 1 for at in range(4)])
            for axis, size in enumerate(part.shape)
        )
        yield torch.equal(mask_mod(b, h, q + first, kv).expand(part.shape), _live(part))
        first += part.shape[2]


MASKS = Masks()


def infer_masks(most: int) -> None:
    """Sets how many masks that are given as tensors are inferred in this process, by attnc.infer on the host: default 4.
    Later ones count by the first and the last key of each row, if the keys between all live. 0: no mask is looked at,
    and kernels read all of them."""
    MASKS.most = most


def inferred_masks() -> list[Inference]:
    """Returns what was inferred of masks in this process: texts, and the seconds that each took."""
    return [seen.inference for seen in MASKS.inferred]
