"""attnc.random on arrays of JAX: the primitive attnc_random, which mods are translated from."""

import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._philox import PARAMETERS, bits_at, no_int

_random_p = Primitive("attnc_random")


def _product(factor, word):
    """Returns the high and the low word of a product, from those of halves: there are no 64 bits."""
    high, low = factor >> 16, factor & 0xFFFF
    right, left = word & 0xFFFF, word >> 16
    middle = high * right + (low * right >> 16)
    other = low * left + (middle & 0xFFFF)
    return high * left + (middle >> 16) + (other >> 16), word * jnp.uint32(factor)


def _total(word, number):
    return word + jnp.uint32(number)


def _drawn(seed, *position):
    seed_high = seed >> 32 if seed.dtype.itemsize == 8 else seed >> 31 if seed.dtype.kind == "i" else seed * 0
    key0, key1, *position = (value.astype(jnp.uint32) for value in (seed, seed_high, *position))
    bits = bits_at((key0, key1), *position, _product, _total)
    return bits.astype(jnp.float32) * jnp.float32(2.0**-24)


def _batched(values, axes):
    size = next(value.shape[axis] for value, axis in zip(values, axes) if axis is not None)

    def at_front(value, axis):
        return jnp.broadcast_to(value, (size, *value.shape)) if axis is None else jnp.moveaxis(value, axis, 0)

    return _random_p.bind(*map(at_front, values, axes)), 0


_random_p.def_impl(_drawn)
_random_p.def_abstract_eval(lambda seed, *_: seed.update(dtype=jnp.dtype("float32"), weak_type=False))
ad.primitive_jvps[_random_p] = lambda values, _: (found := _random_p.bind(*values), jnp.zeros_like(found))
batching.primitive_batchers[_random_p] = _batched
mlir.register_lowering(_random_p, mlir.lower_fun(_drawn, multiple_results=False))


def draw(*values):
    arrays = [jnp.asarray(value) for value in values]
    for name, array in zip(PARAMETERS, arrays):
        if array.dtype.kind not in "biu":
            raise no_int(name, f"an array of {array.dtype}")
    arrays = [array.astype(jnp.int32) if array.dtype.itemsize < 4 else array for array in arrays]
    shape = lax.broadcast_shapes(*(array.shape for array in arrays))
    return _random_p.bind(*(jnp.broadcast_to(array, shape) for array in arrays))
