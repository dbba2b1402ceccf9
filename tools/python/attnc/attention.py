"""Attention over the tensors of any library that supports DLPack."""

import ctypes
import typing
from collections.abc import Mapping
from ctypes import addressof, byref, pointer
from typing import Any

from ._cpu_notice import tell_of_cpu
from ._library import check, library
from ._spec import (
    DTYPE_E4M3, DTYPE_I32, OFFSETS_FROM_LENGTHS, OFFSETS_NONE, BlockLists, BlockMaskShape, BlockMaskView, Capture,
    Operands, Options, Outputs, Tensor,
)  # fmt: skip
from .dlpack import Memory, View, current_context, is_on_gpu, without_gradient
from .errors import ArgumentError, RunError
from .launch import OPTIONS, Launch, Sequences, members_of, prepared, settled
from .mod import Mod, _dense

_TensorPointer = ctypes.POINTER(Tensor)
_MOST_KEPT = 256  # kernels of a mod


def attention(
    mod: Mod | str, q: Any, k: Any, v: Any, *, captures: Mapping[str, Any] | None = None, scale: float | None = None,
    out: Any = None, return_lse: bool = False, stream: int | None = None, q_scales: Any = None,
    k_scales: Any = None, v_scales: Any = None, kv_lengths: Any = None, q_offsets: Any = None, page_table: Any = None,
    new_k: Any = None, new_v: Any = None, cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, max_q_len: int = 0,
    max_kv_len: int = 0, block_mask: Any = None, return_outputs: bool = False, **options: "typing.Unpack[Options]",
) -> Any:  # fmt: skip
    """Computes softmax(mod(scale q k^T)) v.

    `mod` is a Mod, or its text. q [B, H, L, E], k [B, HKV, S, E] and v [B, HKV, S, EV] are tensors of one dtype
    (float16, bfloat16 or float32) on one device. `captures` maps the names of the mod's captures to tensors on that
    device, or to numbers. `scale` defaults to 1 / sqrt(E).

    q, k and v may all be float8_e4m3fn. Their elements are then multiplied by `q_scales` [B, H], `k_scales` and
    `v_scales` [B, HKV]: float32 tensors, or with a last axis of one scale for each 128 rows, or for each row (in a ragged
    batch [1, heads, rows of all]; in pools [pages, HKV, page_size, 1] or [pages, HKV, 1, 1]). Default: 1. Head dims are
    multiples of 16. The result is bfloat16, or float16 if `out` is. For few queries, only k and v may be float8_e4m3fn; the last axis of k_scales and
    v_scales then has one scale for each row (in a ragged batch [1, HKV, rows of all]), and pools have scales
    [pages, HKV, page_size], or [pages, HKV, 1].

    For serving, with int32 tensors on the same device: `kv_lengths` [B] are the rows of k and v in each sequence, and
    `q_offsets` [B] the position of its first query. With lengths the last query stands at the last key by default. If
    `page_table` [B, N] is given, k and v are pools of pages, [pages, HKV, page_size, E or EV]. `new_k` and `new_v`
    [B, HKV, L, E or EV] are written into k and v, at the end of the lengths, which count them.

    `cu_seqlens_q` [B + 1], int32, makes the batch ragged. q is then a view [1, H, rows of all, E] of memory that holds
    the rows of one sequence behind those of another, as [rows, H, E] does. k and v are pools, or packed in the same way
    by `cu_seqlens_kv` (default: `cu_seqlens_q`); new_k and new_v are packed as q is, and need pools. The longest lengths
    are `max_q_len` and `max_kv_len`, if they are known: few queries then take a decode kernel.

    `block_mask` is a BlockMask of FlexAttention, or an object with its attributes: kv_num_blocks, kv_indices,
    full_kv_num_blocks, full_kv_indices (int32, on the same device), seq_lengths and BLOCK_SIZE. Only listed blocks are
    visited, and the mod's mask counts in those that are not full. Blocks are of rows of q, from 0 even if queries have
    offsets, and of positions of keys. In a ragged batch they are of each sequence's own rows, and the lists of B (or 1)
    sequences have the lengths max_q_len and max_kv_len, which must then be given.

    Returns out [B, H, L, EV]. With `return_lse`, also returns lse [B, H, L] (float32, natural logarithm). With
    `return_outputs`, also returns the outputs that the mod declares, float32, as a dict by name. The library that q belongs to allocates the results. If `out` is given, the result is written into it.

    On a GPU the work is enqueued on `stream`, given as an address (default: the current stream of torch or CuPy). A
    kernel is compiled when operands of a new kind first arrive. `options` have the names of attnc_prepare_options in C:
    `tile` is a text, in the spelling of tune(). With `check=True`, a launch first checks the values of lists, lengths,
    pages, scales and captured indices, and waits for the GPU; the CPU checks all but the indices always. On the CPU the fp64
    reference computes, slowly; CpuWarning says so once, and options that no kernel takes are refused. This function has
    no gradients, and refuses tensors that require one unless torch's gradients are off; attnc.torch has them.

    Raises ModError, RunError and ArgumentError.
    """
    arguments = locals()  # by name
    if unknown := options.keys() - OPTIONS.keys():
        raise TypeError(f"attention() got an unexpected keyword argument {min(unknown)!r}")
    q, k, v = without_gradient(q, "q"), without_gradient(k, "k"), without_gradient(v, "v")
    captures = {name: without_gradient(value, name) for name, value in (captures or {}).items()}
    if block_mask is not None and cu_seqlens_q is not None and not (max_q_len and max_kv_len):
        raise ArgumentError(
            "block_mask of a ragged batch is given without max_q_len or max_kv_len",
            "give both, which block_mask was made for and which no sequence exceeds",
        )
    sequences = Sequences(**{name: arguments[name] for name in Sequences._fields})
    members = members_of(options)
    given = Given(Launch({}, scale, block_mask, sequences, None, mod, out), q, k, v, captures, return_lse, stream, return_outputs)
    structs = byref(given.operands), byref(given.outputs)
    if given.on_gpu:
        _enqueue(given, *given.kernels(structs, members))
    else:
        tell_of_cpu(q, v)
        if given.is_fp8:  # the reference has fewer limits; sm_90a has all families of e4m3
            settled(given.handle, structs, arch=b"sm_90a")
        given.q_offsets = read_options(given.handle, structs, given.operands, members)
        check(library().attnc_compute_on_cpu(given.handle, addressof(given.operands), addressof(given.outputs)))
    results = given.out, *([given.lse] if return_lse else []), *([given.reduced] if return_outputs else [])
    return results if len(results) > 1 else given.out


class Given:
    """The arguments of a launch, as structs. The tensors must outlive it. `captures` include numbers."""

    def __init__(self, launch, q, k, v, captures, return_lse, stream, return_outputs=False):
        out = launch.out
        self.mod = Mod.parse(launch.mod) if isinstance(launch.mod, str) else launch.mod
        if not isinstance(self.mod, Mod):
            raise ArgumentError(
                f"mod is {type(launch.mod).__name__}",
                "give a Mod or its text; attnc.torch and attnc.jax have flex_attention, which takes functions",
            )
        if return_lse and self.mod.has_weight_mod:
            raise ArgumentError(f"{self.mod.name} has a weight_mod in place of the softmax, so there is no lse", "leave return_lse out")
        self.handle = self.mod._handle.address
        on_gpu = self.on_gpu = is_on_gpu(q, "q")
        self.memory = Memory(q) if out is None or return_lse or return_outputs or on_gpu else None
        # Tensors that this call makes are already ordered on its stream; others must wait for it.
        wait = None if not on_gpu else -1 if stream is None else stream or 1
        self.stream = self.memory.stream() if on_gpu and stream is None else stream
        *arrays, max_q_len, max_kv_len = launch.sequences
        others = {name: array for name, array in zip(Sequences._fields, arrays) if array is not None}
        written = ("k", "v") if "new_k" in others else ()
        views = {
            name: View(array, name, on_gpu, wait, writes=name in written)
            for name, array in {"q": q, "k": k, "v": v, **others}.items()
        }
        for name in ("q", "k", "v"):
            if (rank := views[name].struct.rank) != 4:
                raise ArgumentError(f"{name} has {rank} axes", "give [B, H, L, E], e.g. by [None] for a batch of 1")
        self.is_fp8 = any([views[name].struct.dtype == DTYPE_E4M3 for name in "qkv"])
        out_dtype = "bfloat16" if views["q"].struct.dtype == DTYPE_E4M3 else None
        self.out = self.memory.empty((*q.shape[:3], v.shape[3]), out_dtype) if out is None else out
        self.lse = self.memory.empty(tuple(q.shape[:3]), "float32") if return_lse else None
        views["out"] = View(self.out, "out", on_gpu, wait, writes=True)
        views["lse"] = View(self.lse, "lse", on_gpu, wait, writes=True) if return_lse else None
        self.reduced = {}
        for output in self.mod.outputs if return_outputs else ():
            shape = _shape_of(output, q, k, others, max_kv_len)
            self.reduced[output.name] = self.memory.empty(shape, "float32")
        of_reduced = {name: View(array, name, on_gpu, wait, writes=True) for name, array in self.reduced.items()}
        at = {name: view and _TensorPointer(view.struct) for name, view in views.items()}
        array, of_captures = self.mod._given(captures, on_gpu, wait)
        lists, of_lists = (None, ()) if launch.mask is None else _lists_of(launch.mask, on_gpu, wait)
        self.operands = Operands(
            q=at["q"], k=at["k"], v=at["v"], captures=array, capture_count=len(array), scale=launch.scale or 0.0,
            has_scale=launch.scale is not None, block_mask=lists and pointer(lists), max_q_len=max_q_len,
            max_kv_len=max_kv_len, **{name: at[name] for name in others},
        )  # fmt: skip
        reductions = (Capture * len(of_reduced))(
            *[Capture(name=name.encode(), tensor=pointer(view.struct)) for name, view in of_reduced.items()]
        )
        self.outputs = Outputs(
            out=at["out"], lse=at["lse"], reductions=reductions if of_reduced else None, reduction_count=len(of_reduced)
        )
        self._keep = {**views, **{(name,): view for name, view in of_reduced.items()}}, of_captures, lists, of_lists or {}
        self._captures = array

    def kernels(self, structs, members):
        """Returns what prepared() does. The mod keeps it for operands that differ in addresses only."""
        views, of_captures, lists, of_lists = self._keep
        numbers = [(one.kind, one.real, one.integer) for one in self._captures if not one.tensor]
        of_views = [(name, view.form()) for name, view in (*views.items(), *of_lists.items()) if view]
        v_is_k = self.operands.k.contents.data == self.operands.v.contents.data
        form = (
            members, current_context(), Mod._tunings, v_is_k, tuple(numbers), tuple(of_views),
            tuple([view.form() for view in of_captures]), lists and bytes(lists.shape), self.operands.max_q_len,
            self.operands.max_kv_len,
        )  # fmt: skip
        kept = self.mod._prepared
        found = kept.get(form)
        if found is None:
            found = prepared(self.handle, structs, **dict(members))
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[form] = found
        return found


def _shape_of(output, q, k, sequences, max_kv_len):
    """Returns the shape of an output of a mod. `sequences`: the other operands, by name."""
    lengths, table = sequences.get("cu_seqlens_q"), sequences.get("page_table")
    batch = q.shape[0] if lengths is None else lengths.shape[0] - 1
    rows = {"Q_LEN": (q.shape[0], q.shape[2]), "KV_LEN": (1 if lengths is not None else batch, k.shape[2])}
    if table is not None:
        room = table.shape[1] * k.shape[2]
        rows["KV_LEN"] = batch, room if lengths is None else max_kv_len or room
    if len(output.extents) < 3:
        return batch, q.shape[1]
    batch, length = rows[output.extents[2]]
    return batch, q.shape[1], length


def _lists_of(mask, on_gpu, wait):
    """Returns the lists of a block mask as a struct, and what must outlive it."""
    (q_len, kv_len), (q_block, kv_block) = mask.seq_lengths, mask.BLOCK_SIZE
    views, count = {}, mask.kv_num_blocks
    if q_block <= 0 or kv_block <= 0:  # a struct's 0 is its default
        raise RunError(
            f"block mask: blocks of {q_block} x {kv_block} are not supported", "use 64, 128 or 256 for each side"
        )
    shape = [*count.shape[:2], -(-q_len // q_block)]
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
        tensor = getattr(mask, name)
        if tensor is None and name.startswith("full"):
            continue
        expected = [*shape, mask.kv_indices.shape[-1]] if "indices" in name else shape
        view = views[name] = View(tensor, name, on_gpu, wait)
        if view.struct.dtype != DTYPE_I32 or [*tensor.shape] != expected:
            raise ArgumentError(
                f"{name} of block_mask is {tensor.dtype} {[*tensor.shape]}, of {q_len} queries in blocks of {q_block}",
                f"give int32 {expected}",
            )
        dense = _dense("i32", expected).stride
        if 0 not in expected and any(n > 1 and x != y for n, x, y in zip(expected, view.struct.stride, dense)):
            raise ArgumentError(f"{name} of block_mask has gaps between its elements", f"give {name}.contiguous()")
    address = lambda name: views[name].struct.data if name in views else None  # noqa: E731
    lists = BlockMaskView(
        shape=BlockMaskShape(*shape[:2], q_len, kv_len, q_block, kv_block),
        rows=BlockLists(
            address("kv_num_blocks"), address("kv_indices"), address("full_kv_num_blocks"), address("full_kv_indices"),
            mask.kv_indices.shape[-1],
        ),
    )  # fmt: skip
    return lists, views


def read_options(mod, structs, operands, members):
    """Reads options for the reference, which takes none: refuses those that no kernel takes, and gives `operands` the
    offsets of queries that one asks for. Returns the memory of these. `members`: as from members_of()."""
    _refuse_options(mod, structs, members)
    asked, has_lengths = dict(members).get("offsets"), bool(operands.kv_lengths or operands.cu_seqlens_kv)
    if operands.q_offsets or asked != (OFFSETS_NONE if has_lengths else OFFSETS_FROM_LENGTHS):
        return None  # where they are by default
    (_, _, q_len, *_), (_, _, kv_len, *_) = operands.q.contents.shape, operands.k.contents.shape
    ragged = operands.cu_seqlens_q
    count = ragged.contents.shape[0] - 1 if ragged else operands.q.contents.shape[0]
    memory = (ctypes.c_int32 * count)(*[0 if has_lengths or ragged else kv_len - q_len] * count)
    operands.q_offsets = pointer(Tensor(data=addressof(memory), dtype=DTYPE_I32, rank=1, shape=(count,), stride=(1,)))
    return memory


def _refuse_options(mod, structs, members):
    """Operands that no kernel takes, whatever the options, are left to the reference."""
    if not members:
        return
    for arch in b"sm_80", b"sm_90a":
        try:
            return settled(mod, structs, arch=arch, **dict(members))
        except RunError as error:
            refused = error
    try:
        settled(mod, structs, arch=b"sm_90a")
    except RunError:
        return
    raise refused


def _enqueue(given, kernels, size):
    workspace = given.memory.empty((size,), "uint8")
    view = View(workspace, "workspace", True, -1, writes=True)
    space = ctypes.c_void_p(view.struct.data)
    check(library().attnc_prepared_initialise(kernels.address, byref(given.operands), space, given.stream))
    launch = library().attnc_prepared_launch
    check(launch(kernels.address, addressof(given.operands), addressof(given.outputs), space, given.stream))
