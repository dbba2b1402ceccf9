#!/usr/bin/env python3
"""Mods at the door of JAX, and as jax.numpy computes them without a compiler: a server for doors_test.py.

Reads pickled lists [tree, tree, ...] of mods from stdin, each after its length, and answers each by a list of what
differs ("" if nothing does, "skipped: ..." if JAX itself refuses).
"""

import os
import pathlib
import pickle
import struct
import sys
import types
import warnings

sys.dont_write_bytecode = True
# The compiler of XLA rounds each operation on its own: it multiplies and adds apart, and takes no reciprocals.
os.environ["XLA_FLAGS"] = "--xla_cpu_max_isa=AVX --xla_disable_hlo_passes=algsimp --xla_backend_optimization_level=0"
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(pathlib.Path(__file__).parent)]
try:
    import jax
except ImportError as error:
    sys.exit(print(f"SKIPPED: {error}"))
import jax.numpy as jnp
import numpy as np
from attnc.jax import flex_attention
from comparing import Expected, difference, gradients_of, operands, scores_of
from trees import HALVES, NUMBERS, TORCH, Jax, extent_of, functions_of

jax.config.update("jax_platforms", "cpu")


def captures_of(mod):
    found = {}
    for capture in mod.used():
        if capture.dtype in NUMBERS:
            found[capture.name] = capture.data[0]
        else:
            dims = [extent_of(dim, mod.problem) for dim in capture.dims]
            dtype = jnp.bool_ if capture.dtype == "bool" else getattr(jnp, TORCH[capture.dtype])
            found[capture.name] = jnp.asarray(np.array(capture.data), dtype).reshape(dims)
    return found


@jax.custom_jvp
def abs_of_float(x):
    return jnp.abs(x)


abs_of_float.defjvps(lambda d_x, _, x: d_x * jnp.sign(x))


def abs_as_defined(x):
    """jnp.abs with gradient 0 at 0, which docs/jax.md promises. In JAX it is 1."""
    return abs_of_float(x) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else jnp.abs(x)


DEFINED = types.SimpleNamespace(**{**vars(jnp), "abs": abs_as_defined})


def functions_in(text, captures, numpy=jnp):
    names = {"jnp": numpy, "jax": jax, **captures}
    exec(text, names)
    return names.get("score_mod"), names.get("mask_mod")


def positions_of(problem):
    batch, heads, _, q_len, kv_len = problem
    return [jnp.arange(extent, dtype=jnp.int32).reshape([-1 if at == axis else 1 for at in range(4)])
            for axis, extent in enumerate((batch, heads, q_len, kv_len))]  # fmt: skip


class Case:
    def __init__(self, mod):
        text, self.captures = functions_of(mod, Jax), captures_of(mod)
        self.text, self.problem = text, mod.problem
        self.arrays = q, k, v, dout, dlse = operands(mod)
        is_float = lambda x: hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
        self.leaves = {name: x for name, x in self.captures.items() if is_float(x)}
        shape = (*q.shape[:3], k.shape[2])

        def defined(score, leaves, positions):
            score_mod, mask_mod = functions_in(text, {**self.captures, **leaves}, DEFINED)
            live = jnp.broadcast_to(mask_mod(*positions) if mask_mod else True, shape)
            scores = score_mod(score, *positions) if score_mod else score
            return jnp.broadcast_to(jnp.asarray(scores, jnp.float32), shape), live

        @jax.jit
        def with_gradients(score, leaves, positions, d_result):
            scores, back, live = jax.vjp(lambda *x: defined(*x, positions), score, leaves, has_aux=True)
            return scores, live, back(d_result)

        leaves = {name: x.astype(jnp.float32) for name, x in self.leaves.items()}
        given = jnp.asarray(scores_of(q, k)), leaves, positions_of(mod.problem)
        scores, live, _ = with_gradients(*given, jnp.zeros(shape, jnp.float32))
        self.expected = Expected(np.asarray(scores), np.asarray(live), {})
        self.expected.coarse = {capture.name for capture in mod.captures if capture.dtype in HALVES}
        d_result = jnp.asarray(self.expected.of_scores(dout[..., : k.shape[2]], dlse))
        *_, (d_score, d_leaves) = with_gradients(*given, d_result)
        d_leaves = {name: np.asarray(x, np.float32) for name, x in d_leaves.items()}
        self.expected.gradients = gradients_of(self.expected, np.asarray(d_score), d_leaves, q, k, dout)

    def in_jax(self):
        q, k, v, dout, dlse = self.arrays

        def attend(q, k, v, leaves):
            score_mod, mask_mod = functions_in(self.text, {**self.captures, **leaves})
            return flex_attention(q, k, v, score_mod, mask_mod, enable_gqa=True, return_lse=True)

        (out, lse), back = jax.vjp(attend, *map(jnp.asarray, (q, k, v)), self.leaves)
        *found, d_leaves = back((jnp.asarray(dout), jnp.asarray(dlse)))
        gradients = {name: np.asarray(x, np.float32) for name, x in (*zip("qkv", found), *d_leaves.items())}
        return np.asarray(out), np.asarray(lse), gradients


def checked(mod):
    jax.config.update("jax_enable_x64", mod.is_wide)
    try:
        case = Case(mod)
    except Exception as error:
        return f"skipped: {type(error).__name__}: {error}"
    try:
        return difference(case.expected, *case.in_jax())
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"


def main():
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while head := sys.stdin.buffer.read(8):
        mods = pickle.loads(sys.stdin.buffer.read(struct.unpack("q", head)[0]))
        data = pickle.dumps([checked(mod) for mod in mods])
        answers.write(struct.pack("q", len(data)) + data)
        answers.flush()


if __name__ == "__main__":
    main()
