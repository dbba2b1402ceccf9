"""Attention over q, k and v that are rounded to e4m3, with gradients in 16 bits, for kernel_options={"fp8": ...}; and
rounding by scales that are given, for serving.

    q8, k8 = e4m3(q R), e4m3(k R)   with scales of heads, blocks of 128 rows, or rows; R: random signs times a Hadamard matrix
    v8     = e4m3(v)
    out, lse of q8, k8, v8          by forward kernels of e4m3
    gradients at q8, k8, v8         in the dtype of q, by out and lse of that forward pass; R^T turns dq and dk back

Gradients pass straight through the rounding (arXiv:1308.3432). They are those at the rounded operands, not at the given
ones: lse is of rounded scores, so that only exp(rounded score - lse) is a weight. Rows of other scores would not add up
to 1, and where one key has nearly all weight, what the softmax cancels would be left.
"""

import dataclasses
import functools
import threading
from ctypes import byref, pointer

import torch

from .. import _spec as c
from .._library import check, library
from ..launch import Launch
from ..quantise import ROWS_OF_SCALE, quantiser
from .kernels import Call, Views, bind_context, current_stream

SPANS = "head", "block", "row"  # what shares a scale
_SEED = 1  # of R's signs
_SCALE_BITS = 4  # then values times scales are exact in bfloat16, and in float16 within its range


def check_fp8(query, value, span, arch=None):
    """`arch`: that of the kernel, if it is not the GPU's."""
    if query.dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f'the operands are {query.dtype}; with kernel_options["fp8"] they are bfloat16 or float16')
    for name, width in (("query", query.shape[-1]), ("value", value.shape[-1])):
        if width % 16 or not 16 <= width <= 256:
            raise NotImplementedError(f"{name} has head dim {width}; fp8 kernels have multiples of 16, up to 256")
    if arch is not None:
        has_rows = arch.startswith("sm_90")
    else:
        has_rows = not query.is_cuda or torch.cuda.get_device_capability(query.device) == (9, 0)
    if span == "row" and not has_rows:
        raise NotImplementedError('kernel_options={"fp8": "row"} needs a GPU of sm_90; "block" takes all from sm_89 on')


def parts_of(rows, span):
    """Returns the axes of scales after those of batch and heads, for `span`, one of SPANS."""
    return {"head": (), "block": (-(-rows // ROWS_OF_SCALE),), "row": (rows,)}[span]


def _empty(x, span):
    """Returns memory for what _round() writes: values, and scales of each `span`."""
    scales = torch.empty((*x.shape[:2], *parts_of(x.shape[2], span)), dtype=torch.float32, device=x.device)
    return torch.empty_like(_rows(x), dtype=torch.float8_e4m3fn), scales


def _rows(x):
    return x if x.stride(-1) == 1 else x.contiguous()


def _round(x, values, scales, rotates):
    """Writes values and scales whose product is x, rotated if wanted. On a GPU, on the current stream."""
    x = _rows(x)
    views = Views((x, values, scales))
    at, options = [byref(view) for view in views.array], c.QuantiseOptions(rotates=rotates, seed=_SEED, scale_bits=_SCALE_BITS)
    if x.is_cuda:
        stream = current_stream(x.device.index)
        made = quantiser(views.array[0].dtype, x.shape[-1], x.device.index)
        check(library().attnc_quantiser_launch(made.address, *at, byref(options), stream))
    else:
        check(library().attnc_quantise_on_cpu(*at, byref(options)))


class Rounding:
    """Rounds rows [B, H, L, D] of one kind to float8_e4m3fn, by scales f32 [H] of 2^-64 or more."""

    def __init__(self, x, scales):
        values = torch.empty_like(x, dtype=torch.float8_e4m3fn, device="meta")
        self.views, self.options = Views((x, values, scales.expand(x.shape[:2]))), c.QuantiseOptions(reads_scales=1)
        self.arguments, self.lock = (*self.views.pointers(), pointer(self.options)), threading.Lock()
        self.kernels = None
        if x.is_cuda:
            bind_context(x.device)
            self.kernels = quantiser(self.views.array[0].dtype, x.shape[-1], x.device.index)

    def __call__(self, x, scales):
        """Returns x / scales, laid out like x; values beyond 448 become 448. On a GPU, on the current stream."""
        values, to = torch.empty_like(x, dtype=torch.float8_e4m3fn), self.views.addresses
        with self.lock:
            to[0], to[1], to[2] = x.data_ptr(), values.data_ptr(), scales.data_ptr()
            if self.kernels is None:
                status = library().attnc_quantise_on_cpu(*self.arguments)
            else:
                stream = current_stream(x.device.index)
                status = library().attnc_quantiser_launch(self.kernels.address, *self.arguments, stream)
        check(status)
        return values


@functools.cache  # a graph may copy from it at any time
def _signs(width, dtype, is_pinned):
    """Returns sqrt(n) R^T in host memory. Its elements are -1, 0 or 1; n is the size of the Hadamard matrix. Pinned, it
    may be copied to a GPU in a CUDA graph."""
    rows = torch.eye(width, dtype=torch.float32, device="cpu").view(1, 1, width, width)
    values, scales = _empty(rows, "head")
    _round(rows, values, scales, True)
    signs = values.float()[0, 0].sign().T.contiguous().to(dtype)
    return signs.pin_memory() if is_pinned else signs


def _turn_back(x, signs, to):
    """Writes x R^T."""
    width = x.shape[-1]
    to.copy_(torch.addmm(x.new_empty(1), x.reshape(-1, width), signs, beta=0, alpha=(width & -width) ** -0.5).view(x.shape))


def _rounded(x, span, rotates):
    """Returns the values of x after rounding, rotated if wanted, with x's dtype and layout."""
    values, scales = _empty(x, span)
    _round(x, values, scales, rotates)
    if span == "head":
        scales = scales[..., None]
    elif span == "block":
        scales = scales.repeat_interleave(ROWS_OF_SCALE, 2, output_size=scales.shape[2] * ROWS_OF_SCALE)
        scales = scales[:, :, : x.shape[2]]
    return torch.empty_like(x).copy_(values).mul_(scales[..., None])  # values are exact in 16 bits


def _scaled(launch, of_q, of_k, of_v):
    """Returns the launch with scales, for a call that is made."""
    sequences = launch.sequences._replace(q_scales=of_q, k_scales=of_k, v_scales=of_v)
    return Launch(launch.numbers, launch.scale, launch.mask, sequences, launch.lists)


class Fp8Call:
    """As Call: forward passes over rounded operands, and backward passes at these."""

    needs_rows, maxima = False, 0

    def __init__(self, launch, q, k, v, tensors):
        self.span, self.gradients, self.is_on_gpu = launch.fp8, launch.gradients, q.is_cuda
        of_forward = [option for option in launch.options if option[0] == "tile"]
        of_backward = [option for option in launch.options if option[0] != "tile"]
        rounded, scales = zip(*[_empty(x, self.span) for x in (q, k, v)])
        sequences = _scaled(launch, *scales).sequences
        of_e4m3 = dataclasses.replace(launch, sequences=sequences, gradients=None, deterministic=False, options=of_forward)
        self.over_rounded = Call(of_e4m3, *rounded, tensors)
        self.outcome, self.names = self.over_rounded.outcome, self.over_rounded.names
        self.of_gradients = self.signs = None
        if self.gradients is not None:
            of_gradients = dataclasses.replace(launch, wants_max=False, options=of_backward)
            self.of_gradients = Call(of_gradients, *map(torch.empty_like, (q, k, v)), tensors)
            self.signs = _signs(q.shape[-1], q.dtype, q.is_cuda)

    def outputs_of_mod(self, q):
        """Returns nothing: outputs are refused next to "fp8"."""
        return ()

    def forward(self, launch, q, k, v, tensors, out, lse, row_max, reduced=()):
        """As Call.forward(), of q, k and v in 16 bits."""
        rounded = [_empty(x, self.span) for x in (q, k, v)]
        for x, to, rotates in zip((q, k, v), rounded, (True, True, False)):
            _round(x, *to, rotates)
        rounded, scales = zip(*rounded)
        self.over_rounded.forward(_scaled(launch, *scales), *rounded, tensors, out, lse, row_max)

    def backward(self, launch, q, k, v, tensors, out, lse, dout, dlse, results):
        """As Call.backward(). Rounds q, k and v again, which takes less memory than to keep them."""
        dq, dk, *others = results
        rotated = torch.empty_like(dq), torch.empty_like(dk)
        rounded = [_rounded(x, self.span, rotates) for x, rotates in ((q, True), (k, True), (v, False))]
        self.of_gradients.backward(launch, *rounded, tensors, out, lse, dout, dlse, (*rotated, *others))
        signs = self.signs.to(q.device, non_blocking=True)
        for x, to in zip(rotated, (dq, dk)):
            _turn_back(x, signs, to)
