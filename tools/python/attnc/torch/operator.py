"""attnc::attention, the operator for graphs of torch.compile, torch.export and CUDA. A mod is given as IR text.

attnc::attention_into and attnc::attention_backward_into write into buffers of the caller, as kernels of Inductor do.
"""

import collections
import functools
import math

import torch

from ..launch import ALIGNED, Launch, Sequences
from .autograd import Refusing, call_of, run_backward, wanted_by
from .block_mask import Lists
from .fp8 import SPANS
from .kernels import ANEW, like, mod_of


def line_of(text):
    """Returns IR text on one line, for graphs: Inductor writes nodes into comments of its code, which end with the
    line."""
    return text.replace("\n", "\\n")


@functools.lru_cache(maxsize=1024)
def _text_of(line):
    return line.replace("\\n", "\n")


@functools.lru_cache(maxsize=1024)
def _names_of(text):
    """Returns the names of a mod's tensors, and of its numbers, in the order of their declarations."""
    declared = mod_of(text).captures
    return tuple([x.name for x in declared if is_tensor == (x.kind == "tensor")] for is_tensor in (True, False))


def _launch_of(
    text, captured, scalars, scale, wanted=None, fp8=None, sequences=ALIGNED, lists=None, out=None, wants_max=False
):  # fmt: skip
    """Returns the launch of an operator's arguments, and its captured tensors by name."""
    text = _text_of(text)
    if fp8 and fp8 not in SPANS:
        raise ValueError(f"fp8 is {fp8!r}; it must be None or one of {', '.join(SPANS)}")
    tensors, numbers = _names_of(text)
    tensors, numbers = dict(zip(tensors, captured)), dict(zip(numbers, scalars))
    gradients, deterministic = None, False
    if wanted is not None:
        gradients, deterministic = tuple(wanted.split()), torch.are_deterministic_algorithms_enabled()
    return Launch(
        numbers, scale, ANEW, sequences, lists, text, out, gradients, deterministic, wants_max, fp8=fp8
    ), tensors  # fmt: skip


def attention_of(launch, q, k, v, captures):
    """Returns attnc::attention of a launch, with gradients of whatever requires one."""
    (tensors, numbers), sequences = _names_of(launch.mod), launch.sequences
    captures = {name: captures[name] for name in tensors}
    gradients, _ = wanted_by(q, k, v, captures)
    scalars, wanted = [float(launch.numbers[name]) for name in numbers], None if gradients is None else " ".join(gradients)
    return attention_op(
        line_of(launch.mod), q, k, v, [*captures.values()], scalars, launch.scale, wanted, launch.wants_max,
        sequences.kv_lengths, sequences.cu_seqlens_q, sequences.max_q_len, launch.fp8,
    )  # fmt: skip


_NEITHER = Sequences()  # not ALIGNED itself, so that operators have calls of their own


def _sequences(kv_lengths, cu_seqlens, longest):
    if kv_lengths is None and cu_seqlens is None and not longest:
        return _NEITHER
    return Sequences(kv_lengths=kv_lengths, cu_seqlens_q=cu_seqlens, max_q_len=longest, max_kv_len=longest)


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


def _attention(text, q, k, v, *arguments):
    """Returns (out, lse, row_max) of a mod in IR text, which may be in the form of line_of(). row_max is empty unless
    `wants_max`. Captured tensors and scalars come in the order of their declarations in the text. `wanted` holds the
    names of captured tensors that want gradients, separated by spaces; None: no tensor has one. `kv_lengths`: i32 [B],
    the lengths of a cache; queries stand at its last keys. `cu_seqlens`: i32, of a ragged batch, whose longest sequence
    has `longest` rows (0: unknown). `fp8`: q, k and v are rounded to e4m3, with a scale for each "head", "block" of 128
    rows or "row". Rows of q, k and v are dense."""
    *mod, wants_max, kv_lengths, cu_seqlens, longest, fp8 = arguments
    launch, captures = _launch_of(text, *mod, fp8, _sequences(kv_lengths, cu_seqlens, longest), wants_max=wants_max)
    call = call_of(launch, q, k, v, captures)
    out, lse, row_max = call.outcome(q, v)
    call.forward(launch, q, k, v, captures.values(), out, lse, row_max)
    return out, lse, lse.new_empty(0) if row_max is None else row_max


def _fake_attention(text, q, k, v, captured, scalars, scale, wanted, wants_max, *_):
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return like(q, v.shape[-1]), lse, torch.empty_like(lse) if wants_max else lse.new_empty(0)


def _attention_backward(text, q, k, v, *arguments):
    """Returns the gradients of q, k and v, and of the captured tensors in `wanted`."""
    *mod, cu_seqlens, longest, out, lse, dout, dlse, fp8 = arguments
    launch, captures = _launch_of(text, *mod, fp8, _sequences(None, cu_seqlens, longest))
    call = call_of(launch, q, k, v, captures)
    results, found = run_backward(call, launch, q, k, v, captures, out, lse, dout, dlse)
    return [*results, *found.values()]


def _fake_attention_backward(text, q, k, v, captured, scalars, scale, wanted, *_):
    captures = dict(zip(_names_of(_text_of(text))[0], captured))
    return [torch.empty_like(x) for x in (q, k, v, *map(captures.get, wanted.split()))]


# What a backward pass needs besides tensors.
_Saved = collections.namedtuple("_Saved", "text scalars scale wanted has_lengths longest fp8")


def _save(ctx, inputs, output):
    text, q, k, v, captured, scalars, scale, wanted, _, kv_lengths, cu_seqlens, longest, fp8 = inputs
    ctx.saved = _Saved(text, scalars, scale, wanted, kv_lengths is not None, longest, fp8)
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
    saved = ctx.saved
    if saved.wanted is None or saved.has_lengths:
        raise RuntimeError("attnc::attention has gradients where `wanted` is given and `kv_lengths` are not")
    if dout is None:
        dout = torch.zeros_like(out)
    dq, dk, dv, *found = attention_backward_op(
        saved.text, q, k, v, captured, saved.scalars, saved.scale, saved.wanted, cu_seqlens, saved.longest, out, lse,
        dout, dlse, saved.fp8,
    )  # fmt: skip
    of_captures = dict(zip(saved.wanted.split(), found))
    of_scalars = None if saved.scalars else []  # torch.library requires this for lists of numbers
    names, _ = _names_of(_text_of(saved.text))
    return None, dq, dk, dv, [*map(of_captures.get, names)], of_scalars, *[None] * 7


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


def _attention_into(text, q, k, v, *arguments):
    """Writes out, and lse and row_max in base 2 if they are given. Lists of blocks by row and by column: counts and
    indices of partial blocks, then of full ones; empty lists: mask_mod covers all. Others: as for attnc::attention."""
    *mod, rows, columns, blocks, out, lse, row_max = arguments
    lists, wants_max = _lists_of(rows, columns, blocks, q, k), row_max is not None
    launch, captures = _launch_of(text, *mod, lists=lists, out=out, wants_max=wants_max)
    call_of(launch, q, k, v, captures).forward(launch, q, k, v, captures.values(), out, lse, row_max)
    for found in (lse, row_max):
        if found is not None:
            found.div_(_LN2)


def _attention_backward_into(text, q, k, v, *arguments):
    """Writes dq, dk, dv, and the gradients of the captured tensors in `wanted`. lse and dlse are in base 2."""
    *mod, rows, columns, blocks, wanted, out, lse, dout, dlse, dq, dk, dv, gradients = arguments
    launch, captures = _launch_of(text, *mod, wanted, lists=_lists_of(rows, columns, blocks, q, k), out=out)
    call, dlse = call_of(launch, q, k, v, captures), None if dlse is None else dlse / _LN2
    results, found = run_backward(call, launch, q, k, v, captures, out, lse * _LN2, dout, dlse, (dq, dk, dv))
    for to, result in zip((dq, dk, dv, *gradients), (*results, *found.values())):
        if to is not result:
            to.copy_(result)


for _name, _function in (("attention_into", _attention_into), ("attention_backward_into", _attention_backward_into)):
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"attnc::{_name}", lambda *_: None, lib=_library)
