"""Attention as primitives of JAX: how they are batched, and lowered to custom calls of XLA (attnc/c/xla.h)."""

import ctypes
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .. import _spec as c
from .._arrays import DTYPE_NAMES
from .._cpu_notice import tell_of_cpu
from .._ir_text import DIMS
from .._library import check, compiler, library
from ..launch import Launch
from ..mod import SOME_ADDRESS, Mod, _dense

# Operands: q, k, v and captured arrays. Results: out, lse, outputs of the mod. Parameters: `mods`, `scale`.
attention_p = Primitive("attnc_attention")
# Operands: q, k, v, out, lse, dout, dlse if `has_dlse`, gradients of the sums among the outputs of `mods`, captured arrays.
# Results: dq, dk, dv, and gradients of the captured arrays at the places `wanted`.
attention_backward_p = Primitive("attnc_attention_backward")
# Operands: q, k, v, out, lse, directions of those of q, k and v that move, captured arrays, directions of those of
# them that move. Results: tangents of out and lse, and what stands for those of outputs of the mod: 0, which only transposes read.
# `moved`: places of what moves, in the order of q, k, v and captured arrays.
tangents_p = Primitive("attnc_attention_tangents")
# Operands: those of attention_backward_p before the captured arrays, then as of tangents_p. Results: tangents of out,
# lse, and of the results of attention_backward_p. Mods have no outputs.
backward_tangents_p = Primitive("attnc_attention_backward_tangents")
_OPERANDS = {attention_p: 3, attention_backward_p: 6, tangents_p: 5, backward_tangents_p: 6}  # before dlse and what follows


@functools.lru_cache(maxsize=1024)
def mod_of(text):
    """Returns the mod of IR text."""
    return Mod.parse_ir(text, name="<jax>")


def outputs_of(mods):
    """Returns the shapes of the outputs of mods, by their names."""
    lengths = dict(zip(DIMS, mods.problem))
    return {output.name: tuple(lengths[name] for name in output.extents) for output in mod_of(mods.text).outputs}


def sums_of(mods):
    """Returns the names of the sums among the outputs of mods. Maxima come before them."""
    return [output.name for output in mod_of(mods.text).outputs if output.is_sum]


def rows_before(primitive, mods, has_dlse=False):
    """Returns how many operands come before directions and captured arrays."""
    return _OPERANDS[primitive] + has_dlse + (len(sums_of(mods)) if primitive is attention_backward_p else 0)


# ---- Types ------------------------------------------------------------------------------------------------------


def f32_like(like, *shapes):
    """Returns the types of results of these shapes, next to an operand."""
    return [_result(like, shape, np.dtype("float32")) for shape in shapes]


def _result(like, shape, dtype):
    sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*[None] * len(shape)))
    return ShapedArray(shape, dtype, sharding=sharding, manual_axis_type=like.manual_axis_type)


@attention_p.def_abstract_eval
def _(q, k, v, *captured, mods, scale):
    return [_result(q, (*q.shape[:3], v.shape[3]), q.dtype), *f32_like(q, q.shape[:3], *outputs_of(mods).values())]


@attention_backward_p.def_abstract_eval
def _(*operands, mods, scale, has_dlse, wanted):
    captured = operands[rows_before(attention_backward_p, mods, has_dlse) :]
    return [_result(x, x.shape, x.dtype) for x in (*operands[:3], *(captured[place] for place in wanted))]


@tangents_p.def_abstract_eval
def _(q, k, v, out, lse, *others, mods, scale, moved):
    return [*(_result(x, x.shape, x.dtype) for x in (out, lse)), *f32_like(q, *outputs_of(mods).values())]


@backward_tangents_p.def_abstract_eval
def _(q, k, v, out, lse, dout, *others, mods, scale, has_dlse, wanted, moved):
    captured = others[has_dlse + rows_that_move(moved) :]
    return [_result(x, x.shape, x.dtype) for x in (out, lse, q, k, v, *(captured[place] for place in wanted))]


def rows_that_move(moved):
    """Returns how many of q, k and v move."""
    return sum(place < 3 for place in moved)


def parts(operands, moved, first):
    """Returns (rows, directions, captured arrays) of operands with `first` rows before the directions."""
    last, middle = len(operands) - len(moved) + rows_that_move(moved), first + rows_that_move(moved)
    return operands[:first], [*operands[first:middle], *operands[last:]], operands[middle:last]


def ordered(rows, directions, captured, moved):
    """Returns the operands of which these are parts()."""
    count = rows_that_move(moved)
    return [*rows, *directions[:count], *captured, *directions[count:]]


def without_outputs(mods, moved, directions):
    """Returns (mods, moved, directions) of the attention without outputs."""
    if not outputs_of(mods):
        return mods, moved, directions
    mods = mods.without_outputs
    kept = {place: x for place, x in zip(moved, directions) if place < 3 or place - 3 in mods.places}
    return mods, tuple(kept), [*kept.values()]


@functools.lru_cache(maxsize=1024)
def _compiled(primitive, params):
    return jax.jit(functools.partial(primitive.bind, **dict(params)))


def _run(primitive, *args, **params):
    return _compiled(primitive, tuple(params.items()))(*args)


# ---- vmap -------------------------------------------------------------------------------------------------------


def _batched(primitive, args, axes, *, mods, **params):
    """Merges the new axis with the batch. Mods see the batch entry within it, and read their part of captured arrays."""
    count = next(x.shape[axis] for x, axis in zip(args, axes) if axis is not None)
    wanted, moved = params.get("wanted", ()), params.get("moved", ())
    first = rows_before(primitive, mods, params.get("has_dlse", False)) + rows_that_move(moved)
    moved, last = [place - 3 for place in moved if place >= 3], len(args)
    last -= len(moved)

    def at_front(x, axis):
        return jnp.broadcast_to(x, (count, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)

    operands = [lax.collapse(at_front(x, axis), 0, 2) for x, axis in zip(args[:first], axes)]
    captured, is_batched = [], []
    with_batch = {*wanted}  # gradients differ between entries
    with_batch.update(place for place, axis in zip(moved, axes[last:]) if axis is not None)
    for place, (x, axis) in enumerate(zip(args[first:last], axes[first:last])):
        is_batched.append(axis is not None or place in with_batch)
        captured.append(at_front(x, axis) if is_batched[-1] else x)
    mods = mods.batched(count, is_batched, [jax.typeof(x) for x in captured])
    for place, x, axis in zip(moved, args[last:], axes[last:]):
        captured.append(at_front(x, axis) if is_batched[place] else x)
    results = primitive.bind(*operands, *captured, mods=mods, **params)
    plain = len(results) - len(wanted)
    split = [x.reshape(count, x.shape[0] // count, *x.shape[1:]) for x in results[:plain]]
    return [*split, *results[plain:]], [0] * len(results)


# ---- Custom calls -----------------------------------------------------------------------------------------------


@functools.cache
def _register():
    """Registers attnc's handlers with XLA."""
    library().attnc_xla_set_compiler(compiler().address)
    on_cpu, on_cuda = (
        jax.ffi.pycapsule(getattr(library(), f"attnc_xla_attention_on_{platform}")) for platform in ("cpu", "cuda")
    )
    for primitive in _OPERANDS:
        jax.ffi.register_ffi_target(primitive.name, {"execute": on_cpu}, platform="cpu")
        jax.ffi.register_ffi_target(primitive.name, {"initialize": on_cuda, "execute": on_cuda}, platform="CUDA")


def _with_all_directions(primitive, moved, *operands, **params):
    """Binds the primitive with zeros as directions of what does not move."""
    rows, directions, captured = parts(operands, moved, rows_before(primitive, params["mods"], params.get("has_dlse", False)))
    given, primals = dict(zip(moved, directions)), (*rows[:3], *captured)
    every = 0, 1, 2, *(3 + place for place in params["mods"].floats(captured))
    directions = [given[place] if place in given else jnp.zeros_like(primals[place]) for place in every]
    return primitive.bind(*ordered(rows, directions, captured, every), moved=every, **params)


def _with_no_outputs(moved, *operands, mods, scale):
    """Binds tangents_p of the attention without outputs, with zeros for what stands for theirs."""
    rows, directions, captured = parts(operands, moved, _OPERANDS[tangents_p])
    alone, moved, directions = without_outputs(mods, moved, directions)
    found = map(jnp.zeros_like, rows[3:])
    if moved:
        found = tangents_p.bind(*ordered(rows, directions, captured, moved), mods=alone, scale=scale, moved=moved)
    return [*found, *(jnp.zeros(shape, jnp.float32) for shape in outputs_of(mods).values())]


def _lowered(primitive, platform, ctx, *operands, mods, scale, has_dlse=False, wanted=None, moved=None):
    _register()
    captures, first = [*mods.names], rows_before(primitive, mods, has_dlse)
    if primitive is attention_backward_p:
        captures = [*(f"{name}_gradient" for name in sums_of(mods)), *captures]
    if primitive is tangents_p and outputs_of(mods):
        return mlir.lower_fun(functools.partial(_with_no_outputs, moved, mods=mods, scale=scale))(ctx, *operands)
    if moved is not None:
        count = len(ctx.avals_in) - sum(place >= 3 for place in moved)
        floats = mods.floats(ctx.avals_in[first + rows_that_move(moved) : count])
        if len(moved) < 3 + len(floats):
            params = {"mods": mods, "scale": scale} | ({} if wanted is None else {"has_dlse": has_dlse, "wanted": wanted})
            return mlir.lower_fun(functools.partial(_with_all_directions, primitive, moved, **params))(ctx, *operands)
    names, chosen = dict(zip(mods.places, mods.names)), [*range(first)]
    if primitive is tangents_p:
        chosen.append(3)  # no gradient is wanted, so any dout will do
    first += 0 if moved is None else 3
    chosen += [*range(first - 3, first)] if moved is not None else []
    chosen += [first + place for place in mods.places]
    if moved is not None:
        chosen += range(count, len(operands))
        captures += [f"{names[place]}_tangent" for place in floats]
    avals, results = [ctx.avals_in[at] for at in chosen], list(ctx.avals_out)
    reduced = outputs_of(mods) if primitive is attention_p else {}
    gradients = None if wanted is None else [names[place] for place in wanted]
    if platform == "cuda":
        size = _workspace_bytes(mods, captures, avals, gradients, has_dlse, moved is not None, reduced, _arch(ctx))
        if size:
            results.append(ShapedArray((size,), np.dtype("uint8")))
    else:
        tell_of_cpu(avals[0], avals[2], *jax.__path__)
    attributes = {"mod": mods.text, "captures": _joined(captures), "scale": np.float32(scale)}
    if moved is not None:
        attributes["tangents"] = ""
    if reduced:
        attributes["outputs"] = _joined(reduced)
    if gradients is not None:
        attributes["gradients"] = _joined(gradients)
    rule = jax.ffi.ffi_lowering(primitive.name)
    found = rule(ctx.replace(avals_in=avals, avals_out=results), *[operands[at] for at in chosen], **attributes)
    return list(found)[: len(ctx.avals_out)]


def _joined(names):
    return "".join(f"{name} " for name in names)


def _arch(ctx):
    """Returns the architecture of the GPUs that a program is compiled for."""
    backend = ctx.module_context.get_backend(optional=True)
    devices = backend.devices() if backend is not None and backend.platform != "cpu" else jax.devices("cuda")
    number = devices[0].compute_capability.replace(".", "")
    return f"sm_{number}a" if int(number) >= 90 else f"sm_{number}"


def _workspace_bytes(mods, names, avals, gradients, has_dlse, has_tangents, reduced, arch):
    """Returns the bytes of workspace of a pass with captures of these names. It is a forward pass if `gradients`, names
    of captures, is None and it has no tangents. `reduced`: shapes of the outputs that it writes, by name."""
    q, _, v, *others = avals
    captures = (c.Capture * len(names))(*(c.Capture(name=name.encode()) for name in names))
    for entry, aval in zip(captures, others[len(others) - len(names) :]):
        tensor = _dense(DTYPE_NAMES[str(aval.dtype)], aval.shape)
        tensor.data = SOME_ADDRESS
        entry.tensor = ctypes.pointer(tensor)
    preparation = mod_of(mods.text)._settled(
        Launch({}, None, gradients=() if has_tangents and gradients is None else gradients), mods.problem, DTYPE_NAMES[str(q.dtype)], (q.shape[3], v.shape[3]), captures,
        arch, True, has_dlse, has_tangents=has_tangents, reduced=reduced,
    )  # fmt: skip
    info = c.PreparationInfo()
    check(library().attnc_preparation_get_info(preparation.address, ctypes.byref(info)))
    return info.workspace_bytes


for _primitive in _OPERANDS:
    _primitive.multiple_results = True
    _primitive.def_impl(functools.partial(_run, _primitive))
    batching.primitive_batchers[_primitive] = functools.partial(_batched, _primitive)
    for _platform in ("cpu", "cuda"):
        mlir.register_lowering(_primitive, functools.partial(_lowered, _primitive, _platform), platform=_platform)
