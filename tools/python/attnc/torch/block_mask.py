"""Block masks with FlexAttention's interface.

attnc needs no block lists: at launch, it builds from mask_mod whatever the kernel gains from. So `create_block_mask`
evaluates nothing. block_lists.py makes the lists when they are first read. Lists that somebody else made are respected.
"""

import inspect
import math
import typing
import weakref

import torch
from torch.nn.attention import flex_attention as flex

from .._diagnostics import check_mask_mod
from ..pictures import MOST_UNASKED, html_of, unasked
from .block_lists import lists_of
from .translation import parsed

_FIELDS = frozenset(flex.BlockMask.__annotations__)  # the lists, and whatever else this PyTorch keeps in a mask
_OPTIONS = frozenset(inspect.signature(flex.create_block_mask).parameters)


class BlockMask(flex.BlockMask):
    """FlexAttention's BlockMask. If create_block_mask made it, its lists are made when they are first read."""

    _of = None  # batch, heads, device and options for PyTorch's function, if create_block_mask made it

    def __init__(self, *arguments, _of=None, **lists):
        if _of is None:
            super().__init__(*arguments, **lists)
        else:  # by _lazy()
            (self.mask_mod, self.seq_lengths, self.BLOCK_SIZE), self._of = arguments, _of

    @classmethod
    def _lazy(cls, mask_mod, batch, heads, q_len, kv_len, device, block_size, **options):
        return cls(mask_mod, (q_len, kv_len), block_size, _of=(batch, heads, device, options))

    def __getattr__(self, name: str) -> typing.Any:
        # Python calls this only for missing attributes.
        if name not in _FIELDS or self._of is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        batch, heads, device, options = self._of
        made = lists_of(self.mask_mod, batch, heads, self.seq_lengths, device, self.BLOCK_SIZE, options)
        for attribute in _FIELDS - self.__dict__.keys():
            self.__dict__[attribute] = made.get(attribute)
        return self.__dict__[name]

    @property
    def shape(self) -> tuple[int, ...]:
        if "kv_indices" in self.__dict__:
            return super().shape
        return (*self._of[:2], *self.seq_lengths)

    @property
    def device(self) -> torch.device:
        return self._of[2] if self._of is not None else self.kv_num_blocks.device

    def to_dense(self) -> torch.Tensor:
        """Returns which blocks are listed: 1 for the partial and the full ones, else 0, i32 [..., ROWS, COLUMNS]."""
        columns = _blocks_of(self)[1]
        dense = _is_listed(self.kv_num_blocks, self.kv_indices, columns)
        if self.full_kv_num_blocks is not None:
            dense |= _is_listed(self.full_kv_num_blocks, self.full_kv_indices, columns)
        return dense.int()

    def mask_svg(self, **options: typing.Any) -> str:
        """Returns a picture of the mask, as SVG text. `options` are those of attnc.Mod.mask_svg(): head=0,
        rows=(0, 256). Notebooks show a mask by this picture unless it is very large."""
        batch, heads, q_len, kv_len = self.shape
        problem = batch, heads, heads, q_len, kv_len
        mod, captures, _ = parsed(None, mask_mod_of(self, *self.seq_lengths, may_walk=False)[0], self.device, problem)
        if all(size in (64, 128, 256) for size in self.BLOCK_SIZE):
            options.setdefault("block", tuple(self.BLOCK_SIZE))
        return mod.mask_svg(problem, captures=captures, **options)

    def _repr_svg_(self) -> str | None:
        with unasked():
            return self.mask_svg() if math.prod(self.shape) <= MOST_UNASKED else None

    def _repr_html_(self) -> str | None:
        svg = self._repr_svg_()
        return svg and html_of(svg, f"BlockMask of {tuple(self.shape)}")


def create_block_mask(
    mask_mod: typing.Callable[..., torch.Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: str | torch.device | None = None, BLOCK_SIZE: int | tuple[int, int] = 128, _compile: bool = False,
    separate_full_blocks: bool = True, compute_dq_write_order: bool = False, dq_kv_order: bool = True,
    **options: typing.Any,
) -> BlockMask:  # fmt: skip
    """Makes a BlockMask, like torch.nn.attention.flex_attention.create_block_mask. It returns at once: mask_mod is
    evaluated block by block, by a kernel, at the first launch with the mask. Tensors that mask_mod captures are read
    then. The arguments after BLOCK_SIZE are PyTorch's, and `options` are what later versions may add. They apply to the
    lists, if those are read.

    Raises TypeError if mask_mod is a score_mod, or if the installed PyTorch has no such option."""
    if not separate_full_blocks:
        options["separate_full_blocks"] = False
    if compute_dq_write_order:
        options.update(compute_dq_write_order=True, dq_kv_order=dq_kv_order)
    for option in options:
        if option not in _OPTIONS:
            raise TypeError(f"create_block_mask of PyTorch {torch.__version__} has no option {option}")
    if not torch.compiler.is_dynamo_compiling():
        check_mask_mod(mask_mod)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    block_size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return BlockMask._lazy(mask_mod, B or 1, H or 1, Q_LEN, KV_LEN, device, block_size, **options)


_listed = weakref.WeakKeyDictionary()  # a BlockMask -> what mask_mod_of() returns


def has_lists(mask):
    """Whether a BlockMask has lists of its own, which may say more than its mask_mod."""
    return not isinstance(mask, BlockMask) or mask._of is None


def form_of(mask):
    """Returns what operands are checked against, of a BlockMask or None. Lists of its own are looked at themselves."""
    return None if mask is None else (mask.seq_lengths, mask.BLOCK_SIZE, None if has_lists(mask) else mask._of[:2])


class Lists(typing.NamedTuple):
    """Block lists as kernels walk them: partial and full blocks, by row and by column. i32, dense; None if a kind is
    missing. `shape` holds batch, heads, lengths and block sizes."""

    shape: tuple
    rows: tuple
    columns: tuple


def mask_mod_of(mask, q_len, kv_len, may_walk=True):
    """Returns (mask_mod, Lists or None), which decide the live scores of a BlockMask. Its lists count unless they were
    made from mask_mod. If the second is None, mask_mod covers the lists; it must, unless kernels `may_walk` them."""
    if not has_lists(mask):
        return mask.mask_mod, None
    if not may_walk:
        return _keeping_to_lists(mask), None
    found = _listed.get(mask)
    if found is None:
        lists = _lists_of(mask)
        found = _listed[mask] = (_keeping_to_lists(mask), None) if lists is None else (mask.mask_mod, lists)
    mask_mod, lists = found
    if lists is not None and lists.shape[2:4] != (q_len, kv_len):
        return _keeping_to_lists(mask), None
    return found


def _lists_of(mask):
    """Returns the Lists of a mask. None: kernels cannot walk them as they are."""
    groups = [
        [getattr(mask, f"{kind}{axis}_{part}") for kind in ("", "full_") for part in ("num_blocks", "indices")]
        for axis in ("kv", "q")
    ]
    tensors = [tensor for group in groups for tensor in group if tensor is not None]
    fits = all(
        x.dtype == torch.int32 and x.is_contiguous() and x.shape[:2] == tensors[0].shape[:2] for x in tensors
    ) and all(size in (128, 256) for size in mask.BLOCK_SIZE)
    count, of_columns = groups[0][0], groups[1][0]
    if not fits or count.dim() != 3 or of_columns is None:
        return None
    blocks = _blocks_of(mask)
    for group, shape in zip(groups, (blocks, blocks[::-1])):
        if any(x is not None and x.shape[2:] != shape for x in group[1::2]):
            return None
    return Lists((*count.shape[:2], *mask.seq_lengths, *mask.BLOCK_SIZE), *map(tuple, groups))


def _blocks_of(mask):
    """Returns the number of rows and columns of blocks of a BlockMask."""
    return tuple(-(-length // size) for length, size in zip(mask.seq_lengths, mask.BLOCK_SIZE))


def _is_listed(count, indices, columns):
    """Returns which of `columns` blocks are among the first `count` [..., ROWS] of `indices`, u8 [..., ROWS, columns]."""
    places = torch.arange(indices.shape[-1], device=indices.device)
    is_given = (places < count.unsqueeze(-1)) & (indices < columns)
    targets = torch.where(is_given, indices, columns).long()  # others go to an extra column, which is dropped
    return torch.zeros(
        *count.shape, columns + 1, dtype=torch.uint8, device=indices.device
    ).scatter(-1, targets, 1)[..., :columns]  # fmt: skip


def _keeping_to_lists(mask):
    rows, columns = _blocks_of(mask)
    if mask.kv_num_blocks.shape[-1] < rows:
        raise ValueError(
            f"block_mask has lists of {mask.kv_num_blocks.shape[-1]} rows of blocks; its {mask.seq_lengths[0]} queries "
            f"are {rows}: set its seq_lengths to the lengths that it is of"
        )
    state = _is_listed(mask.kv_num_blocks, mask.kv_indices, columns)
    if mask.full_kv_num_blocks is not None:
        state = state + 2 * _is_listed(mask.full_kv_num_blocks, mask.full_kv_indices, columns)
    state = state[(None,) * (4 - state.dim())]  # lists may have no axes for batch and heads
    mask_mod, (q_block, kv_block) = mask.mask_mod, mask.BLOCK_SIZE
    one_batch, one_head = (int(size) == 1 for size in state.shape[:2])  # a trace has tensors for the sizes
    # Not state[0, 0, ...]: PyTorch 2.6 traces no gather with numbers among the indices.
    state = state[:, 0] if one_head else state
    state = state[0] if one_batch else state

    def listed(b, h, q_idx, kv_idx):
        of_head = (() if one_batch else (b,)) + (() if one_head else (h,))
        block = state[(*of_head, q_idx // q_block, kv_idx // kv_block)]
        return (block >= 2) | ((block == 1) & mask_mod(b, h, q_idx, kv_idx))

    return listed
