"""Attention over the tensors of any library that has DLPack."""

import ctypes
from ctypes import addressof, byref, c_size_t, pointer

from ._library import KINDS, Capture, Handle, Operands, Outputs, check, compiler, library
from .dlpack import Memory, View, is_on_gpu
from .errors import ArgumentError
from .mod import Mod


def attention(mod, q, k, v, *, captures=None, scale=None, out=None, return_lse=False, stream=None):
    """Computes softmax(mod(scale q k^T)) v.

    `mod`: a Mod, or its text. q [B, H, L, E], k [B, HKV, S, E] and v [B, HKV, S, EV] are tensors of one dtype (float16,
    bfloat16 or float32) on one device; `captures` maps what the mod declares to tensors there, and to numbers. Returns
    out [B, H, L, EV], and with `return_lse` also lse [B, H, L] (float32, natural logarithm), made by the library that q
    is of; `out` is written into instead, if it is given. `scale` is 1 / sqrt(E) by default.

    On a GPU the work is enqueued on `stream` (an address; the current stream of torch and CuPy by default), and kernels
    are compiled when operands of their kind first come. On the CPU the fp64 reference computes, slowly. There are no
    gradients here: attnc.torch has them. Raises ModError, RunError and ArgumentError.
    """
    if isinstance(mod, str):
        mod = Mod.parse(mod)
    on_gpu = is_on_gpu(q, "q")
    memory = Memory(q) if out is None or return_lse or on_gpu else None
    # Tensors of this library are on its stream already; others wait for it.
    wait = None if not on_gpu else -1 if stream is None else stream or 1
    if on_gpu and stream is None:
        stream = memory.stream()
    given = {"q": q, "k": k, "v": v}
    if out is None:
        out = memory.empty((*q.shape[:3], v.shape[3]))
    lse = memory.empty(tuple(q.shape[:3]), "float32") if return_lse else None

    views = {name: View(array, name, on_gpu, wait) for name, array in given.items()}
    views["out"] = View(out, "out", on_gpu, wait, writes=True)
    views["lse"] = View(lse, "lse", on_gpu, wait, writes=True) if return_lse else None
    at = {name: view and pointer(view.struct) for name, view in views.items()}
    array, keep = _captures(mod, captures or {}, on_gpu, wait)
    operands = Operands(
        q=at["q"], k=at["k"], v=at["v"], captures=array, capture_count=len(array),
        scale=scale or 0.0, has_scale=scale is not None,
    )  # fmt: skip
    outputs = Outputs(out=at["out"], lse=at["lse"])
    if on_gpu:
        _launch(mod, operands, outputs, memory, stream)
    else:
        check(library().attnc_compute_on_cpu(mod._handle.address, addressof(operands), addressof(outputs)))
    del keep
    return (out, lse) if return_lse else out


def _captures(mod, captures, on_gpu, wait):
    """The array of captures, and what has to live as long as it."""
    keep, entries = [], []
    for wanted in mod.captures:
        if wanted.name not in captures:
            raise ArgumentError(
                f"the mod captures `{wanted.name}`, which is not given", f"captures={{'{wanted.name}': ...}}"
            )
        value = captures[wanted.name]
        entry = Capture(name=wanted.name.encode(), kind=KINDS.index(wanted.kind))
        if wanted.kind == "tensor":
            view = View(value, wanted.name, on_gpu, wait)
            entry.tensor = pointer(view.struct)
            keep.append(view)
        else:
            entry.real, entry.integer = float(value), int(value)
        entries.append(entry)
    return (Capture * len(entries))(*entries), keep


def _launch(mod, operands, outputs, memory, stream):
    prepared = Handle(
        "attnc_prepare", compiler().address, mod._handle.address, byref(operands), byref(outputs), None,
        destroyer="attnc_prepared_destroy",
    )  # fmt: skip
    size = c_size_t()
    check(library().attnc_prepared_workspace_bytes(prepared.address, byref(size)))
    workspace = memory.empty((size.value,), "uint8")
    view = View(workspace, "workspace", True, -1, writes=True)
    space = ctypes.c_void_p(view.struct.data)
    check(library().attnc_prepared_initialise(prepared.address, byref(operands), space, stream))
    launch = library().attnc_prepared_launch
    check(launch(prepared.address, addressof(operands), addressof(outputs), space, stream))
