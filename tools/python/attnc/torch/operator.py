"""attnc::attention, the operator for graphs of torch.compile, torch.export and CUDA. A mod is given as IR text.

attnc::attention_into and attnc::attention_backward_into write into buffers of the caller, as kernels of Inductor do.
"""

import dataclasses
import functools
import math

import torch

from ..launch import Launch, Sequences
from .autograd import wanted_by
from .calls import arguments_of, call_of, names_of, run_backward
from .derivatives import Attention, applied, check_once, gradients_of, is_transformed, refuse_operator, tangents_by_kernels
from .block_mask import Lists
from .fp8 import SPANS
from .kernels import ANEW, like, mod_of, shapes_of_outputs
from .tracing import transform


@functools.lru_cache(maxsize=1024)
def _text_of(line):
    return line.replace("\\n", "\n")


_OF_MODS = "str text, Tensor q, Tensor k, Tensor v, Tensor[] captured, float[] scalars, float scale"
_OF_ATTENTION = f"{_OF_MODS}, str? wanted, bool wants_max, Tensor? kv_lengths, Tensor? cu_seqlens, SymInt longest, str? fp8"
_NEITHER = Sequences()  # not ALIGNED itself, so that operators have calls of their own


def _launch_of(arguments, lists=None, out=None):
    """Returns the launch of the arguments of attnc::attention, and its operands: q, k, v and captured tensors by name."""
    line, q, k, v, captured, scalars, scale, wanted, wants_max, kv_lengths, cu_seqlens, longest, fp8 = arguments
    text, sequences = _text_of(line), _NEITHER
    if fp8 and fp8 not in SPANS:
        raise ValueError(f"fp8 is {fp8!r}; it must be None or one of {', '.join(SPANS)}")
    if kv_lengths is not None or cu_seqlens is not None or longest:
        sequences = Sequences(kv_lengths=kv_lengths, cu_seqlens_q=cu_seqlens, max_q_len=longest, max_kv_len=longest)
    tensors, numbers = names_of(text)
    tensors, numbers = dict(zip(tensors, captured)), dict(zip(numbers, scalars))
    gradients, deterministic = None, False
    if wanted is not None:
        gradients, deterministic = tuple(wanted.split()), torch.are_deterministic_algorithms_enabled()
    return Launch(
        numbers, scale, ANEW, sequences, lists, text, out, gradients, deterministic, wants_max, fp8=fp8
    ), (q, k, v, tensors)  # fmt: skip


def attention_of(launch, q, k, v, captures):
    """Returns (out, lse, row_max) and the mod's outputs, of attnc::attention of a launch, with gradients of whatever
    requires one, and what transforms of torch.func ask."""
    if is_transformed(q, k, v, *captures.values()):
        if mod_of(launch.mod).outputs:
            raise NotImplementedError("outputs of a mod are not computed under transforms of torch.func and in forward mode")
        launch = dataclasses.replace(launch, deterministic=torch.are_deterministic_algorithms_enabled())
        return applied(Attention, launch, tuple(captures), None, q, k, v, *captures.values())
    arguments = arguments_of(launch, wanted_by(q, k, v, captures)[0], q, k, v, captures)
    if not mod_of(launch.mod).outputs:
        return attention_op(*arguments)
    *results, reduced = torch.ops.attnc.attention_with_outputs(*arguments)
    return *results, *reduced


# Not torch.library.custom_op, whose wrappers take the host half as long again as the operator.
class _Library(torch.library.Library):
    """Whose operators refuse what PyTorch's rule for them would drop without a word: tangents."""

    def impl(self, name, function, key="", **how):
        def refusing(keyset, *arguments):
            if is_transformed(*arguments[1:4], *arguments[4]):
                refuse_operator()
            return function(keyset, *arguments)

        super().impl(name, refusing if key == "Autograd" else function, key, **how)


_library = _Library("attnc", "FRAGMENT")
_library.define(f"attention({_OF_ATTENTION}) -> (Tensor, Tensor, Tensor)")
_library.define(f"attention_with_outputs({_OF_ATTENTION}) -> (Tensor, Tensor, Tensor, Tensor[])")
_library.define(
    f"attention_backward({_OF_ATTENTION}, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, Tensor?[] of_outputs) -> Tensor[]"
)
_library.define(
    f"attention_tangents({_OF_ATTENTION}, Tensor out, Tensor lse, Tensor? dout, Tensor? dlse, Tensor?[] directions) -> Tensor[]"
)
attention_op, attention_backward_op = torch.ops.attnc.attention.default, torch.ops.attnc.attention_backward.default


def _attention_with_outputs(*arguments):
    """Returns (out, lse, row_max, outputs) of a mod in IR text, which may be in the form of line_of(). row_max is empty
    unless `wants_max`. `outputs` are those that the mod declares, in order; attnc::attention returns no `outputs`.
    Captured tensors and scalars come in the order of their declarations in the text. `wanted` holds the names of captured
    tensors that want gradients, separated by spaces; None: no tensor has one. `kv_lengths`: i32 [B], the lengths of a
    cache; queries stand at its last keys. `cu_seqlens`: i32, of a ragged batch, whose longest sequence has `longest` rows
    (0: unknown). `fp8`: q, k and v are rounded to e4m3, with a scale for each "head", "block" of 128 rows or "row". Rows
    of q, k and v are dense."""
    launch, (q, k, v, captures) = _launch_of(arguments)
    call = call_of(launch, q, k, v, captures)
    (out, lse, row_max), reduced = call.outcome(q, v), call.outputs_of_mod(q)
    call.forward(launch, q, k, v, captures.values(), out, lse, row_max, reduced)
    return out, lse, lse.new_empty(0) if row_max is None else row_max, [*reduced]


def _fake_with_outputs(*arguments):
    launch, (q, k, v, _) = _launch_of(arguments)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    reduced = [lse.new_empty(shape) for shape in shapes_of_outputs(mod_of(launch.mod), q, k)]
    return like(q, v.shape[-1]), lse, torch.empty_like(lse) if launch.wants_max else lse.new_empty(0), reduced


def _attention_backward(*arguments):
    """Returns the gradients of q, k and v, and of the captured tensors in `wanted`."""
    *arguments, out, lse, dout, dlse, of_outputs = arguments
    launch, operands = _launch_of(arguments)
    call = call_of(launch, *operands)
    results, found = run_backward(call, launch, *operands, out, lse, dout, dlse, of_outputs=of_outputs)
    return [*results, *found.values()]


def _fake_attention_backward(*arguments):
    launch, (*qkv, captures) = _launch_of(arguments[:-5])
    return [torch.empty_like(x) for x in (*qkv, *map(captures.get, launch.gradients))]


def _attention_tangents(*arguments):
    """Returns tangents of out and lse along directions of q, k, v and captured tensors; and those of what attention_backward
    returns, unless `wanted` is None. A direction may be None: 0."""
    *arguments, out, lse, dout, dlse, directions = arguments
    launch, (q, k, v, captures) = _launch_of(arguments)
    primals, names = (q, k, v, *captures.values()), tuple(captures)
    t_out, t_lse, found = tangents_by_kernels(
        launch, names, launch.gradients, primals, out, lse, dout, dlse, directions
    )  # fmt: skip
    return [t_out, t_lse, *found]


def _fake_attention_tangents(*arguments):
    of_gradients = [] if arguments[7] is None else _fake_attention_backward(*arguments)
    return [*_fake_with_outputs(*arguments[:-5])[:2], *of_gradients]


def _save(ctx, inputs, output):
    text, q, k, v, captured, *numbers, kv_lengths, cu_seqlens, longest, fp8 = inputs
    ctx.saved = text, numbers, longest, fp8
    ctx.save_for_backward(q, k, v, *output[:2], kv_lengths, cu_seqlens, *captured)
    ctx.set_materialize_grads(False)


def _backward(ctx, dout, dlse, _, of_outputs=()):
    q, k, v, out, lse, kv_lengths, cu_seqlens, *captured = ctx.saved_tensors
    text, numbers, *others = ctx.saved
    scalars, _, wanted, _ = numbers
    if wanted is None:
        raise RuntimeError("attnc::attention has gradients where `wanted` is given")
    if dout is None:
        dout = torch.zeros_like(out)
    arguments, (names, _) = (text, q, k, v, captured, *numbers, kv_lengths, cu_seqlens, *others), names_of(_text_of(text))
    if torch.is_grad_enabled() or transform() is not None:
        check_once(of_outputs)
        dq, dk, dv, *of_captures = gradients_of(_launch_of(arguments)[0], names, dout, dlse, out, lse, q, k, v, *captured)
    else:
        dq, dk, dv, *found = attention_backward_op(*arguments, out, lse, dout, dlse, of_outputs)
        of_captures = [*map(dict(zip(wanted.split(), found)).get, names)]
    of_scalars = None if scalars else []  # torch.library requires this for lists of numbers
    return None, dq, dk, dv, of_captures, of_scalars, *[None] * 7


for _name, _function, _fake in (
    ("attention", lambda *given: _attention_with_outputs(*given)[:3], lambda *given: _fake_with_outputs(*given)[:3]),
    ("attention_with_outputs", _attention_with_outputs, _fake_with_outputs),
    ("attention_backward", _attention_backward, _fake_attention_backward),
    ("attention_tangents", _attention_tangents, _fake_attention_tangents),
):  # fmt: skip
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"attnc::{_name}", _fake, lib=_library)
    if _name in ("attention", "attention_with_outputs"):
        torch.library.register_autograd(f"attnc::{_name}", _backward, setup_context=_save, lib=_library)


# ---- In place of kernels of Inductor ----------------------------------------------------------------------------

_ALIGNED = None, None, 0, None  # the last arguments of attnc::attention
_OF_LISTS = f"{_OF_MODS}, Tensor[] rows, Tensor[] columns, int[] blocks"
_library.define(f"attention_into({_OF_LISTS}, Tensor(a!) out, Tensor(b!)? lse, Tensor(c!)? row_max) -> ()")
_library.define(
    f"attention_backward_into({_OF_LISTS}, str wanted, Tensor out, Tensor lse, Tensor dout, Tensor? dlse, Tensor(a!) dq, "
    "Tensor(b!) dk, Tensor(c!) dv, Tensor(d!)[] gradients) -> ()"
)
_LN2 = math.log(2)  # FlexAttention's kernels keep lse and maxima in base 2


def _lists_of(rows, columns, blocks, q, k):
    if not rows:
        return None
    rows, columns = ((*[x.contiguous() for x in group], None, None)[:4] for group in (rows, columns))
    return Lists((*rows[0].shape[:2], q.shape[2], k.shape[2], *blocks), rows, columns)


def _attention_into(*arguments):
    """Writes out, and lse and row_max in base 2 if they are given. Lists of blocks by row and by column: counts and
    indices of partial blocks, then of full ones; empty lists: mask_mod covers all. Others: as for attnc::attention."""
    *mod, rows, columns, blocks, out, lse, row_max = arguments
    lists = _lists_of(rows, columns, blocks, *mod[1:3])
    launch, (q, k, v, captures) = _launch_of((*mod, None, row_max is not None, *_ALIGNED), lists, out)
    call_of(launch, q, k, v, captures).forward(launch, q, k, v, captures.values(), out, lse, row_max)
    for found in (lse, row_max):
        if found is not None:
            found.div_(_LN2)


def _attention_backward_into(*arguments):
    """Writes dq, dk, dv, and the gradients of the captured tensors in `wanted`. lse and dlse are in base 2."""
    *mod, rows, columns, blocks, wanted, out, lse, dout, dlse, dq, dk, dv, gradients = arguments
    lists = _lists_of(rows, columns, blocks, *mod[1:3])
    launch, operands = _launch_of((*mod, wanted, False, *_ALIGNED), lists, out)
    call, dlse = call_of(launch, *operands), None if dlse is None else dlse / _LN2
    results, found = run_backward(call, launch, *operands, out, lse * _LN2, dout, dlse, (dq, dk, dv))
    for to, result in zip((dq, dk, dv, *gradients), (*results, *found.values())):
        if to is not result:
            to.copy_(result)


for _name, _function in (("attention_into", _attention_into), ("attention_backward_into", _attention_backward_into)):
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"attnc::{_name}", lambda *_: None, lib=_library)
