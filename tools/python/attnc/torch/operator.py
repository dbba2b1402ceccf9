"""attnc::attention, the operator for graphs of torch.compile, torch.export and CUDA. A mod is given as IR text.

attnc::attention_into and attnc::attention_backward_into write into buffers of the caller, as kernels of Inductor do.
"""

import functools
import math

import torch

from .autograd import Refusing, call_of, run_backward
from .block_mask import Lists
from .kernels import ALIGNED, ANEW, FP8, SPANS, Sequences, like, mod_of


def line_of(text):
    """Returns IR text on one line, for graphs: Inductor writes nodes into comments of its code, which end with the
    line."""
    return text.replace("\n", "\\n")


@functools.lru_cache(maxsize=1024)
def _text_of(line):
    return line.replace("\\n", "\n")


def _captured(text, captured, scalars):
    names = mod_of(text).captures
    tensors = dict(zip((capture.name for capture in names if capture.kind == "tensor"), captured))
    return tensors, dict(zip((capture.name for capture in names if capture.kind != "tensor"), scalars))


def _options(fp8):
    if fp8 and fp8 not in SPANS:
        raise ValueError(f"fp8 is {fp8!r}; it must be None or one of {', '.join(SPANS)}")
    return ((FP8, fp8),) if fp8 else ()


def _sequences(kv_lengths, cu_seqlens, longest):
    return Sequences(kv_lengths, cu_seqlens, None, longest, longest)


# Not torch.library.custom_op, whose wrappers take the host half as long again as the operator.
_library = torch.library.Library("attnc", "FRAGMENT")
_library.define(
    "attention(str text, Tensor q, Tensor k, Tensor v, Tensor[] captured, float[] scalars, float scale, str? wanted, "
    "bool wants_max, Tensor? kv_lengths, Tensor? cu_seqlens, SymInt longest, str? fp8) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "attention_backward(str text, Tensor q, Tensor k, Tensor v, Tensor[] captured, float[] scalars, float scale, "
    "str wanted, Tensor? cu_seqlens, SymInt longest, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, str? fp8) -> Tensor[]"
)
attention_op, attention_backward_op = torch.ops.attnc.attention.default, torch.ops.attnc.attention_backward.default


def _attention(
    text: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, captured: list[torch.Tensor], scalars: list[float],
    scale: float, wanted: str | None, wants_max: bool, kv_lengths: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None, longest: int, fp8: str | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Returns (out, lse, row_max) of a mod in IR text, which may be in the form of line_of(). row_max is empty unless
    `wants_max`. Captured tensors and scalars come in the order of their declarations in the text. `wanted` holds the
    names of captured tensors that want gradients, separated by spaces; None: no tensor has one. `kv_lengths`: i32 [B],
    the lengths of a cache; queries stand at its last keys. `cu_seqlens`: i32, of a ragged batch, whose longest sequence
    has `longest` rows (0: unknown). `fp8`: q, k and v are rounded to e4m3, with a scale for each "head", "block" of 128
    rows or "row". Rows of q, k and v are dense."""
    text = _text_of(text)
    tensors, numbers = _captured(text, captured, scalars)
    gradients, sequences = None if wanted is None else tuple(wanted.split()), _sequences(kv_lengths, cu_seqlens, longest)
    call = call_of(
        text, q, k, v, tensors, numbers, wants_max=wants_max, gradients=gradients, sequences=sequences,
        options=_options(fp8),
        deterministic=gradients is not None and torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    out, lse, row_max = call.outcome(q, v, True, wants_max)
    call.forward(q, k, v, captured, numbers.values(), scale, ANEW, out, lse, row_max, sequences, None)
    return out, lse, lse.new_empty(0) if row_max is None else row_max


def _fake_attention(text, q, k, v, captured, scalars, scale, wanted, wants_max, kv_lengths, cu_seqlens, longest, fp8):
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return like(q, v.shape[-1]), lse, torch.empty_like(lse) if wants_max else lse.new_empty(0)


def _attention_backward(
    text: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, captured: list[torch.Tensor], scalars: list[float],
    scale: float, wanted: str, cu_seqlens: torch.Tensor | None, longest: int, out: torch.Tensor,
    lse: torch.Tensor, dout: torch.Tensor, dlse: torch.Tensor | None, fp8: str | None,
) -> list[torch.Tensor]:  # fmt: skip
    """Returns the gradients of q, k and v, and of the captured tensors in `wanted`."""
    text = _text_of(text)
    tensors, numbers = _captured(text, captured, scalars)
    gradients, sequences = tuple(wanted.split()), _sequences(None, cu_seqlens, longest)
    call = call_of(
        text, q, k, v, tensors, numbers, gradients=gradients, sequences=sequences, options=_options(fp8),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    results, found = run_backward(
        call, q, k, v, tensors, numbers.values(), scale, ANEW, out, lse, dout, dlse, gradients, sequences
    )  # fmt: skip
    return [*results, *found.values()]


def _fake_attention_backward(text, q, k, v, captured, scalars, scale, wanted, cu_seqlens, longest, out, lse, dout, dlse, fp8):
    tensors, _ = _captured(_text_of(text), captured, scalars)
    return [torch.empty_like(x) for x in (q, k, v, *(tensors[name] for name in wanted.split()))]


def _save(ctx, inputs, output):
    text, q, k, v, captured, scalars, scale, wanted, _, kv_lengths, cu_seqlens, longest, fp8 = inputs
    ctx.how = text, scalars, scale, wanted, longest, kv_lengths is not None, fp8
    ctx.save_for_backward(q, k, v, *output[:2], cu_seqlens, *captured)
    ctx.set_materialize_grads(False)


def _backward(ctx, dout, dlse, _):
    if not torch.is_grad_enabled():
        return _gradients(ctx, dout, dlse)
    with torch.no_grad():
        _, dq, dk, dv, of_captures, *others = _gradients(ctx, dout, dlse)
    dq, dk, dv, *of_captures = Refusing.apply((dq, dk, dv, *of_captures), dout, dlse, *ctx.saved_tensors)
    return None, dq, dk, dv, of_captures, *others


def _gradients(ctx, dout, dlse):
    q, k, v, out, lse, cu_seqlens, *captured = ctx.saved_tensors
    text, scalars, scale, wanted, longest, has_lengths, fp8 = ctx.how
    if wanted is None or has_lengths:
        raise RuntimeError("attnc::attention has gradients where `wanted` is given and `kv_lengths` are not")
    if dout is None:
        dout = torch.zeros_like(out)
    found = attention_backward_op(
        text, q, k, v, captured, scalars, scale, wanted, cu_seqlens, longest, out, lse, dout, dlse, fp8
    )  # fmt: skip
    of_captures = dict(zip(wanted.split(), found[3:]))
    names, _ = _captured(_text_of(text), captured, scalars)
    of_scalars = None if scalars else []  # torch.library requires this for lists of numbers
    return None, *found[:3], [of_captures.get(name) for name in names], of_scalars, *[None] * 7


for _name, _function, _fake in (
    ("attention", _attention, _fake_attention), ("attention_backward", _attention_backward, _fake_attention_backward)
):  # fmt: skip
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"attnc::{_name}", _fake, lib=_library)
torch.library.register_autograd("attnc::attention", _backward, setup_context=_save, lib=_library)


# ---- In place of kernels of Inductor ----------------------------------------------------------------------------

_library.define(
    "attention_into(str text, Tensor q, Tensor k, Tensor v, Tensor[] captured, float[] scalars, float scale, "
    "Tensor[] rows, Tensor[] columns, int[] blocks, Tensor(a!) out, Tensor(b!)? lse, Tensor(c!)? row_max) -> ()"
)
_library.define(
    "attention_backward_into(str text, Tensor q, Tensor k, Tensor v, Tensor[] captured, float[] scalars, float scale, "
    "Tensor[] rows, Tensor[] columns, int[] blocks, str wanted, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, "
    "Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv, Tensor(d!)[] gradients) -> ()"
)
_LN2 = math.log(2)  # FlexAttention's kernels keep lse and maxima in base 2


def _lists_of(rows, columns, blocks, q, k):
    if not rows:
        return None
    rows, columns = ((*[x.contiguous() for x in group], None, None)[:4] for group in (rows, columns))
    return Lists((*rows[0].shape[:2], q.shape[2], k.shape[2], *blocks), rows, columns)


def _attention_into(text, q, k, v, captured, scalars, scale, rows, columns, blocks, out, lse, row_max):
    """Writes out, and lse and row_max in base 2 if they are given. Lists of blocks by row and by column: counts and
    indices of partial blocks, then of full ones; empty lists: mask_mod covers all. Others: as for attnc::attention."""
    text = _text_of(text)
    (tensors, numbers), lists = _captured(text, captured, scalars), _lists_of(rows, columns, blocks, q, k)
    wants_max = row_max is not None
    call = call_of(text, q, k, v, tensors, numbers, wants_max=wants_max, lists=lists, form=out.stride(), out=out)
    call.forward(q, k, v, captured, numbers.values(), scale, ANEW, out, lse, row_max, ALIGNED, lists)
    for found in (lse, row_max):
        if found is not None:
            found.div_(_LN2)


def _attention_backward_into(
    text, q, k, v, captured, scalars, scale, rows, columns, blocks, wanted, out, lse, dout, dlse, dq, dk, dv, gradients
):  # fmt: skip
    """Writes dq, dk, dv, and the gradients of the captured tensors in `wanted`. lse and dlse are in base 2."""
    text = _text_of(text)
    (tensors, numbers), lists = _captured(text, captured, scalars), _lists_of(rows, columns, blocks, q, k)
    names = tuple(wanted.split())
    call = call_of(
        text, q, k, v, tensors, numbers, gradients=names, lists=lists, form=out.stride(), out=out,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    dlse = None if dlse is None else dlse / _LN2
    results, found = run_backward(
        call, q, k, v, tensors, numbers.values(), scale, ANEW, out, lse * _LN2, dout, dlse, names, ALIGNED, lists,
        (dq, dk, dv),
    )  # fmt: skip
    for to, result in zip((dq, dk, dv, *gradients), (*results, *found.values())):
        if to is not result:
            to.copy_(result)


for _name, _function in (("attention_into", _attention_into), ("attention_backward_into", _attention_backward_into)):
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"attnc::{_name}", lambda *_: None, lib=_library)
