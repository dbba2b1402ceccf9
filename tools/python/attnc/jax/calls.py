"""Attention as primitives of JAX: how they are batched, and lowered to custom calls of XLA (attnc/c/xla.h)."""

import ctypes
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .. import _spec as c
from .._arrays import DTYPE_NAMES
from .._cpu_notice import tell_of_cpu
from .._library import check, compiler, library
from ..launch import Launch
from ..mod import Mod, _dense

# Operands: q, k, v and captured arrays. Results: out, lse. Parameters: `mods`, `scale`.
attention_p = Primitive("attnc_attention")
# Operands: q, k, v, out, lse, dout, dlse if `has_dlse`, captured arrays. Results: dq, dk, dv, and gradients of the
# captured arrays at the places `wanted`.
attention_backward_p = Primitive("attnc_attention_backward")
_OPERANDS = {attention_p: 3, attention_backward_p: 6}  # before dlse and captured arrays
_SOME_ADDRESS = 1 << 20  # of captures, whose memory is not read before a launch
_TARGETS = {attention_p: "attnc_attention", attention_backward_p: "attnc_attention_backward"}


@functools.lru_cache(maxsize=1024)
def mod_of(text):
    """Returns the mod of IR text."""
    return Mod.parse_ir(text, name="<jax>")


# ---- Types ------------------------------------------------------------------------------------------------------


def _result(like, shape, dtype):
    sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*[None] * len(shape)))
    return ShapedArray(shape, dtype, sharding=sharding, manual_axis_type=like.manual_axis_type)


@attention_p.def_abstract_eval
def _(q, k, v, *captured, mods, scale):
    return [_result(q, (*q.shape[:3], v.shape[3]), q.dtype), _result(q, q.shape[:3], np.dtype("float32"))]


@attention_backward_p.def_abstract_eval
def _(q, k, v, out, lse, dout, *others, mods, scale, has_dlse, wanted):
    return [_result(x, x.shape, x.dtype) for x in (q, k, v, *(others[has_dlse + place] for place in wanted))]


@functools.lru_cache(maxsize=1024)
def _compiled(primitive, params):
    return jax.jit(functools.partial(primitive.bind, **dict(params)))


def _run(primitive, *args, **params):
    return _compiled(primitive, tuple(params.items()))(*args)


def _no_derivative(*_, **__):
    raise NotImplementedError(
        "attnc has no forward-mode derivatives and no second derivatives of attention: use jax.grad or jax.vjp once"
    )


# ---- vmap -------------------------------------------------------------------------------------------------------


def _batched(primitive, args, axes, *, mods, **params):
    """Merges the new axis with the batch. Mods see the batch entry within it, and read their part of captured arrays."""
    count = next(x.shape[axis] for x, axis in zip(args, axes) if axis is not None)
    first, wanted = _OPERANDS[primitive] + params.get("has_dlse", False), params.get("wanted", ())

    def at_front(x, axis):
        return jnp.broadcast_to(x, (count, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)

    operands = [lax.collapse(at_front(x, axis), 0, 2) for x, axis in zip(args[:first], axes)]
    captured, is_batched = [], []
    for place, (x, axis) in enumerate(zip(args[first:], axes[first:])):
        # Gradients differ between entries.
        is_batched.append(axis is not None or place in wanted)
        captured.append(at_front(x, axis) if is_batched[-1] else x)
    mods = mods.batched(count, is_batched, [jax.typeof(x) for x in captured])
    results = primitive.bind(*operands, *captured, mods=mods, **params)
    plain = 2 if primitive is attention_p else 3
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
    for target in _TARGETS.values():
        jax.ffi.register_ffi_target(target, {"execute": on_cpu}, platform="cpu")
        jax.ffi.register_ffi_target(target, {"initialize": on_cuda, "execute": on_cuda}, platform="CUDA")


def _lowered(primitive, platform, ctx, *operands, mods, scale, has_dlse=False, wanted=()):
    _register()
    first = _OPERANDS[primitive] + has_dlse
    chosen = [*range(first), *(first + place for place in mods.places)]
    avals, results = [ctx.avals_in[at] for at in chosen], list(ctx.avals_out)
    names = dict(zip(mods.places, mods.names))
    gradients = None if primitive is attention_p else [names[place] for place in wanted]
    if platform == "cuda":
        size = _workspace_bytes(mods, avals, gradients, has_dlse, _arch(ctx))
        if size:
            results.append(ShapedArray((size,), np.dtype("uint8")))
    else:
        tell_of_cpu(avals[0], avals[2], *jax.__path__)
    attributes = {"mod": mods.text, "captures": _joined(mods.names), "scale": np.float32(scale)}
    if gradients is not None:
        attributes["gradients"] = _joined(gradients)
    rule = jax.ffi.ffi_lowering(_TARGETS[primitive])
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


def _workspace_bytes(mods, avals, gradients, has_dlse, arch):
    """Returns the bytes of workspace of a pass. It is a forward pass if `gradients`, names of captures, is None."""
    q, _, v, *others = avals
    captures = (c.Capture * len(mods.names))(*(c.Capture(name=name.encode()) for name in mods.names))
    for entry, aval in zip(captures, others[len(others) - len(mods.names) :]):
        tensor = _dense(DTYPE_NAMES[str(aval.dtype)], aval.shape)
        tensor.data = _SOME_ADDRESS
        entry.tensor = ctypes.pointer(tensor)
    preparation = mod_of(mods.text)._settled(
        Launch({}, None, gradients=gradients), mods.problem, DTYPE_NAMES[str(q.dtype)], (q.shape[3], v.shape[3]), captures,
        arch, True, has_dlse,
    )  # fmt: skip
    info = c.PreparationInfo()
    check(library().attnc_preparation_get_info(preparation.address, ctypes.byref(info)))
    return info.workspace_bytes


for _primitive in (attention_p, attention_backward_p):
    _primitive.multiple_results = True
    _primitive.def_impl(functools.partial(_run, _primitive))
    ad.primitive_jvps[_primitive] = _no_derivative
    batching.primitive_batchers[_primitive] = functools.partial(_batched, _primitive)
    for _platform in ("cpu", "cuda"):
        mlir.register_lowering(_primitive, functools.partial(_lowered, _primitive, _platform), platform=_platform)
