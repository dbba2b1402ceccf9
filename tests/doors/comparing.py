"""What a mod should give, by its scores and mask, and how a result differs from that. Needs NumPy.

Attention is computed with v of one-hot rows, so that `out` is the weights: each score and each masked element shows.
"""

import dataclasses

import numpy as np

TOLERANCE = 4e-5  # of a score, which is at most 30
OF_GRADIENTS = 2e-4  # relative to the largest element
OF_F16 = 65000  # larger gradients of 16 bits may be infinite


@dataclasses.dataclass
class Expected:
    """Scores and mask [B, H, Q_LEN, KV_LEN], and gradients by name."""

    scores: np.ndarray
    live: np.ndarray
    gradients: dict

    def __post_init__(self):
        self.scores = np.broadcast_to(np.asarray(self.scores, np.float64), self.live.shape)
        self.live = self.live & (self.scores != -np.inf)
        self.is_number = ~(self.live & ~np.isfinite(self.scores)).any(-1)
        scores = np.where(self.live, self.scores, -np.inf)
        with np.errstate(all="ignore"):
            top = scores.max(-1, initial=-np.inf)
            at = np.where(np.isfinite(top), top, 0)
            self.lse = np.where(self.is_number, at + np.log(np.exp(scores - at[..., None]).sum(-1)), np.nan)
            weights = np.exp(scores - np.where(np.isfinite(self.lse), self.lse, 0)[..., None])
        self.weights = np.where(self.is_number[..., None], np.where(self.live, weights, 0), np.nan)

    def of_scores(self, dout, dlse):
        """Returns the gradient of scores for those of the weights and of lse; NaN in rows of NaN."""
        weights = self.weights
        through = weights * (dout - (weights * dout).sum(-1, keepdims=True))
        return np.where(self.live.any(-1, keepdims=True), through + weights * dlse[..., None], 0).astype(np.float32)


def difference(expected, weights, lse, gradients=None):
    """Describes the first element that differs; empty if none does."""
    weights, lse = np.asarray(weights, np.float64)[..., : expected.live.shape[-1]], np.asarray(lse, np.float64)
    number = expected.is_number[..., None]
    if (found := _first((np.isnan(weights).any(-1) == expected.is_number) & expected.live.any(-1))) is not None:
        return f"row {found}: NaN is {'not ' if expected.is_number[found] else ''}expected"
    if (found := _first(number & ((weights > 0) != (expected.weights > 0)))) is not None:
        return f"(b, h, i, j) = {found}: {'masked' if expected.live[found] else 'live'}, and should not be"
    with np.errstate(all="ignore"):
        scores = np.log(weights) + lse[..., None]
        wrong = number & expected.live & ~(np.abs(scores - expected.scores) <= TOLERANCE)
    if (found := _first(wrong)) is not None:
        return f"(b, h, i, j) = {found}: score {scores[found]:.9g}, and should be {expected.scores[found]:.9g}"
    for name, want in expected.gradients.items():
        if gradients is None or not np.isfinite(want).any():
            continue
        if name not in gradients:
            if np.nan_to_num(want).any():
                return f"the gradient of {name} is missing"
            continue
        got = np.asarray(gradients[name], np.float64).reshape(want.shape)
        finite = np.isfinite(want)
        limit = OF_GRADIENTS * max(5e-2, np.abs(want[finite]).max())
        limit *= 50 if name in expected.coarse else 1
        beyond = (np.abs(want) > OF_F16) & np.isinf(got) if name in expected.coarse else False
        if (found := _first(finite & ~beyond & ~(np.abs(got - want) <= limit))) is not None:
            return f"gradient of {name} at {found}: {got[found]:.9g}, and should be {want[found]:.9g}"
    return ""


def _first(wrong):
    return tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else None


def operands(mod, seed=0):
    """Returns q, k, v, dout and dlse."""
    batch, heads, kv_heads, q_len, kv_len = mod.problem
    random = np.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape, np.float32)
    columns = -(-kv_len // 16) * 16
    v = np.broadcast_to(np.eye(kv_len, columns, dtype=np.float32), (batch, kv_heads, kv_len, columns))
    dout = normal(batch, heads, q_len, columns)
    return normal(batch, heads, q_len, 16), normal(batch, kv_heads, kv_len, 16), v, dout, normal(batch, heads, q_len)


def scores_of(q, k):
    k = np.repeat(k, q.shape[1] // k.shape[1], 1)
    return (np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k.astype(np.float64)) * 0.25).astype(np.float32)


def gradients_of(expected, d_score, leaves, q, k, dout):
    """Returns those of q, k and v, and of captures, `leaves`. d_score is the gradient of q.k times the scale. Rows of
    NaN have gradients of NaN, also where a mod makes a number of it."""
    batch, kv_heads, kv_len, dim = k.shape
    group = q.shape[1] // kv_heads
    d_score = np.where(expected.is_number[..., None], d_score.astype(np.float64) * 0.25, np.nan)
    leaves = {name: x if expected.is_number.all() else np.full(x.shape, np.nan) for name, x in leaves.items()}
    fold = lambda x: x.reshape(batch, kv_heads, group, kv_len, -1).sum(2)
    dv = fold(np.einsum("bhij,bhid->bhjd", expected.weights, dout.astype(np.float64)))
    dq = np.einsum("bhij,bhjd->bhid", d_score, np.repeat(k, group, 1).astype(np.float64))
    return {"q": dq, "k": fold(np.einsum("bhij,bhid->bhjd", d_score, q.astype(np.float64))), "v": dv, **leaves}
