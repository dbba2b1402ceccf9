"""Derivatives of attention that can be differentiated again: second derivatives, forward mode, transforms of torch.func.

Three functions close under differentiation, up to second order. With J the derivative of attention by q, k, v and
captures:

  Attention   out, lse
  Gradients   J^T (dout, dlse)
  Tangents    J (directions of q, k, v and captures)

The gradient of <w, Gradients> by dout and dlse is Tangents along w, and that by q, k, v and captures is the tangent of
Gradients along w; the gradient of <w, Tangents> by the directions is Gradients for dout = w, and that by q, k, v and
captures is the tangent of these along the directions.
"""

import contextlib
import dataclasses
import functools
import threading

import torch
from torch._C import _functorch
from torch.autograd import forward_ad

from ..prob_mods import read_by_prob
from .calls import arguments_of, call_of, made_for, names_of, run_backward
from .kernels import ALIGNMENT, Call, Views, found_call, kind_of, like, mod_of
from .tracing import has_modes, have_memory, is_jit_tracing, modes_before_dispatch


class TangentCall(Call):
    """Tangents of attention and of its gradients, for operands of one kind. `tensors` include the directions of captured
    floats, by the names of the captures with "_tangent"."""

    def __init__(self, launch, q, k, v, tensors):
        rows = torch.empty(q.shape[:3], dtype=torch.float32, device="meta")
        self.moving = Views([rows, *(torch.empty_like(x, device="meta") for x in (launch.out, q, k, v))])
        self.used = threading.Lock()
        super().__init__(launch, q, k, v, tensors)

    def _settled_by(self):
        operands, outputs = self.backward_operands, self.backward_outputs
        outputs.lse_tangent, outputs.out_tangent, *directions = self.moving.pointers()
        operands.q_tangent, operands.k_tangent, operands.v_tangent = directions
        return super()._settled_by()

    def tangents(self, launch, q, k, v, tensors, out, lse, dout, dlse, directions, results):
        """Writes `results`: tangents of lse and out, and of dq, dk, dv and gradients of captures unless there are only two."""
        with self.used:
            for place, x in enumerate((*results[:2], *directions)):
                self.moving.addresses[place] = x.data_ptr()
            gradients = self.backward_views.pointers()[2:5] if results[2:] else (None, None, None)
            for name, gradient in zip(("dq", "dk", "dv"), gradients):
                setattr(self.backward_outputs, name, gradient)
            self.backward(launch, q, k, v, tensors, out, lse, dout, dlse, results[2:])


@functools.lru_cache(maxsize=1024)
def _float_numbers(text):
    return {f"{capture.name}_tangent": 0.0 for capture in mod_of(text).captures if capture.kind == "float"}


def _laid_out(x, tensor):
    """Returns x, zeros for None, with the strides that kernels expect of what is like the tensor."""
    if x is None:
        return torch.zeros_like(tensor)
    to = torch.empty_like(tensor)
    return x if x.stride() == to.stride() and not x.data_ptr() % ALIGNMENT else to.copy_(x)


def _tangents_of(launch, names, gradients, primals, out, lse, dout, dlse, directions):
    """Returns the tangents of out and lse, and of gradients of q, k, v and of the captures named in `gradients`, unless
    that is None. `primals` and `directions`: q, k, v and captured tensors. A direction may be None: 0."""
    _check(launch)
    if launch.fp8:
        raise NotImplementedError(f"fp8={launch.fp8!r} has no second derivatives and no tangents: leave fp8 out")
    if launch.sequences.cu_seqlens_q is not None:
        raise NotImplementedError(
            "a ragged batch has no second derivatives and no tangents: give its rows to flex_attention as one sequence, "
            "with a mask_mod, document[q_idx] == document[kv_idx]"
        )
    if launch.sequences.kv_lengths is not None:
        raise NotImplementedError(
            "a padded batch has no second derivatives and no tangents: give flex_attention a mask_mod, kv_idx < lengths[b]"
        )
    of_captures = dict(zip(names, directions[3:]))
    for name, direction in of_captures.items():
        if direction is not None and name in read_by_prob(launch.mod):
            raise NotImplementedError(f"{name} has no gradient and no tangent: prob_mod reads it. Give {name}.detach()")
    if not _is_recorded(launch, *primals, *directions):
        return tangents_by_kernels(launch, names, gradients, primals, out, lse, dout, dlse, directions)
    directions = [*directions[:3], *map(of_captures.get, names_of(launch.mod)[0])]
    arguments = arguments_of(launch, gradients, *primals[:3], dict(zip(names, primals[3:])))
    t_out, t_lse, *found = torch.ops.attnc.attention_tangents(*arguments, out, lse, dout, dlse, directions)
    return t_out, t_lse, found


def tangents_by_kernels(launch, names, gradients, primals, out, lse, dout, dlse, directions):
    """Returns what _tangents_of() does, by a launch."""
    q, k, v, *captured = primals
    tensors = dict(zip(names, captured))
    for name, direction, tensor in zip(names, directions[3:], captured):
        if tensor.is_floating_point():
            tensors[f"{name}_tangent"] = torch.zeros_like(tensor) if direction is None else direction
    numbers = {**launch.numbers, **_float_numbers(launch.mod)}
    launch = dataclasses.replace(launch, gradients=gradients or (), numbers=numbers, wants_max=False, options=())
    kind = TangentCall, kind_of(launch, q, k, v, tensors)
    call = found_call(kind) or made_for(kind, launch, q, k, v, tensors, TangentCall)
    out = _laid_out(out, like(q, v.shape[-1]))
    results = [torch.empty_like(lse), torch.empty_like(out)]
    if gradients is not None:
        results += [torch.empty_like(x) for x in (q, k, v, *[tensors[name] for name in gradients])]
    moving = [_laid_out(x, tensor) for x, tensor in zip(directions, (q, k, v))]
    dlse = None if dlse is None else dlse.contiguous()
    call.tangents(launch, q, k, v, tensors.values(), out, lse, _laid_out(dout, out), dlse, moving, results)
    t_lse, t_out, *of_gradients = results
    return t_out, t_lse, of_gradients


def is_transformed(*tensors):
    """Whether tensors have tangents, or are those of a transform of torch.func."""
    is_dual = lambda x: forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None  # noqa: E731
    return any([is_dual(x) or _functorch.is_batchedtensor(x) or _functorch.is_gradtrackingtensor(x) for x in tensors])


def refuse_operator():
    """Raises NotImplementedError for an operator that is called in forward mode, or under a transform of torch.func."""
    raise NotImplementedError(
        "attnc's operators have no forward mode and no transforms of torch.func: call flex_attention of attnc.torch, inside "
        "of the function that is compiled also what differentiates it"
    )


def check_once(of_outputs):
    """Raises NotImplementedError if a mod's outputs have gradients, in a backward pass that is differentiated again."""
    if any([x is not None for x in of_outputs]):
        raise NotImplementedError("gradients of outputs of a mod are not differentiated again: leave create_graph out")


def _is_recorded(launch, *tensors):
    """Whether operations are watched, or tensors have no memory, so that only operators compute. These take no lists."""
    return launch.lists is None and (has_modes() or is_jit_tracing() or not have_memory(*tensors))


def _check(launch):
    given = [x for x in launch.sequences if isinstance(x, torch.Tensor)]
    if any([_functorch.is_batchedtensor(x) or _functorch.is_gradtrackingtensor(x) for x in given]):
        raise NotImplementedError(
            "attnc has no transforms of torch.func over ragged batches and caches: use torch.autograd.grad, or give the rows "
            "to flex_attention as one sequence, with a mask_mod, document[q_idx] == document[kv_idx]"
        )


def _for_all(found, gradients, names):
    """Returns gradients of q, k, v and of all captures, from those of the captures named in `gradients`."""
    dq, dk, dv, *others = found
    of_captures = dict(zip(gradients, others))
    return dq, dk, dv, *map(of_captures.get, names)


def _named(names, needed):
    return tuple([name for name, is_needed in zip(names, needed) if is_needed])


def gradients_of(launch, names, dout, dlse, out, lse, *primals):
    """Returns gradients of q, k, v and of all captures, those that `gradients` of the launch do not name as None, which can
    be differentiated."""
    dout = torch.zeros_like(out) if dout is None else dout
    found = applied(Gradients, launch, names, launch.gradients, dout, dlse, out, lse, *primals)
    return _for_all(found, launch.gradients, names)


def _by_loop(function):
    """A rule of vmap: one call after the other, so that mods see the b of each."""

    def rule(info, in_dims, *arguments):
        each = []
        for i in range(info.batch_size):
            given = [x.select(dim, i).contiguous() if type(dim) is int else x for x, dim in zip(arguments, in_dims)]
            each.append(function.apply(*given))
        return tuple(map(torch.stack, zip(*each))), (0,) * len(each[0])

    return staticmethod(rule)


class _Function(torch.autograd.Function):
    """A function of (launch, names, gradients, tensors): `names` of captured tensors, `gradients` of those that want one.
    A tensor may be None: 0."""

    kept_results = 0

    def __init_subclass__(cls):
        cls.vmap = _by_loop(cls)

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        kept = *inputs[3:], *output[: cls.kept_results]
        ctx.how = inputs[:3]
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)
        ctx.set_materialize_grads(False)


@torch._disable_dynamo
def applied(function, *arguments):
    """Returns what a function returns, with the GPU of its tensors current."""
    if modes_before_dispatch():  # PyTorch's own assertion tells nobody why
        raise NotImplementedError(
            "torch.export records no forward mode and no transforms of torch.func over attention: use torch.compile or make_fx"
        )
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        return function.apply(*arguments)


class Attention(_Function):
    """(out, lse, row_max) of q, k, v and captured tensors. row_max is empty unless the launch wants it."""

    kept_results = 2

    @staticmethod
    def forward(launch, names, _, q, k, v, *captured):
        _check(launch)
        launch, captures = dataclasses.replace(launch, gradients=None, deterministic=False), dict(zip(names, captured))
        if _is_recorded(launch, q, k, v, *captured):
            return torch.ops.attnc.attention(*arguments_of(launch, None, q, k, v, captures))
        call = call_of(launch, q, k, v, captures)
        out, lse, row_max = call.outcome(q, v)
        call.forward(launch, q, k, v, captured, out, lse, row_max)
        return out, lse, lse.new_empty(0) if row_max is None else row_max

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        super().setup_context(ctx, inputs, output)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, dout, dlse, _):
        (launch, names, _), (*primals, out, lse) = ctx.how, ctx.saved_tensors
        launch = dataclasses.replace(launch, gradients=_named(names, ctx.needs_input_grad[6:]), wants_max=False)
        return None, None, None, *gradients_of(launch, names, dout, dlse, out, lse, *primals)

    @staticmethod
    def jvp(ctx, _, __, ___, *directions):
        (launch, names, _), (*primals, out, lse) = ctx.how, ctx.saved_tensors
        return *applied(Tangents, launch, names, None, out, lse, *primals, *directions), None


class Gradients(_Function):
    """Gradients of q, k, v and of the captures named in `gradients`, for those of out and lse."""

    @staticmethod
    def forward(launch, names, gradients, dout, dlse, out, lse, q, k, v, *captured):
        _check(launch)
        launch = dataclasses.replace(launch, gradients=gradients, wants_max=False)
        captures = dict(zip(names, captured))
        if _is_recorded(launch, q, k, v, *captured, dout):
            arguments = arguments_of(launch, gradients, q, k, v, captures)
            return tuple(torch.ops.attnc.attention_backward(*arguments, out, lse, dout, dlse, []))
        call, out = call_of(launch, q, k, v, captures), _laid_out(out, like(q, v.shape[-1]))
        results, found = run_backward(call, launch, q, k, v, captures, out, lse, dout, dlse)
        return *results, *found.values()

    @staticmethod
    def backward(ctx, *w):
        (launch, names, gradients), (dout, dlse, out, lse, *primals) = ctx.how, ctx.saved_tensors
        directions = _for_all(w, gradients, names)
        if any(ctx.needs_input_grad[7:]):
            wanted = _named(names, ctx.needs_input_grad[10:])
            t_out, t_lse, *found = applied(
                SecondTangents, launch, names, wanted, dout, dlse, out, lse, *primals, *directions
            )
            of_primals = _for_all(found, wanted, names)
        else:
            t_out, t_lse = applied(Tangents, launch, names, None, out, lse, *primals, *directions)
            of_primals = (None,) * len(primals)
        return None, None, None, t_out, None if dlse is None else t_lse, None, None, *of_primals

    @staticmethod
    def jvp(ctx, _, __, ___, t_dout, t_dlse, ____, _____, *directions):
        (launch, names, gradients), (dout, dlse, out, lse, *primals) = ctx.how, ctx.saved_tensors
        parts = []
        if any([x is not None for x in directions]):
            found = applied(SecondTangents, launch, names, gradients, dout, dlse, out, lse, *primals, *directions)
            parts.append(found[2:])
        if t_dout is not None or t_dlse is not None or not parts:
            t_dout = torch.zeros_like(out) if t_dout is None else t_dout
            parts.append(applied(Gradients, launch, names, gradients, t_dout, t_dlse, out, lse, *primals))
        return parts[0] if len(parts) == 1 else tuple(map(torch.add, *parts))


class Tangents(_Function):
    """Tangents of out and lse. Tensors: out, lse, primals, directions."""

    @staticmethod
    def forward(launch, names, _, out, lse, *tensors):
        primals, directions = _halves(tensors)
        return _tangents_of(launch, names, None, primals, out, lse, None, None, directions)[:2]

    @staticmethod
    def backward(ctx, dout, dlse):
        (launch, names, _), (out, lse, *tensors) = ctx.how, ctx.saved_tensors
        primals, directions = _halves(tensors)
        by_primals, by_directions = _halves(ctx.needs_input_grad[5:])
        of_primals = of_directions = (None,) * len(primals)
        if any(by_directions):
            launch = dataclasses.replace(launch, gradients=_named(names, by_directions[3:]))
            found = gradients_of(launch, names, dout, dlse, out, lse, *primals)
            of_directions = [x if needed else None for x, needed in zip(found, by_directions)]
        if any(by_primals):
            dout, wanted = torch.zeros_like(out) if dout is None else dout, _named(names, by_primals[3:])
            _, _, *found = applied(SecondTangents, launch, names, wanted, dout, dlse, out, lse, *primals, *directions)
            of_primals = _for_all(found, wanted, names)
        return None, None, None, None, None, *of_primals, *of_directions

    @staticmethod
    def jvp(*_):
        raise NotImplementedError(
            "attnc has no tangents of tangents of attention: for second derivatives take jvp of grad, as "
            "torch.func.jvp(torch.func.grad(f), ...), or grad of jvp"
        )


class SecondTangents(_Function):
    """Tangents of out, lse and Gradients. Tensors: dout, dlse, out, lse, primals, directions."""

    @staticmethod
    def forward(launch, names, gradients, dout, dlse, out, lse, *tensors):
        primals, directions = _halves(tensors)
        t_out, t_lse, found = _tangents_of(launch, names, gradients, primals, out, lse, dout, dlse, directions)
        return t_out, t_lse, *found

    @staticmethod
    def backward(*_):
        raise NotImplementedError(
            "attnc has no third derivatives of attention: use torch.nn.functional.scaled_dot_product_attention there, under "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH), with what the mods do as attn_mask"
        )

    jvp = backward


def _halves(items):
    middle = len(items) // 2
    return items[:middle], items[middle:]
