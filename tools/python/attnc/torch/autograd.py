"""Attention as a function that torch can differentiate, called from Python. A mod is given as IR text."""

import dataclasses

import torch

from .fp8 import Fp8Call
from .kernels import ALIGNMENT, Call, bind_context, found_call, kind_of, like, made_call


_empty_like = torch.empty_like


def rows_of(tensor):
    """Returns the tensor with last stride 1, as kernels read it."""
    return tensor.contiguous() if tensor.is_cuda and tensor.stride(-1) != 1 else tensor


def call_of(launch, q, k, v, captures):
    """Returns the call for launches of this kind over operands of this kind. If it is new, makes it and compiles its
    kernels. The call takes q, k and v with dense rows, as from rows_of()."""
    kind = kind_of(launch, q, k, v, captures)
    return found_call(kind) or _new_call(kind, launch, q, k, v, captures)


def _new_call(kind, launch, q, k, v, captures):
    bind_context(q.device)
    rows = rows_of(q), rows_of(k), rows_of(v)
    if launch.out is None:
        launch = dataclasses.replace(launch, out=like(rows[0], v.shape[-1]))
    call = made_call(kind, Fp8Call if launch.fp8 else Call, launch, *rows, captures)
    call.needs_rows = any(x is not y for x, y in zip(rows, (q, k, v)))
    return call


def run_backward(call, launch, q, k, v, captures, out, lse, dout, dlse, into=None):
    """Returns (dq, dk, dv), and the gradients of captures, by name. Tensors of `into` are written if they have the
    strides that kernels write."""
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


class Refusing(torch.autograd.Function):
    """Gradients as functions of what they are computed from, whose own derivatives are refused. Without it torch would
    take them to be zero."""

    @staticmethod
    def forward(ctx, gradients, *sources):
        return tuple(x if x is None else x.detach() for x in gradients)

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(
            "attnc has no second derivatives of attention, nor has FlexAttention: use "
            "torch.nn.functional.scaled_dot_product_attention there, under "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH), with what the mods do as attn_mask"
        )


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, launch, q, k, v, *captured):
        out, lse, row_max = call.outcome(q, v)
        call.forward(launch, q, k, v, captured, out, lse, row_max)
        ctx.call, ctx.launch = call, launch
        ctx.save_for_backward(q, k, v, out, lse, *captured)
        ctx.set_materialize_grads(False)
        if row_max is not None:
            ctx.mark_non_differentiable(row_max)
        return out, lse, row_max

    @staticmethod
    def backward(ctx, dout, dlse, _):
        if not torch.is_grad_enabled():
            return _Attention._gradients(ctx, dout, dlse)
        with torch.no_grad():
            results = _Attention._gradients(ctx, dout, dlse)
        return Refusing.apply(results, dout, dlse, *ctx.saved_tensors)

    @staticmethod
    def _gradients(ctx, dout, dlse):
        q, k, v, out, lse, *captured = ctx.saved_tensors
        if dout is None and dlse is None:
            return (None,) * (5 + len(captured))
        captures = dict(zip(ctx.call.names, captured))
        results, found = run_backward(ctx.call, ctx.launch, q, k, v, captures, out, lse, dout, dlse)
        return None, None, *results, *[found.get(name) for name in captures]


# Without what torch.autograd.Function does for transforms of torch.func, which do not come here.
_attention = super(torch.autograd.Function, _Attention).apply
_current_device = getattr(torch._C, "_cuda_getDevice", None)


def is_current(tensor):
    """Whether kernels on a tensor are launched in the current context."""
    return not tensor.is_cuda or tensor.get_device() == _current_device()


def wanted_by(q, k, v, captures):
    """Returns `gradients` and `deterministic` of a launch over these operands."""
    if (
        q.requires_grad or k.requires_grad or v.requires_grad or captures and any([x.requires_grad for x in captures.values()])
    ) and torch.is_grad_enabled():
        gradients = tuple(name for name, x in captures.items() if x.requires_grad and x.is_floating_point())
        return gradients, torch.are_deterministic_algorithms_enabled()
    return None, False


def attend(launch, q, k, v, captures, wants_lse=True, check=None, seen=None):
    """Returns (out, lse, row_max or None) of a mod in IR text, with gradients of q, k, v and of captures, if `gradients`
    of the launch are those of wanted_by(). lse may be None unless it is wanted. If the call is new, `check` is called, a
    function and its arguments, for the properties in `form`; otherwise `seen` is given the call."""
    if not is_current(q):
        with torch.cuda.device(q.device):
            return attend(launch, q, k, v, captures, wants_lse, check)
    kind = kind_of(launch, q, k, v, captures)
    call = found_call(kind)
    if call is None:
        if check is not None:
            function, *arguments = check
            function(*arguments)
        call = _new_call(kind, launch, q, k, v, captures)
    elif seen is not None:
        seen(call)
    return attend_by(call, launch, q, k, v, captures.values(), wants_lse)


def attend_by(call, launch, q, k, v, captured, wants_lse):
    """Returns what attend() does, by a call of this kind."""
    if call.needs_rows:
        q, k, v = rows_of(q), rows_of(k), rows_of(v)
    if call.gradients is not None:
        return _attention(call, launch, q, k, v, *captured)
    out, lse, row_max = call.outcome(q, v, wants_lse)
    call.forward(launch, q, k, v, captured, out, lse, row_max)
    return out, lse, row_max
