"""Attention as a function of tensors that torch can differentiate, called by Python. A mod is its IR text."""

import torch

from .kernels import ALIGNED, ALIGNMENT, call_of


def like(tensor, width=None):
    """An uninitialised tensor of the shape, with dense strides in the same order; of another last extent."""
    if width is None or width == tensor.shape[-1]:
        return torch.empty_like(tensor)
    order = sorted(range(3), key=lambda axis: -tensor.stride(axis))
    shape = [*(tensor.shape[axis] for axis in order), width]
    back = [order.index(axis) for axis in range(3)]
    return tensor.new_empty(shape).permute(*back, 3)


def rows_of(tensor):
    """The tensor, with its last stride 1, as kernels read it."""
    return tensor.contiguous() if tensor.is_cuda and tensor.stride(-1) != 1 else tensor


def run_forward(text, q, k, v, tensors, scalars, scale, mask, wants_max, gradients, deterministic, sequences=ALIGNED):
    out = like(q, v.shape[-1])
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    row_max = torch.empty_like(lse) if wants_max else None
    call = call_of(text, q, k, v, tensors, scalars, out, wants_max, gradients, deterministic, sequences)
    call.forward(q, k, v, tensors.values(), scalars.values(), scale, mask, out, lse, row_max, sequences)
    return call, out, lse, row_max


def run_backward(call, q, k, v, tensors, scalars, scale, mask, out, lse, d_out, d_lse, gradients, sequences=ALIGNED):
    """(d_q, d_k, d_v), and the gradients of captures, by name."""
    results = [torch.empty_like(x) for x in (q, k, v)]
    of_captures = {name: torch.empty_like(tensors[name]) for name in gradients}
    if d_out is None:
        d_out = torch.zeros_like(out)
    elif d_out.stride() != out.stride() or d_out.data_ptr() % ALIGNMENT:
        d_out = torch.empty_like(out).copy_(d_out)
    d_lse = d_lse if d_lse is None else d_lse.contiguous()
    call.backward(
        q, k, v, tensors.values(), scalars.values(), scale, mask, out, lse, d_out, d_lse, results, of_captures.values(),
        sequences,
    )  # fmt: skip
    return results, of_captures


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, how, q, k, v, *captured):
        text, names, scalars, scale, mask, wants_max, gradients, deterministic, sequences = how
        tensors = dict(zip(names, captured))
        call, out, lse, row_max = run_forward(
            text, q, k, v, tensors, scalars, scale, mask, wants_max, gradients, deterministic, sequences
        )
        ctx.call, ctx.how = call, how
        ctx.save_for_backward(q, k, v, out, lse, *captured)
        ctx.set_materialize_grads(False)
        if row_max is not None:
            ctx.mark_non_differentiable(row_max)
        return out, lse, row_max

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out, d_lse, _):
        q, k, v, out, lse, *captured = ctx.saved_tensors
        _, names, scalars, scale, mask, _, gradients, _, sequences = ctx.how
        tensors = dict(zip(names, captured))
        if d_out is None and d_lse is None:
            return (None,) * (4 + len(captured))
        results, found = run_backward(
            ctx.call, q, k, v, tensors, scalars, scale, mask, out, lse, d_out, d_lse, gradients, sequences
        )
        return None, *results, *(found.get(name) for name in names)


def attend(text, q, k, v, tensors, scalars, scale, *, mask=None, wants_max=False, sequences=ALIGNED):
    """(out, lse, row_max or None) of a mod in IR text, with gradients of q, k, v and of the captured `tensors`; not
    where `sequences` has lengths of a cache."""
    q, k, v = rows_of(q), rows_of(k), rows_of(v)
    if q.is_cuda and q.device.index != torch.cuda.current_device():
        with torch.cuda.device(q.device):  # kernels are launched in the context that is current
            return attend(
                text, q, k, v, tensors, scalars, scale, mask=mask, wants_max=wants_max, sequences=sequences
            )
    needs = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or any(x.requires_grad for x in tensors.values())
    )
    if not needs:
        return run_forward(text, q, k, v, tensors, scalars, scale, mask, wants_max, None, False, sequences)[1:]
    gradients = tuple(name for name, x in tensors.items() if x.requires_grad and x.is_floating_point())
    how = (
        text, tuple(tensors), scalars, scale, mask, wants_max, gradients, torch.are_deterministic_algorithms_enabled(),
        sequences,
    )  # fmt: skip
    return _Attention.apply(how, q, k, v, *tensors.values())
