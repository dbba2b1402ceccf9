"""Derivatives of attention. Its functions close under differentiation, up to second order; with J the derivative by q, k,
v and captured arrays:

  attention            out, lse, outputs of the mod
  attention_backward   g = J^T (dout, dlse)
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
from .calls import attention_backward_p, attention_p, backward_tangents_p, f32_like, rows_that_move, tangents_p

# How tangents move: operands of tangents_p, then what its primal operands move along. It has only a transpose.
curvature_p = Primitive("attnc_curvature")
curvature_p.multiple_results = True


# How outputs of a mod move: operands are the directions that move them, `shapes` those of the outputs. It is staged, and
# refused unless nobody reads it.
output_tangents_p = Primitive("attnc_output_tangents")
output_tangents_p.multiple_results = True


@output_tangents_p.def_abstract_eval
def _(*directions, shapes):
    return f32_like(directions[0], *shapes)


@output_tangents_p.def_impl
def _refuse_outputs(*_, **__):
    raise NotImplementedError(
        "outputs of a mod have no gradients and no tangents: apply jax.lax.stop_gradient to them, and jax.jit to what calls "
        "jax.jvp"
    )


@curvature_p.def_abstract_eval
def _(q, k, v, out, lse, *others, mods, scale, moved, along):
    return [ShapedArray(x.shape, x.dtype, sharding=x.sharding, manual_axis_type=x.manual_axis_type) for x in (out, lse)]


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
    primitive, count = backward_tangents_p if "wanted" in params else tangents_p, rows_that_move(moved)
    return primitive.bind(*rows, *directions[:count], *captured, *directions[count:], moved=moved, **params)


def _gradients(rows, dout, dlse, captured, **params):
    """Returns attention_backward, for gradients of which either may be zero."""
    dout = ad.instantiate_zeros(dout)
    given = [] if _is_zero(dlse) else [dlse]
    return attention_backward_p.bind(*rows, dout, *given, *captured, has_dlse=not _is_zero(dlse), **params)


def _attention_jvp(primals, tangents, *, mods, scale):
    q, k, v, *captured = primals
    results = out, lse, *reduced = attention_p.bind(*primals, mods=mods, scale=scale)
    of_reduced = _zeros(*reduced)
    along = [tangents[place] for place in (0, 1, *(3 + place for place in mods.floats(captured))) if not _is_zero(tangents[place])]
    if along and reduced:
        of_reduced = output_tangents_p.bind(*along, shapes=tuple(x.shape for x in reduced))
    mods = mods.without_outputs()
    moved, directions = _moving(mods, tangents, captured)
    if not moved:
        return results, [*_zeros(out, lse), *of_reduced]
    found = _tangents((q, k, v, out, lse), captured, moved, directions, mods=mods, scale=scale)
    return results, [*found, *of_reduced]


def _output_tangents_jvp(primals, tangents, *, shapes):
    results, along = output_tangents_p.bind(*primals, shapes=shapes), [x for x in tangents if not _is_zero(x)]
    return results, output_tangents_p.bind(*along, shapes=shapes) if along else _zeros(*results)


def _output_tangents_transpose(cotangents, *directions, shapes):
    if not all(map(_is_zero, cotangents)):
        _refuse_outputs()
    return [None] * len(directions)


def _output_tangents_batched(args, axes, *, shapes):
    count, along = next((x.shape[axis], jnp.moveaxis(x, axis, 0)) for x, axis in zip(args, axes) if axis is not None)
    return output_tangents_p.bind(along, shapes=tuple((count, *shape) for shape in shapes)), [0] * len(shapes)


def _parts(operands, moved, first):
    """Returns (rows, directions, captured arrays) of operands with `first` rows before the directions."""
    last, middle = len(operands) - len(moved) + rows_that_move(moved), first + rows_that_move(moved)
    return operands[:first], [*operands[first:middle], *operands[last:]], operands[middle:last]


def _ordered(rows, directions, captured, moved):
    count = rows_that_move(moved)
    return [*rows, *directions[:count], *captured, *directions[count:]]


def _backward_jvp(primals, tangents, *, mods, scale, has_dlse, wanted):
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
        terms.append(_gradients(rows[:5], t_dout, t_dlse, captured, **params))
    if not terms:
        return results, _zeros(*results)
    return results, terms[0] if len(terms) == 1 else [x + y for x, y in zip(*terms)]


def _backward_transpose(cotangents, *operands, mods, scale, has_dlse, wanted):
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
    rows, directions, captured = _parts(primals, moved, 5)
    of_rows, of_directions, of_captured = _parts(tangents, moved, 5)
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
    rows, directions, captured = _parts(operands, moved, 5)
    linear = [place for place, x in zip(moved, directions) if ad.is_undefined_primal(x)]
    wanted = _captured_among(moved, linear)
    if all(map(_is_zero, cotangents)):
        return [None] * len(operands)
    found = _by_place(_gradients(rows, *cotangents, captured, mods=mods, scale=scale, wanted=wanted), wanted)
    return _ordered([None] * 5, [found[place] if place in linear else None for place in moved], [None] * len(captured), moved)


def _curvature_transpose(cotangents, *operands, mods, scale, moved, along):
    operands, second = operands[: len(operands) - len(along)], operands[len(operands) - len(along) :]
    if any(map(ad.is_undefined_primal, operands)):
        _refuse()
    linear = [place for place, x in zip(along, second) if ad.is_undefined_primal(x)]
    if all(map(_is_zero, cotangents)):
        return [None] * (len(operands) + len(along))
    rows, directions, captured = _parts(operands, moved, 5)
    dout, dlse = ad.instantiate_zeros(cotangents[0]), cotangents[1]
    wanted = _captured_among(along, linear)
    found = _tangents(
        (*rows, dout, *([] if _is_zero(dlse) else [dlse])), captured, moved, directions, mods=mods, scale=scale,
        has_dlse=not _is_zero(dlse), wanted=wanted,
    )  # fmt: skip
    found = _by_place(found[2:], wanted)
    return [None] * len(operands) + [found[place] if place in linear else None for place in along]


def _backward_tangents_jvp(primals, tangents, *, mods, scale, has_dlse, wanted, moved):
    first = 6 + has_dlse
    rows, directions, captured = _parts(primals, moved, first)
    of_rows, of_directions, of_captured = _parts(tangents, moved, first)
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
    rows, directions, captured = _parts(operands, moved, first)
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
    return _ordered([None] * first, [found[place] if place in linear else None for place in moved], [None] * len(captured), moved)


for _primitive, _jvp, _transpose in (
    (attention_p, _attention_jvp, None), (attention_backward_p, _backward_jvp, _backward_transpose),
    (tangents_p, _tangents_jvp, _tangents_transpose), (curvature_p, _refuse, _curvature_transpose),
    (backward_tangents_p, _backward_tangents_jvp, _backward_tangents_transpose),
    (output_tangents_p, _output_tangents_jvp, _output_tangents_transpose),
):  # fmt: skip
    ad.primitive_jvps[_primitive] = _jvp
    if _transpose is not None:
        ad.primitive_transposes[_primitive] = _transpose
mlir.register_lowering(curvature_p, _refuse)
mlir.register_lowering(output_tangents_p, _refuse_outputs)
batching.primitive_batchers[output_tangents_p] = _output_tangents_batched


def attention(mods, scale, q, k, v, *captured):
    """Returns out, lse and the outputs of the mods, with derivatives."""
    return attention_p.bind(q, k, v, *captured, mods=mods, scale=scale)
