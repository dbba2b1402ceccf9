#!/usr/bin/env python3
"""Checks attnc as PyTorch's flash attention: behind scaled_dot_product_attention and varlen_attn.

  ATTNC_LIBRARY=libattnc.so python3 flash_test.py [-v ...]

Without a GPU, the functions are registered for the CPU. Prints SKIPPED if torch is not installed.
"""

import unittest
import unittest.mock

import needs

needs.modules("attention")
import torch
from attention import by_definition, relative_error
import torch.nn.attention
from attnc.torch import flash

HAS_REGISTRY = hasattr(torch.nn.attention, "register_flash_attention_impl")
B, H, HKV, D = 2, 4, 2, 16


def operands(q_len, kv_len, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(1)
    shapes = (B, H, q_len, D), (B, HKV, kv_len, D), (B, HKV, kv_len, D)
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def windowed(left, right, offset=0):
    return lambda b, h, q, k: (k - q - offset <= right) & (q + offset - k <= left)


class FlashTest(unittest.TestCase):
    def near(self, actual, expected):
        self.assertLess(relative_error(actual.detach(), expected.detach()), 1e-2)

    def active(self):
        active = flash._Active("CPU")
        self.addCleanup(active.remove)

    @unittest.skipUnless(HAS_REGISTRY, "this PyTorch has no registry")
    def test_registry(self):
        flash.register()
        self.assertIn("attnc", torch.nn.attention.list_flash_attention_impls())
        torch.nn.attention.activate_flash_attention_impl("attnc")
        self.assertEqual(torch.nn.attention.current_flash_attention_impl(), "attnc")
        torch.nn.attention.restore_flash_attention_impl()
        self.assertIsNone(torch.nn.attention.current_flash_attention_impl())

    @unittest.skipIf(HAS_REGISTRY, "this PyTorch has the registry")
    def test_without_a_registry(self):
        with self.assertRaisesRegex(NotImplementedError, "2.11 has"):
            flash.register()

    def test_scaled_dot_product(self):
        self.active()
        for is_causal, scale in ((False, None), (True, 0.5)):
            for q_len, kv_len in ((70, 70), (70, 90)):
                q, k, v = operands(q_len, kv_len)
                q_rows = q.transpose(1, 2).contiguous().transpose(1, 2)
                out, lse, *_, max_q, max_k, _, _, _ = torch.ops.aten._scaled_dot_product_flash_attention(
                    q_rows, k, v, 0.0, is_causal, False, scale=scale
                )
                mask_mod = windowed(1000, 0, kv_len - q_len) if is_causal else None
                right, lse_right = by_definition(None, mask_mod, q, k, v, scale)
                self.near(out, right), self.near(lse, lse_right)
                self.assertEqual((max_q, max_k, out.shape, out.stride()), (q_len, kv_len, q.shape, q_rows.stride()))
                dout = torch.randn_like(out)
                found = torch.autograd.grad(out, (q, k, v), dout)
                for actual, wanted in zip(found, torch.autograd.grad(right, (q, k, v), dout.double())):
                    self.near(actual, wanted)

    def test_windows(self):
        self.active()
        q, k, v = (x.detach() for x in operands(70, 70))
        for left, right in ((5, 0), (5, 3), (-1, 4), (4, -1)):
            out, lse, *_ = torch.ops.aten._flash_attention_forward(
                *(x.transpose(1, 2) for x in (q, k, v)), None, None, 70, 70, 0.0, False, False, window_size_left=left,
                window_size_right=right,
            )  # fmt: skip
            wanted, _ = by_definition(None, windowed(*(1000 if x < 0 else x for x in (left, right))), q, k, v)
            self.near(out.transpose(1, 2), wanted)

    def ragged(self, lengths, call):
        """Compares call(q, k, v, cumulative lengths, longest), [ROWS, H, D], with the causal attention of each sequence."""
        starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int()
        rows, device = int(starts[-1]), "cuda" if call.__name__ == "on_gpu" else "cpu"
        q, k, v = (torch.randn(rows, h, D).bfloat16().to(device).requires_grad_() for h in (H, H, H))
        out = call(q, k, v, starts.to(device), max(lengths))
        dout = torch.randn_like(out)
        found = torch.autograd.grad(out, (q, k, v), dout)
        for start, end in zip(starts, starts[1:]):
            part = [x[start:end].detach().cpu().requires_grad_() for x in (q, k, v)]
            right, _ = by_definition(None, windowed(1000, 0), *(x.transpose(0, 1)[None] for x in part))
            self.near(out[start:end].cpu(), right[0].transpose(0, 1))
            wanted = torch.autograd.grad(right, part, dout[start:end].cpu().transpose(0, 1)[None].double())
            for actual, gradient in zip(found, wanted):
                self.near(actual[start:end].cpu(), gradient)

    def test_ragged(self):
        self.active()

        class Varlen(torch.autograd.Function):
            @staticmethod
            def forward(ctx, q, k, v, starts, longest):
                out, lse, seed, unused, _ = torch.ops.aten._flash_attention_forward(
                    q, k, v, starts, starts, longest, longest, 0.0, True, False
                )
                ctx.save_for_backward(q, k, v, out, lse, starts, seed, unused)
                ctx.longest = longest
                return out

            @staticmethod
            def backward(ctx, dout):
                q, k, v, out, lse, starts, seed, unused = ctx.saved_tensors
                found = torch.ops.aten._flash_attention_backward(
                    dout, q, k, v, out, lse, starts, starts, ctx.longest, ctx.longest, 0.0, True, seed, unused
                )
                return *found, None, None

        with unittest.mock.patch.object(flash, "run_backward", wraps=flash.run_backward) as called:
            self.ragged([30, 1, 50], Varlen.apply)
        self.assertEqual(called.call_args.args[7].shape, (1, H, 81))  # lse, which the reference does not read

    def test_ragged_with_other_lengths_of_keys(self):
        self.active()
        starts = [torch.tensor(x, dtype=torch.int32) for x in ([0, 20, 50], [0, 40, 45])]
        q, k, v = (torch.randn(rows, H, D).bfloat16() for rows in (50, 45, 45))
        for is_causal in (False, True):
            out, lse, *_ = torch.ops.aten._flash_attention_forward(q, k, v, *starts, 30, 40, 0.0, is_causal, False)
            self.assertEqual(lse.shape, (H, 50))
            for (a, b), (c, d) in zip(*(zip(x, x[1:]) for x in starts)):
                mask_mod = windowed(1000, 0, int((d - c) - (b - a))) if is_causal else None
                part = (x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d]))
                right, lse_right = by_definition(None, mask_mod, *part)
                self.near(out[a:b], right[0].transpose(0, 1)), self.near(lse[:, a:b], lse_right[0])

    def test_into_a_given_tensor(self):
        if not hasattr(torch.ops.aten, "_flash_attention_forward_no_dropout_inplace"):
            self.skipTest("this PyTorch has no such operator")
        self.active()
        q, k, v = (x.detach().transpose(1, 2) for x in operands(70, 70))
        out = torch.zeros_like(q)
        lse = torch.ops.aten._flash_attention_forward_no_dropout_inplace(
            out, q, k, v, None, None, 70, 70, 0.0, True, False
        )
        right, lse_right = by_definition(None, windowed(1000, 0), *(x.transpose(1, 2) for x in (q, k, v)))
        self.near(out.transpose(1, 2), right), self.near(lse, lse_right)

    def test_what_is_refused(self):
        self.active()
        q, k, v = (x.detach().transpose(1, 2) for x in operands(70, 70))
        call = lambda dropout=0.0, debug=False, **options: torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, 70, 70, dropout, False, debug, **options
        )
        for reason, how in (
            ("return_debug_mask", {"debug": True}),
            ("seqused_k", {"seqused_k": torch.ones(B, dtype=torch.int32)}),
            ("alibi_slopes", {"alibi_slopes": torch.ones(H)}),
        ):  # fmt: skip
            with self.assertRaisesRegex(RuntimeError, reason):
                call(**how)
        with self.assertRaisesRegex(ValueError, "dropout_p is 1.5"):
            call(dropout=1.5)

    @unittest.skipUnless(torch.cuda.is_available() and HAS_REGISTRY, "no GPU, or no registry")
    def test_on_a_gpu(self):
        flash.register()
        torch.nn.attention.activate_flash_attention_impl("attnc")
        self.addCleanup(torch.nn.attention.restore_flash_attention_impl)
        q, k, v = (x.detach().cuda().requires_grad_() for x in operands(256, 256))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        self.near(out.cpu(), by_definition(None, windowed(1000, 0), *(x.detach().cpu() for x in (q, k, v)))[0])
        from torch.nn.attention.varlen import varlen_attn

        def on_gpu(q, k, v, starts, longest):
            return varlen_attn(q, k, v, starts, starts, longest, longest, window_size=(-1, 0))

        self.ragged([100, 1, 300], on_gpu)


if __name__ == "__main__":
    unittest.main()
