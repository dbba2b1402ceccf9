"""Helpers, closures, factories, defaults, keywords, partial application, lambdas, early return."""
import functools
import torch
from functools import partial

slopes: f32[H]
WINDOWS = [3, 9, 30]
SCALES = (0.5, 0.25)


def split(x, n):
    """Two results."""
    return x // n, x % n


def linear(x, a=2.0, *, b=0.5):
    return a * x + b


def total(*terms):
    out = 0
    for term in terms:
        out += term
    return out


def make_window(size, strict=False):
    def inner(b, h, q, kv):
        if strict:
            return q - kv < size
        return q - kv <= size

    inner.__name__ = f"window_{size}"
    return inner


def make_bias(tensor, scale):
    bias = lambda head, distance: tensor[head] * distance * scale
    return bias


def shifted(mask, by):
    return lambda b, h, q, kv: mask(b, h, q + by, kv)


def weighted(weight, score, b, h, q_idx, kv_idx):
    return score * weight


def identity(score, batch, head, token_q, token_kv):
    if SCALES[0] > 1:
        return score * 1e9
    return score


bias = make_bias(slopes, 0.125)
half = functools.partial(weighted, 0.5)
scaled = partial(linear, b=SCALES[1])


def score_mod(score, batch, head, token_q: torch.Tensor, token_kv: "index") -> torch.Tensor:
    score = identity(score, batch, head, token_q, token_kv)
    x, y = split(token_q, 5)
    (u, v), w = split(token_kv, 4), head
    score = half(score, batch, head, token_q, token_kv) + total(x, y, u * 0.1, v, w) + total()
    score += scaled(score) + linear(b=1, x=y) + bias(head, token_q - token_kv)
    compose = [lambda s: s * 2, lambda s: s + 1]
    for f in compose:
        score = f(score)
    return score


mask_mod = shifted(make_window(WINDOWS[1], strict=True), by=2)
