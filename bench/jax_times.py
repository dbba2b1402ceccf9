#!/usr/bin/env python3
"""Times attnc.jax next to jax.nn.dot_product_attention on a GPU: forward, forward and backward, and a training step.

  ATTNC_LIBRARY=libattnc.so python3 bench/jax_times.py [FILE]

Prints a table: milliseconds, settled medians of batches of calls; TFLOP/s of unmasked pairs. FILE: also gets the figures
as JSON lines, in the format of attnc-bench; `backward` counts both passes there.
"""

import functools
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import jax
import jax.numpy as jnp
from jax import lax

from attnc.jax import and_masks, flex_attention

BATCH, HEADS, LENGTH, WIDTH = 2, 16, 8192, 128
CALLS, ROUNDS = 10, 12


def milliseconds(function, *args):
    """Returns the median time of a call, over rounds of CALLS calls. The first third of the rounds settles clocks."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            result = function(*args)
        jax.block_until_ready(result)
        times.append((time.perf_counter() - start) / CALLS * 1e3)
    return statistics.median(times[ROUNDS // 3 :])


def documents_of(length):
    """Returns ids of documents of several lengths, i32 [BATCH, length], and their number of causal pairs."""
    ends = jnp.cumsum(jnp.asarray([700, 2100, 300, 1500, 90, 1800, 900, 5000]) * length // 8192)
    ids = jnp.searchsorted(ends, jnp.arange(length), side="right").astype(jnp.int32)
    sizes = jnp.bincount(ids)
    return jnp.broadcast_to(ids, (BATCH, length)), float((sizes * (sizes + 1) // 2).sum())


def causal(b, h, q, k):
    return q >= k


def ours(documents, q, k, v):
    """Takes and returns [B, H, L, E]; `documents` may be None."""
    mask = causal if documents is None else and_masks(causal, lambda b, h, q, k: documents[b, q] == documents[b, k])
    return flex_attention(q, k, v, None, mask)


def theirs(implementation, documents, q, k, v):
    """Takes and returns [B, L, H, E]; `documents` may be None."""
    attend = functools.partial(jax.nn.dot_product_attention, q, k, v, implementation=implementation)
    if documents is None:
        return attend(is_causal=True)
    mask = (documents[:, None, :, None] == documents[:, None, None, :]) & jnp.tril(jnp.ones((q.shape[1],) * 2, bool))
    return attend(mask=mask)


def write(case, peer, **figures):
    if len(sys.argv) > 1:
        with open(sys.argv[1], "a", encoding="utf-8") as file:
            file.write(json.dumps({"id": case, "peer": peer, **figures}) + "\n")


def rows(case, peer, attend, documents, shape, pairs):
    """Prints the times of a function over documents, and q, k and v of a shape."""
    name = f"{case}: {peer}"
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v, dout = (jax.random.normal(key, shape, jnp.bfloat16) for key in keys)

    def both(documents, q, k, v, dout):
        out, pull = jax.vjp(functools.partial(attend, documents), q, k, v)
        return out, pull(dout)

    flops = 4 * BATCH * HEADS * WIDTH * pairs
    try:
        forward = milliseconds(jax.jit(attend), documents, q, k, v)
        whole = milliseconds(jax.jit(both), documents, q, k, v, dout)
    except Exception as error:  # of memory, or an implementation that refuses
        print(f"{name:44} {type(error).__name__}: {str(error).splitlines()[0][:80]}", flush=True)
        return
    print(
        f"{name:44} {forward:8.3f} {flops / forward / 1e9:8.1f} {whole:8.3f} {3.5 * flops / whole / 1e9:8.1f}", flush=True
    )
    of = f"{case}-b{BATCH}h{HEADS}k{HEADS}-q{LENGTH}k{LENGTH}-d{WIDTH}"
    for kind, ms, factor in (("forward", forward, 1), ("backward", whole, 3.5)):
        write(f"{kind}-{of}", peer, ms=round(ms, 4), tflops=round(factor * flops / ms / 1e9, 1))


def step_of(attend, is_head_first):
    """Returns a training step of four layers, whose weights are scanned over."""
    size = HEADS * WIDTH

    def normed(x):
        wide = x.astype(jnp.float32)
        return (wide * lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)

    def layer(documents, x, weights):
        qkv = jnp.einsum("bld,dchf->cblhf", normed(x), weights["qkv"])
        if is_head_first:
            qkv = qkv.transpose(0, 1, 3, 2, 4)
        out = attend(documents, *qkv)
        if is_head_first:
            out = out.transpose(0, 2, 1, 3)
        x = x + out.reshape(*x.shape) @ weights["out"]
        return x + jax.nn.gelu(normed(x) @ weights["up"]) @ weights["down"], None

    @functools.partial(jax.jit, donate_argnums=0)
    def step(weights, documents, x):
        def loss(weights):
            return (lax.scan(functools.partial(layer, documents), x, weights)[0].astype(jnp.float32) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - (1e-3 * g).astype(w.dtype), weights, gradients), value

    shapes = {"qkv": (size, 3, HEADS, WIDTH), "out": (size, size), "up": (size, 4 * size), "down": (4 * size, size)}
    weights = {
        name: jax.random.normal(jax.random.key(at), (4, *shape), jnp.bfloat16) * 0.02
        for at, (name, shape) in enumerate(shapes.items())
    }
    return step, weights


def train(peer, attend, is_head_first, length):
    name = f"{length}: {peer}"
    documents, _ = documents_of(length)
    step, weights = step_of(attend, is_head_first)
    x = jax.random.normal(jax.random.key(9), (BATCH, length, HEADS * WIDTH), jnp.bfloat16)
    try:
        times, value = [], 0
        for _ in range(12):
            start = time.perf_counter()
            weights, value = step(weights, documents, x)
            jax.block_until_ready(weights)
            times.append((time.perf_counter() - start) * 1e3)
    except Exception as error:
        print(f"{name:44} {type(error).__name__}: {str(error).splitlines()[0][:80]}", flush=True)
        return
    print(f"{name:44} {statistics.median(times[4:]):8.3f}   loss {float(value):.6f}", flush=True)
    write(f"train-documents-{length}", peer, ms=round(statistics.median(times[4:]), 3), loss=float(value))


def main():
    device = jax.devices()[0]
    write("ceilings", device.device_kind, jax=jax.__version__, date=time.strftime("%Y-%m-%d"))
    print(f"jax {jax.__version__}, {device.device_kind}: {BATCH} x {HEADS} heads x {LENGTH}, head dim {WIDTH}, bf16")
    print(f"{'':44} {'fwd ms':>8} {'TFLOP/s':>8} {'f+b ms':>8} {'TFLOP/s':>8}")
    for case, documents, pairs in (("causal", None, LENGTH * (LENGTH + 1) / 2), ("documents", *documents_of(LENGTH))):
        rows(case, "attnc", ours, documents, (BATCH, HEADS, LENGTH, WIDTH), pairs)
        for name in ("cudnn", "xla"):
            attend, shape = functools.partial(theirs, name), (BATCH, LENGTH, HEADS, WIDTH)
            rows(case, f"dot_product_attention, {name}", attend, documents, shape, pairs)
    print("training step of 4 layers, causal documents")
    length = LENGTH // 2  # at which a mask of all pairs fits
    train("attnc", ours, True, length)
    for name in ("cudnn", "xla"):
        train(f"dot_product_attention, {name}", functools.partial(theirs, name), False, length)


if __name__ == "__main__":
    main()
