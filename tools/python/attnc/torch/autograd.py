"""Attention as a function that torch can differentiate, called from Python. A mod is given as IR text."""

import torch

from .calls import OF_MAXIMUM, made_for, rows_of, run_backward
from .derivatives import check_once, gradients_of
from .kernels import found_call, kind_of
from .tracing import transform


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, launch, q, k, v, *captured):
        (out, lse, row_max), reduced = call.outcome(q, v), call.outputs_of_mod(q)
        call.forward(launch, q, k, v, captured, out, lse, row_max, reduced)
        ctx.call, ctx.launch = call, launch
        ctx.save_for_backward(q, k, v, out, lse, *captured)
        ctx.set_materialize_grads(False)
        if row_max is not None:
            ctx.mark_non_differentiable(row_max)
        return out, lse, row_max, *reduced

    @staticmethod
    def backward(ctx, dout, dlse, _, *dreduced):
        q, k, v, out, lse, *captured = ctx.saved_tensors
        call, launch = ctx.call, ctx.launch
        if any([x is not None for x in dreduced[: call.maxima]]):
            raise NotImplementedError(OF_MAXIMUM)
        if dout is None and dlse is None and not any([x is not None for x in dreduced]):
            return (None,) * (5 + len(captured))
        if torch.is_grad_enabled() or transform() is not None:
            check_once(dreduced)
            return None, None, *gradients_of(launch, call.names, dout, dlse, out, lse, q, k, v, *captured)
        captures = dict(zip(call.names, captured))
        results, found = run_backward(call, launch, q, k, v, captures, out, lse, dout, dlse, of_outputs=dreduced)
        return None, None, *results, *[found.get(name) for name in call.names]


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


def resolved(q, k, v):
    """Returns tensors whose memory has their own numbers, not those of the opposite sign, as that of `z.conj().imag` has."""
    if q.is_neg() or k.is_neg() or v.is_neg():
        return q.resolve_neg(), k.resolve_neg(), v.resolve_neg()
    return q, k, v


def attend(launch, q, k, v, captures, wants_lse=True, check=None, seen=None):
    """Returns (out, lse, row_max or None, the mod's outputs) of a mod in IR text, with gradients of q, k, v and of captures, if `gradients`
    of the launch are those of wanted_by(). lse may be None unless it is wanted. If the call is new, `check` is called, a
    function and its arguments, for the properties in `form`; otherwise `seen` is given the call."""
    q, k, v = resolved(q, k, v)
    if not is_current(q):
        with torch.cuda.device(q.device):
            return attend(launch, q, k, v, captures, wants_lse, check)
    kind = kind_of(launch, q, k, v, captures)
    call = found_call(kind)
    if call is None:
        if check is not None:
            function, *arguments = check
            function(*arguments)
        call = made_for(kind, launch, q, k, v, captures)
    elif seen is not None:
        seen(call)
    return attend_by(call, launch, q, k, v, captures.values(), wants_lse)


def attend_by(call, launch, q, k, v, captured, wants_lse):
    """Returns what attend() does, by a call of this kind."""
    if call.needs_rows:
        q, k, v = rows_of(q), rows_of(k), rows_of(v)
    if call.gradients is not None:
        return _attention(call, launch, q, k, v, *captured)
    (out, lse, row_max), reduced = call.outcome(q, v, wants_lse), call.outputs_of_mod(q)
    call.forward(launch, q, k, v, captured, out, lse, row_max, reduced)
    return out, lse, row_max, *reduced
