"""Attention as a function of tensors that torch can differentiate.

`attend` is called by Python; the operator attnc::attention is the same for graphs: of torch.compile and torch.export.
There a mod is its IR text.
"""

import torch

from .kernels import ALIGNED, ALIGNMENT, call_of, mod_of


def _like(tensor, width=None):
    """An uninitialised tensor of the shape, with dense strides in the same order; of another last extent."""
    if width is None or width == tensor.shape[-1]:
        return torch.empty_like(tensor)
    order = sorted(range(3), key=lambda axis: -tensor.stride(axis))
    shape = [*(tensor.shape[axis] for axis in order), width]
    back = [order.index(axis) for axis in range(3)]
    return tensor.new_empty(shape).permute(*back, 3)


def _rows_of(tensor):
    """The tensor, with its last stride 1, as kernels read it."""
    return tensor.contiguous() if tensor.is_cuda and tensor.stride(-1) != 1 else tensor


def _forward(text, q, k, v, tensors, scalars, scale, mask, wants_max, gradients, deterministic, sequences=ALIGNED):
    out = _like(q, v.shape[-1])
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    row_max = torch.empty_like(lse) if wants_max else None
    call = call_of(text, q, k, v, tensors, scalars, out, wants_max, gradients, deterministic, sequences)
    call.forward(q, k, v, tensors.values(), scalars.values(), scale, mask, out, lse, row_max, sequences)
    return call, out, lse, row_max


def _backward(call, q, k, v, tensors, scalars, scale, mask, out, lse, d_out, d_lse, gradients, sequences=ALIGNED):
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
        call, out, lse, row_max = _forward(
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
        results, found = _backward(
            ctx.call, q, k, v, tensors, scalars, scale, mask, out, lse, d_out, d_lse, gradients, sequences
        )
        return None, *results, *(found.get(name) for name in names)


def attend(text, q, k, v, tensors, scalars, scale, *, mask=None, wants_max=False, sequences=ALIGNED):
    """(out, lse, row_max or None) of a mod in IR text, with gradients of q, k, v and of the captured `tensors`; not
    where `sequences` has lengths of a cache."""
    q, k, v = _rows_of(q), _rows_of(k), _rows_of(v)
    if q.is_cuda and q.device.index != torch.cuda.current_device():
        with torch.cuda.device(q.device):  # kernels are launched in the context that is current
            return attend(
                text, q, k, v, tensors, scalars, scale, mask=mask, wants_max=wants_max, sequences=sequences
            )
    needs = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or any(x.requires_grad for x in tensors.values())
    )
    if not needs:
        return _forward(text, q, k, v, tensors, scalars, scale, mask, wants_max, None, False, sequences)[1:]
    gradients = tuple(name for name, x in tensors.items() if x.requires_grad and x.is_floating_point())
    how = (
        text, tuple(tensors), scalars, scale, mask, wants_max, gradients, torch.are_deterministic_algorithms_enabled(),
        sequences,
    )  # fmt: skip
    return _Attention.apply(how, q, k, v, *tensors.values())


# ---- The operator --------------------------------------------------------------------------------------------------


def _captured(text, captured, scalars):
    names = [capture for capture in mod_of(text).captures]
    tensors = dict(zip((capture.name for capture in names if capture.kind == "tensor"), captured))
    return tensors, dict(zip((capture.name for capture in names if capture.kind != "tensor"), scalars))


@torch.library.custom_op("attnc::attention", mutates_args=())
def attention_op(
    text: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, captured: list[torch.Tensor], scalars: list[float],
    scale: float, is_training: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(out, lse) of a mod in IR text. Captured tensors and scalars in the order in which the text declares them."""
    tensors, numbers = _captured(text, captured, scalars)
    gradients = tuple(name for name, x in tensors.items() if x.is_floating_point()) if is_training else None
    _, out, lse, _ = _forward(text, q, k, v, tensors, numbers, scale, None, False, gradients, False)
    return out, lse


@attention_op.register_fake
def _(text, q, k, v, captured, scalars, scale, is_training):
    return _like(q, v.shape[-1]), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("attnc::attention_backward", mutates_args=())
def attention_backward_op(
    text: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, captured: list[torch.Tensor], scalars: list[float],
    scale: float, out: torch.Tensor, lse: torch.Tensor, d_out: torch.Tensor, d_lse: torch.Tensor | None,
) -> list[torch.Tensor]:  # fmt: skip
    """Gradients of q, k and v, and of the captured floats."""
    tensors, numbers = _captured(text, captured, scalars)
    gradients = tuple(name for name, x in tensors.items() if x.is_floating_point())
    call = call_of(text, q, k, v, tensors, numbers, out, False, gradients, False)
    results, found = _backward(call, q, k, v, tensors, numbers, scale, None, out, lse, d_out, d_lse, gradients)
    return [*results, *found.values()]


@attention_backward_op.register_fake
def _(text, q, k, v, captured, scalars, scale, out, lse, d_out, d_lse):
    return [torch.empty_like(x) for x in (q, k, v, *(x for x in captured if x.is_floating_point()))]


def _save(ctx, inputs, output):
    text, q, k, v, captured, scalars, scale, _ = inputs
    ctx.text, ctx.scalars, ctx.scale = text, scalars, scale
    ctx.save_for_backward(q, k, v, *output, *captured)


def _backward_of_op(ctx, d_out, d_lse):
    q, k, v, out, lse, *captured = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(out)
    found = attention_backward_op(ctx.text, q, k, v, captured, ctx.scalars, ctx.scale, out, lse, d_out, d_lse)
    rest = iter(found[3:])
    of_captures = [next(rest) if x.is_floating_point() else None for x in captured]
    return None, *found[:3], of_captures, [None] * len(ctx.scalars), None, None


attention_op.register_autograd(_backward_of_op, setup_context=_save)
