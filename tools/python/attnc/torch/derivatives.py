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

import dataclasses
import functools

import torch

from .calls import call_of, run_backward
from .kernels import Call, Views, bind_context, found_call, kind_of, made_call, mod_of


class TangentCall(Call):
    """Tangents of attention and of its gradients, for operands of one kind. `tensors` include the directions of captured
    floats, by the names of the captures with "_tangent"."""

    def __init__(self, launch, q, k, v, tensors):
        rows = torch.empty(q.shape[:3], dtype=torch.float32, device="meta")
        self.moving = Views([rows, *(torch.empty_like(x, device="meta") for x in (launch.out, q, k, v))])
        super().__init__(launch, q, k, v, tensors)

    def _settled_by(self):
        operands, outputs = self.backward_operands, self.backward_outputs
        outputs.lse_tangent, outputs.out_tangent, *directions = self.moving.pointers()
        operands.q_tangent, operands.k_tangent, operands.v_tangent = directions
        self.gradients_at = outputs.dq, outputs.dk, outputs.dv
        return super()._settled_by()

    def tangents(self, launch, q, k, v, tensors, out, lse, dout, dlse, directions, results):
        """Writes `results`: tangents of lse and out, and of dq, dk, dv and gradients of captures unless there are only two."""
        for place, x in enumerate((*results[:2], *directions)):
            self.moving.addresses[place] = x.data_ptr()
        outputs = self.backward_outputs
        outputs.dq, outputs.dk, outputs.dv = self.gradients_at if results[2:] else (None, None, None)
        self.backward(launch, q, k, v, tensors, out, lse, dout, dlse, results[2:])


@functools.lru_cache(maxsize=1024)
def _float_numbers(text):
    return {f"{capture.name}_tangent": 0.0 for capture in mod_of(text).captures if capture.kind == "float"}


def _tangents_of(launch, names, gradients, primals, out, lse, dout, dlse, directions):
    """Returns the tangents of out and lse, and of gradients of q, k, v and of the captures named in `gradients`, unless
    that is None. `primals` and `directions`: q, k, v and captured tensors. A direction may be None: 0."""
    (q, k, v, *captured), dense = primals, lambda x, like: torch.zeros_like(like) if x is None else torch.empty_like(like).copy_(x)
    of_operands = [dense(x, like) for x, like in zip(directions, (q, k, v))]
    tensors = dict(zip(names, captured))
    for name, direction, like in zip(names, directions[3:], captured):
        if like.is_floating_point():
            tensors[f"{name}_tangent"] = torch.zeros_like(like) if direction is None else direction.to(like.dtype)
    launch = dataclasses.replace(
        launch, gradients=gradients or (), out=out, numbers={**launch.numbers, **_float_numbers(launch.mod)}, wants_max=False
    )
    kind = TangentCall, kind_of(launch, q, k, v, tensors)
    if (call := found_call(kind)) is None:
        bind_context(q.device)
        call = made_call(kind, TangentCall, launch, q, k, v, tensors)
    results = [torch.empty_like(lse), torch.empty_like(out)]
    if gradients is not None:
        results += [torch.empty_like(x) for x in (q, k, v, *[tensors[name] for name in gradients])]
    dout = torch.zeros_like(out) if dout is None else torch.empty_like(out).copy_(dout)
    dlse = None if dlse is None else dlse.contiguous()
    call.tangents(launch, q, k, v, tensors.values(), out, lse, dout, dlse, of_operands, results)
    t_lse, t_out, *of_gradients = results
    return t_out, t_lse, of_gradients


def _check(launch):
    if launch.fp8:
        raise NotImplementedError(f"fp8={launch.fp8!r} has no second derivatives: leave fp8 out")


def _all_or_none(found, gradients, names):
    """Returns gradients of q, k, v and of all captures, from those of the wanted captures."""
    dq, dk, dv, *others = found
    of_captures = dict(zip(gradients, others))
    return dq, dk, dv, *map(of_captures.get, names)


def gradients_of(launch, names, dout, dlse, out, lse, *primals):
    """Returns gradients of q, k, v and of all captures, those that `gradients` of the launch do not name as None, which can
    be differentiated."""
    dout = torch.zeros_like(out) if dout is None else dout
    found = Gradients.apply(launch, names, launch.gradients, dout, dlse, out, lse, *primals)
    return _all_or_none(found, launch.gradients, names)


def _by_loop(function):
    """A rule of vmap: one call after the other, so that mods see the b of each."""

    def rule(info, in_dims, *arguments):
        each = []
        for i in range(info.batch_size):
            given = [x.select(dim, i) if isinstance(dim, int) else x for x, dim in zip(arguments, in_dims)]
            each.append(function.apply(*given))
        results = [None if x[0] is None else torch.stack(x) for x in zip(*each)]
        return tuple(results), tuple(None if x is None else 0 for x in results)

    return staticmethod(rule)


class _Function(torch.autograd.Function):
    """A function of (launch, names, gradients, tensors): `names` of captured tensors, `gradients` of those that want one."""

    def __init_subclass__(cls):
        cls.vmap = _by_loop(cls)

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        ctx.how, tensors = inputs[:3], inputs[3:]
        kept = [*tensors, *(output if cls.keeps_output else ())]
        ctx.count = len(tensors)
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)
        ctx.set_materialize_grads(False)


class Attention(_Function):
    """(out, lse) of q, k, v and captured tensors."""

    keeps_output = True

    @staticmethod
    def forward(launch, names, gradients, q, k, v, *captured):
        launch = dataclasses.replace(launch, gradients=None, wants_max=False)
        call = call_of(launch, q, k, v, dict(zip(names, captured)))
        out, lse, _ = call.outcome(q, v)
        call.forward(launch, q, k, v, captured, out, lse, None)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        (launch, names, _), (*primals, out, lse) = ctx.how, ctx.saved_tensors
        wanted = tuple([name for name, needed in zip(names, ctx.needs_input_grad[6:]) if needed])
        launch = dataclasses.replace(launch, gradients=wanted)
        return None, None, None, *gradients_of(launch, names, dout, dlse, out, lse, *primals)

    @staticmethod
    def jvp(ctx, _, __, ___, *directions):
        (launch, names, _), (*primals, out, lse) = ctx.how, ctx.saved_tensors
        return Tangents.apply(launch, names, (), out, lse, *primals, *_filled(directions, primals))


class Gradients(_Function):
    """Gradients of q, k, v and of the captures named in `gradients`, for those of out and lse (None: 0)."""

    keeps_output = False

    @staticmethod
    def forward(launch, names, gradients, dout, dlse, out, lse, q, k, v, *captured):
        launch = dataclasses.replace(launch, gradients=gradients, wants_max=False)
        captures = dict(zip(names, captured))
        call = call_of(launch, q, k, v, captures)
        results, found = run_backward(call, launch, q, k, v, captures, out, lse, dout, dlse)
        return *results, *found.values()

    @staticmethod
    def backward(ctx, *w):
        (launch, names, gradients), (dout, dlse, out, lse, *primals) = ctx.how, ctx.saved_tensors
        directions = [*w[:3], *map(dict(zip(gradients, w[3:])).get, names)]
        t_out, t_lse, *found = SecondTangents.apply(
            launch, names, gradients, dout, dlse, out, lse, *primals, *_filled(directions, primals)
        )
        return None, None, None, t_out, None if dlse is None else t_lse, None, None, *_all_or_none(found, gradients, names)

    @staticmethod
    def jvp(ctx, _, __, ___, t_dout, t_dlse, ____, _____, *directions):
        (launch, names, gradients), (dout, dlse, out, lse, *primals) = ctx.how, ctx.saved_tensors
        along = SecondTangents.apply(
            launch, names, gradients, dout, dlse, out, lse, *primals, *_filled(directions, primals)
        )[2:]
        if t_dout is None and t_dlse is None:
            return along
        t_dout = torch.zeros_like(out) if t_dout is None else t_dout
        return tuple(map(torch.add, along, Gradients.apply(launch, names, gradients, t_dout, t_dlse, out, lse, *primals)))


class Tangents(_Function):
    """Tangents of (out, lse). Tensors: out, lse, primals, directions."""

    keeps_output = False

    @staticmethod
    def forward(launch, names, gradients, out, lse, *tensors):
        _check(launch)
        primals, directions = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
        return _tangents_of(launch, names, None, primals, out, lse, None, None, directions)[:2]

    @staticmethod
    def backward(ctx, dout, dlse):
        (launch, names, _), (out, lse, *tensors) = ctx.how, ctx.saved_tensors
        primals, directions = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
        wanted = tuple(name for name, x in zip(names, primals[3:]) if x.is_floating_point())
        dout = torch.zeros_like(out) if dout is None else dout
        of_directions = gradients_of(dataclasses.replace(launch, gradients=wanted), names, dout, dlse, out, lse, *primals)
        _, _, *found = SecondTangents.apply(launch, names, wanted, dout, dlse, out, lse, *primals, *directions)
        return None, None, None, None, None, *_all_or_none(found, wanted, names), *of_directions


class SecondTangents(_Function):
    """Tangents of (out, lse) and of Gradients. Tensors: dout, dlse, out, lse, primals, directions."""

    keeps_output = False

    @staticmethod
    def forward(launch, names, gradients, dout, dlse, out, lse, *tensors):
        _check(launch)
        primals, directions = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
        t_out, t_lse, found = _tangents_of(launch, names, gradients, primals, out, lse, dout, dlse, directions)
        return t_out, t_lse, *found

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(
            "attnc has no third derivatives of attention: use torch.nn.functional.scaled_dot_product_attention there, under "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH), with what the mods do as attn_mask"
        )


def _filled(directions, primals):
    return [torch.zeros_like(x) if y is None else y for x, y in zip(primals, directions)]
