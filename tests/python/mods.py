"""Mods as FlexAttention users write them, after the kinds in PyTorch's own tests and in attention-gym, and what attnc
translates.

Each case is a function of an Env that returns a score_mod, a mask_mod, or a pair of the two; `None` is none.
"""

import dataclasses
import functools
import math

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

import attnc

CASES = {}
FORMULAS = set()  # names of those that take numbers of small positions
GLOBAL_WINDOW = 11


@dataclasses.dataclass
class Env:
    """Extents of the problem, and random tensors that are the same every time."""

    B: int = 2
    H: int = 4
    HKV: int = 2
    Q_LEN: int = 40
    KV_LEN: int = 48
    generator: torch.Generator = dataclasses.field(default_factory=lambda: torch.Generator("cpu").manual_seed(5))

    def _drawn(self, draw, *args, dtype=None):
        """On the default device; the same on all devices."""
        return draw(*args, generator=self.generator, device="cpu").to(torch.get_default_device(), dtype)

    def normal(self, *shape, dtype=torch.float32):
        return (self._drawn(torch.randn, shape) / 2).to(dtype)

    def ints(self, *shape, below, dtype=torch.int64):
        return self._drawn(torch.randint, 0, below, shape, dtype=dtype)

    def flags(self, *shape, share):
        """True for a share of all elements."""
        return self._drawn(torch.rand, shape) < share

    def documents(self, *shape, dtype=torch.int64):
        return self.flags(*shape, share=0.15).cumsum(-1).to(dtype)


def case(make):
    CASES[make.__name__] = make
    return make


def scores(table):
    """One case for each formula of a score."""
    for name, function in table.items():
        CASES[name] = lambda env, function=function: function
    FORMULAS.update(table)
    return table


def masks(table):
    for name, function in table.items():
        CASES[name] = lambda env, function=function: (None, function)


# ---- Formulas of the score and of the positions ----

scores(
    {
        "identity": lambda s, b, h, q, k: s,
        "times_two": lambda s, b, h, q, k: s * 2,
        "squared": lambda s, b, h, q, k: s * s,
        "causal_by_where": lambda s, b, h, q, k: torch.where(q >= k, s, float("-inf")),
        "inverse_causal": lambda s, b, h, q, k: torch.where(q <= k, s, -float("inf")),
        "relative": lambda s, b, h, q, k: s + (q - k),
        "relative_causal": lambda s, b, h, q, k: torch.where(q >= k, s + (q - k), -math.inf),
        "alibi_of_formula": lambda s, b, h, q, k: s + torch.exp2(-((h + 1) * 8.0 / 4)) * (k - q),
        "alibi_negative_exponent": lambda s, b, h, q, k: s - 2 ** (-(h + 1.0)) * (q - k).abs(),
        "sin_cos": lambda s, b, h, q, k: torch.sin(s) + torch.cos(s * 0.5),
        "tan": lambda s, b, h, q, k: torch.tan(s / 8),
        "softcap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
        "sigmoid": lambda s, b, h, q, k: torch.sigmoid(s) * 4 - 1,
        "silu": lambda s, b, h, q, k: F.silu(s),
        "gelu": lambda s, b, h, q, k: F.gelu(s) + F.gelu(s, approximate="tanh"),
        "relu_and_leaky": lambda s, b, h, q, k: F.relu(s) + F.leaky_relu(s, 0.2),
        "elu_softplus": lambda s, b, h, q, k: F.elu(s) + F.softplus(s),
        "hard_functions": lambda s, b, h, q, k: F.hardtanh(s) + F.hardswish(s) + F.relu6(s),
        "mish_logsigmoid": lambda s, b, h, q, k: F.mish(s) - F.logsigmoid(s),
        "exp_log": lambda s, b, h, q, k: (
            torch.log(torch.exp(s / 4) + 1) + torch.log1p(s.abs()) + torch.log2(s.abs() + 2)
        ),
        "expm1_near_0": lambda s, b, h, q, k: torch.expm1(s * 1e-6) * 1e6,
        "expm1_sinh": lambda s, b, h, q, k: torch.expm1(s / 8) + torch.sinh(s / 4) - torch.cosh(s / 4),
        "angles": lambda s, b, h, q, k: (
            torch.atan(s) + torch.asin(s.tanh()) - torch.acos(s.tanh() / 2) + torch.atan2(s, q - k + 0.5) + s.arctan2(k)
        ),
        "inverse_hyperbolic": lambda s, b, h, q, k: (
            torch.asinh(s * 30) + torch.acosh(s * s + 1.5) + s.tanh().mul(0.75).arctanh() - torch.asinh(-1e4 * s.abs()) / 8
        ),
        "erfc_of_large": lambda s, b, h, q, k: s + torch.log(torch.erfc(s.abs() + 2) + 1e-30) / 4 + torch.special.erfc(-s),
        "sinc_and_hypot": lambda s, b, h, q, k: (
            torch.sinc(s) + torch.sinc((q - k) / 8) * s + torch.hypot(s * 1e25, 3e24 + s * 0) * 1e-25 + s.hypot(h + 1.0)
        ),
        "roots": lambda s, b, h, q, k: (
            torch.sqrt(s.abs() + 1) + torch.rsqrt(s * s + 0.5) + torch.reciprocal(s.abs() + 1)
        ),
        "powers": lambda s, b, h, q, k: (
            s**2 / 4 + torch.pow(s, 3) / 16 + (s.abs() + 0.5) ** 0.5 + (s.abs() + 1) ** -1.5
        ),
        "power_of_two_tensors": lambda s, b, h, q, k: s + torch.pow(s.abs() + 1, s / 4),
        "integer_powers": lambda s, b, h, q, k: s + (q - k) ** 2 / 64 + 2**h + h**b,
        "erf_and_log10": lambda s, b, h, q, k: torch.erf(s) + torch.log10(s.abs() + 1),
        "random": lambda s, b, h, q, k: s + attnc.random(7, b, h, q, k) * attnc.random(-(2**40), b, 0, q // 16, k),
        "random_where": lambda s, b, h, q, k: torch.where(attnc.random(7, b, h, q, k) < 0.1, -math.inf, s),
        "clamped": lambda s, b, h, q, k: (
            s.clamp(-1, 1) + torch.clamp(s, min=0.25) + s.clamp_max(2) + torch.clamp((q - k), -3, 3)
        ),
        "clamped_by_tensors": lambda s, b, h, q, k: torch.clamp(s, min=-h.float(), max=h + 0.5),
        "min_max": lambda s, b, h, q, k: (
            torch.minimum(s, s * 0.5 + 0.1) + torch.max(s, q - k * 1.0) + torch.fmax(s, -s)
        ),
        "rounding": lambda s, b, h, q, k: (
            s + torch.floor(q / 7) + torch.ceil(k / 5) - torch.trunc(q / -3) + torch.round(k * 0.3)
        ),
        "floor_division": lambda s, b, h, q, k: s + (q - k) // 3 + (k - q) // -5 - (q * 1.5) // 4,
        "remainders": lambda s, b, h, q, k: (
            s + (q - k) % 5 - (k - q) % -3 + (q - k * 1.25) % 2.5 + torch.fmod(q - k, 4) / 8
        ),
        "truncated_division": lambda s, b, h, q, k: (
            s + torch.div(q - k, 4, rounding_mode="trunc") + torch.div(q - k, 1.5, rounding_mode="trunc")
        ),
        "fmod_of_floats": lambda s, b, h, q, k: (
            s + torch.fmod(q - k * 1.25, 1e6) + torch.fmod(s, math.inf) + torch.fmod(s * 1e30, k + 1.0) / 8
        ),
        "shifts_by_any_count": lambda s, b, h, q, k: s + (5 << (q - k)) / 64 + (-5 >> (q - k)) + ((k - 9) >> (k - q)),
        "true_division": lambda s, b, h, q, k: s + (q - k) / 16 + q / (k + 1),
        "bitwise": lambda s, b, h, q, k: s + ((q & 3) | (k << 1)) / 16 - ((q ^ k) >> 2) + (~q & 7),
        "shifts_by_tensors": lambda s, b, h, q, k: s + (1 << h) / 8 + ((k - 20) >> h) / 16 - (k << (q + 20)) * 1e-18,
        "casts": lambda s, b, h, q, k: (
            s + s.int() + q.float() / 32 + (q > k).to(torch.float32) + s.to(torch.int64) / 2 + k.long() / 8
        ),
        "small_integers": lambda s, b, h, q, k: s + (q * 9).to(torch.uint8) / 64 + (k * 7).to(torch.int8) / 64,
        "bools_as_numbers": lambda s, b, h, q, k: (
            s + (q > k) * 2 + (q > k) * s + ((q > k) + 1) - ((q > 3) & (k > 2)) * 0.5
        ),
        "signs": lambda s, b, h, q, k: s + torch.sign(q - k) * torch.sign(s) + torch.sgn(s),
        "half_precision_casts": lambda s, b, h, q, k: s.to(torch.bfloat16).float() * 0 + s + q.half() / 64,
        "not_a_number": lambda s, b, h, q, k: (
            torch.where(torch.isnan(torch.log(s)), s, torch.log(s.abs() + 1))
            + torch.nan_to_num(torch.sqrt(s.detach()), nan=0.5)
            + torch.isinf(s)
            + torch.isfinite(s) * 1
        ),
        "lerp_addcmul": lambda s, b, h, q, k: torch.lerp(s, s * 2, 0.25) + torch.addcmul(s, s, q / 16.0, value=0.5),
        "masked_fill": lambda s, b, h, q, k: s.masked_fill(q < k, float("-inf")),
        "where_of_numbers": lambda s, b, h, q, k: s + torch.where(q > k, 1.0, -1.0) + torch.where(h > 1, q, k) / 8,
        "rsub": lambda s, b, h, q, k: 1 - s + torch.rsub(q, 3, alpha=2) / 8 + torch.add(s, k, alpha=0.125),
        "detached": lambda s, b, h, q, k: s * s.detach() / 4,
        "tensor_made_inside": lambda s, b, h, q, k: s + torch.tensor(0.5) * q + torch.tensor([0.5, 1.5, 2.5, 3.5])[h],
        "table_of_ints": lambda s, b, h, q, k: s + torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])[q % 8] / 8,
        "arange_inside": lambda s, b, h, q, k: (
            s + (torch.arange(8) * 0.25)[k % 8] + torch.ones(4)[h] + torch.full((3,), 2.0)[0]
        ),
        "zeros_like": lambda s, b, h, q, k: s + torch.zeros_like(s) + torch.ones_like(q) + s.new_tensor(1.5),
        "stacked": lambda s, b, h, q, k: torch.stack([s, s * 2, s * 3]).sum() + torch.stack([q, k]).max() / 8,
        "extremes_of_stack": lambda s, b, h, q, k: (
            torch.stack([s, s * 0.5, -s]).amax(0) + torch.stack([q, k, h]).amin() / 8
        ),
        "views_of_scalars": lambda s, b, h, q, k: (
            s.unsqueeze(0).squeeze(0) + s.view(1)[0] + s.reshape(()) + s.expand(3).mean()
        ),
        "chosen_by_product": lambda s, b, h, q, k: torch.where((q > k) & ~(h == 1) | (b > 0) ^ (k == 3), s, s / 2),
        "logical": lambda s, b, h, q, k: torch.where(
            torch.logical_or(torch.logical_not(q > k), torch.logical_xor(h > 1, k > 9)), s, -s
        ),
        "a_constant": lambda s, b, h, q, k: s * 0 + 1,
    }
)

masks(
    {
        "causal": lambda b, h, q, k: q >= k,
        "sliding_window": lambda b, h, q, k: (q >= k) & (q - k <= 7),
        "two_sided_window": lambda b, h, q, k: (q - k).abs() < 9,
        "prefix": lambda b, h, q, k: (k < 10) | (q >= k),
        "dilated": lambda b, h, q, k: (q >= k) & ((q - k) % 3 == 0),
        "by_blocks": lambda b, h, q, k: q // 8 == k // 8,
        "noop": noop_mask,
        "causal_and_window": and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 12),
        "sinks_or_window": or_masks(lambda b, h, q, k: k < 4, lambda b, h, q, k: (q - k < 8) & (q >= k)),
        "global_number": lambda b, h, q, k: q - k <= GLOBAL_WINDOW,
        "against_floats": lambda b, h, q, k: (k * 0.7 <= q + 0.5) & (q < float("inf")),
        "fully_masked_rows": lambda b, h, q, k: (q % 3 != 0) & (q >= k),
        "tensor_of_true": lambda b, h, q, k: q.new_ones((), dtype=torch.bool),
        "xor_of_parities": lambda b, h, q, k: (q % 2 == 0) ^ (k % 2 == 0),
        "by_head": lambda b, h, q, k: torch.where(h % 2 == 0, q >= k, q - k < 5),
        "images": lambda b, h, q, k: ((q // 8 - k // 8).abs() <= 2) & ((q % 8 - k % 8).abs() <= 1),
        "is_in_a_table": lambda b, h, q, k: (
            torch.isin(q - k, torch.tensor([0, 3, 5, 8])) | torch.isin(k, 2) | ~torch.isin(q + k, torch.arange(20) * 3, invert=True)
        ),
        "buckets_of_tables": lambda b, h, q, k: (
            (torch.bucketize(q, torch.tensor([3, 9, 9, 20])) >= torch.bucketize(k, torch.tensor([3, 9, 9, 20]), right=True))
            & (torch.searchsorted(torch.arange(30) * 2, q * 1, side="right", out_int32=True) % 3 != 1)
        ),
        "writes_its_own": lambda b, h, q, k: q.clone().add_(2) >= k,
    }
)

# ---- Closures over tensors ----


@case
def head_offset(env):
    offset = env.normal(env.H)
    return lambda score, b, h, q, k: score + offset[h]


@case
def head_offset_in_bf16(env):
    offset = env.normal(env.H, dtype=torch.bfloat16)
    return lambda score, b, h, q, k: score * offset[h]


@case
def alibi_from_slopes(env):
    slopes = torch.exp2(-8.0 * torch.arange(1, env.H + 1) / env.H)

    def alibi(score, batch, head, token_q, token_kv):
        bias = slopes[head] * (token_kv - token_q)
        return score + bias

    return alibi, lambda b, h, q, k: q >= k


@case
def full_bias(env):
    bias = env.normal(env.B, env.H, env.Q_LEN, env.KV_LEN)
    return lambda score, b, h, q, k: score + bias[b, h, q, k]


@case
def bias_of_broadcast_batch(env):
    bias = env.normal(1, env.H, env.Q_LEN, env.KV_LEN)
    return lambda score, b, h, q, k: score + bias[0, h, q, k]


@case
def bias_by_steps(env):
    bias = env.normal(env.H, env.Q_LEN, env.KV_LEN)
    return lambda score, b, h, q, k: score + bias[h][q][k]


@case
def relative_bias_table(env):
    table = env.normal(2 * env.KV_LEN, env.H)
    return lambda score, b, h, q, k: score + table[q - k + env.KV_LEN, h]


@case
def t5_buckets(env):
    weight = env.normal(32, env.H)

    def score_mod(score, b, h, q, k):
        n = torch.where(q > k, q - k, 0)
        large = 16 + (torch.log(torch.clamp(n, min=1).float() / 16) / math.log(128 / 16) * 16).to(torch.long)
        bucket = torch.where(n < 16, n, torch.clamp(large, max=31))
        return score + weight[bucket, h]

    return score_mod


@case
def embedding_of_distance(env):
    weight = torch.nn.Parameter(env.normal(env.KV_LEN, env.H))
    return lambda score, b, h, q, k: score + F.embedding((q - k).abs(), weight)[h]


@case
def negative_indices(env):
    table = env.normal(16)
    return lambda score, b, h, q, k: score + table[-1 - h] + table[-2] + table[q % 4 - 4]


@case
def strided_capture(env):
    table = env.normal(env.KV_LEN, 3, env.H).permute(2, 1, 0)[:, ::2]
    return lambda score, b, h, q, k: score + table[h, 1, k]


@case
def transposed_inside(env):
    table = env.normal(env.KV_LEN, env.H)
    return lambda score, b, h, q, k: score + table.T[h, k] + table.transpose(0, 1)[h][k] + table.permute(1, 0)[h, q]


@case
def computed_from_capture(env):
    table = env.normal(env.H)
    return lambda score, b, h, q, k: score + (table * 2 + 1)[h] + table.exp()[h] + table.sum() + table.mean()


@case
def sliced_capture(env):
    table = env.normal(env.H, 6)
    return lambda score, b, h, q, k: (
        score + table[h, 1:4].sum() + table[:, 2][h] + table[h, ::2][1] + table[..., h, 0] + table.flip(1)[h, 0]
    )


@case
def reshaped_capture(env):
    table = env.normal(env.H * 6)
    return lambda score, b, h, q, k: (
        score + table.view(env.H, 2, 3)[h, 1, q % 3] + table.reshape(-1, 6)[h].sum(-1) + table.unsqueeze(0)[0, h]
    )


@case
def concatenated(env):
    first, second = env.normal(3), env.normal(5)
    return lambda score, b, h, q, k: (
        score + torch.cat([first, second])[k % 8] + torch.stack([first, second[:3]], 1)[h % 3, 1]
    )


@case
def rows_of_captures(env):
    rows = env.normal(env.H, 8)
    return lambda score, b, h, q, k: (
        score
        + rows[h].sum(-1)
        + (rows[h] * rows[h]).mean()
        + rows[h].amax()
        + rows[h].norm()
        + torch.linalg.vector_norm(rows[h], 1)
        + rows[h].prod()
        + rows[h].max(dim=0).values
    )


@case
def searched_captures(env):
    """Tables of other dtypes, with repeated elements, several rows, NaN among the values, and elements against scalars."""
    ends, reals = torch.tensor([0, 8, 8, 21, 40], dtype=torch.int16), env.normal(20).sort().values
    rows = torch.stack([torch.arange(6) * 7, torch.arange(6) * 5])

    def score_mod(score, b, h, q, k):
        missing = torch.where(q % 5 == 0, math.nan, score)
        near = torch.searchsorted(rows, torch.stack([q, k]).long().unsqueeze(1))
        return (
            score + torch.searchsorted(ends.int(), k, right=True) / 4 - torch.bucketize(missing.detach(), reals) / 16
            + near.sum() / 8 + torch.isin(ends, k).sum() + torch.isin(torch.stack([q, k]), ends.int()).sum() / 2
        )  # fmt: skip

    return score_mod


@case
def documents_by_ends(env):
    ends = torch.tensor([5, 9, 20, 33])
    return None, lambda b, h, q, k: torch.bucketize(q, ends, right=True) == torch.bucketize(k, ends, right=True)


@case
def dot_of_rows(env):
    left, right = env.normal(env.B, env.H, env.Q_LEN, 24), env.normal(env.B, env.KV_LEN, 24)
    return lambda score, b, h, q, k: score + torch.dot(left[b, h, q], right[b, k])


@case
def products_of_matrices(env):
    left, right = env.normal(env.H, 4, 20), env.normal(20)
    return lambda score, b, h, q, k: (
        score + (left[h] @ right).sum() + (left[h] @ left[h].T)[0, 1] + (left @ right)[h, q % 4]
    )


@case
def distance_of_points(env):
    points = env.normal(env.KV_LEN, 3)
    return lambda score, b, h, q, k: score - (points[q] - points[k]).square().sum(-1).add(0.01).sqrt()


@case
def norm_of_points(env):
    points = env.normal(env.KV_LEN, 3)
    return lambda score, b, h, q, k: score - (points[q] - points[k]).norm(dim=-1)


@case
def same_tensor_twice(env):
    bias = env.normal(env.KV_LEN)
    return lambda score, b, h, q, k: score + bias[q] * bias[k]


@case
def learned_scalars(env):
    cap, shift = torch.nn.Parameter(torch.tensor(5.0)), torch.tensor(0.25)
    return lambda score, b, h, q, k: torch.tanh(score / cap) * cap + shift


@case
def gate_of_heads(env):
    gate = env.normal(env.H)
    return lambda score, b, h, q, k: (
        score * torch.sigmoid(gate[h]) + torch.where(gate[h] > 0, gate[h] * q, -gate[h] * k) / 16
    )


@case
def documents(env):
    document_id = env.documents(env.KV_LEN)
    return None, lambda b, h, q, k: (document_id[q] == document_id[k]) & (q >= k)


@case
def documents_of_batches(env):
    document_id = env.documents(env.B, env.KV_LEN, dtype=torch.int32)
    return None, lambda b, h, q, k: document_id[b, q] == document_id[b, k]


@case
def nested_gathers(env):
    document_id = env.documents(env.KV_LEN)
    offsets = env.ints(int(document_id.max()) + 1, below=5)

    def mask_mod(b, h, q, k):
        return (q - offsets[document_id[q]] >= k - offsets[document_id[k]]) & (document_id[q] == document_id[k])

    return None, mask_mod


@case
def lengths_of_batches(env):
    lengths = torch.tensor([13, 40])
    return None, lambda b, h, q, k: (k < lengths[b]) & (q < lengths[b])


@case
def mask_tensor(env):
    keep = env.flags(env.B, env.Q_LEN, env.KV_LEN, share=0.6)
    return None, lambda b, h, q, k: keep[b, q, k]


@case
def small_dtypes(env):
    kind, level, far = (
        env.ints(env.KV_LEN, below=3, dtype=torch.uint8),
        env.ints(env.KV_LEN, below=3, dtype=torch.int8),
        env.ints(env.KV_LEN, below=300, dtype=torch.int16),
    )
    return None, lambda b, h, q, k: (kind[q] <= kind[k]) & (level[q] - level[k] > -2) & ((far[q] + far[k]) % 3 != 0)


@case
def any_of_rows(env):
    flags = env.flags(env.KV_LEN, 5, share=0.4)
    return None, lambda b, h, q, k: (flags[q] & flags[k]).any(-1) | flags[k].all() | (q == k)


@case
def any_of_long_rows(env):
    flags = env.flags(env.KV_LEN, 33, share=0.1)
    return None, lambda b, h, q, k: (flags[q] & flags[k]).any(dim=-1) | (q == k) | (flags[k].sum(-1) > 5)


@case
def window_of_heads(env):
    windows = torch.tensor([3, 7, 15, 31], dtype=torch.int32)
    return None, lambda b, h, q, k: (q - k).abs() <= windows[h]


@case
def score_and_mask(env):
    bias, document_id = env.normal(env.H, env.KV_LEN), env.documents(env.KV_LEN)
    return lambda score, b, h, q, k: score + bias[h, k], lambda b, h, q, k: document_id[q] == document_id[k]


# ---- Ways to write them ----


@case
def factories(env):
    def make_window(size):
        def inside(b, h, q, k):
            return q - k <= size

        return inside

    def causal(b, h, q, k):
        return q >= k

    return None, and_masks(causal, make_window(6), or_masks(make_window(2), lambda b, h, q, k: k % 2 == 0))


@case
def mod_for_each_sequence(env):
    which, prefix = env.ints(env.B, below=3), env.ints(env.B, below=20)

    def causal(b, h, q, k):
        return q >= k

    scores = (lambda score, b, h, q, k: score, lambda score, b, h, q, k: score + (k - q) / 8,
              lambda score, b, h, q, k: 4 * torch.tanh(score / 4))  # fmt: skip
    masks = causal, lambda b, h, q, k: (q >= k) | (k < prefix[b]), and_masks(causal, lambda b, h, q, k: q - k < 9)
    return attnc.choice(which, *scores), attnc.choice(which, *masks)


@case
def mask_of_shifted_positions(env):
    offset = torch.tensor([3, 8])

    def causal(b, h, q, k):
        return q >= k

    return None, lambda b, h, q, k: causal(b, h, q + offset[b], k)


@case
def composed_scores(env):
    slopes = env.normal(env.H)

    def alibi(score, b, h, q, k):
        return score + slopes[h] * (k - q) / 8

    def softcap(score, b, h, q, k):
        return 4 * torch.tanh(alibi(score, b, h, q, k) / 4)

    return softcap


@case
def partial_application(env):
    def window(size, scale, b, h, q, k):
        return (q - k) * scale <= size

    return None, functools.partial(window, 9, 2)


@case
def method_of_object(env):
    class Window:
        shift = 2

        def __init__(self):
            self.size, self.bias = 5, env.normal(env.H)

        def mask(self, b, h, q, k):
            return q - k <= self.size + self.shift

        def score(self, score, b, h, q, k):
            return score + self.bias[h]

    window = Window()
    return window.score, window.mask


@case
def callable_module(env):
    class Bias(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(env.normal(env.H, env.KV_LEN))

        def forward(self, score, b, h, q, k):
            return score + self.table[h, k]

    return Bias()


@case
def loops_and_branches(env):
    steps, is_causal, weights = (2, 5, 9), True, env.normal(env.H, 3)

    def score_mod(score, b, h, q, k):
        distance = (q - k).abs()
        for place, step in enumerate(steps):
            score = score + torch.where(distance < step, weights[h, place], 0)
        if is_causal:
            return torch.where(q >= k, score, -torch.inf)
        return score

    return score_mod


@case
def in_place_sums(env):
    bias = env.normal(env.KV_LEN)

    def score_mod(score, b, h, q, k):
        score += bias[k]
        score *= 0.5
        return score

    return score_mod


@case
def chunked_causal(env):
    chunk, (rows, columns) = 8, (4, 12)

    def mask_mod(b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        """Within a chunk, and whole chunks before it."""
        same = q_idx // chunk == kv_idx // chunk
        near = (q_idx // columns - kv_idx // columns).abs() <= rows
        return torch.where(same, q_idx >= kv_idx, (q_idx > kv_idx) & near)

    return None, mask_mod
