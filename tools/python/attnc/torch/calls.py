"""Calls of kernels over torch tensors: found or made, and run for gradients."""

import dataclasses
import functools

import torch

from .fp8 import Fp8Call
from .kernels import ALIGNMENT, Call, bind_context, found_call, kind_of, like, made_call, mod_of

_empty_like = torch.empty_like
OF_MAXIMUM = "a maximum has no gradient: take the loss of a sum, or call detach() on the output"


def rows_of(tensor):
    """Returns the tensor with last stride 1, as kernels read it."""
    return tensor.contiguous() if tensor.is_cuda and tensor.stride(-1) != 1 else tensor


def line_of(text):
    """Returns IR text on one line: Inductor writes nodes of graphs into comments, which end with the line."""
    return text.replace("\n", "\\n")


@functools.lru_cache(maxsize=1024)
def names_of(text):
    """Returns the names of a mod's tensors, and of its numbers, in the order of their declarations."""
    declared = mod_of(text).captures
    return tuple([x.name for x in declared if is_tensor == (x.kind == "tensor")] for is_tensor in (True, False))


def arguments_of(launch, gradients, q, k, v, captures):
    """Returns the arguments of attnc::attention. `gradients`: the names of captures that want one; None: no tensor has one."""
    (tensors, numbers), sequences = names_of(launch.mod), launch.sequences
    return (
        line_of(launch.mod), q, k, v, [captures[name] for name in tensors], [float(launch.numbers[name]) for name in numbers],
        launch.scale, None if gradients is None else " ".join(gradients), launch.wants_max, sequences.kv_lengths,
        sequences.cu_seqlens_q, sequences.max_q_len, launch.fp8,
    )  # fmt: skip


def call_of(launch, q, k, v, captures):
    """Returns the call for launches of this kind over operands of this kind. If it is new, makes it and compiles its
    kernels. The call takes q, k and v with dense rows, as from rows_of()."""
    kind = kind_of(launch, q, k, v, captures)
    return found_call(kind) or made_for(kind, launch, q, k, v, captures)


def made_for(kind, launch, q, k, v, captures, make=None):
    """Makes the call of this kind and compiles its kernels. `make`: its class, by default that of `fp8` or Call."""
    bind_context(q.device)
    rows = rows_of(q), rows_of(k), rows_of(v)
    if launch.out is None:
        launch = dataclasses.replace(launch, out=like(rows[0], v.shape[-1]))
    call = made_call(kind, make or (Fp8Call if launch.fp8 else Call), launch, *rows, captures)
    call.needs_rows = any(x is not y for x, y in zip(rows, (q, k, v)))
    return call


def run_backward(call, launch, q, k, v, captures, out, lse, dout, dlse, into=None, of_outputs=()):
    """Returns (dq, dk, dv), and the gradients of captures, by name. Tensors of `into` are written if they have the
    strides that kernels write. `of_outputs`: gradients of the mod's outputs; None: 0."""
    for x in of_outputs[: call.maxima]:
        if x is not None:  # graphs have gradients of all their results, which may be 0
            torch._assert_async(~x.any(), OF_MAXIMUM)
    if any([x is not None for x in of_outputs[call.maxima :]]):  # kernels that take no part in other backward passes
        given = call.gradients_of_outputs(of_outputs, q)
        if taken := sorted(given.keys() & captures.keys()):
            raise ValueError(f"{taken[0]} is captured, and is the name of an output's gradient: rename one of them")
        captures = {**captures, **given}
        call = call_of(launch, q, k, v, captures)
    results = _empty_like(q), _empty_like(k), _empty_like(v)
    if into is not None:
        results = [y if x.stride() != y.stride() else x for x, y in zip(into, results)]
    of_captures = {name: _empty_like(captures[name]) for name in call.gradients} if call.gradients else {}
    if dout is None:
        dout = torch.zeros_like(out)
    elif dout.stride() != out.stride() or dout.data_ptr() % ALIGNMENT:
        dout = torch.empty_like(out).copy_(dout)
    if dlse is not None:
        dlse = dlse.contiguous()
    results_of_all = *results, *of_captures.values()
    call.backward(launch, q, k, v, captures.values(), out, lse, dout, dlse, results_of_all)
    return results, of_captures
