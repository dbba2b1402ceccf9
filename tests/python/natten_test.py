#!/usr/bin/env python3
"""Checks attnc.natten against a dense mask that follows the definition of NATTEN's reference, with gradients.

  ATTNC_LIBRARY=libattnc.so python3 natten_test.py [-v ...]

Without a GPU, attnc's reference computes. Prints SKIPPED if torch is not installed.
"""

import inspect
import itertools
import unittest
from unittest import mock

import needs

needs.modules("attention")
import torch
from attention import relative_error
from attnc import natten
from attnc.torch import residues
from attnc.natten import NeighborhoodAttention2D, attention, merge_attentions, na1d, na2d, na3d

H, HKV, D, DV = 4, 2, 16, 8
CALLS = {1: na1d, 2: na2d, 3: na3d}
GENERATOR = torch.Generator().manual_seed(1)


def random(*shape, dtype=torch.float16):
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def neighbors(i, length, window, stride, dilation, is_causal):
    """Returns the tokens that token i sees along an axis, by NATTEN's rule for the start and the end of a window."""
    group, length = i % dilation, len(range(i % dilation, length, dilation))
    index, left, right = i // dilation, window // 2, window // 2 + window % 2 - 1
    if is_causal:
        leader = min(index // stride * stride + stride - 1, length - 1)
        start, end = max(leader - left - right, 0), min(index + 1, length)
    else:
        leader = min(index // stride * stride + stride // 2, length - 1)
        start = max(leader - left, 0) + (leader + right >= length) * (length - right - leader - 1)
        end = start + window
    return [j * dilation + group for j in range(start, end)]


def expected(q, k, v, window, stride, dilation, is_causal, more=None, scale=None):
    """Returns (out, lse) in fp64, of whatever tokens along each axis."""
    axes, shape = q.dim() - 3, q.shape[1:-2]
    mask = torch.ones(1, 1, dtype=torch.bool)
    for how in zip(shape, window, stride, dilation, is_causal):
        of_axis = torch.zeros(how[0], how[0], dtype=torch.bool)
        for i in range(how[0]):
            of_axis[i, neighbors(i, *how)] = True
        mask = torch.kron(mask, of_axis)
    q, k, v = (x.flatten(1, axes).double() for x in (q, k, v))
    if more is not None:
        k, v = (torch.cat([x, extra.double()], 1) for x, extra in zip((k, v), more))
        mask = torch.cat([mask, mask.new_ones(len(mask), more[0].shape[1])], 1)
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (scale or q.shape[-1] ** -0.5)
    scores = scores.masked_fill(~mask.to(q.device), -torch.inf)
    out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    return out.unflatten(1, shape), scores.logsumexp(-1).transpose(1, 2).unflatten(1, shape)


# Tokens, then window, stride, dilation and is_causal, each for all axes or one by one.
CASES = [
    ((20,), 7, 1, 1, False), ((20,), 6, 4, 1, False), ((20,), 6, 4, 1, True), ((21,), 5, 2, 4, False), ((24,), 5, 5, 3, True),
    ((21,), 3, 3, 4, True), ((20,), 20, 3, 1, False), ((20,), 20, 1, 1, True), ((18,), 9, 1, 2, False),
    ((9, 12), 3, 1, 1, False), ((9, 12), (4, 5), (2, 3), 1, (True, False)), ((9, 12), (3, 3), 1, (3, 4), False),
    ((10, 11), (3, 2), (2, 2), (2, 4), (False, True)), ((7, 8), (7, 8), 1, 1, False), ((7, 8), (7, 3), 2, 1, False),
    ((8, 8), 4, 4, 2, False), ((4, 5, 6), (2, 3, 4), 1, 1, False), ((4, 5, 6), (2, 3, 4), (2, 1, 3), 1, (True, False, False)),
    ((4, 6, 6), (2, 2, 3), (1, 2, 2), (2, 3, 2), (False, True, False)), ((4, 5, 7), 2, 1, (2, 2, 3), True),
]  # fmt: skip


class NattenTest(unittest.TestCase):
    def near(self, actual, wanted, limit=2e-3):
        self.assertEqual(actual.shape, wanted.shape)
        self.assertLess(relative_error(actual.detach(), wanted.detach()), limit)

    def compare(self, shape, window, stride, dilation, is_causal, additional=0, dtype=torch.float16, **options):
        limit = 1e-2 if dtype == torch.bfloat16 else 2e-3
        q, k, v = (random(2, *shape, h, d, dtype=dtype).requires_grad_() for h, d in ((H, D), (HKV, D), (HKV, DV)))
        more = [random(2, additional, HKV, d, dtype=dtype).requires_grad_() for d in (D, DV)] if additional else None
        names = dict(zip(("additional_keys", "additional_values"), more or ()))
        out, lse = CALLS[len(shape)](q, k, v, window, stride, dilation, is_causal, return_lse=True, **names, **options)
        every = (x if isinstance(x, tuple) else (x,) * len(shape) for x in (window, stride, dilation, is_causal))
        wanted, wanted_lse = expected(q, k, v, *every, more, **options)
        self.assertEqual((out.dtype, lse.dtype), (dtype, torch.float32))
        self.near(out, wanted, limit), self.near(lse, wanted_lse)
        learned = q, k, v, *(more or ())
        dout, dlse = random(*out.shape, dtype=dtype), random(*lse.shape, dtype=torch.float32)
        found = torch.autograd.grad((out, lse), learned, (dout, dlse))
        for x, y in zip(found, torch.autograd.grad((wanted, wanted_lse), learned, (dout.double(), dlse.double()))):
            self.near(x, y, 2 * limit)

    def test_windows_and_gradients(self):
        for case in CASES:
            with self.subTest(case):
                self.compare(*case)

    def test_additional_keys(self):
        for case in (CASES[0], CASES[10], CASES[13], CASES[12], CASES[18]):
            with self.subTest(case):
                self.compare(*case, additional=5)

    def test_dtypes_and_scale(self):
        for dtype in (torch.bfloat16, torch.float32):
            self.compare((9, 12), (3, 5), 1, (1, 2), False, dtype=dtype, scale=0.4)

    def test_masks_of_many_sizes(self):
        # The window of every extent, dilation and stride of a small axis, seen by the mask itself.
        for extent, window, dilation, is_causal in itertools.product((7, 10), (2, 3, 5), (1, 2, 3), (False, True)):
            for stride in range(1, window + 1):
                if window * dilation > extent:
                    continue
                with self.subTest(extent=extent, window=window, stride=stride, dilation=dilation, is_causal=is_causal):
                    v = torch.eye(extent, 16).view(1, extent, 1, 16)
                    zeros = torch.zeros_like(v)
                    out = na1d(zeros, zeros, v, window, stride, dilation, is_causal)[0, :, 0]
                    for i in range(extent):
                        seen = neighbors(i, extent, window, stride, dilation, is_causal)
                        self.assertEqual(out[i].nonzero().flatten().tolist(), seen)

    def test_residues_become_heads(self):
        for shape, window, dilation, wanted in (
            ((8, 12), (2, 2), (1, 3), (1, 3)), ((8, 12), (2, 2), (2, 3), (1, 3)), ((8, 12), (2, 2), (2, 5), (1, 1)),
            ((102, 84), (3, 3), (25, 1), (25, 1)), ((102, 84), (3, 3), (2, 2), (1, 2)), ((200, 96), (19, 9), (7, 4), (7, 4)),
            ((7284,), (4,), (1022,), (1,)), ((7284,), (40,), (101,), (101,)), ((2018,), (180,), (3,), (1,)),
        ):  # fmt: skip
            self.assertEqual(residues.residues_of(shape, window, dilation), wanted)
        none = random(0, 8, 12, H, D)
        self.assertEqual(na2d(none, none, none, 2, dilation=(2, 3)).shape, none.shape)
        q = random(1, 8, 12, H, D)
        self.assertEqual(residues.as_heads(q, (1, 3), residues.order_of(q, (8, 12), (1, 3))).data_ptr(), q.data_ptr())

    def test_training_after_inference(self):
        x = random(1, 9, 9, H, D)
        with mock.patch.object(residues, "_MANY", 0), mock.patch.object(residues, "_FEW", 0):
            with torch.inference_mode():
                na2d(x, x, x, 2, dilation=2)
            na2d(x.requires_grad_(), x, x, 2, dilation=2).sum().backward()

    def test_copies_of_residues(self):
        with mock.patch.object(residues, "_MANY", 0), mock.patch.object(residues, "_FEW", 0):
            for case in CASES:
                with self.subTest(case):
                    self.compare(*case)

    def test_merging(self):
        q, k, v = random(2, 9, H, D).requires_grad_(), random(2, 30, HKV, D), random(2, 30, HKV, DV).requires_grad_()
        parts = [attention(q, k[:, rows], v[:, rows], return_lse=True) for rows in (slice(0, 8), slice(8, 9), slice(9, 30))]
        out, lse = merge_attentions(*zip(*parts), torch_compile=False)
        whole, of_all = attention(q, k, v, return_lse=True)
        self.near(out, whole), self.near(lse, of_all)
        for x, y in zip(*(torch.autograd.grad(x.float().square().sum(), (q, v)) for x in (out, whole))):
            self.near(x, y, 5e-3)
        square = attention(q, k[:, :9], v[:, :9], is_causal=True)
        self.near(square[:, -1:], attention(q[:, -1:], k[:, :9], v[:, :9]))

    def test_layer(self):
        layer = NeighborhoodAttention2D(32, 4, kernel_size=(3, 5), dilation=(2, 1), proj_drop=0.0)
        self.assertEqual(
            [(name, tuple(x.shape)) for name, x in layer.state_dict().items()],
            [("qkv.weight", (96, 32)), ("qkv.bias", (96,)), ("proj.weight", (32, 32)), ("proj.bias", (32,))],
        )
        x = torch.randn(2, 8, 9, 32, generator=GENERATOR)
        qkv = layer.qkv(x).view(2, 8, 9, 3, 4, 8)
        out, _ = expected(*(qkv[..., i, :, :] for i in range(3)), (3, 5), (1, 1), (2, 1), (False, False))
        self.near(layer(x), layer.proj(out.flatten(-2).float()))
        layer(x).square().sum().backward()
        self.assertGreater(layer.qkv.weight.grad.norm(), 0)

    def test_in_graphs(self):
        @torch.compile(fullgraph=True, backend="aot_eager", dynamic=False)
        def both(q, more, window, gaps):
            out = na2d(q, q, q, window, dilation=gaps, additional_keys=more, additional_values=more)
            return out, na1d(q[:, 0], q[:, 0], q[:, 0], 4, 2, is_causal=True)

        for window, gaps, many in (((3, 5), (1, 2), 3000), ((2, 3), (2, 3), 0)):
            q, more = random(2, 6, 10, H, D).requires_grad_(), random(2, 5, H, D).requires_grad_()
            with mock.patch.object(residues, "_MANY", many), mock.patch.object(residues, "_FEW", 0):
                image, row = both(q, more, window, gaps)
            wanted, _ = expected(q, q, q, window, (1, 1), gaps, (False, False), (more, more))
            self.near(image, wanted)
            self.near(row, expected(q[:, 0], q[:, 0], q[:, 0], (4,), (2,), (1,), (True,))[0])
            for x, y in zip(*(torch.autograd.grad(x.sum(), (q, more)) for x in (image, wanted))):
                self.near(x, y, 5e-3)

    def test_order_of_arguments(self):
        names = (
            "query", "key", "value", "kernel_size", "stride", "dilation", "is_causal", "scale", "additional_keys",
            "additional_values",
        )  # fmt: skip
        self.assertEqual(tuple(inspect.signature(natten.neighborhood_attention_generic).parameters)[:10], names)

    def test_what_is_refused(self):
        q = random(1, 8, 9, H, D)
        for words, call in (
            (r"na1d takes \[B, X, H, D\]", lambda: na1d(q, q, q, 3)),
            (r"key has batch and tokens \[1, 7, 9\], query \[1, 8, 9\]", lambda: na2d(q, q[:, 1:], q, 3)),
            ("needs 12 tokens, and an axis has 8", lambda: na2d(q, q, q, 4, dilation=3)),
            ("stride 4 is larger than kernel_size 3", lambda: na2d(q, q, q, 3, 4)),
            ("kernel_size is .3, 3, 3.*one for each of the 2 axes", lambda: na2d(q, q, q, (3, 3, 3))),
            ("kernel_size is 0", lambda: na2d(q, q, q, 0)),
            ("is_causal is 1; it must be a bool", lambda: na2d(q, q, q, 3, is_causal=1)),
            ("give both, or neither", lambda: na2d(q, q, q, 3, additional_keys=q[0])),
            ("5 is no multiple|embed_dim 33 is no multiple", lambda: NeighborhoodAttention2D(33, 4, 3)),
            ("there are 2 outputs and 1", lambda: merge_attentions([q, q], [q])),
        ):  # fmt: skip
            with self.assertRaisesRegex(ValueError, words):
                call()
        with self.assertRaisesRegex(TypeError, "kernal is no argument"):
            na2d(q, q, q, 3, kernal=3)
        na2d(q, q, q, 3, backend="cutlass-fna", q_tile_shape=(8, 8), attention_kwargs={"backend": "cutlass-fmha"})


if __name__ == "__main__":
    unittest.main()
