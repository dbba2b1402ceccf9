"""Calls attnc with torch tensors. On a GPU, kernels are compiled when operands of a new kind first arrive; on the CPU,
the fp64 reference computes.

A launch fills pointers into structs that were made for operands of the same kind: same mod, dtypes, shapes, strides.
"""

import ctypes
import functools
import threading
import weakref
from ctypes import addressof, byref, pointer

import torch

from .. import _spec as c
from .._cpu_notice import tell_of_cpu
from .._library import KINDS, check, library
from ..attention import read_options
from ..dlpack import torch_dtypes, view_of
from ..launch import ALIGNED, Sequences, compile_last, lists_in_workspace, prepared, settled
from ..mod import Mod
from .mistakes import TORCH

_KINDS = {name: number for number, name in enumerate(KINDS)}
_MOST_KEPT = 4096
ALIGNMENT = 16  # of rows, in bytes, for the fastest kernels
# PyTorch without CUDA lacks these.
_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_empty_like, _empty_strided = torch.empty_like, torch.empty_strided
_bound = threading.local()


def bind_context(device):
    """Makes the context of a GPU current in this thread. Threads of PyTorch's backward passes begin without one, and only
    the CUDA runtime makes it current. Keeps no tensor, since a CUDA graph's pool may have none."""
    if device.type == "cuda" and not hasattr(_bound, "has_context"):
        torch.zeros(1, device=device)
        _bound.has_context = True


def current_stream(index):
    """Returns the address of a GPU's current stream, on which this thread can launch."""
    if not hasattr(_bound, "has_context"):
        bind_context(torch.device("cuda", index))
    return _raw_stream(index)


@functools.lru_cache(maxsize=1024)
def mod_of(text):
    """Returns the mod of IR text."""
    return Mod.parse_ir(text, name="<torch>")


def shapes_of_outputs(mod, q, k):
    """Returns the shapes of a mod's outputs, in order."""
    lengths = {"B": q.shape[0], "H": q.shape[1], "Q_LEN": q.shape[2], "KV_LEN": k.shape[2]}
    return [tuple(lengths[name] for name in output.extents) for output in mod.outputs]


def check_dtype(name, tensor):
    """Raises ValueError for an operand in whose dtype attnc does not compute."""
    if tensor.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(
            f"{name} is {tensor.dtype}; attnc computes bfloat16, float16 and float32: convert it, as {name}.float() or "
            "model.float() does, or use another implementation of attention"
        )


class Views:
    """Structs of tensors, side by side. Callers write to `addresses`."""

    def __init__(self, tensors):
        self.array = (c.Tensor * len(tensors))(*map(self._view, tensors))
        words = ctypes.c_uint64 * (ctypes.sizeof(self.array) // 8)
        all = memoryview(words.from_buffer(self.array)).cast("B").cast("Q")
        self.addresses = all[c.Tensor.data.offset // 8 :: ctypes.sizeof(c.Tensor) // 8]

    @staticmethod
    def _view(tensor):
        if tensor.dtype not in torch_dtypes():
            check_dtype("a tensor", tensor)
        return view_of(tensor)

    def pointers(self):
        return [pointer(view) for view in self.array]


class _Captures:
    """An array of captures: tensors, by pointers to their structs, and scalars, whose values may be set. A scalar that the mod
    does not declare is a tangent."""

    def __init__(self, tensors, scalars=(), kinds=None):
        """`tensors` holds pairs of a name and a pointer; `scalars` holds names."""
        entries = [c.Capture(name=name.encode(), tensor=at) for name, at in tensors]
        self.first_scalar = len(entries)
        entries += [c.Capture(name=name.encode(), kind=_KINDS[kinds.get(name, "float")]) for name in scalars]
        self.array = (c.Capture * len(entries))(*entries)

    def set(self, scalars):
        for place, number in enumerate(scalars, self.first_scalar):
            entry = self.array[place]
            entry.real, entry.integer = number, int(number)


# In place of a mask: a workspace of its own for each launch. Graphs are replayed, and runs that warm them up may leave
# nothing in their pool of memory.
ANEW = object()


def like(tensor, width=None):
    """Returns an uninitialised tensor of the same shape, with dense strides in the same order. `width` replaces the
    last extent, and bfloat16 takes the place of float8_e4m3fn."""
    dtype = torch.bfloat16 if tensor.dtype == torch.float8_e4m3fn else tensor.dtype
    if width is None or width == tensor.shape[-1]:
        return torch.empty_like(tensor, dtype=dtype)
    order = sorted(range(3), key=lambda axis: -tensor.stride(axis))
    shape = [*(tensor.shape[axis] for axis in order), width]
    back = [order.index(axis) for axis in range(3)]
    return tensor.new_empty(shape, dtype=dtype).permute(*back, 3)


class Call:
    """The forward pass, and the backward pass if gradients are wanted, for operands of one kind."""

    def __init__(self, launch, q, k, v, tensors):
        """`tensors` are the captured ones, by name. `launch` has an `out`."""
        out, sequences = launch.out, launch.sequences
        self.mod, self.lock = mod_of(launch.mod), threading.Lock()
        self.handle, self.names, self.gradients = self.mod._handle.address, tuple(tensors), launch.gradients
        self.is_on_gpu, self.needs_rows, self.workspace_bytes = q.is_cuda, False, 0
        batch, heads, q_len, width = q.shape
        self.is_like_q = v.shape[-1] == width and out.dtype == q.dtype
        self.scale, self.wants_max, self.numbers = 1.0, launch.wants_max, ()
        self.rows = (batch, heads, q_len), (heads * q_len, q_len, 1)  # shape and strides
        rows = torch.empty(self.rows[0], dtype=torch.float32, device="meta")
        self.of_sequences = [place for place, item in enumerate(sequences) if isinstance(item, torch.Tensor)]
        given = [sequences[place] for place in self.of_sequences]
        self.reduced = shapes_of_outputs(self.mod, q, k)
        self.maxima = sum(not output.is_sum for output in self.mod.outputs)  # the first ones
        reduced = [torch.empty(shape, dtype=torch.float32, device="meta") for shape in self.reduced]
        # In the order in which forward() and backward() set their addresses.
        self.views = Views([q, k, v, out, rows, rows, *given, *tensors.values(), *reduced])
        self.addresses = self.views.addresses
        q_at, k_at, v_at, out_at, lse_at, max_at, *others = self.views.pointers()
        kinds = {capture.name: capture.kind for capture in self.mod.captures}
        self.captures = _Captures(zip(tensors, others[len(given) :]), launch.numbers, kinds)
        self.operands = c.Operands(
            q=q_at, k=k_at, v=v_at, captures=self.captures.array, capture_count=len(self.captures.array), scale=1.0,
            has_scale=1, max_q_len=sequences.max_q_len, max_kv_len=sequences.max_kv_len,
        )  # fmt: skip
        for place, at in zip(self.of_sequences, others):
            setattr(self.operands, Sequences._fields[place], at)
        if launch.lists is not None:
            self.block_mask = c.BlockMaskView(shape=c.BlockMaskShape(*launch.lists.shape))
            self._set_lists(launch.lists)
            self.operands.block_mask = pointer(self.block_mask)
        self.of_outputs = _Captures(
            zip([output.name for output in self.mod.outputs], others[len(given) + len(tensors) :])
        )
        more = {"row_max": max_at if self.wants_max else None}
        if self.reduced:
            more |= {"reductions": self.of_outputs.array, "reduction_count": len(self.reduced)}
        self.outputs, self.without_lse = c.Outputs(out=out_at, lse=lse_at, **more), c.Outputs(out=out_at, **more)
        self.operands_at, self.outputs_at, self.without_lse_at = (
            addressof(x) for x in (self.operands, self.outputs, self.without_lse)
        )
        if self.gradients is not None:
            # Gradients are dense, and ordered like their tensors.
            learned = [tensors[name] for name in self.gradients]
            self.backward_views = Views([rows, *(torch.empty_like(x, device="meta") for x in (out, q, k, v, *learned))])
            self.dlse_at, dout, dq, dk, dv, *of_captures = self.backward_views.pointers()
            self.of_captures = _Captures(zip(self.gradients, of_captures))
            self.backward_operands = c.BackwardOperands(
                forward=pointer(self.operands), out=out_at, lse=lse_at, dout=dout
            )
            self.has_dlse = False
            self.backward_outputs = c.BackwardOutputs(
                dq=dq, dk=dk, dv=dv, captures=self.of_captures.array, capture_count=len(learned)
            )
            self.backward_at = addressof(self.backward_operands), addressof(self.backward_outputs)
        if self.is_on_gpu:
            self._prepare(q.device, {"deterministic": launch.deterministic, **dict(launch.options)})
        else:
            self.q_offsets = read_options(self.handle, self._settled_by(), self.operands, launch.options)
            tell_of_cpu(q, v, TORCH)

    def _set_lists(self, lists):
        for group, to in ((lists.rows, self.block_mask.rows), (lists.columns, self.block_mask.columns)):
            addresses = [0 if x is None else x.data_ptr() for x in group]
            to.partial_count, to.partial_index, to.full_count, to.full_index = addresses
            to.index_stride = group[1].shape[-1]

    def _settled_by(self):
        """Returns the structs that decide which kernels serve."""
        if self.gradients is None:
            return byref(self.operands), byref(self.outputs)
        return byref(self.backward_operands), byref(self.outputs), byref(self.backward_outputs)

    def _prepare(self, device, options):
        structs, trains = self._settled_by(), self.gradients is not None
        if trains:  # beside the forward kernel; a script that ends waits for the thread
            threading.Thread(target=compile_last, args=[settled(self.handle, structs, **options)]).start()
        self.prepared, self.workspace_bytes = prepared(self.handle, structs, backward_later=trains, **options)
        self.prepared_at, self.launch = self.prepared.address, library().attnc_prepared_launch
        self.launch_backward = library().attnc_prepared_launch_backward
        self.device, self.device_index, self.workspaces = device, device.index, {}
        preparation = library().attnc_prepared_get_preparation(self.prepared_at)
        self.keeps_lists, self.lists_anew = lists_in_workspace(preparation)

    def _workspace(self, stream, mask):
        """Returns (address, objects that must live until the launch is enqueued). Each stream has one workspace,
        because its launches run in order. If it holds block lists, these are made for a mask and the numbers of a
        launch, and kept while these stay the same. None: the lists are made anew. If each launch makes them, none keeps its
        memory: a server has calls for all numbers of rows."""
        if self.lists_anew or _is_capturing():
            mask = ANEW
        found = self.workspaces.get(stream)
        if found is not None and mask is not ANEW:
            if not self.keeps_lists or mask is not None and found[1]() is mask and found[3] == self.numbers:
                return found[2], found
        if found is None or mask is ANEW:
            space = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=self.device)
            found = [space, None, space.data_ptr(), None]
        self.workspaces.pop(stream, None)  # until it is initialised
        check(library().attnc_prepared_initialise(self.prepared_at, byref(self.operands), found[2], stream))
        found[1] = weakref.ref(self if mask is None or mask is ANEW else mask)
        found[3] = self.numbers
        if mask is not ANEW:
            self.workspaces[stream] = found
        return found[2], found

    def _set(self, launch, q, k, v, tensors, out, lse, row_max, reduced=()):
        to = self.addresses
        to[0], to[1], to[2], to[3] = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        if lse is not None:
            to[4] = lse.data_ptr()
        if row_max is not None:
            to[5] = row_max.data_ptr()
        place = 6
        for of_sequence in self.of_sequences:
            to[place] = launch.sequences[of_sequence].data_ptr()
            place += 1
        for tensor in (*tensors, *reduced):
            to[place] = tensor.data_ptr()
            place += 1
        if launch.numbers:
            self.numbers = tuple(launch.numbers.values())
            self.captures.set(self.numbers)
        if launch.lists is not None:
            self._set_lists(launch.lists)
        if launch.scale != self.scale:
            self.operands.scale = self.scale = launch.scale

    def outcome(self, q, v, wants_lse=True):
        """Returns (out, lse, row_max), uninitialised; None for unwanted ones."""
        out = _empty_like(q) if self.is_like_q else like(q, v.shape[-1])
        lse = _empty_strided(*self.rows, dtype=torch.float32, device=q.device) if wants_lse else None
        row_max = _empty_strided(*self.rows, dtype=torch.float32, device=q.device) if self.wants_max else None
        return out, lse, row_max

    def outputs_of_mod(self, q):
        """Returns what a mod's outputs are written into, in order."""
        return tuple([torch.empty(shape, dtype=torch.float32, device=q.device) for shape in self.reduced])

    def gradients_of_outputs(self, given, q):
        """Returns the gradients of sums, by the names of captures that hold them. `given`: those of all outputs; None: 0."""
        outputs = list(zip(self.mod.outputs, self.reduced, given))[self.maxima :]
        return {
            f"{output.name}_gradient": q.new_zeros(shape, dtype=torch.float32) if x is None else x.contiguous()
            for output, shape, x in outputs
        }

    def forward(self, launch, q, k, v, tensors, out, lse, row_max, reduced=()):
        """Writes out, lse and row_max (None: not wanted), and the mod's outputs. `tensors` are the captured ones, in order."""
        outputs = self.without_lse_at if lse is None else self.outputs_at
        with self.lock:
            self._set(launch, q, k, v, tensors, out, lse, row_max, reduced)
            if self.is_on_gpu:
                stream, space = current_stream(self.device_index), None
                if self.workspace_bytes:
                    space, _held = self._workspace(stream, launch.mask)
                status = self.launch(self.prepared_at, self.operands_at, outputs, space, stream)
            else:
                status = library().attnc_compute_on_cpu(self.handle, self.operands_at, outputs)
        if status:
            check(status)

    def backward(self, launch, q, k, v, tensors, out, lse, dout, dlse, results):
        """Writes `results`: dq, dk, dv, and the gradients of captures."""
        with self.lock:
            self._set(launch, q, k, v, tensors, out, lse, None)
            if self.has_dlse != (dlse is not None):
                self.has_dlse = dlse is not None
                self.backward_operands.dlse = self.dlse_at if self.has_dlse else None
            to = self.backward_views.addresses
            place = 1
            if self.has_dlse:
                to[0] = dlse.data_ptr()
            for x in (dout, *results):
                to[place] = x.data_ptr()
                place += 1
            if self.is_on_gpu:
                stream, space = current_stream(self.device_index), None
                if self.workspace_bytes:
                    space, _held = self._workspace(stream, launch.mask)
                status = self.launch_backward(self.prepared_at, *self.backward_at, space, stream)
            else:
                status = library().attnc_compute_backward_on_cpu(self.handle, *self.backward_at)
        if status:
            check(status)


_calls = {}
found_call = _calls.get  # by kind; None: not made yet
_of_caches = {}  # kind of a call over a cache, without its number of rows -> key of the newest call


def kind_of(launch, q, k, v, tensors):
    """Returns the kind of a call. Kernels may depend on strides, on the alignment of addresses, and on whether v is a
    view of k."""
    sequences, out, lists = launch.sequences, launch.out, launch.lists
    q_at, k_at, v_at = q.data_ptr(), k.data_ptr(), v.data_ptr()
    offsets = (q_at | k_at | v_at) % ALIGNMENT
    if offsets:
        offsets = q_at % ALIGNMENT, k_at % ALIGNMENT, v_at % ALIGNMENT
    return (
        launch.mod, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype, q.device,
        k.device, v.device, offsets, k_at == v_at, launch.wants_max, launch.gradients,
        launch.deterministic, launch.form, launch.options, launch.fp8, out is not None and out.stride(),
        tuple([(x.dtype, x.shape, x.stride(), x.data_ptr() % ALIGNMENT) for x in tensors.values()]) if tensors else (),
        lists and (lists.shape, lists.rows[2] is None, lists.rows[1].shape, lists.columns[1].shape, lists.rows[0].device),
        sequences is not ALIGNED
        and tuple([(item.shape, item.stride()) if isinstance(item, torch.Tensor) else item for item in sequences]),
    )  # fmt: skip


def made_call(kind, make, launch, q, k, v, tensors):
    """Makes a call and compiles its kernels. `make`: Call, or a class like it."""
    if len(_calls) >= _MOST_KEPT:
        _calls.clear()
        _of_caches.clear()
    call = _calls[kind] = make(launch, q, k, v, tensors)
    if launch.sequences.kv_lengths is not None:
        # A growing cache has a new kind at each token; the workspaces of older kinds would stay.
        cache = launch.mod, q.shape, k.shape[:2], k.shape[3], v.shape[3], q.dtype, q.device
        _calls.pop(_of_caches.get(cache), None)
        _of_caches[cache] = kind
    return call
