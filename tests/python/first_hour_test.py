#!/usr/bin/env python3
"""What people who know FlexAttention meet first: mistakes in mods and calls, the notice of the CPU, pictures, explain.

  ATTNC_COMMAND=attnc ATTNC_LIBRARY=libattnc.so python3 first_hour_test.py

Prints SKIPPED if torch is not installed.
"""

import unittest
import warnings
from unittest import mock

import needs

needs.modules("torch")
import torch
import attnc
from attnc import _cpu_notice
from attnc.torch import (
    AuxRequest, FlexKernelOptions, OperandError, UntranslatableError, create_block_mask, explain, flex_attention, translate,
)  # fmt: skip
from torch.nn.attention import flex_attention as flex

Q, K, V = (torch.randn(1, 2, 16, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
BIAS = "bias: f32[H, Q_LEN, KV_LEN]\ndef score_mod(s, b, h, q_idx, kv_idx): return s + bias[h, q_idx, kv_idx]"


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def branching(score, b, h, q_idx, kv_idx):
    if q_idx > kv_idx:
        return score
    return score * 2


class Mistakes(unittest.TestCase):
    def test_a_branch_on_a_tensor_is_told_with_its_line(self):
        line = branching.__code__.co_firstlineno + 1
        with self.assertRaises(UntranslatableError) as caught:
            flex_attention(Q, K, V, branching)
        message = str(caught.exception)
        self.assertTrue(message.startswith(f"{__file__}:{line}:8: error: Python decides a condition"), message)
        self.assertIn("torch.where", message)
        self.assertLess(len(message), 400)
        self.assertNotIn("TORCHDYNAMO", message)
        self.assertTrue(caught.exception.__suppress_context__)

    def test_a_function_is_no_block_mask(self):
        with self.assertRaisesRegex(TypeError, r"block_mask is a function: give create_block_mask\("):
            flex_attention(Q, K, V, block_mask=causal)

    def test_third_derivatives_are_refused_where_they_count(self):
        x, table = Q.clone().requires_grad_(), torch.ones(2, requires_grad=True)
        mod = lambda s, b, h, q_idx, kv_idx: s * table[h]  # noqa: E731
        out = flex_attention(x, K, V, mod).square().sum()
        of_first = torch.autograd.grad(out, (x, table), create_graph=True)
        (second,) = torch.autograd.grad(sum(y.sum() for y in of_first), x, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "no third derivatives"):
            # The sum of x has a gradient: without the error the rest would count as zero.
            torch.autograd.grad(second.pow(2).sum() + x.sum(), x, retain_graph=True)
        (second.detach().sum() + x.sum()).backward()

    def test_names_of_captures_are_checked(self):
        bias = torch.zeros(2, 16, 16)
        for captures, message in (
            ({"bais": bias}, "captures has `bais`, which the mod does not capture: did you mean `bias`?"),
            ({"bias": bias, "table": bias}, "captures has `table`, .* its captures: bias"),
            ({}, "the mod captures `bias`, which is not given"),
        ):
            with self.assertRaisesRegex(attnc.ArgumentError, message):
                attnc.attention(BIAS, Q, K, V, captures=captures)

    def test_tensors_that_require_gradients(self):
        bias, x = torch.zeros(2, 16, 16), Q.clone().requires_grad_()
        for name, q, captured in (("q", x, bias), ("bias", Q, bias.clone().requires_grad_())):
            with self.assertRaisesRegex(attnc.ArgumentError, f"{name} requires a gradient.*attnc.torch.flex_attention"):
                attnc.attention(BIAS, q, K, V, captures={"bias": captured})
            with torch.no_grad():
                out = attnc.attention(BIAS, q, K, V, captures={"bias": captured})
            torch.testing.assert_close(out, attnc.attention(BIAS, Q, K, V, captures={"bias": bias}))
            # tune() has nothing to differentiate: the operands' device is what it asks about.
            with self.assertRaisesRegex(attnc.ArgumentError, "q is on the CPU"):
                attnc.tune(BIAS, q, K, V, captures={"bias": captured})

    def test_doubles_by_default(self):
        mods = (
            lambda s, b, h, q_idx, kv_idx: torch.where(q_idx >= kv_idx, s, -1e4),
            lambda s, b, h, q_idx, kv_idx: s + torch.where(q_idx >= kv_idx, 0.0, -1e4),
        )
        expected = flex_attention(Q, K, V, mods[0])
        torch.set_default_dtype(torch.float64)
        try:
            self.assertTrue(torch.equal(flex_attention(Q, K, V, lambda *of: mods[0](*of)), expected))
            with self.assertRaisesRegex(UntranslatableError, r"numbers after torch\.set_default_dtype\(torch\.float32\)"):
                flex_attention(Q, K, V, mods[1])
        finally:
            torch.set_default_dtype(torch.float32)
        self.assertTrue(flex_attention(Q, K, V, mods[1]).isfinite().all())

    def test_short_captures_are_refused(self):
        slopes = torch.zeros(1)
        with self.assertRaisesRegex(IndexError, "`slopes` is too short"):
            flex_attention(Q, K, V, lambda s, b, h, q_idx, kv_idx: s + slopes[h])


class CpuNotice(unittest.TestCase):
    def warned(self, *calls, has_gpu=False):
        """Returns the notices of these calls, in a process that had none yet."""
        with (
            warnings.catch_warnings(record=True) as told, mock.patch.object(_cpu_notice, "_is_told", False),
            mock.patch.object(_cpu_notice, "_has_gpu", lambda: has_gpu), mock.patch.object(_cpu_notice, "_MANY", 4096),
            mock.patch.dict("attnc.torch.kernels._calls", clear=True),
        ):  # fmt: skip
            warnings.simplefilter("always")
            for call in calls:
                call()
        return [one for one in told if issubclass(one.category, attnc.CpuWarning)]

    def test_it_comes_once_for_a_large_problem_or_where_a_gpu_is(self):
        few = lambda: flex_attention(Q[:, :1, :4], K[:, :1], V[:, :1])  # noqa: E731  1024 products
        many = lambda: flex_attention(Q, K, V)  # noqa: E731  8192
        plain = lambda: attnc.attention("q_idx >= kv_idx", Q, K, V)  # noqa: E731
        self.assertEqual(self.warned(few), [])
        for calls in ((few, many, many, plain), (plain, many)):
            (told,) = self.warned(*calls)
            self.assertEqual(told.filename, __file__)
            self.assertRegex(str(told.message), "^q is on the CPU: .*filterwarnings.*CpuWarning")
            self.assertNotIn("\n", str(told.message))
        (told,) = self.warned(few, many, has_gpu=True)
        self.assertIn("and a GPU is here", str(told.message))


class Pictures(unittest.TestCase):
    def test_block_masks_are_pictures_in_notebooks(self):
        documents = torch.arange(512) // 100
        same = lambda b, h, q_idx, kv_idx: documents[q_idx] == documents[kv_idx]  # noqa: E731
        mask = create_block_mask(same, None, None, 512, 512, device="cpu")
        svg = mask.mask_svg()
        self.assertIn("Q_LEN 512 x KV_LEN 512, 4 x 4 blocks of 128 x 128", svg)
        self.assertRegex(mask._repr_html_(), r"(?s)^<figure><svg .*BlockMask of \(1, 1, 512, 512\)")
        self.assertNotEqual(svg, create_block_mask(causal, None, None, 512, 512, device="cpu").mask_svg())
        self.assertIsNone(create_block_mask(same, None, None, 1 << 14, 1 << 14, device="cpu")._repr_svg_())

    def test_captured_tensors_in_any_layout(self):
        table = torch.zeros(6, 512, dtype=torch.bool).t()[:, 1::2]  # not dense
        table[100:200, 1] = True
        keys = lambda b, h, q_idx, kv_idx: table[kv_idx, 1]  # noqa: E731
        by_positions = lambda b, h, q_idx, kv_idx: (kv_idx >= 100) & (kv_idx < 200)  # noqa: E731
        drawn = [
            create_block_mask(mod, None, None, 512, 512, device="cpu").mask_svg() for mod in (keys, by_positions)
        ]
        self.assertEqual(*drawn)


class Explains(unittest.TestCase):
    def test_the_kernel_of_a_call(self):
        q = torch.empty(1, 4, 1024, 64, dtype=torch.bfloat16)
        slopes = torch.zeros(4, requires_grad=True)
        mask = create_block_mask(causal, None, None, 1024, 1024, device="cpu")
        mod = lambda s, b, h, q_idx, kv_idx: s + slopes[h] * (kv_idx - q_idx)  # noqa: E731
        try:
            found = explain(q, q, q, mod, mask, arch="sm_90a", training=False)
            trained = explain(q, q, q, mod, mask, arch="sm_90a")
        except attnc.RunError as error:
            self.skipTest(f"SKIPPED: {error}")
        self.assertEqual(found["functions"], ["score_mod", "mask_mod"])
        self.assertEqual((found["kernel"]["kind"], found["kernel"]["family"]), ("forward", "sm90"))
        self.assertEqual(trained["kernel"]["kind"], "backward")

    def test_explain_takes_what_flex_attention_takes(self):
        q, k, v = (torch.empty(1, heads, 1024, 64, dtype=torch.bfloat16) for heads in (4, 2, 2))
        mask = create_block_mask(causal, None, None, 1024, 1024, device="cpu")
        more = {"scale": 0.5, "enable_gqa": True, "return_aux": AuxRequest(lse=True, max_scores=True)}
        try:
            plain = explain(q, k, v, None, mask, 0.5, True, True, arch="sm_90a")
            rounded = [
                explain(q, k, v, None, mask, kernel_options={"fp8": fp8}, arch="sm_90a", **more)
                for fp8 in (True, "head", "row")
            ]
            tiled = explain(q, k, v, None, mask, kernel_options={"tile": "128x64x8"}, arch="sm_90a", **more)
            older = explain(q, k, v, None, mask, kernel_options={"family": "sm80"}, arch="sm_90a", **more)
            u, w = torch.rand(1024, 64), torch.rand(1024, 64)
            words = [
                explain(
                    q, k, v, lambda score, b, h, q_idx, kv_idx: score + u[q_idx] @ w[kv_idx], mask, **more,
                    kernel_options={"low_rank_error": error}, arch="sm_90a",
                )["kernel"]["lowRank"]
                for error in (0.0, 0.01)
            ]  # fmt: skip
        except attnc.RunError as error:
            if "nvrtc" in str(error).lower():
                self.skipTest(f"SKIPPED: {error}")
            raise
        self.assertEqual((plain["kernel"]["qDtype"], plain["kernel"]["dtype"]), ("bf16", "bf16"))
        for found in rounded:
            self.assertEqual((found["kernel"]["qDtype"], found["kernel"]["dtype"]), ("e4m3", "bf16"))
        self.assertEqual(tiled["tile"]["tile"], "128x64x8")
        self.assertEqual((plain["kernel"]["family"], older["kernel"]["family"]), ("sm90", "sm80"))
        self.assertIn("not in columns", words[0])
        self.assertIn("rank 64: 64 columns of q and k (head dim 128), to 2^-7", words[1])

    def test_mods_of_functions_are_explained(self):
        lengths = torch.tensor([256, 512])
        found = translate(None, lambda b, h, q_idx, kv_idx: kv_idx < lengths[b])
        self.assertEqual(repr(found.mod), "<attnc.Mod <torch>: mask_mod, lengths: i64[2]>")
        self.assertIn("<svg ", found.mod.mask_svg(512))
        try:
            told = attnc.explain(found.mod, (2, 4, 2, 1024, 1024), captures=found.tensors, dtype="e4m3", arch="sm_90a")
        except attnc.RunError as error:
            if "nvrtc" in str(error).lower():
                self.skipTest(f"SKIPPED: {error}")
            raise
        self.assertIn("problem     B 2, H 4, HKV 2, Q_LEN 1024, KV_LEN 1024", told)
        self.assertRegex(told, r"\n +live +48   37\.5 %\n")

    def test_explain_refuses_what_flex_attention_refuses(self):
        q, k = (torch.empty(1, heads, 512, 64, dtype=torch.bfloat16) for heads in (4, 2))
        mask = create_block_mask(causal, None, None, 1024, 1024, device="cpu")
        for error, why, given in (
            (OperandError, "of 1024 queries and 1024 keys, the operands have 512 and 512", {"block_mask": mask}),
            (ValueError, "query has 4 heads, key 2: set enable_gqa=True", {"key": k, "value": k}),
            (TypeError, "block_mask is a function", {"block_mask": causal}),
            (TypeError, "fp8 is 'e5m2'", {"kernel_options": {"fp8": "e5m2"}}),
            (TypeError, "low_rank_error is 1.5", {"kernel_options": {"low_rank_error": 1.5}}),
            (NotImplementedError, "needs a GPU of sm_90", {"kernel_options": {"fp8": "row"}, "arch": "sm_89"}),
        ):
            with self.assertRaisesRegex(error, why):
                explain(**{"query": q, "key": q, "value": q, "arch": "sm_90a", **given})
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            with self.assertRaisesRegex(attnc.ArgumentError, "there is no GPU.*give arch="):
                explain(q, q, q)

    def test_options_of_kernels_have_a_type(self):
        options: FlexKernelOptions = {"tile": "64x32x4"}
        self.assertEqual(set(FlexKernelOptions.__annotations__) & {"tile", "backward_tile"}, {"tile", "backward_tile"})
        if hasattr(flex, "FlexKernelOptions"):
            self.assertLessEqual(set(flex.FlexKernelOptions.__annotations__), set(FlexKernelOptions.__annotations__))
        self.assertEqual(flex_attention(Q, K, V, kernel_options=options).shape, Q.shape)


if __name__ == "__main__":
    unittest.main()
