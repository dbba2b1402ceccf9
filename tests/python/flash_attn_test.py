#!/usr/bin/env python3
"""Checks attnc.flash_attn against attention by definition: FlashAttention's functions, with gradients.

  ATTNC_LIBRARY=libattnc.so python3 flash_attn_test.py [-v ...]

Without a GPU, attnc's reference computes. Prints SKIPPED if torch is not installed.
"""

import inspect
import unittest
from unittest import mock

import needs

needs.modules("attention")
import torch
from attention import by_definition, relative_error
from attnc import flash_attn
from attnc.flash_attn import (
    flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache,
)  # fmt: skip

H, HKV, D = 4, 2, 16


def random(*shape, dtype=torch.float16):
    return torch.randn(*shape, generator=random.generator).to(dtype)


random.generator = torch.Generator().manual_seed(1)


def starts_of(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def expected(q, k, v, causal=False, window_size=(-1, -1), softcap=0.0, slopes=None, chunk=0, scale=None):
    """Returns (out, lse) of one sequence, q [Q_LEN, H, D], whose last query stands at the last key."""
    offset, far = len(k) - len(q), 1 << 20
    left, right = (far if size < 0 else size for size in window_size)
    right = 0 if causal else right

    def score_mod(score, b, h, q_idx, kv_idx):
        score = softcap * torch.tanh(score / softcap) if softcap else score
        return score if slopes is None else score - slopes[h] * (q_idx + offset - kv_idx).abs()

    def mask_mod(b, h, q_idx, kv_idx):
        at = q_idx + offset
        live = (at - left <= kv_idx) & (kv_idx <= at + right)
        return live & (at // chunk == kv_idx // chunk) if chunk else live

    out, lse = by_definition(score_mod, mask_mod, *(x.transpose(0, 1)[None] for x in (q, k, v)), scale)
    return out[0].transpose(0, 1), lse[0]


OPTIONS = (
    {}, {"causal": True}, {"window_size": (9, 3), "softcap": 4.0}, {"causal": True, "window_size": (9, -1)},
    {"causal": True, "slopes": True}, {"slopes": True, "window_size": (None, 5), "scale": 0.5}, {"causal": True, "chunk": 16},
)  # fmt: skip


def options_of(options, batch, of_batch):
    """Returns arguments of a function, and of expected() for each sequence."""
    theirs = {"softmax_scale": options.get("scale"), "attention_chunk": options.get("chunk", 0)}
    theirs |= {name: options[name] for name in ("causal", "window_size", "softcap") if name in options}
    ours = [dict(options) for _ in range(batch)]
    for one in ours:
        one["window_size"] = [-1 if size is None else size for size in options.get("window_size", (-1, -1))]
    if "slopes" in options:
        slopes = torch.rand(*([batch] if of_batch else []), H, generator=random.generator)
        theirs["alibi_slopes"] = slopes
        for b, one in enumerate(ours):
            one["slopes"] = slopes[b] if of_batch else slopes
    return theirs, ours


class FlashAttnTest(unittest.TestCase):
    def near(self, actual, wanted, limit=2e-3):
        self.assertEqual(actual.shape, wanted.shape)
        self.assertLess(relative_error(actual.detach(), wanted.detach()), limit)

    def test_arguments_and_gradients(self):
        for options in OPTIONS:
            for (q_len, kv_len), dtype in (((40, 40), torch.float16), ((30, 40), torch.bfloat16), ((40, 30), torch.float16)):
                if "chunk" in options and q_len > kv_len:
                    continue
                with self.subTest(options, q_len=q_len):
                    limit = 2e-3 if dtype == torch.float16 else 1e-2
                    shapes = (2, q_len, H, D), (2, kv_len, HKV, D), (2, kv_len, HKV, 8)
                    q, k, v = (random(*shape, dtype=dtype).requires_grad_() for shape in shapes)
                    theirs, ours = options_of(options, 2, q_len < kv_len)
                    out, lse, nothing = flash_attn_func(q, k, v, return_attn_probs=True, **theirs)
                    self.assertTrue(out.is_contiguous() and nothing is None)
                    parts = [expected(q[b], k[b], v[b], **one) for b, one in enumerate(ours)]
                    wanted, wanted_lse = map(torch.stack, zip(*parts))
                    self.near(out, wanted, limit), self.near(lse, wanted_lse)
                    dout = torch.randn_like(out)
                    found = torch.autograd.grad(out, (q, k, v), dout)
                    for x, y in zip(found, torch.autograd.grad(wanted, (q, k, v), dout.double())):
                        self.near(x, y, limit)

    def test_columns(self):
        # Kernels take multiples of 8.
        q, k, v = (random(2, 9, h, d).requires_grad_() for h, d in ((H, 13), (HKV, 13), (HKV, 5)))
        out = flash_attn_func(q, k, v, causal=True)
        wanted = torch.stack([expected(q[b], k[b], v[b], True)[0] for b in (0, 1)])
        self.near(out, wanted)
        dout = torch.randn_like(out)
        for x, y in zip(torch.autograd.grad(out, (q, k, v), dout), torch.autograd.grad(wanted, (q, k, v), dout.double())):
            self.near(x, y)
        starts, (q, k, v) = starts_of([9, 9]), (x.detach() for x in (q, k, v))
        self.near(flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), starts, starts, 99, 99, causal=True), out.flatten(0, 1))
        caches = torch.zeros(2, 30, HKV, 13).half(), torch.zeros(2, 30, HKV, 5).half()
        out = flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=0, causal=True)
        self.near(out, wanted), self.assertTrue(torch.equal(caches[0][:, :9], k))

    def test_deterministic(self):
        q, starts = random(1, 9, H, D).requires_grad_(), starts_of([9])
        with mock.patch.object(flash_attn, "flex_attention", wraps=flash_attn.flex_attention) as dense:
            flash_attn_func(q, q, q, deterministic=True)
        self.assertEqual(dense.call_args.kwargs["kernel_options"], {"deterministic": True})
        with mock.patch.object(flash_attn, "attend", wraps=flash_attn.attend) as ragged:
            flash_attn_varlen_func(q[0], q[0], q[0], starts, starts, 9, 9, deterministic=True)
        self.assertTrue(ragged.call_args.args[0].deterministic)

    def test_packed(self):
        qkv = random(2, 20, 3, H, D).requires_grad_()
        wanted = flash_attn_func(*qkv.unbind(2), 0.0, None, True, (7, 0), deterministic=True)
        out = flash_attn_qkvpacked_func(qkv, 0.0, None, True, (7, 0), deterministic=True)
        self.assertTrue(torch.equal(out, wanted))
        self.assertTrue(torch.equal(flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], 0.0, None, True, (7, 0)), wanted))
        self.assertEqual(torch.autograd.grad(out.sum(), qkv)[0].shape, qkv.shape)
        rows, starts = qkv.detach().flatten(0, 1), starts_of([20, 20])
        out = flash_attn_varlen_qkvpacked_func(rows, starts, 20, 0.0, None, True, (7, 0))
        self.assertTrue(torch.equal(out, wanted.flatten(0, 1)))
        out = flash_attn_varlen_kvpacked_func(rows[:, 0], rows[:, 1:], starts, starts, 20, 20, causal=True, window_size=(7, 0))
        self.assertTrue(torch.equal(out, wanted.flatten(0, 1)))

    def test_ragged(self):
        q_lens = [12, 1, 30]
        for options in OPTIONS:
            for kv_lens, used in ((q_lens, False), ([20, 5, 30], False), ([20, 5, 33], True)):
                with self.subTest(options, kv_lens=kv_lens):
                    of_q, of_k = starts_of(q_lens), starts_of(kv_lens)
                    q, k, v = (random(n, h, D).requires_grad_() for n, h in ((43, H), (of_k[-1], HKV), (of_k[-1], HKV)))
                    theirs, ours = options_of(options, 3, True)
                    if used:
                        q_used, kv_used = [9, 1, 30], [20, 3, 31]
                        theirs |= {"seqused_q": torch.tensor(q_used).int(), "seqused_k": torch.tensor(kv_used).int()}
                    else:
                        q_used, kv_used = q_lens, kv_lens
                    is_one = kv_lens is q_lens
                    out, lse, _ = flash_attn_varlen_func(
                        q, k, v, of_q, of_q if is_one else of_k, 30, max(kv_lens), return_attn_probs=True, **theirs
                    )
                    self.assertEqual(lse.shape, (H, 43))
                    dout = random(*out.shape)
                    found = torch.autograd.grad(out, (q, k, v), dout)
                    every = [torch.zeros(x.shape, dtype=torch.float64) for x in (out, q, k, v)]
                    for b, one in enumerate(ours):
                        rows, columns = (slice(of[b], of[b] + n[b]) for of, n in ((of_q, q_used), (of_k, kv_used)))
                        part = [x[at].detach().requires_grad_() for x, at in ((q, rows), (k, columns), (v, columns))]
                        right, right_lse = expected(*part, **one)
                        gradients = torch.autograd.grad(right, part, dout[rows].double())
                        for x, at, y in zip(every, (rows, rows, columns, columns), (right.detach(), *gradients)):
                            x[at] = y
                        self.near(lse[:, rows], right_lse)
                    for x, y in zip((out, *found), every):
                        self.near(x, y)

    def cache(
        self, options, *, kv_len=48, new=0, q_len=3, pages=0, apart=False, with_indices=False, leftpad=False, rotary=None,
        ragged=False,
    ):  # fmt: skip
        """Compares flash_attn_with_kvcache() with attention of what the cache then holds."""
        lengths, batch = torch.tensor([20, 37]).int(), 2
        theirs, ours = options_of(options, batch, True)
        lies = [random(batch, kv_len, HKV, D) for _ in "kv"]  # as the sequences see it
        indices = torch.tensor([3, 1]) if with_indices else torch.arange(batch)
        if pages:
            count = kv_len // pages
            table = torch.randperm(2 * batch * count, generator=random.generator)[: batch * count].view(batch, count).int()
            shape = (2 * batch * count, 2) if apart else (2, 2 * batch * count)  # pages of v lie between those of k, or behind
            caches = torch.zeros(*shape, pages, HKV, D).half().unbind(1 if apart else 0)
            for cache, lie in zip(caches, lies):
                cache[table.long()] = lie.unflatten(1, (count, pages))
            theirs["block_table"] = table
            read = lambda cache: cache[table.long()].flatten(1, 2)
        else:
            caches = [torch.zeros(4, kv_len, HKV, D).half() for _ in "kv"]
            for cache, lie in zip(caches, lies):
                cache[indices] = lie
            read = lambda cache: cache[indices]
            if with_indices:
                theirs["cache_batch_idx"] = indices.int()
        q, counts = random(batch, q_len, H, D), [q_len] * batch
        fresh = [random(batch, new, HKV, D) for _ in "kv"] if new else [None, None]
        places = lengths[:, None] + torch.arange(max(new, q_len))
        q_seen, k_new = q, fresh[0]
        if rotary is not None:
            angles = torch.rand(kv_len, 4, generator=random.generator) * 6
            theirs |= {"rotary_cos": angles.cos().half(), "rotary_sin": angles.sin().half(), "rotary_interleaved": rotary}
            turn = lambda x, at: rotated(x, theirs["rotary_cos"][at], theirs["rotary_sin"][at], rotary)
            is_local = options.get("causal") or "window_size" in options
            q_seen = turn(q, places[:, :q_len] if is_local else places[:, :1].expand(-1, q_len))
            k_new = turn(k_new, places[:, :new])
        ends = lengths + new
        for lie, rows in zip(lies, (k_new, fresh[1])):
            for b in range(batch if new else 0):
                lie[b, lengths[b] : ends[b]] = rows[b]
        first = torch.tensor([4, 9]).int() if leftpad else torch.zeros(2, dtype=torch.int32)
        if leftpad:
            theirs["cache_leftpad"] = first
        given = q
        if ragged:
            counts = [q_len - 1, q_len]
            given = torch.cat([q[0, : q_len - 1], q[1]])
            theirs |= {"cu_seqlens_q": starts_of(counts), "max_seqlen_q": q_len}
        out, lse = flash_attn_with_kvcache(
            given, *caches, *fresh, cache_seqlens=lengths, return_softmax_lse=True, **theirs
        )
        of_q = starts_of(counts)
        for b, one in enumerate(ours):
            part = [lie[b, first[b] : ends[b]] for lie in lies]
            right, right_lse = expected(q_seen[b, : counts[b]], *part, **one)
            rows = slice(of_q[b], of_q[b + 1])
            self.near(out[rows] if ragged else out[b], right), self.near(lse[:, rows] if ragged else lse[b], right_lse)
        for cache, lie in zip(caches, lies):
            torch.testing.assert_close(read(cache), lie, rtol=1e-3, atol=1e-3)

    def test_caches(self):
        for options in OPTIONS:
            with self.subTest(options):
                self.cache(options)
                self.cache(options, leftpad=True)
        causal, window = {"causal": True}, {"window_size": (5, 5)}
        for how in (
            {"new": 3}, {"new": 2}, {"new": 4, "with_indices": True}, {"with_indices": True, "leftpad": True},
            {"pages": 16}, {"pages": 24, "new": 3}, {"pages": 24, "new": 3, "apart": True}, {"pages": 16, "new": 3, "apart": True},
            {"pages": 16, "new": 2}, {"ragged": True}, {"ragged": True, "pages": 16},
            {"new": 3, "rotary": True}, {"new": 3, "rotary": False}, {"new": 2, "rotary": True, "pages": 16},
        ):  # fmt: skip
            for options in (causal, window, {}):
                with self.subTest(options, **how):
                    self.cache(options, **how)

    def test_whole_caches_and_numbers(self):
        q, k, v = random(2, 3, H, D), random(2, 20, HKV, D), random(2, 20, HKV, D)
        self.near(flash_attn_with_kvcache(q, k, v, causal=True), flash_attn_func(q, k, v, causal=True))
        self.near(flash_attn_with_kvcache(q, k, v, cache_seqlens=9), flash_attn_func(q, k[:, :9], v[:, :9]))

    def test_ragged_pages(self):
        q, lengths = random(7, H, D), [20, 30]
        k, v = random(6, 16, HKV, D), random(6, 16, HKV, D)
        table = torch.tensor([[4, 1], [0, 5]]).int()
        out = flash_attn_varlen_func(
            q, k, v, starts_of([2, 5]), starts_of(lengths), 5, 30, causal=True, block_table=table
        )
        for b, rows in enumerate((slice(0, 2), slice(2, 7))):
            part = [x[table[b].long()].flatten(0, 1)[: lengths[b]] for x in (k, v)]
            self.near(out[rows], expected(q[rows], *part, causal=True)[0])

    def test_qv(self):
        q, k, v, qv = (random(2, 20, h, d).requires_grad_() for h, d in ((H, D), (HKV, D), (HKV, 24), (H, 24)))
        out, starts = flash_attn_func(q, k, v, causal=True, qv=qv), starts_of([20, 20])
        joined = torch.cat((q, qv), -1), torch.cat((k, v), -1), v
        wanted = torch.stack([expected(*(x[b] for x in joined), causal=True)[0] for b in (0, 1)])
        self.near(out, wanted)
        for x, y in zip(*(torch.autograd.grad(x.square().sum(), (q, k, v, qv)) for x in (out.float(), wanted))):
            self.near(x, y, 5e-3)
        rows = [x.detach().flatten(0, 1) for x in (q, k, v)]
        ragged = flash_attn_varlen_func(*rows, starts, starts, 20, 20, causal=True, qv=qv.detach().flatten(0, 1))
        self.near(ragged, wanted.flatten(0, 1))

    def test_fp8(self):
        fp8, starts = torch.float8_e4m3fn, starts_of([20, 20])
        q, k, v = (random(2, n, h, 32).to(fp8) for n, h in ((20, H), (20, HKV), (20, HKV)))
        scales = [torch.rand(2, HKV, generator=random.generator) + 0.5 for _ in "qkv"]
        given = dict(zip(("q_descale", "k_descale", "v_descale"), scales))
        groups = H // HKV, 1, 1
        exact = [x.float() * s.repeat_interleave(n, 1)[:, None, :, None] for x, s, n in zip((q, k, v), scales, groups)]
        wanted = torch.stack([expected(*(x[b] for x in exact), causal=True)[0] for b in (0, 1)])
        out = flash_attn_func(q, k, v, causal=True, **given)
        self.assertEqual((out.dtype, out.is_contiguous()), (torch.bfloat16, True))
        self.near(out, wanted, 1e-2)
        rows = [x.flatten(0, 1) for x in (q, k, v)]
        self.near(flash_attn_varlen_func(*rows, starts, starts, 20, 20, causal=True, **given), wanted.flatten(0, 1), 1e-2)
        caches = [torch.zeros(2, 32, HKV, 32).to(fp8) for _ in "kv"]
        for cache, x in zip(caches, (k, v)):
            cache[:, :15].view(torch.uint8)[:] = x[:, :15].view(torch.uint8)
        fresh = k[:, 15:], v[:, 15:]
        out = flash_attn_with_kvcache(q[:, 15:], *caches, *fresh, cache_seqlens=15, causal=True, **given)
        self.near(out, wanted[:, 15:], 1e-2)

    def test_in_graphs(self):
        starts = starts_of([12, 8])

        @torch.compile(fullgraph=True, backend="aot_eager")
        def both(q, slopes):
            out = flash_attn_func(q[None], q[None], q[None], causal=True, window_size=(9, 0), alibi_slopes=slopes)
            return out[0], flash_attn_varlen_func(q, q, q, starts, starts, 12, 12, causal=True, softcap=3.0)

        q, slopes = random(20, H, D).requires_grad_(), torch.rand(H, generator=random.generator)
        dense, ragged = both(q, slopes)
        self.near(dense, expected(q, q, q, True, (9, 0), slopes=slopes)[0])
        parts = [expected(x, x, x, True, softcap=3.0)[0] for x in (q[:12], q[12:])]
        self.near(ragged, torch.cat(parts))
        (found,) = torch.autograd.grad(ragged.sum(), q)
        self.near(found, torch.autograd.grad(torch.cat(parts).sum(), q)[0], 5e-3)

    def test_order_of_arguments(self):
        q, kv, ragged = "q", ("k", "v"), ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
        names = (
            "dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "deterministic",
            "return_attn_probs",
        )  # fmt: skip
        of = lambda function: tuple(inspect.signature(function).parameters)
        self.assertEqual(of(flash_attn_func)[:11], (q, *kv, *names))
        self.assertEqual(of(flash_attn_varlen_func)[:16], (q, *kv, *ragged, *names, "block_table"))
        self.assertEqual(
            of(flash_attn_with_kvcache)[:19],
            (
                "q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin", "cache_seqlens", "cache_batch_idx",
                "cache_leftpad", "block_table", "softmax_scale", "causal", "window_size", "softcap", "rotary_interleaved",
                "alibi_slopes", "num_splits", "return_softmax_lse",
            ),
        )  # fmt: skip

    def test_what_is_refused(self):
        q = random(2, 20, H, D)
        for error, words, call in (
            (ValueError, "dropout_p is 1.5", lambda: flash_attn_func(q, q, q, 1.5)),
            (NotImplementedError, "no dropout with float8", lambda: flash_attn_func(*[q.to(torch.float8_e4m3fn)] * 3, 0.1)),
            (NotImplementedError, "keep rows of v and k in one", lambda: flash_attn_with_kvcache(q, q, q, qv=q)),
            (TypeError, "windows is no argument", lambda: flash_attn_func(q, q, q, windows=3)),
            (ValueError, "q has 3 dims.*flash_attn_varlen_func", lambda: flash_attn_func(q[0], q, q)),
            (ValueError, "k has 4 dims.*flash_attn_func", lambda: flash_attn_varlen_func(q[0], q, q, None, None, 1, 1)),
            (ValueError, r"must be \[4\], or \[2, 4\]", lambda: flash_attn_func(q, q, q, alibi_slopes=torch.ones(3))),
            (ValueError, "one of k and v", lambda: flash_attn_with_kvcache(q, q, q, q)),
            (ValueError, "float64", lambda: flash_attn_func(q.double(), q.double(), q.double())),
        ):  # fmt: skip
            with self.assertRaisesRegex(error, words):
                call()
        flash_attn_func(q, q, q, num_splits=3, pack_gqa=True, sm_margin=8, qv=None)  # choices among its kernels


def rotated(x, cos, sin, is_interleaved):
    """Returns x [B, L, H, D], of which pairs of columns are turned, number by number; cos and sin are [B, L, PAIRS]."""
    result, pairs = x.clone(), cos.shape[-1]
    for i in range(pairs):
        at, to = (2 * i, 2 * i + 1) if is_interleaved else (i, i + pairs)
        c, s = cos[..., i, None].float(), sin[..., i, None].float()
        a, b = x[..., at].float(), x[..., to].float()
        result[..., at], result[..., to] = (a * c - b * s).half(), (a * s + b * c).half()
    return result


if __name__ == "__main__":
    unittest.main()
