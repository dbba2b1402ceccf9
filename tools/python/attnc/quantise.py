"""Rounding to e4m3, for attention over it."""

import functools
from ctypes import byref, pointer
from typing import Any

from ._library import Handle, check, compiler, library
from ._spec import QuantiseOptions
from .dlpack import Memory, View, is_on_gpu, without_gradient
from .errors import ArgumentError

ROWS_OF_SCALE = 128


def quantise(
    x: Any, *, by_block: bool = False, by_row: bool = False, rotate: int | None = None, scale_bits: int = 0,
    scales: Any = None, cos_sin: Any = None, positions: Any = None, interleaved: bool = False,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """Rounds q, k or v to float8_e4m3fn. Returns (values, scales), for attention(..., q_scales=).

    `x` [B, H, L, D] is a tensor of PyTorch, float32, float16 or bfloat16, with last stride 1. A scale, float32, is the
    largest magnitude of a head, [B, H], divided by 448. With `by_block`, it is that of 128 rows, [B, H, blocks]; with
    `by_row`, that of a row, [B, H, L].

    With `rotate`, a seed, rows are multiplied by random signs and a Hadamard matrix first (arXiv:2407.08608, section
    3.3), which spreads outliers over a row. Rotate q and k with the same seed: their products stay the same. Never
    rotate v. Scales are rounded up to `scale_bits` significant bits, 1 to 24 (default: all); with up to 4, values times
    scales are exact in bfloat16.

    Or give `scales`, float32 [B, H] with any strides, of 2^-64 or more. They are read where they are, without waiting for
    the GPU, and returned. Values beyond 448 times a scale become that.

    With `cos_sin` [positions, columns], the first columns of rows of q or k get a rotary embedding (arXiv:2104.09864)
    before all else: in float32, without another pass over x. Never give it for v. It is the `cos_sin_cache` of vLLM,
    SGLang and FlashInfer: cosines of pairs of columns, then sines, float32 or x's dtype, last stride 1. The number of
    columns is a multiple of 8, or of 16 if D is above 128. On a GPU, its rows are aligned to 16 bytes. Pairs are columns
    i and i + columns / 2; with `interleaved`, 2 i and 2 i + 1, as in GPT-J. `positions`, int32 or int64 [B, L] with any
    strides, are rows of cos_sin, and are clamped to it (default: the index of a row of x).

    On a GPU the work is enqueued on `stream`, given as an address (default: PyTorch's current one).

    Raises RunError and ArgumentError."""
    x = without_gradient(x, "x")
    if len(x.shape) != 4:
        raise ArgumentError(f"x has shape {tuple(x.shape)}", "give [B, H, L, D]")
    on_gpu, memory = is_on_gpu(x, "x"), Memory(x)
    if by_block and by_row:
        raise ArgumentError("by_block and by_row are both given", "give one of them")
    if scales is not None and (by_block or by_row):
        raise ArgumentError("scales are given, and by_block or by_row", "give scales [B, H]")
    parts = (x.shape[2],) if by_row else (-(-x.shape[2] // ROWS_OF_SCALE),) if by_block else ()
    values = memory.empty(tuple(x.shape), "float8_e4m3fn")
    reads_scales = scales is not None
    if not reads_scales:
        scales = memory.empty((*x.shape[:2], *parts), "float32")
    if on_gpu and stream is None:
        stream = memory.stream()
    wait = (stream or 1) if on_gpu else None
    views = [View(x, "x", on_gpu, wait), View(values, "values", on_gpu, wait and -1, writes=True),
             View(scales, "scales", on_gpu, wait if reads_scales else wait and -1, writes=not reads_scales)]  # fmt: skip
    of_rotary = [given if given is None else View(given, name, on_gpu, wait)
                 for given, name in ((cos_sin, "cos_sin"), (positions, "positions"))]  # fmt: skip
    options = QuantiseOptions(
        rotates=rotate is not None, seed=rotate or 0, scale_bits=scale_bits, reads_scales=reads_scales,
        interleaved=interleaved,
    )  # fmt: skip
    options.cos_sin, options.positions = (view and pointer(view.struct) for view in of_rotary)
    at = [byref(view.struct) for view in views]
    if on_gpu:
        made = quantiser(views[0].struct.dtype, x.shape[3], x.__dlpack_device__()[1])
        check(library().attnc_quantiser_launch(made.address, *at, byref(options), stream))
    else:
        check(library().attnc_quantise_on_cpu(*at, byref(options)))
    return values, scales


@functools.cache
def quantiser(dtype, head_dim, device):
    """Returns the kernels of a device, which is current."""
    return Handle("attnc_quantiser_create", compiler().address, dtype, head_dim, destroyer="attnc_quantiser_destroy")
