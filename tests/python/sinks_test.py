#!/usr/bin/env python3
"""Checks sinks, one more score of each row without a value, in PyTorch's doors: against attention in fp64 with a further
column, whose gradients are those of autograd.

  ATTNC_LIBRARY=libattnc.so python3 sinks_test.py [-v ...]

Runs on the CPU. Prints SKIPPED if torch is not installed.
"""

import types
import unittest

import needs

needs.modules("attention")
import torch
from requests_attention import attention_of_requests
from torch.utils.checkpoint import checkpoint

import attnc
from attnc.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from attnc.torch import create_block_mask, explain, flex_attention, translate
from attnc.torch.serving import Attention, groups_of

B, H, HKV, L, D = 2, 4, 2, 33, 16


def live(b, h, q_idx, kv_idx):
    """Row 3 of 7 sees nothing: its lse is the sink."""
    return (q_idx >= kv_idx) & (q_idx % 7 != 3)


def by_definition(q, k, v, sinks, mask=live):
    """Returns out and lse in fp64, for sinks [B, H, L]."""
    q, k, v, sinks = (x.double() for x in (q, k, v, sinks))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    scores = (q @ k.mT * q.shape[3] ** -0.5).masked_fill(~mask(0, 0, rows, columns), -torch.inf)
    scores = torch.cat((scores, sinks[..., None]), dim=-1)
    return scores.softmax(-1)[..., :-1] @ v, scores.logsumexp(-1)


class SinksTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        shapes = (B, H, L, D), (B, HKV, L, D), (B, HKV, L, D), (H,), (L,)
        self.inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
        self.inputs[3].data[0] = 300.0  # beyond all scores
        self.d_out, self.d_lse = torch.randn(B, H, L, D).double(), torch.randn(B, H, L).double()

    def results(self, attend):
        """Returns out, lse and gradients."""
        out, lse = attend(*self.inputs)
        loss = (out.double() * self.d_out).sum() + (lse.double() * self.d_lse).sum()
        return out, lse, *torch.autograd.grad(loss, self.inputs)

    def compare(self, attend):
        wanted = lambda q, k, v, sink, tilt: by_definition(q, k, v, (2 * sink[:, None] + tilt).expand(B, H, L))
        for is_, be in zip(self.results(attend), self.results(wanted)):
            torch.testing.assert_close(is_.double(), be.double(), rtol=1e-5, atol=1e-5)

    def attend(self, q, k, v, sink, tilt):
        def sink_mod(b, h, q_idx):
            return 2 * sink[h] + tilt[q_idx]

        mask = create_block_mask(live, None, None, L, L, "cpu")
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_lse=True, sink_mod=sink_mod)

    def test_is_a_further_column(self):
        self.compare(self.attend)
        self.compare(self.attend)  # which is like an earlier call

    def test_is_traced_in_graphs(self):
        self.compare(torch.compile(self.attend, backend="aot_eager", fullgraph=True))
        constant = lambda q, k, v: flex_attention(q, k, v, enable_gqa=True, sink_mod=lambda b, h, q_idx: 0.5)
        compiled = torch.compile(constant, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(*self.inputs[:3]), constant(*self.inputs[:3]))

    def test_is_computed_again_by_checkpoints(self):
        self.compare(lambda *inputs: checkpoint(self.attend, *inputs, use_reentrant=False))

    def test_stands_next_to_other_mods(self):
        q, k, v, sink, _ = self.inputs
        doubled = flex_attention(
            q, k, v, lambda s, b, h, i, j: s + 0.1 * (i - j), enable_gqa=True, prob_mod=lambda p, b, h, i, j: 2 * p,
            sink_mod=lambda b, h, i: sink[h],
        )  # fmt: skip
        once = flex_attention(
            q, k, v, lambda s, b, h, i, j: s + 0.1 * (i - j), enable_gqa=True, sink_mod=lambda b, h, i: sink[h]
        )
        torch.testing.assert_close(doubled, 2 * once)

    def test_is_told(self):
        q, k, v, sink, _ = self.inputs
        facts = explain(q, k, v, enable_gqa=True, sink_mod=lambda b, h, i: sink[h], arch="sm_90a", training=True)
        self.assertIn("sink_mod", facts["functions"])
        self.assertIn("backward_sinks.cu", str(facts))
        self.assertNotIn("backward_captures.cu", str(facts))
        text = translate(sink_mod=lambda b, h, i: sink[h], problem=(B, H, HKV, L, L)).given()[0]
        self.assertTrue(attnc.Mod.parse_ir(text).has_sink_mod)

    def test_refuses_what_is_no_sink(self):
        q, k, v, *_ = self.inputs
        for bad, words in (
            (lambda b, h, q_idx: q_idx, "returns an int, expected a float"),
            (lambda b, h, q_idx: h > 1, "returns a bool, expected a float"),
            (lambda b, h, q_idx, kv_idx: 0.0, "must take b, h and q_idx, and no more"),
            (0.0, "sink_mod is a float: give a function of b, h and q_idx"),
        ):
            with self.assertRaisesRegex((attnc.torch.UntranslatableError, TypeError), words):
                flex_attention(q, k, v, enable_gqa=True, sink_mod=bad)

    def test_of_flash_attn(self):
        q, k, v, sink, _ = self.inputs
        rows = [x.detach().transpose(1, 2) for x in (q, k, v)]
        causal = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
        want = by_definition(q, k, v, sink[:, None].expand(B, H, L), causal)[0].transpose(1, 2)
        starts = torch.tensor([0, L, 2 * L], dtype=torch.int32)
        found = flash_attn_func(*rows, causal=True, learnable_sink=sink)
        packed = flash_attn_varlen_func(
            *(x.flatten(0, 1) for x in rows), starts, starts, L, L, causal=True, learnable_sink=sink
        )  # fmt: skip
        with torch.no_grad():
            last = flash_attn_with_kvcache(rows[0][:, -1:], *rows[1:], cache_seqlens=L, causal=True, learnable_sink=sink)
        for is_, be in ((found, want), (packed.view_as(found), want), (last, want[:, -1:])):
            torch.testing.assert_close(is_.double(), be.double(), rtol=1e-5, atol=1e-5)
        got, wanted = (torch.autograd.grad((x.double() ** 2).sum(), sink)[0] for x in (found, want))
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)

    def test_of_layers_that_share_a_launch(self):
        """A serving engine's layers: each has its own sinks."""
        page, q_lens, lengths = 16, (1, 1, 5), (20, 33, 18)
        pages = [-(-length // page) for length in lengths]
        pools = [torch.zeros(sum(pages), HKV, page, D) for _ in "kv"]
        table, caches = torch.zeros(3, max(pages), dtype=torch.int32), []
        for request, count in enumerate(pages):
            table[request, :count] = torch.arange(count) + sum(pages[:request])
            caches.append([torch.randn(lengths[request], HKV, D) for _ in "kv"])
            for pool, rows in zip(pools, caches[-1]):
                for at, row in enumerate(rows):
                    pool[table[request, at // page], :, at % page] = row
        starts = torch.tensor([0, *q_lens]).cumsum(0).int()
        batch = types.SimpleNamespace(
            num_reqs=3, query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=torch.tensor(lengths).int(),
            seq_lens_cpu_upper_bound=None, block_table_tensor=table, mm_req_doc_ranges=None,
        )  # fmt: skip
        groups, q = groups_of(batch, 1), torch.randn(sum(q_lens), H, D)
        for sinks in (torch.randn(H), torch.randn(H), torch.randn(H).bfloat16(), None):
            out = torch.full_like(q, torch.nan)
            for group in groups:
                Attention(H, HKV, D**-0.5, sinks=sinks).attend(group, q, *pools, out)
            want = attention_of_requests(q, caches, q_lens, sinks=sinks)
            torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
