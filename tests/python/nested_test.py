#!/usr/bin/env python3
"""Compares flex_attention over NestedTensors with attention in fp64 of each sequence: results, lse, row maxima, gradients;
and what is refused.

  ATTNC_LIBRARY=libattnc.so python3 nested_test.py [-v ...]

Runs on the CPU, and on a GPU if there is one. Prints SKIPPED if torch is not installed.
"""

import unittest

import needs

needs.modules("attention")
import torch
from attention import by_definition
from attnc.torch import AuxRequest, OperandError, create_block_mask, explain, flex_attention
from torch.nn.attention import flex_attention as flex
from torch.utils.flop_counter import FlopCounterMode

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
H, HKV, D, DV = 4, 2, 16, 24
LENGTHS, OTHERS = (3, 0, 70, 5, 1), (4, 2, 33, 0, 150)
LONGEST = max(LENGTHS + OTHERS)


def nested(rows, offsets, dim=2):
    """Returns [B, H, j, E] of rows [ROWS, H, E], or for dim 1 [H, ROWS, E]."""
    if dim == 1:
        return torch.nested.nested_tensor_from_jagged(rows, offsets, jagged_dim=2)
    return torch.nested.nested_tensor_from_jagged(rows, offsets).transpose(1, 2)


def offsets_of(lengths, device="cpu"):
    return torch.tensor([0, *lengths], device=device).cumsum(0)


class NestedTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def operands(self, lengths, others, device="cpu"):
        """Returns rows [ROWS, HEADS, E] of q, k and v, which want gradients."""
        shapes = (sum(lengths), H, D), (sum(others), HKV, D), (sum(others), HKV, DV)
        return [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]

    def expected(self, rows, lengths, others, score_mod, mask_mod):
        """Returns out [ROWS, H, DV] and lse [ROWS, H] in fp64, one sequence after another."""
        out, lse = [], []
        for b, (q, k, v) in enumerate(zip(*(x.split(n) for x, n in zip(rows, (lengths, others, others))))):
            if not len(q) or not len(k):
                out.append(q.new_zeros(len(q), H, v.shape[-1], dtype=torch.float64) + 0 * q.sum())
                lse.append(q.new_full((len(q), H), -torch.inf, dtype=torch.float64))
                continue
            b = torch.tensor(b, device=q.device)
            found = by_definition(
                lambda score, _, h, i, j: score_mod(score, b, h, i, j), lambda _, h, i, j: mask_mod(b, h, i, j),
                *(x.transpose(0, 1)[None] for x in (q, k, v)),
            )  # fmt: skip
            out.append(found[0][0].transpose(0, 1))
            lse.append(found[1][0].transpose(0, 1))
        return torch.cat(out), torch.cat(lse)

    def near(self, actual, expected):
        torch.testing.assert_close(actual.double(), expected.double(), rtol=2e-5, atol=2e-5)

    def check(self, device, lengths, others, attend=flex_attention):
        """With mods that read the sequence, positions in it, and a captured tensor that wants a gradient."""
        rows = self.operands(lengths, others, device)
        bias = torch.randn(len(lengths), H, LONGEST, device=device, requires_grad=True)
        first = torch.tensor([0, 1, 7, 0, 2], device=device)

        def score_mod(score, b, h, q_idx, kv_idx):
            return score + bias[b, h, q_idx] * kv_idx / LONGEST

        def mask_mod(b, h, q_idx, kv_idx):
            return (q_idx + first[b] >= kv_idx) | (b == 3)

        offsets = offsets_of(lengths, device)
        of_keys = offsets if others is lengths else offsets_of(others, device)
        q, k, v = (nested(x, at) for x, at in zip(rows, (offsets, of_keys, of_keys)))
        mask = create_block_mask(mask_mod, None, None, LONGEST, LONGEST, device=device)
        out, lse = attend(q, k, v, score_mod, mask, enable_gqa=True, return_lse=True)
        self.assertEqual(out.shape, (len(lengths), H, q.shape[2], DV))
        self.assertEqual(lse.shape, out.shape[:3])
        self.assertIs(out.offsets(), offsets)
        self.assertEqual([x.shape[1] for x in out.unbind()], [*lengths])
        found = out.transpose(1, 2).values(), lse.transpose(1, 2).values()
        wanted = self.expected(rows, lengths, others, score_mod, mask_mod)
        self.near(found[0], wanted[0])
        self.near(found[1], wanted[1])
        of_out, of_lse = torch.randn_like(wanted[0]), torch.randn_like(wanted[1])
        learned, lives = (*rows, bias), wanted[1].isfinite()
        gradients = [
            torch.autograd.grad((out * of_out).sum() + (lse * of_lse)[lives].sum(), learned, materialize_grads=True)
            for out, lse in (found, wanted)
        ]
        for is_, be in zip(*gradients):
            self.near(is_, be)
        self.assertEqual(bool(gradients[0][3].any()), any(lengths))

    def test_sequences(self):
        for device in DEVICES:
            with self.subTest(device):
                self.check(device, LENGTHS, LENGTHS)
                self.check(device, LENGTHS, OTHERS)
                self.check(device, (0, 0), (0, 0))

    def test_graphs(self):
        """A call breaks the graph."""
        self.check("cpu", LENGTHS, LENGTHS, torch.compile(flex_attention, backend="eager"))
        projected = lambda x: flex_attention(2 * x, x, x) + 1
        x = nested(torch.randn(8, H, D), offsets_of((3, 5)))
        self.near(torch.compile(projected, backend="aot_eager")(x).values(), projected(x).values())

    def test_layouts(self):
        """Memory of rows [H, ROWS, D], columns of one tensor, no gradients, and operands of other dtypes."""
        q, k, v = self.operands(LENGTHS, LENGTHS)
        v, offsets = torch.randn_like(k), offsets_of(LENGTHS)
        wanted = self.expected((q, k, v), LENGTHS, LENGTHS, lambda score, *_: score, lambda b, h, i, j: i >= 0)[0]
        of_heads = (nested(x.transpose(0, 1).contiguous(), offsets, 1) for x in (q, k, v))
        together = (nested(x, offsets) for x in torch.cat((q, k, v), 1).split([H, HKV, HKV], 1))
        for operands in (of_heads, together):
            self.near(flex_attention(*operands, enable_gqa=True).transpose(1, 2).values(), wanted)
        q, k, v = (nested(x.detach(), offsets) for x in (q, k, v))
        out, aux = flex_attention(q.half(), k, v.bfloat16(), enable_gqa=True, return_aux=AuxRequest(max_scores=True))
        self.assertEqual((out.dtype, aux.lse, aux.max_scores.shape), (torch.float16, None, q.shape[:3]))
        torch.testing.assert_close(out.transpose(1, 2).values().double(), wanted, rtol=2e-2, atol=2e-2)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(flex_attention(q, k, v, enable_gqa=True).dtype, torch.bfloat16)

    def test_other_mods(self):
        """Those of the softmax, next to calls for each sequence."""
        q, k, v = (nested(x.detach(), offsets_of((3, 70))) for x in self.operands((3, 70), (3, 70)))
        k, v = (torch.nested.nested_tensor_from_jagged(x.values(), q.offsets(), jagged_dim=2) for x in (k, v))
        sink, bias = torch.randn(H), torch.randn(H)
        for mods in (
            {"sink_mod": lambda b, h, q_idx: sink[h]},
            {"prob_mod": lambda prob, b, h, q_idx, kv_idx: prob * bias[h] * q_idx},
            {"weight_mod": lambda score, b, h, q_idx, kv_idx: torch.sigmoid(score) * kv_idx},
        ):
            out = flex_attention(q, k, v, enable_gqa=True, **mods)
            for is_, *operands in zip(*(x.unbind() for x in (out, q, k, v))):
                self.near(is_, flex_attention(*(x[None] for x in operands), enable_gqa=True, **mods)[0])
        self.assertEqual(flex_attention(q, k, v, enable_gqa=True, dropout_p=0.5).shape, out.shape)

    def test_refusals(self):
        rows, offsets = torch.randn(8, H, D), offsets_of((3, 5))
        x, dense = nested(rows, offsets), torch.randn(2, H, 5, D)
        strided = torch.nested.nested_tensor([torch.randn(H, n, D) for n in (3, 5)])
        of_lengths = torch.nested.nested_tensor_from_jagged(rows, offsets, torch.tensor([2, 5])).transpose(1, 2)
        for operands, kind, told in (
            ((x, dense, x), ValueError, "key is not a NestedTensor"),
            ((dense, x, x), NotImplementedError, "key is a NestedTensor: flex_attention takes three"),
            ((strided,) * 3, NotImplementedError, r"strided layout: give torch.nested.as_nested_tensor\(query.unbind"),
            ((x.transpose(1, 2),) * 3, NotImplementedError, r"ragged in dim 1: it must be \[B, H, j, E\]"),
            ((of_lengths,) * 3, NotImplementedError, "holes"),
            ((x, x, nested(rows, offsets.clone())), ValueError, "key and value have other offsets"),
            ((x, *[nested(rows, offsets_of((8,)))] * 2), ValueError, "batch 2, key 1"),
        ):  # fmt: skip
            with self.assertRaisesRegex(kind, told):
                flex_attention(*operands)
        with self.assertRaisesRegex(NotImplementedError, "query is a NestedTensor"):
            explain(x, x, x, arch="sm_90a")
        with self.assertRaisesRegex(NotImplementedError, "operations are recorded"), FlopCounterMode(display=False):
            flex_attention(x, x, x)
        with self.assertRaisesRegex(NotImplementedError, "fp8 are not computed"):
            flex_attention(x.half(), x.half(), x.half(), kernel_options={"fp8": True})
        causal = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
        with self.assertRaisesRegex(NotImplementedError, r"lists of blocks.*create_block_mask\(mask_mod, B, H, 5, 5\)"):
            flex_attention(x, x, x, block_mask=flex.create_block_mask(causal, None, None, 8, 8, device="cpu"))
        with self.assertRaisesRegex(OperandError, "of 4 queries and 5 keys, the longest sequences have 5 and 5"):
            flex_attention(x, x, x, block_mask=create_block_mask(causal, None, None, 4, 5, device="cpu"))
        with self.assertRaisesRegex(ValueError, "block_mask is of batch 3"):
            flex_attention(x, x, x, block_mask=create_block_mask(causal, 3, None, 5, 5, device="cpu"))
        short = torch.randn(4)
        with self.assertRaisesRegex(IndexError, "too short"):
            flex_attention(x, x, x, lambda score, b, h, q_idx, kv_idx: score + short[q_idx])


if __name__ == "__main__":
    unittest.main()
