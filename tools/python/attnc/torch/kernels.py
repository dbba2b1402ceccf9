"""Calls of attnc with torch tensors: on a GPU by kernels, which are compiled when operands of their kind first come,
and on the CPU by the fp64 reference.

A launch fills pointers into structs that were made for operands of the same kind: same mod, dtypes, shapes, strides.
"""

import functools
import threading
import typing
import weakref
from ctypes import byref, c_size_t, pointer

import torch

from .. import _library as c
from .._library import Handle, check, compiler, library
from ..mod import Mod
from .translation import DTYPE_NAMES

_DTYPES = {dtype: c.DTYPES[name] for dtype, name in DTYPE_NAMES.items()}
_KINDS = {name: number for number, name in enumerate(c.KINDS)}
_MOST_KEPT = 4096
ALIGNMENT = 16  # of rows, for the fastest kernels


@functools.lru_cache(maxsize=1024)
def mod_of(text):
    """The mod of IR text."""
    return Mod.parse_ir(text, name="<torch>")


def _view(tensor):
    """The struct of a tensor."""
    shape, stride = tuple(tensor.shape), tensor.stride()
    rank = len(shape)
    view = c.Tensor(data=tensor.data_ptr(), dtype=_DTYPES[tensor.dtype], rank=rank)
    view.shape[:rank], view.stride[:rank] = shape, stride
    return view


def _kind_of(tensor):
    """What a call is made for, of a tensor; of its address, that which kernels may depend on."""
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.data_ptr() % ALIGNMENT


class _Captures:
    """An array of captures: of tensors, which change their address, and of scalars, which change their value."""

    def __init__(self, tensors, scalars=(), kinds=None):
        self.names = [name.encode() for name in (*tensors, *scalars)]
        self.views = [_view(tensor) for tensor in tensors.values()]
        entries = [c.Capture(name=name, tensor=pointer(view)) for name, view in zip(self.names, self.views)]
        entries += [c.Capture(name=name, kind=_KINDS[kinds[name.decode()]]) for name in self.names[len(entries) :]]
        self.array = (c.Capture * len(entries))(*entries)

    def set(self, tensors, scalars=()):
        for view, tensor in zip(self.views, tensors):
            view.data = tensor.data_ptr()
        for place, number in enumerate(scalars, len(self.views)):
            entry = self.array[place]
            entry.real, entry.integer = number, int(number)


class Sequences(typing.NamedTuple):
    """Where rows of q, k and v belong, in i32 tensors of the device: `kv_lengths` [B] of a cache, whose last keys the
    queries stand at; or `cu_q` and `cu_kv` [B + 1], the cumulative lengths of a ragged batch, with the longest ones."""

    kv_lengths: torch.Tensor | None = None
    cu_q: torch.Tensor | None = None
    cu_kv: torch.Tensor | None = None
    max_q: int = 0
    max_kv: int = 0


ALIGNED = Sequences()  # query i stands at key i
ANEW = object()  # for a mask: a launch has a workspace of its own, as those in graphs must, which are replayed


class Call:
    """Forward, and backward where gradients are wanted, of operands of one kind."""

    def __init__(self, mod, q, k, v, tensors, scalars, out, wants_max, gradients, deterministic, sequences=ALIGNED):
        """`tensors` and `scalars`: what the mod captures, by name. `gradients`: None, or the names of captures that
        want one."""
        self.mod, self.lock, self.is_training = mod, threading.Lock(), gradients is not None
        self.views = {name: _view(tensor) for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out))}
        rows = torch.empty(q.shape[:3], dtype=torch.float32, device="meta")
        for name in ("lse", "row_max", "d_lse"):
            self.views[name] = _view(rows)
        at = {name: pointer(view) for name, view in self.views.items()}
        self.captures = _Captures(tensors, scalars, {capture.name: capture.kind for capture in mod.captures})
        self.operands = c.Operands(
            q=at["q"], k=at["k"], v=at["v"], captures=self.captures.array, capture_count=len(self.captures.array),
            scale=1.0, has_scale=1,
        )  # fmt: skip
        self._add_sequences(sequences)
        self.outputs = c.Outputs(out=at["out"], lse=at["lse"])
        if wants_max:
            self.outputs.row_max = at["row_max"]
        if self.is_training:
            self._make_backward(q, k, v, out, tensors, gradients, at)
        self.is_on_gpu = q.is_cuda
        if self.is_on_gpu:
            self._prepare(deterministic)

    def _add_sequences(self, sequences):
        self.sequences = []  # the structs of the tensors that are given
        members = ("kv_lengths", sequences.kv_lengths), ("cu_seqlens_q", sequences.cu_q), ("cu_seqlens_kv", sequences.cu_kv)
        for member, tensor in members:
            if tensor is not None:
                self.sequences.append(_view(tensor))
                setattr(self.operands, member, pointer(self.sequences[-1]))
        self.operands.max_q_len, self.operands.max_kv_len = sequences.max_q, sequences.max_kv

    def _make_backward(self, q, k, v, out, tensors, gradients, at):
        """Gradients are dense, and ordered as what they belong to."""
        self.gradients = _Captures({name: torch.empty_like(tensors[name], device="meta") for name in gradients})
        for name, of in (("d_q", q), ("d_k", k), ("d_v", v), ("d_out", out)):
            self.views[name] = _view(torch.empty_like(of, device="meta"))
            at[name] = pointer(self.views[name])
        self.backward_operands = c.BackwardOperands(
            forward=pointer(self.operands), out=at["out"], lse=at["lse"], d_out=at["d_out"], d_lse=at["d_lse"]
        )
        self.backward_outputs = c.BackwardOutputs(
            d_q=at["d_q"], d_k=at["d_k"], d_v=at["d_v"],
            captures=self.gradients.array, capture_count=len(self.gradients.array),
        )  # fmt: skip

    def _prepare(self, deterministic):
        options = c.PrepareOptions(deterministic=deterministic)
        mod = self.mod._handle.address
        if self.is_training:
            arguments = byref(self.backward_operands), byref(self.outputs), byref(self.backward_outputs)
            create = "attnc_prepare_training"
        else:
            arguments, create = (byref(self.operands), byref(self.outputs)), "attnc_prepare"
        self.prepared = Handle(
            create, compiler().address, mod, *arguments, byref(options), destroyer="attnc_prepared_destroy"
        )
        size = c_size_t()
        check(library().attnc_prepared_workspace_bytes(self.prepared.address, byref(size)))
        self.workspace_bytes, self.workspaces = size.value, {}

    def _workspace(self, device, stream, mask):
        """(address, whatever has to live until the launch is enqueued). A stream has a workspace, since its launches
        follow one another. Its block lists are made for a mask, and kept as long as it is the same one; None: they are
        made anew."""
        if not self.workspace_bytes:
            return None, None
        is_anew = mask is ANEW or torch._C._cuda_isCurrentStreamCapturing()
        found = None if is_anew else self.workspaces.get(stream)
        if found is None:
            found = [torch.empty(self.workspace_bytes, dtype=torch.uint8, device=device), None]
            if not is_anew:
                self.workspaces[stream] = found
        space = found[0].data_ptr()
        if found[1] is None or self.mod.has_mask_mod and (mask is None or found[1]() is not mask):
            check(library().attnc_prepared_initialise(self.prepared.address, byref(self.operands), space, stream))
            found[1] = weakref.ref(self if mask is None or is_anew else mask)
        return space, found

    def _fill(self, q, k, v, tensors, scalars, scale, sequences):
        views = self.views
        if self.sequences:
            for view, tensor in zip(self.sequences, filter(_is_tensor, sequences)):
                view.data = tensor.data_ptr()
        views["q"].data, views["k"].data, views["v"].data = q.data_ptr(), k.data_ptr(), v.data_ptr()
        self.captures.set(tensors, scalars)
        self.operands.scale = scale

    def forward(self, q, k, v, tensors, scalars, scale, mask, out, lse, row_max, sequences=ALIGNED):
        """Writes out, lse and row_max (None: not wanted). `mask`: what mask_mod belongs to (_workspace)."""
        views = self.views
        with self.lock:
            self._fill(q, k, v, tensors, scalars, scale, sequences)
            views["out"].data, views["lse"].data = out.data_ptr(), lse.data_ptr()
            if row_max is not None:
                views["row_max"].data = row_max.data_ptr()
            if not self.is_on_gpu:
                check(
                    library().attnc_compute_on_cpu(self.mod._handle.address, byref(self.operands), byref(self.outputs))
                )
                return
            stream = torch._C._cuda_getCurrentRawStream(q.device.index)
            (space, _held), prepared = self._workspace(q.device, stream, mask), self.prepared.address
            check(library().attnc_prepared_launch(prepared, byref(self.operands), byref(self.outputs), space, stream))

    def backward(
        self, q, k, v, tensors, scalars, scale, mask, out, lse, d_out, d_lse, results, gradients, sequences=ALIGNED
    ):  # fmt: skip
        """Writes `results`, which are d_q, d_k and d_v, and the gradients of captures."""
        views = self.views
        with self.lock:
            self._fill(q, k, v, tensors, scalars, scale, sequences)
            views["out"].data, views["lse"].data, views["d_out"].data = out.data_ptr(), lse.data_ptr(), d_out.data_ptr()
            for name, tensor in zip(("d_q", "d_k", "d_v"), results):
                views[name].data = tensor.data_ptr()
            self.gradients.set(gradients)
            self.backward_operands.d_lse = pointer(views["d_lse"]) if d_lse is not None else None
            if d_lse is not None:
                views["d_lse"].data = d_lse.data_ptr()
            operands, outputs = byref(self.backward_operands), byref(self.backward_outputs)
            if not self.is_on_gpu:
                check(library().attnc_compute_backward_on_cpu(self.mod._handle.address, operands, outputs))
                return
            stream = torch._C._cuda_getCurrentRawStream(q.device.index)
            (space, _held), prepared = self._workspace(q.device, stream, mask), self.prepared.address
            check(library().attnc_prepared_launch_backward(prepared, operands, outputs, space, stream))


_calls = {}


_of_caches = {}  # kind of a call over a cache, whatever the number of its rows -> key of the newest one


def _is_tensor(item):
    return isinstance(item, torch.Tensor)


def call_of(text, q, k, v, tensors, scalars, out, wants_max, gradients, deterministic, sequences=ALIGNED):
    """The call for operands of this kind; made, and its kernels compiled, if there was none."""
    key = (
        text, _kind_of(q), _kind_of(k), _kind_of(v), _kind_of(out), tuple(map(_kind_of, tensors.values())), wants_max,
        gradients, deterministic, q.device, sequences is not ALIGNED and _kind_of_sequences(sequences),
    )  # fmt: skip
    found = _calls.get(key)
    if found is None:
        if len(_calls) >= _MOST_KEPT:
            _calls.clear()
            _of_caches.clear()
        found = Call(mod_of(text), q, k, v, tensors, scalars, out, wants_max, gradients, deterministic, sequences)
        _calls[key] = found
        if sequences.kv_lengths is not None:
            # A cache that grows has another kind at each token; workspaces of those before would stay.
            kind = text, q.shape, k.shape[:2], k.shape[3], v.shape[3], q.dtype, q.device
            _calls.pop(_of_caches.get(kind), None)
            _of_caches[kind] = key
    return found


def _kind_of_sequences(sequences):
    """Which tensors are given, of how many sequences, and how long these are."""
    return tuple(item.shape if _is_tensor(item) else item for item in sequences)
