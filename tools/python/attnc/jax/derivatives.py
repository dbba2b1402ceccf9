"""Derivatives of attention. Its functions close under differentiation, up to second order; with J the derivative by q, k,
v and captured arrays:

  attention            out, lse, outputs of the mod
  attention_backward   g = J^T (dout, dlse, gradients of sums)
  tangents             J t
  backward_tangents    J t, and how g moves along t

The transpose of J is J^T. How g moves along t is symmetric: its transpose by t is how g moves along w. Where tangents
move with q, k, v and captured arrays, their transpose is how g moves along t, for w in the place of dout and dlse.
"""

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..prob_mods import read_by_prob
from .calls import (
    attention_backward_p, attention_p, backward_tangents_p, f32_like, ordered, outputs_of, parts, sums_of, tangents_p,
    without_outputs,
)  # fmt: skip

# How tangents move: operands of tangents_p, then what its primal operands move along. It has only a transpose.
curvature_p = Primitive("attnc_curvature")
curvature_p.multiple_results = True


# How an output of a mod moves: what stands for it among the results of tangents_p. It has only a transpose, which maxima
# refuse.
output_tangent_p = Primitive("attnc_output_tangent")


@output_tangent_p.def_abstract_eval
def _(moving, *, is_sum):
    return moving


@output_tangent_p.def_impl
def _refuse_tangent(*_, **__):
    raise NotImplementedError(
        "outputs of a mod have gradients and no tangents: apply jax.lax.stop_gradient to them, and jax.jit to what calls jax.jvp"
    )


def _output_tangent_transpose(cotangent, _, *, is_sum):
    if _is_zero(cotangent) or is_sum:
        return [cotangent]
    raise NotImplementedError(
        "a maximum has no gradient: take the loss of a sum, or apply jax.lax.stop_gradient to the output"
    )


def _refuse_second():
    raise NotImplementedError(
        "gradients of outputs of a mod are not differentiated again: apply jax.lax.stop_gradient to the outputs where second "
        "derivatives are taken"
    )


@curvature_p.def_abstract_eval
def _(q, k, v, out, lse, *others, mods, scale, moved, along):
    results = [ShapedArray(x.shape, x.dtype, sharding=x.sharding, manual_axis_type=x.manual_axis_type) for x in (out, lse)]
    return [*results, *f32_like(q, *outputs_of(mods).values())]


@curvature_p.def_impl
def _refuse(*_, **__):
    raise NotImplementedError(
        "attnc has no third derivatives and no tangents of tangents of attention: for second derivatives take jax.jvp of "
        "jax.grad or jax.grad of jax.jvp; for others jax.nn.dot_product_attention, with what the mods do as bias"
    )


def _is_zero(tangent):
    return type(tangent) is ad.Zero


def _moving(mods, tangents, captured):
    """Returns (places, directions) of those of q, k, v and captured arrays that move."""
    floats = [0, 1, 2, *(3 + place for place in mods.floats(captured))]
    moved = tuple(place for place in floats if not _is_zero(tangents[place]))
    names = dict(zip(mods.places, mods.names))
    for place in moved:
        if place >= 3 and names[place - 3] in read_by_prob(mods.text):
            raise NotImplementedError(
                f"{names[place - 3]} has no gradient and no tangent: prob_mod reads it. Use jax.lax.stop_gradient"
            )
    return moved, [tangents[place] for place in moved]


def _zeros(*arrays):
    return [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in arrays]


def _tangents(rows, captured, moved, directions, **params):
    """Returns the results of tangents_p, or of backward_tangents_p if `params` have what it takes."""
    primitive = backward_tangents_p if "wanted" in params else tangents_p
    return primitive.bind(*ordered(rows, directions, captured, moved), moved=moved, **params)


def _gradients(rows, dout, dlse, of_outputs, captured, *, mods, **params):
    """Returns attention_backward, for gradients of which any may be zero. Those of maxima are."""
    of_sums = of_outputs[len(of_outputs) - len(sums_of(mods)) :]
    given = map(ad.instantiate_zeros, (dout, *([] if _is_zero(dlse) else [dlse]), *of_sums))
    return attention_backward_p.bind(*rows, *given, *captured, mods=mods, has_dlse=not _is_zero(dlse), **params)


def _attention_jvp(primals, tangents, *, mods, scale):
    q, k, v, *captured = primals
    results = out, lse, *reduced = attention_p.bind(*primals, mods=mods, scale=scale)
    moved, directions = _moving(mods, tangents, captured)
    if moved == (2,):
        mods, moved, directions = without_outputs(mods, moved, directions)  # which do not depend on v
    if not moved:
        return results, _zeros(*results)
    t_out, t_lse, *links = _tangents((q, k, v, out, lse), captured, moved, directions, mods=mods, scale=scale)
    sums = sums_of(mods)
    of_reduced = [output_tangent_p.bind(link, is_sum=name in sums) for name, link in zip(outputs_of(mods), links)]
    return results, [t_out, t_lse, *(of_reduced or _zeros(*reduced))]


def _backward_jvp(primals, tangents, *, mods, scale, has_dlse, wanted):
    if outputs_of(mods):
        _refuse_second()
    first = 6 + has_dlse
    rows, captured = primals[:first], primals[first:]
    params = {"mods": mods, "scale": scale, "wanted": wanted}
    results = attention_backward_p.bind(*primals, has_dlse=has_dlse, **params)
    moved, directions = _moving(mods, (*tangents[:3], *tangents[first:]), captured)
    t_dout, t_dlse = tangents[5], tangents[6] if has_dlse else _zeros(primals[4])[0]
    terms = []
    if moved:
        terms.append(_tangents(rows, captured, moved, directions, has_dlse=has_dlse, **params)[2:])
    if not (_is_zero(t_dout) and _is_zero(t_dlse)):
        terms.append(_gradients(rows[:5], t_dout, t_dlse, (), captured, **params))
    if not terms:
        return results, _zeros(*results)
    return results, terms[0] if len(terms) == 1 else [x + y for x, y in zip(*terms)]


def _backward_transpose(cotangents, *operands, mods, scale, has_dlse, wanted):
    if outputs_of(mods):
        _refuse_second()
    first = 6 + has_dlse
    rows, captured, found = operands[:5], operands[first:], [None] * len(operands)
    of_operands = [*cotangents[:3], *_zeros(*captured)]
    for place, x in zip(wanted, cotangents[3:]):
        of_operands[3 + place] = x
    moved, directions = _moving(mods, of_operands, captured)
    if moved:
        along = _tangents(rows, captured, moved, directions, mods=mods, scale=scale)
        for place, x in zip((5, 6), along):
            if place < first and ad.is_undefined_primal(operands[place]):
                found[place] = x
    return found


def _tangents_jvp(primals, tangents, *, mods, scale, moved):
    params = {"mods": mods, "scale": scale}
    rows, directions, captured = parts(primals, moved, 5)
    of_rows, of_directions, of_captured = parts(tangents, moved, 5)
    results, terms = tangents_p.bind(*primals, moved=moved, **params), []
    again = tuple(place for place, x in zip(moved, of_directions) if not _is_zero(x))
    if again:
        terms.append(_tangents(rows, captured, again, [x for x in of_directions if not _is_zero(x)], **params))
    along, second = _moving(mods, (*of_rows[:3], *of_captured), captured)
    if along:
        terms.append(curvature_p.bind(*primals, *second, moved=moved, along=along, **params))
    if not terms:
        return results, _zeros(*results)
    return results, terms[0] if len(terms) == 1 else [x + y for x, y in zip(*terms)]


def _captured_among(moved, wanted):
    return tuple(place - 3 for place in moved if place >= 3 and place in wanted)


def _by_place(found, wanted):
    """Returns gradients by place of q, k, v and captured arrays, of the results of a backward pass."""
    return dict(enumerate(found[:3])) | {3 + place: x for place, x in zip(wanted, found[3:])}


def _tangents_transpose(cotangents, *operands, mods, scale, moved):
    rows, directions, captured = parts(operands, moved, 5)
    linear = [place for place, x in zip(moved, directions) if ad.is_undefined_primal(x)]
    if all(map(_is_zero, cotangents)):
        return [None] * len(operands)
    (dout, dlse, *of_outputs), reads = cotangents, moved
    if all(map(_is_zero, of_outputs)):
        mods, reads, _ = without_outputs(mods, moved, directions)
    wanted = _captured_among(reads, linear)
    found = _by_place(_gradients(rows, dout, dlse, of_outputs, captured, mods=mods, scale=scale, wanted=wanted), wanted)
    return ordered([None] * 5, [found.get(place) if place in linear else None for place in moved], [None] * len(captured), moved)


def _curvature_transpose(cotangents, *operands, mods, scale, moved, along):
    operands, second = operands[: len(operands) - len(along)], operands[len(operands) - len(along) :]
    if any(map(ad.is_undefined_primal, operands)):
        _refuse()
    linear = [place for place, x in zip(along, second) if ad.is_undefined_primal(x)]
    if all(map(_is_zero, cotangents)):
        return [None] * (len(operands) + len(along))
    if not all(map(_is_zero, cotangents[2:])):
        _refuse_second()
    rows, directions, captured = parts(operands, moved, 5)
    reads = without_outputs(mods, along, second)[1]
    mods, moved, directions = without_outputs(mods, moved, directions)
    dout, dlse = ad.instantiate_zeros(cotangents[0]), cotangents[1]
    wanted = _captured_among(reads, linear)
    found = _tangents(
        (*rows, dout, *([] if _is_zero(dlse) else [dlse])), captured, moved, directions, mods=mods, scale=scale,
        has_dlse=not _is_zero(dlse), wanted=wanted,
    )  # fmt: skip
    found = _by_place(found[2:], wanted)
    return [None] * len(operands) + [found.get(place) if place in linear else None for place in along]


def _backward_tangents_jvp(primals, tangents, *, mods, scale, has_dlse, wanted, moved):
    first = 6 + has_dlse
    rows, directions, captured = parts(primals, moved, first)
    of_rows, of_directions, of_captured = parts(tangents, moved, first)
    params = {"mods": mods, "scale": scale, "wanted": wanted}
    results = backward_tangents_p.bind(*primals, has_dlse=has_dlse, moved=moved, **params)
    along, _ = _moving(mods, (*of_rows[:3], *of_captured), captured)
    if along or not all(map(_is_zero, of_rows[5:])):
        _refuse()
    again = tuple(place for place, x in zip(moved, of_directions) if not _is_zero(x))
    if not again:
        return results, _zeros(*results)
    given = [x for x in of_directions if not _is_zero(x)]
    return results, _tangents(rows, captured, again, given, has_dlse=has_dlse, **params)


def _backward_tangents_transpose(cotangents, *operands, mods, scale, has_dlse, wanted, moved):
    first = 6 + has_dlse
    rows, directions, captured = parts(operands, moved, first)
    linear = [place for place, x in zip(moved, directions) if ad.is_undefined_primal(x)]
    if not all(map(_is_zero, cotangents[:2])) or any(map(ad.is_undefined_primal, rows)):
        _refuse()
    of_operands = [*cotangents[2:5], *_zeros(*captured)]
    for place, x in zip(wanted, cotangents[5:]):
        of_operands[3 + place] = x
    along, given = _moving(mods, of_operands, captured)
    if not along:
        return [None] * len(operands)
    wanted = _captured_among(moved, linear)
    found = _tangents(rows, captured, along, given, mods=mods, scale=scale, has_dlse=has_dlse, wanted=wanted)
    found = _by_place(found[2:], wanted)
    return ordered([None] * first, [found[place] if place in linear else None for place in moved], [None] * len(captured), moved)


for _primitive, _jvp, _transpose in (
    (attention_p, _attention_jvp, None), (attention_backward_p, _backward_jvp, _backward_transpose),
    (tangents_p, _tangents_jvp, _tangents_transpose), (curvature_p, _refuse, _curvature_transpose),
    (backward_tangents_p, _backward_tangents_jvp, _backward_tangents_transpose),
):  # fmt: skip
    ad.primitive_jvps[_primitive] = _jvp
    if _transpose is not None:
        ad.primitive_transposes[_primitive] = _transpose
ad.deflinear2(output_tangent_p, _output_tangent_transpose)
mlir.register_lowering(curvature_p, _refuse)
mlir.register_lowering(output_tangent_p, _refuse_tangent)
batching.defvectorized(output_tangent_p)


def attention(mods, scale, q, k, v, *captured):
    """Returns out, lse and the outputs of the mods, with derivatives."""
    return attention_p.bind(q, k, v, *captured, mods=mods, scale=scale)
