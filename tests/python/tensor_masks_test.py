#!/usr/bin/env python3
"""Checks masks that are given as tensors: what they are found to be, when, and what the doors compute with them.

  ATTNC_LIBRARY=libattnc.so python3 tensor_masks_test.py [-v ...]

Runs on the CPU. Prints SKIPPED if torch is not installed.
"""

import contextlib
import os
import unittest
import unittest.mock

import needs

os.environ["HF_HUB_OFFLINE"] = "1"
needs.modules("attention")
import torch
import torch.nn.attention
from attention import by_definition, relative_error
from torch.nn.functional import scaled_dot_product_attention as sdpa

import attnc.torch
from attnc.torch import create_block_mask, flash, masks

B, N = 3, 150
LENGTHS = torch.tensor([150, 90, 20])


def at(n):
    return torch.arange(n)[:, None], torch.arange(n)[None]


def padded(lengths, n=N):
    """Causal, with keys up to lengths [B]: [B, 1, N, N]."""
    q, kv = at(n)
    return (q >= kv) & (kv < torch.as_tensor(lengths)[:, None, None, None])


def sinks(n=N):
    q, kv = at(n)
    return (q >= kv) & ((q - kv < 30) | (kv < 4))


def added(mask, value, dtype=torch.float32):
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, value)


def dense(found, batch=B, heads=1):
    """Returns the mask of a BlockMask at all positions."""
    shape = batch, heads, *found.seq_lengths
    indices = [torch.arange(size).view([-1 if axis == i else 1 for i in range(4)]) for axis, size in enumerate(shape)]
    return found.mask_mod(*indices).expand(shape)


class WhatIsFound(unittest.TestCase):
    def setUp(self):
        self.masks = masks.Masks()

    def of(self, mask, n=N):
        return self.masks.of(mask, n, mask.shape[-1])

    def check(self, mask):
        """Asks for a mask, and compares what comes with it."""
        found = self.of(mask)
        shape = (1,) * (4 - mask.dim()) + tuple(mask.shape)
        self.assertTrue(torch.equal(dense(found, *shape[:2]), mask.reshape(shape).expand(*shape[:2], N, N)))
        return found

    def texts(self):
        return [seen.inference.expression for seen in self.masks.inferred]

    def test_a_mask_becomes_its_mod_and_is_looked_at_once(self):
        mask = padded(LENGTHS)
        found = self.check(mask)
        self.assertEqual(self.texts(), ["(q_idx >= kv_idx) & (kv_idx < lengths[b])"])
        self.assertEqual(found.shape, (B, 1, N, N))
        with unittest.mock.patch.object(masks, "_rows_of", side_effect=AssertionError):
            self.assertIs(self.of(mask), found)
            self.assertIs(self.of(mask[..., :N].view(mask.shape)), found)  # as each layer cuts it

    def test_masks_by_name(self):
        q, kv = at(N)
        heads = torch.tensor([10, 60])[:, None, None]
        for mask, text in (
            (q >= kv, "q_idx >= kv_idx"),
            (sinks(), "(q_idx >= kv_idx) & ((kv_idx < 4) | (q_idx - kv_idx < 30))"),
            (((q >= kv) & (q - kv < heads))[None], "(q_idx >= kv_idx) & (q_idx - kv_idx < window[h])"),
            ((kv < LENGTHS[:, None, None, None]), "kv_idx < lengths[b]"),  # [B, 1, 1, N]
            ((q >= kv).expand(B, 4, N, N)[:, :1], "q_idx >= kv_idx"),
        ):
            with self.subTest(text):
                self.masks = masks.Masks()
                self.check(mask)
                self.assertEqual(self.texts(), [text])

    def test_a_write_is_seen(self):
        mask = padded(LENGTHS)
        first = self.check(mask)
        mask[0, 0, 140:, :3] = False
        self.assertIsNot(self.check(mask), first)

    def test_views_of_one_tensor_are_masks_of_their_own(self):
        mask = padded(LENGTHS)
        for view in (mask, mask.mT, mask[1:], mask[:2]):
            self.check(view)

    def test_memory_that_another_mask_takes_is_no_mask_that_was(self):
        for lengths in ([150, 90, 20], [1, 2, 3], [30, 60, 90]):
            self.check(padded(lengths))

    def test_a_tensor_of_equal_values_is_the_same_mask(self):
        kept = []
        for make in (lambda: padded(LENGTHS), sinks):
            for _ in range(6):
                kept.append(make())
                self.check(kept[-1])
        self.assertEqual(len(self.masks.inferred), 2)

    def test_masks_that_change_count_by_their_rows(self):
        for step in range(7):
            mask = padded(LENGTHS - step)
            self.check(mask)
            self.of(mask)  # as a second layer does
            del mask
        self.assertEqual(len(self.masks.inferred), 1)

    def test_two_masks_of_one_step_are_both_inferred(self):
        for step in range(3):
            both = padded(LENGTHS - step), padded(LENGTHS - step) & (at(N)[0] - at(N)[1] < 40)
            for mask in both:
                self.check(mask)
            del both, mask
        self.assertEqual(len(self.masks.inferred), 2)

    def test_no_more_than_some_are_inferred(self):
        q, kv = at(N)
        found = [self.of((q >= kv) & ((q - kv < window) | (kv < 4))) is not None for window in range(10, 16)]
        self.assertEqual(found, [True] * 4 + [False] * 2)

    def test_masks_that_are_added(self):
        mask = padded(LENGTHS)
        for value, dtype in ((-torch.inf, torch.float32), (-1e4, torch.float16), (torch.finfo(torch.bfloat16).min, torch.bfloat16)):
            found = self.of(added(mask, value, dtype))
            self.assertTrue(torch.equal(dense(found), mask))

    def test_rows_that_finite_numbers_mask_stay_as_they_are(self):
        """Their results are the mean of all values."""
        q, kv = at(N)
        mask = ((q >= kv) & (kv >= 5))[None, None]
        self.assertIsNone(self.of(added(mask, -1e30)))
        self.assertTrue(torch.equal(dense(self.of(added(mask, -torch.inf)), 1), mask))

    def test_what_is_no_mask(self):
        bias = torch.randn(1, 4, N, N)
        self.assertIsNone(self.of(bias))
        almost = added(padded(LENGTHS), -torch.inf)
        almost[1, 0, 30, 20] = -3
        self.assertIsNone(self.of(almost))
        almost[1, 0, 30, 20] = torch.nan
        self.assertIsNone(self.of(almost))

    def test_tensors_that_are_new_at_each_use_are_given_up(self):
        with unittest.mock.patch.object(masks, "_rows_of", wraps=masks._rows_of) as looked, self.assertLogs(
            "attnc.torch.masks", "INFO"
        ) as told:
            for _ in range(30):
                self.assertIsNone(self.of(torch.randn(1, 4, N, N)))
        self.assertEqual(looked.call_count, 16)
        self.assertIn("masks of torch.float32 change at each use", "\n".join(told.output))

    def test_a_table_stays_with_the_tensor(self):
        noise = torch.rand(N, N) < 0.5
        for _ in range(3):
            self.assertIsNone(self.of(noise))
        self.assertEqual([seen.inference.form for seen in self.masks.inferred], ["table"])

    def test_where_nothing_is_looked_at(self):
        mask = padded(LENGTHS)
        with torch.inference_mode():
            unversioned = mask.clone()
        self.assertIsNone(self.of(unversioned))
        self.assertIsNone(self.of(added(mask, -torch.inf).requires_grad_()))
        self.assertIsNone(self.masks.of(mask[:, :, :127], 127, N))
        self.assertIsNone(self.of(mask[:, :, :, :0]))
        self.assertIsNone(self.masks.of(mask[..., :1], N, N))  # one key for all
        self.masks.most = 0
        self.assertIsNone(self.of(mask))
        self.assertEqual(self.masks.inferred, [])

    def test_parts_of_large_masks(self):
        with unittest.mock.patch.object(masks, "_PART", 1000):
            for mask in (padded(LENGTHS), sinks()):
                self.check(mask)
                self.check(mask.clone())
        self.assertEqual(len(self.masks.inferred), 2)

    def test_the_time_is_told(self):
        with self.assertLogs("attnc.torch.masks", "INFO") as told:
            self.of(padded(LENGTHS))
        self.assertRegex(told.output[0], r"INFO.*\[3, 1, 150, 150\] on cpu is a formula: causal; .* Inferred in \d+ ms$")
        with self.assertLogs("attnc.torch.masks", "WARNING") as told, unittest.mock.patch.object(masks, "_SLOW", 0.0):
            self.of(sinks())
        self.assertIn("attnc.torch.infer_masks(0)", told.output[0])


@contextlib.contextmanager
def active():
    """attnc behind scaled_dot_product_attention on the CPU, with masks of its own."""
    own, door = masks.Masks(), flash._Active("CPU")
    try:
        with unittest.mock.patch.object(flash, "MASKS", own):
            yield own
    finally:
        door.remove()


class Doors(unittest.TestCase):
    def near(self, actual, expected, limit=1e-2):
        self.assertLess(relative_error(actual.detach(), expected.detach()), limit)

    def operands(self, dtype=torch.bfloat16, kv_heads=2):
        generator = torch.Generator().manual_seed(1)
        shapes = (B, 4, N, 32), (B, kv_heads, N, 32), (B, kv_heads, N, 32)
        return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]

    def test_scaled_dot_product_attention(self):
        mask = padded(LENGTHS)
        for given in (mask, mask.expand(B, 4, N, N), added(mask, -torch.inf, torch.bfloat16), sinks()):
            with self.subTest(given.dtype), active() as own:
                q, k, v = self.operands()
                out = sdpa(q, k, v, attn_mask=given, enable_gqa=True, scale=0.2)
                self.assertEqual(len(own.inferred), 1)
                live = given if given.dtype == torch.bool else given == 0
                live = live.expand(B, 4, N, N)
                right, _ = by_definition(None, lambda b, h, q, k: live[b, h, q, k], q, k, v, 0.2)
                self.near(out, right)
                dout = torch.randn_like(out)
                found = torch.autograd.grad(out, (q, k, v), dout)
                for actual, wanted in zip(found, torch.autograd.grad(right, (q, k, v), dout.double())):
                    self.near(actual, wanted)

    def test_what_pytorch_computes(self):
        mask = padded(LENGTHS)
        q, k, v = self.operands()
        wide = self.operands(torch.float32)
        right = sdpa(q, k, v, attn_mask=mask, enable_gqa=True)
        bias = torch.randn(N, N).bfloat16()
        biased = sdpa(q, k, v, attn_mask=bias, enable_gqa=True)
        in_full = sdpa(*wide, attn_mask=mask, enable_gqa=True)
        with active() as own, unittest.mock.patch.object(flash, "flex_attention", side_effect=AssertionError):
            self.assertTrue(torch.equal(sdpa(q, k, v, attn_mask=bias, enable_gqa=True), biased))
            self.assertTrue(torch.equal(sdpa(*wide, attn_mask=mask, enable_gqa=True), in_full))
            sdpa(q, k, v, is_causal=True, enable_gqa=True)
            with self.assertRaises(RuntimeError):
                sdpa(q, k, v, attn_mask=mask)  # without enable_gqa
            with self.assertRaises(RuntimeError):
                sdpa(q, k, v, attn_mask=mask[..., 1:], enable_gqa=True)
            compiled = torch.compile(
                lambda *x: sdpa(*x, attn_mask=mask, enable_gqa=True), backend="aot_eager", fullgraph=True
            )  # fmt: skip
            self.near(compiled(q, k, v), right)
            self.assertEqual(own.inferred, [])

    def test_dropout(self):
        q, k, v = self.operands()
        with active():
            torch.manual_seed(0)
            first, second = (sdpa(q, k, v, sinks(), dropout_p=0.25, enable_gqa=True) for _ in range(2))
            torch.manual_seed(0)
            self.assertTrue(torch.equal(sdpa(q, k, v, sinks(), dropout_p=0.25, enable_gqa=True), first))
        self.assertFalse(torch.equal(first, second))

    def test_transformers(self):
        needs.modules("transformers")
        import attnc.transformers
        from transformers import LlamaConfig, LlamaForCausalLM

        attnc.transformers.register()
        config = LlamaConfig(
            vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16,
        )  # fmt: skip
        torch.manual_seed(1)
        models = [LlamaForCausalLM._from_config(config, attn_implementation=name) for name in ("eager", "attnc")]
        models[1].load_state_dict(models[0].state_dict())
        tokens, mask = torch.randint(2, 64, (B, N)), padded(LENGTHS)
        results, own = [], masks.Masks()
        with unittest.mock.patch.object(attnc.transformers, "MASKS", own):
            for model in models:
                logits = model(tokens, attention_mask=added(mask, -1e30), use_cache=False).logits
                gradients = torch.autograd.grad(logits.square().sum(), [*model.parameters()][1:8])
                results.append((logits, *gradients))
        for expected, actual in zip(*results):
            self.near(actual, expected, 1e-4)
        self.assertEqual([seen.inference.form for seen in own.inferred], ["formula"])

    @unittest.skipUnless(torch.cuda.is_available() and hasattr(torch.nn.attention, "activate_flash_attention_impl"), "no GPU")
    def test_on_a_gpu(self):
        """Looks stay on the device; a CUDA graph reads the tensor, whose writes later replays see."""
        flash.register()
        torch.nn.attention.activate_flash_attention_impl("attnc")
        self.addCleanup(torch.nn.attention.restore_flash_attention_impl)
        own = masks.Masks()
        with unittest.mock.patch.object(flash, "MASKS", own):
            for mask in (padded(LENGTHS), sinks()):
                q, k, v = (x.detach().cuda().requires_grad_() for x in self.operands(kv_heads=4))
                live = mask.expand(B, 4, N, N)
                right, _ = by_definition(None, lambda b, h, q, k: live[b, h, q, k], *(x.detach().cpu() for x in (q, k, v)))  # noqa: B023
                for given in (mask.cuda(), added(mask, -torch.inf, torch.bfloat16).cuda()):
                    out = sdpa(q, k, v, attn_mask=given)
                    self.assertIn("_Attention", str(out.grad_fn))
                    self.near(out.cpu(), right)
                    torch.autograd.grad(out.float().square().sum(), (q, k, v))
            self.assertEqual(len(own.inferred), 2)
            q, k, v = (x.detach() for x in (q, k, v))
            mask = torch.ones(N, N, dtype=torch.bool, device="cuda")
            sdpa(q, k, v, attn_mask=mask)  # inferred: all live
            own.most = 0
            sdpa(q, k, v, attn_mask=mask)  # what the graph captures is warm
            own.most = 4
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = sdpa(q, k, v, attn_mask=mask)
            mask.copy_(sinks())
            graph.replay()
            self.near(out.cpu(), right)

    def test_the_functions_of_the_package(self):
        own = masks.Masks()
        with unittest.mock.patch.object(masks, "MASKS", own):
            own.of(sinks(), N, N)
            (found,) = attnc.torch.inferred_masks()
            self.assertIn("a window of 30 keys", found.recognised)
            attnc.torch.infer_masks(0)
        self.assertEqual(own.most, 0)

    def test_a_mod_from_a_tensor_makes_a_block_mask(self):
        mask = padded(LENGTHS)
        made = create_block_mask(attnc.infer(mask).mask_mod, B, None, N, N, device="cpu")
        q, k, v = self.operands(torch.float32)
        out = attnc.torch.flex_attention(q, k, v, block_mask=made, enable_gqa=True)
        self.near(out, by_definition(None, lambda b, h, q, k: mask[b, 0, q, k], q, k, v)[0], 1e-5)


if __name__ == "__main__":
    unittest.main()
