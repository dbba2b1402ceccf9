"""Attention as a function that torch can differentiate, called from Python. A mod is given as IR text."""

import torch

from .fp8 import Fp8Call
from .kernels import ALIGNED, ALIGNMENT, Call, bind_context, found_call, kind_of, like, made_call, span_of


_empty_like = torch.empty_like


def rows_of(tensor):
    """Returns the tensor with last stride 1, as kernels read it."""
    return tensor.contiguous() if tensor.is_cuda and tensor.stride(-1) != 1 else tensor


def call_of(
    text, q, k, v, tensors, scalars, wants_max=False, gradients=None, deterministic=False, sequences=ALIGNED, lists=None,
    form=None, check=None, options=(), out=None,
):  # fmt: skip
    """Returns the call of operands of this kind. If it is new, makes it, compiles its kernels, and calls `check`: a
    function and its arguments after q, k and v, for the properties in `form`. `options`: as from options_of(). The
    call takes q, k and v with dense rows, as from rows_of(). If `out` is given, results have its strides, which are in
    `form`."""
    kind = kind_of(text, q, k, v, tensors, wants_max, gradients, deterministic, sequences, lists, form, options)
    call = found_call(kind)
    if call is None:
        bind_context(q.device)
        if check is not None:
            function, *others = check
            function(q, k, v, *others)
        rows = rows_of(q), rows_of(k), rows_of(v)
        out = like(rows[0], v.shape[-1]) if out is None else out
        make = Fp8Call if span_of(options) else Call
        call = made_call(
            kind, make, text, *rows, tensors, scalars, out, wants_max, gradients, deterministic, sequences, lists, options
        )  # fmt: skip
        call.needs_rows = any(x is not y for x, y in zip(rows, (q, k, v)))
    return call


def run_backward(
    call, q, k, v, tensors, numbers, scale, mask, out, lse, dout, dlse, gradients, sequences=ALIGNED, lists=None,
    into=None,
):  # fmt: skip
    """Returns (dq, dk, dv), and the gradients of captures, by name. Tensors of `into` are written if they have the
    strides that kernels write."""
    results = _empty_like(q), _empty_like(k), _empty_like(v)
    if into is not None:
        results = [y if x.stride() != y.stride() else x for x, y in zip(into, results)]
    of_captures = {name: _empty_like(tensors[name]) for name in gradients} if gradients else {}
    if dout is None:
        dout = torch.zeros_like(out)
    elif dout.stride() != out.stride() or dout.data_ptr() % ALIGNMENT:
        dout = torch.empty_like(out).copy_(dout)
    if dlse is not None:
        dlse = dlse.contiguous()
    call.backward(
        q, k, v, tensors.values(), numbers, scale, mask, out, lse, dout, dlse, results, of_captures.values(), sequences,
        lists,
    )  # fmt: skip
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
    def forward(ctx, how, q, k, v, *captured):
        call, _, numbers, scale, mask, wants_max, _, sequences, lists = how
        out, lse, row_max = call.outcome(q, v, True, wants_max)
        call.forward(q, k, v, captured, numbers, scale, mask, out, lse, row_max, sequences, lists)
        ctx.how = how
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
        call, names, numbers, scale, mask, _, gradients, sequences, lists = ctx.how
        if dout is None and dlse is None:
            return (None,) * (4 + len(captured))
        results, found = run_backward(
            call, q, k, v, dict(zip(names, captured)), numbers, scale, mask, out, lse, dout, dlse, gradients, sequences,
            lists,
        )  # fmt: skip
        return None, *results, *[found.get(name) for name in names]


# Without what torch.autograd.Function does for transforms of torch.func, which do not come here.
_attention = super(torch.autograd.Function, _Attention).apply
_current_device = getattr(torch._C, "_cuda_getDevice", None)


def is_current(tensor):
    """Whether kernels on a tensor are launched in the current context."""
    return not tensor.is_cuda or tensor.get_device() == _current_device()


def attend(
    text, q, k, v, tensors, scalars, scale, mask=None, wants_lse=True, wants_max=False, sequences=ALIGNED, lists=None,
    form=None, check=None, options=(), seen=None,
):  # fmt: skip
    """Returns (out, lse, row_max or None) of a mod in IR text, with gradients of q, k, v and of the captured `tensors`.
    There are no gradients if `sequences` has lengths of a cache. lse may be None unless it is wanted. `lists` are those
    of a block mask; its mask_mod counts in partial blocks. `form`, `check` and `options`: as for call_of(). `seen` is given
    the call if it is not new, and for what it was made: (call, gradients, deterministic)."""
    if not is_current(q):
        with torch.cuda.device(q.device):
            return attend(
                text, q, k, v, tensors, scalars, scale, mask, wants_lse, wants_max, sequences, lists, form, check, options
            )
    gradients, deterministic = None, False
    if (
        q.requires_grad or k.requires_grad or v.requires_grad or tensors and any([x.requires_grad for x in tensors.values()])
    ) and torch.is_grad_enabled():
        gradients = tuple(name for name, x in tensors.items() if x.requires_grad and x.is_floating_point())
        deterministic = torch.are_deterministic_algorithms_enabled()
    kind = kind_of(text, q, k, v, tensors, wants_max, gradients, deterministic, sequences, lists, form, options)
    call = found_call(kind)
    if call is None:
        call = call_of(
            text, q, k, v, tensors, scalars, wants_max, gradients, deterministic, sequences, lists, form, check, options
        )  # fmt: skip
    elif seen is not None:
        seen(call, gradients, deterministic)
    return attend_by(
        call, gradients, q, k, v, tuple(tensors), tensors.values(), scalars.values(), scale, mask, wants_lse, wants_max,
        sequences, lists,
    )  # fmt: skip


def attend_by(
    call, gradients, q, k, v, names, captured, numbers, scale, mask, wants_lse, wants_max, sequences=ALIGNED, lists=None
):  # fmt: skip
    """Returns what attend() does, by a call for operands of this kind. `captured` are the tensors called `names`;
    `gradients` has the names of those that want one, or is None; `numbers` are the mod's."""
    if call.needs_rows:
        q, k, v = rows_of(q), rows_of(k), rows_of(v)
    if gradients is not None:
        how = call, names, numbers, scale, mask, wants_max, gradients, sequences, lists
        return _attention(how, q, k, v, *captured)
    out, lse, row_max = call.outcome(q, v, wants_lse, wants_max)
    call.forward(q, k, v, captured, numbers, scale, mask, out, lse, row_max, sequences, lists)
    return out, lse, row_max
