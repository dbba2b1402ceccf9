#!/usr/bin/env python3
"""Compares attnc.torch with PyTorch's FlexAttention without a compiler, on a GPU: out, lse and gradients, for the mods
of mods.py and the shapes below, which follow PyTorch's own tests and attention-gym.

  ATTNC_LIBRARY=libattnc.so python3 peers_test.py [--jobs N] [--limit SECONDS] [--only REGEX] [--list]

FlexAttention in fp64 gives the expected result; FlexAttention in the dtype of the operands gives the allowed error.
Cases that it refuses are compared with the definition. ATTNC_TEST_ALL=1 runs all cases; without it, each shape meets
one or two mods, and a third of the mods runs in f32. ATTNC_TEST_DEVICE=cpu compares the reference with FlexAttention.
Prints SKIPPED if torch is not installed or there is no GPU.
"""

import dataclasses
import functools
import os
import sys
import warnings

import needs

needs.modules("attention")
import torch
from attention import by_definition, relative_error
DEVICE = os.environ.get("ATTNC_TEST_DEVICE", "cuda")
if DEVICE == "cuda" and not torch.cuda.is_available():
    sys.exit(print("SKIPPED: there is no GPU"))
import side_by_side
from attnc.torch import create_block_mask, flex_attention
from mods import CASES, FORMULAS, Env
from torch.nn.attention import flex_attention as flex

# Cases in which FlexAttention without a compiler is not what mods say; they are held against the definition.
UNLIKE = {
    "shifts_by_tensors": "its positions are i64 there, and bits are not shifted out",
    "shifts_by_any_count": "its positions are i64 there, and bits are not shifted out",
    "views_of_scalars": "its gradient of a view under vmap is not that of autograd",
}
# RMS of the error, in units of the result's: what is always allowed, and how often FlexAttention's own in the dtype.
ALLOWED = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
TIMES = 2


@dataclasses.dataclass
class Shape:
    """The shape of operands. `lies` makes tensors of [batch, heads, rows, width] in memory."""

    B: int = 2
    H: int = 4
    HKV: int = 4
    Q_LEN: int = 256
    KV_LEN: int = 256
    D: int = 64
    DV: int = 64
    KVB: int = 0  # batch of k and v; 0: B
    lies: object = None


def rows_first(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def heads_last(x):
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)  # its last stride is not 1


def with_gaps(x):
    room = x.new_zeros(*x.shape[:2], x.shape[2] + 7, 2 * x.shape[3])
    room[:, :, 3:-4, : x.shape[3]] = x
    return room[:, :, 3:-4, : x.shape[3]]


SHAPES = {
    "square": Shape(),
    "long": Shape(B=1, Q_LEN=2048, KV_LEN=2048),
    "grouped": Shape(H=8, HKV=2),
    "grouped by 3": Shape(H=6, HKV=2, Q_LEN=130, KV_LEN=190),
    "one kv head": Shape(H=8, HKV=1, D=128, DV=128),
    "one row": Shape(Q_LEN=1, KV_LEN=1),
    "below a block": Shape(Q_LEN=17, KV_LEN=33),
    "beyond a block": Shape(Q_LEN=129, KV_LEN=257),
    "more keys": Shape(Q_LEN=64, KV_LEN=1000),
    "more queries": Shape(Q_LEN=1000, KV_LEN=64),
    "one query": Shape(Q_LEN=1, KV_LEN=1024, H=8, HKV=2),
    "few queries": Shape(Q_LEN=7, KV_LEN=777, H=8, HKV=2),
    "wider q": Shape(D=128, DV=64),
    "wider v": Shape(D=64, DV=128),
    "narrow heads": Shape(D=16, DV=16),
    "uneven heads": Shape(D=72, DV=40),
    "wide heads": Shape(B=1, D=256, DV=256),
    "one batch": Shape(B=1, H=1, HKV=1),
    "rows first": Shape(lies=rows_first),
    "heads last": Shape(lies=heads_last, H=2, HKV=2),
    "with gaps": Shape(lies=with_gaps),
    "kv of one batch": Shape(B=3, KVB=1),
}


def causal(b, h, q, k):
    return q >= k


def relative(score, b, h, q, k):
    return score + (q - k) / 16


class Documents:
    """A learnt bias, a cap, and documents: captures of every kind."""

    def __init__(self, shape):
        env = Env()
        self.bias = env.normal(shape.H, shape.KV_LEN).requires_grad_()
        self.documents = torch.arange(max(shape.Q_LEN, shape.KV_LEN)) // 100

    def score(self, score, b, h, q, k):
        return 10 * torch.tanh((score + self.bias[h, k]) / 10)

    def mask(self, b, h, q, k):
        return self.documents[q] == self.documents[k]


MODS = {
    "noop": lambda shape: (None, None),
    "causal": lambda shape: (None, causal),
    "relative": lambda shape: (relative, None),
    "window": lambda shape: (None, lambda b, h, q, k: (q - k).abs() <= 50),
    "documents": lambda shape: (lambda mods: (mods.score, mods.mask))(Documents(shape)),
}


def tensors_of(*functions):
    """Floats that the functions have in their closures or objects and in those of what these have."""
    found, seen, left = [], set(), list(functions)
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            if item.is_floating_point():
                found.append(item)
        elif isinstance(item, torch.nn.Module):
            left += item.parameters()
        elif hasattr(item, "func"):
            left += [item.func, *item.args]
        elif hasattr(item, "__self__"):
            left += [item.__func__, *vars(item.__self__).values()]
        elif hasattr(item, "__closure__"):
            left += [cell.cell_contents for cell in item.__closure__ or ()]
        elif isinstance(item, (tuple, list)):
            left += item
    return found


class Job:
    """The result of attnc for a case, and the expected one."""

    def __init__(self, name, shape, dtype, mods):
        self.name, self.dtype, env = name, dtype, Env()
        (self.score_mod, self.mask_mod), self.shape = mods, shape
        kv_batch = getattr(shape, "KVB", 0) or shape.B
        lies = getattr(shape, "lies", None) or (lambda x: x)
        head_dim, of_v = getattr(shape, "D", 32), getattr(shape, "DV", 32)
        drawn = [
            env.normal(*extents) * 2
            for extents in (
                (shape.B, shape.H, shape.Q_LEN, head_dim),
                (kv_batch, shape.HKV, shape.KV_LEN, head_dim),
                (kv_batch, shape.HKV, shape.KV_LEN, of_v),
            )
        ]
        self.operands = [lies(x.to(dtype)) for x in drawn]
        self.dout = env.normal(shape.B, shape.H, shape.Q_LEN, of_v).to(dtype)
        self.dlse = env.normal(shape.B, shape.H, shape.Q_LEN)
        self.captured = tensors_of(self.score_mod)

    def compute(self, attention, dtype=None):
        """[out, lse, gradients ...]."""
        operands = [x.detach().to(dtype or self.dtype) for x in self.operands]
        leaves = [x.requires_grad_() for x in operands]
        for x in self.captured:
            leaves.append(x.requires_grad_())
        out, lse = attention(*operands)
        dead = lse.detach().isinf()
        dlse = self.dlse.to(lse.dtype).masked_fill(dead, 0)
        grads = torch.autograd.grad([out, lse], leaves, [self.dout.to(out.dtype), dlse], allow_unused=True)
        grads = [torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, grads)]
        return [x.detach() for x in (out, lse, *grads)]

    def attnc(self):
        mask = self.mask_mod and create_block_mask(
            self.mask_mod, self.shape.B, self.shape.H, self.shape.Q_LEN, self.shape.KV_LEN
        )
        if getattr(self.shape, "KVB", 0) and mask is None:  # FlexAttention wants a mask to broadcast
            mask = create_block_mask(flex.noop_mask, None, None, self.shape.Q_LEN, self.shape.KV_LEN)

        def attention(q, k, v):
            return flex_attention(q, k, v, self.score_mod, mask, enable_gqa=True, return_lse=True)

        return self.compute(attention)

    def flex(self, dtype):
        torch._dynamo.reset()
        mask_mod = self.mask_mod or flex.noop_mask
        mask = flex.create_block_mask(  # of functions: it takes no methods
            lambda b, h, q_idx, kv_idx: mask_mod(b, h, q_idx, kv_idx), self.shape.B, self.shape.H, self.shape.Q_LEN,
            self.shape.KV_LEN, device=DEVICE,
        )  # fmt: skip

        def attention(q, k, v):
            return flex.flex_attention(q, k, v, self.score_mod, mask, enable_gqa=True, return_lse=True)

        return self.compute(attention, dtype)

    def definition(self):
        """On the CPU: some functions of torch do not work under vmap on a GPU."""
        batch = self.shape.B

        def attention(q, k, v):
            k, v = (x.expand(batch, *x.shape[1:]) for x in (k, v))
            return by_definition(self.score_mod, self.mask_mod, q, k, v)

        return self.compute(attention, torch.float64)


def cases():
    """(name, function that makes the shape, dtype, function that makes the mods of it) of all."""
    runs_all = os.environ.get("ATTNC_TEST_ALL")
    for number, (name, make) in enumerate(CASES.items()):
        lengths = {} if name in FORMULAS else {"Q_LEN": 257, "KV_LEN": 300}
        for dtype in (torch.bfloat16, torch.float32) if runs_all or number % 3 == 0 else (torch.bfloat16,):
            yield f"{name}, {dtype}", functools.partial(Env, **lengths), dtype, make
    for number, (name, shape) in enumerate(SHAPES.items()):
        for place, (mod, make) in enumerate(MODS.items()):
            dtypes = (torch.bfloat16,)
            if mod == "documents":
                dtypes = torch.bfloat16, torch.float32, torch.float16
                dtypes = dtypes if runs_all else (dtypes[0], dtypes[1 + number % 2])
            elif not runs_all and number % (len(MODS) - 1) != place:
                continue
            for dtype in dtypes:
                yield f"{mod} of {name}, {dtype}", functools.partial(dataclasses.replace, shape), dtype, make


_cases = {name: case for name, *case in cases()}


def job_of(name):
    """On the default device; the same numbers on all."""
    make_shape, dtype, make = _cases[name]
    shape = make_shape()
    mods = make(shape)
    return Job(name, shape, dtype, mods if isinstance(mods, tuple) else (mods, None))


def run(name):
    """What to say, and what is wrong or None, of out, lse and gradients."""
    warnings.simplefilter("ignore")
    torch.set_default_device(DEVICE)
    job = job_of(name)
    found = [x.cpu() for x in job.attnc()]
    try:
        if name.partition(",")[0] in UNLIKE:
            raise NotImplementedError(UNLIKE[name.partition(",")[0]])
        right, rounded, said = job.flex(torch.float64), job.flex(job.dtype), ""
    except Exception as error:  # of any kind: FlexAttention's own limits
        if DEVICE == "cuda" and name.startswith("noop of square"):
            raise  # it must compute something
        torch.set_default_device("cpu")
        right, rounded = job_of(name).definition(), None
        said = f"beside the definition: {type(error).__name__}, "
    names = ["out", "lse", "dq", "dk", "dv", *(f"d_capture{n}" for n in range(len(job.captured)))]
    wrong, worst = {}, 0
    for place, name in enumerate(names):
        expected = right[place].cpu()
        error = relative_error(found[place], expected)
        theirs = relative_error(rounded[place].cpu(), expected) if rounded else 0
        worst = max(worst, error)
        # The gradient of a capture in half precision is rounded to that.
        if not error <= max(ALLOWED[job.dtype], ALLOWED[found[place].dtype], TIMES * theirs):
            wrong[name] = f"{error:.2e}, FlexAttention in the dtype {theirs:.2e}"
    return f"{said}largest error {worst:.1e}", str(wrong) if wrong else None


if __name__ == "__main__":
    side_by_side.main(run, list(_cases), __doc__)
