#!/usr/bin/env python3
"""Feeds attnc's backend of SGLang batches in SGLang's own classes, and compares out with the definition.

  ATTNC_LIBRARY=libattnc.so python3 sglang_test.py [NAMES]

Without a GPU, the reference computes. Prints SKIPPED if torch or sglang is not installed.
"""

import logging
import sys
import types
import unittest
import unittest.mock
import warnings

import needs  # finds attnc

logging.disable(logging.WARNING)  # SGLang says what it lacks here
warnings.simplefilter("ignore")
try:
    import sglang.srt.plugins
    import torch
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.speculative.eagle_info import EagleVerifyInput
except ImportError as error:
    sys.exit(print(f"SKIPPED: {error}"))
import attnc.sglang
from attnc.sglang import AttncBackend
from requests_attention import attention_of_requests, causal, entry_point_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
H, HKV, D, CONTEXT = 4, 2, 32, 300
# Ancestors of four drafts: a tree with two branches.
TREE = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool, device=DEVICE)


def layer_of(layer_id=0, **options):
    return RadixAttention(H, D, D**-0.5, HKV, layer_id, **options)


class Server:
    """The tensors of a model runner, with requests whose caches are filled."""

    def __init__(self, lengths, page=16, dtype=torch.bfloat16, requests=8):
        torch.manual_seed(0)
        self.page, self.lengths = page, lengths
        size = requests * (CONTEXT // page + 1) * page
        self.pool = MHATokenToKVPool(
            size=size, page_size=page, dtype=dtype, head_num=HKV, head_dim=D, layer_num=2, device=DEVICE,
            enable_memory_saver=False,
        )  # fmt: skip
        self.requests = ReqToTokenPool(requests, CONTEXT, DEVICE, False)
        pages = (torch.randperm(size // page) + 1).tolist()
        self.indices = (torch.randperm(requests) + 1)[: len(lengths)]  # row 0 is for padding
        for index, length in zip(self.indices.tolist(), lengths):
            own = torch.tensor([pages.pop() for _ in range(-(-length // page))], dtype=torch.int64)
            slots = (own[:, None] * page + torch.arange(page)).flatten()[:length]
            self.requests.req_to_token[index, :length] = slots.int()
        self.all = [tuple(self.draw(length, HKV) for _ in range(2)) for length in lengths]
        self.runner = types.SimpleNamespace(
            token_to_kv_pool=self.pool, req_to_token_pool=self.requests, page_size=page, device=DEVICE,
            use_mla_backend=False, is_draft_worker=False,
            server_args=types.SimpleNamespace(dcp_size=1, disable_radix_cache=True),
            model_config=types.SimpleNamespace(context_len=CONTEXT, is_encoder_decoder=False),
        )  # fmt: skip

    @staticmethod
    def draw(*shape):
        return torch.randn(*shape, D, dtype=torch.bfloat16, device=DEVICE)

    def slots_of(self, request, first, end):
        return self.requests.req_to_token[self.indices[request], first:end].long()

    def batch(self, mode, q_lens, layer, spec_info=None):
        """Returns a ForwardBatch in which the last q_lens tokens of each request are new; the others are in its pages."""
        firsts = [length - q_len for length, q_len in zip(self.lengths, q_lens)]
        for request, (first, (k, v)) in enumerate(zip(firsts, self.all)):
            k, v = k.clone(), v.clone()  # which the pool may divide by scales
            self.pool.set_kv_buffer(layer, self.slots_of(request, 0, first), k[:first], v[:first], layer.k_scale, layer.v_scale)
        self.q = self.draw(sum(q_lens), H)
        self.new = [torch.cat([x[i][first:] for x, first in zip(self.all, firsts)]) for i in (0, 1)]
        seq_lens = firsts if mode == ForwardMode.TARGET_VERIFY else self.lengths
        on = lambda numbers: torch.tensor(numbers, device=DEVICE)
        return ForwardBatch(
            forward_mode=mode, batch_size=len(q_lens), input_ids=on([0] * sum(q_lens)),
            req_pool_indices=self.indices.to(DEVICE), seq_lens=on(seq_lens), seq_lens_sum=None,
            out_cache_loc=torch.cat([self.slots_of(i, first, n) for i, (first, n) in enumerate(zip(firsts, self.lengths))]),
            extend_seq_lens=on(q_lens), extend_prefix_lens=on(firsts), extend_seq_lens_cpu=list(q_lens), spec_info=spec_info,
        )  # fmt: skip

    def attend(self, backend, layer, batch, padding=0, **options):
        """Returns out of the rows of requests, as a model calls the backend, behind init_forward_metadata()."""
        pad = lambda x: torch.cat((x, x.new_zeros(padding, *x.shape[1:])))
        k, v = (x.clone() for x in self.new)
        out = backend.forward(pad(self.q.flatten(1)), k, v, layer, batch, **options)
        assert out.shape == (len(self.q) + padding, H * D)
        return out[: len(self.q)].view(-1, H, D)

    def run(self, mode, q_lens, layer=None, padding=0, spec_info=None, **options):
        backend, layer = AttncBackend(self.runner), layer or layer_of()
        batch = self.batch(mode, q_lens, layer, spec_info)
        backend.init_forward_metadata(batch)
        return self.attend(backend, layer, batch, padding, **options)

    def defined(self, q_lens, mask=causal, score=None, sinks=None):
        """Returns out by the definition, in fp64. mask(request, h, q, kv) and score(score, request, h, q, kv)."""
        return attention_of_requests(self.q, self.all, q_lens, mask, score, sinks)


def verification(server, drafts, trees):
    """Returns SGLang's input of a verification, with its mask: for each draft, all positions of its request."""
    rows = []
    for length, tree in zip(server.lengths, trees):
        rows.append(torch.cat((torch.ones(drafts, length - drafts, dtype=torch.bool, device=DEVICE), tree), dim=1).flatten())
    mask = torch.cat([*rows, torch.ones(50, dtype=torch.bool, device=DEVICE)])  # SGLang's buffer may be longer
    nothing = dict.fromkeys(
        ("draft_token", "positions", "retrieve_index", "retrieve_next_token", "retrieve_next_sibling", "retrieve_cum_len",
         "seq_lens_sum", "seq_lens_cpu"))  # fmt: skip
    return EagleVerifyInput(
        custom_mask=mask, spec_steps=2, topk=2, draft_token_num=drafts, capture_hidden_mode=CaptureHiddenMode.NULL, **nothing
    )


def seen_by(server, drafts, trees):
    """Returns the mask of a verification by the definition."""

    def mask(b, h, q, kv):
        first = server.lengths[b] - drafts
        return (kv < first) | trees[b][(q - first).clamp(min=0), (kv - first).clamp(min=0)]

    return mask


MIXED = dict(lengths=[33, 5, 100, 40, 64, 1], q_lens=[1, 1, 3, 40, 7, 1])  # decodes, prompts with a prefix and without


class Kernels(unittest.TestCase):
    def assert_close(self, found, expected, limit=8e-3):
        self.assertLess(float((found.double() - expected).norm() / expected.norm()), limit)

    def test_batches(self):
        """Decodes, prompts, and both in a batch; pages of every size; padding; whole prompts and short prefixes."""
        lengths, q_lens = MIXED["lengths"], MIXED["q_lens"]
        for page in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            server = Server(lengths, page)
            self.assert_close(server.run(ForwardMode.MIXED, q_lens), server.defined(q_lens))
            self.assert_close(server.run(ForwardMode.DECODE, [1] * 6), server.defined([1] * 6))
        server = Server([17, 1, 299], 16)
        for q_lens in ([17, 1, 299], [16, 1, 1], [1, 1, 298], [2, 1, 150]):
            self.assert_close(server.run(ForwardMode.EXTEND, q_lens, padding=5), server.defined(q_lens))

    def test_empty_batches(self):
        server = Server([9])
        backend, layer = AttncBackend(server.runner), layer_of()
        batch = server.batch(ForwardMode.IDLE, [1], layer)
        backend.init_forward_metadata(batch)
        self.assertEqual(backend.forward(server.q[:0].flatten(1), None, None, layer, batch).shape, (0, H * D))
        server = Server([30, 20])  # the second one has no new tokens
        self.assert_close(server.run(ForwardMode.EXTEND, [4, 0]), server.defined([4, 0]))

    def test_layers(self):
        """Windows, which SGLang counts without the query, soft caps, sinks, and all of them."""
        server, q_lens = Server(MIXED["lengths"]), MIXED["q_lens"]
        run = lambda layer, **options: server.run(ForwardMode.MIXED, q_lens, layer, **options)
        window = lambda b, h, q, kv: (q >= kv) & (q - kv <= 5)
        cap = lambda s, *_: 2 * torch.tanh(s / 2)
        sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], device=DEVICE)
        self.assert_close(run(layer_of(sliding_window_size=5)), server.defined(q_lens, window))
        self.assert_close(run(layer_of(logit_cap=2.0)), server.defined(q_lens, score=cap))
        self.assert_close(run(layer_of(), sinks=sinks), server.defined(q_lens, sinks=sinks))
        layer = layer_of(1, sliding_window_size=5, logit_cap=2.0)
        self.assert_close(run(layer, sinks=sinks), server.defined(q_lens, window, cap, sinks))

    def test_shared_caches(self):
        """A layer that writes no rows reads those that another one wrote."""
        server, layer = Server([20, 7]), layer_of()
        expected_of = server.run(ForwardMode.DECODE, [1, 1], layer)
        batch, backend = server.batch(ForwardMode.DECODE, [1, 1], layer), AttncBackend(server.runner)
        backend.init_forward_metadata(batch)
        out = backend.forward(server.q.flatten(1), None, None, layer, batch, save_kv_cache=False)
        self.assert_close(out.view(-1, H, D), server.defined([1, 1]))
        self.assertEqual(out.shape, expected_of.flatten(1).shape)

    def test_fp8_caches(self):
        """Rows are divided by the layer's scales when they are written."""
        for scales in (None, (0.25, 0.5)):
            server, layer = Server(MIXED["lengths"], dtype=torch.float8_e4m3fn), layer_of()
            factors = scales or (1.0, 1.0)
            if scales:
                layer.k_scale, layer.v_scale = (torch.tensor(x, device=DEVICE) for x in scales)
            server.all = [
                tuple(((x.float() / f).to(torch.float8_e4m3fn).float() * f).bfloat16() for x, f in zip(pair, factors))
                for pair in server.all
            ]
            self.assert_close(server.run(ForwardMode.DECODE, [1] * 6, layer), server.defined([1] * 6))
            self.assert_close(server.run(ForwardMode.MIXED, MIXED["q_lens"], layer), server.defined(MIXED["q_lens"]), 5e-2)

    def test_trees(self):
        """Drafts that form trees, or chains, next to windows."""
        chain = torch.ones(4, 4, dtype=torch.bool, device=DEVICE).tril()
        server = Server([4, 37, 90])
        for trees in ([TREE, TREE, chain], [chain, TREE, TREE]):
            spec, mask = verification(server, 4, trees), seen_by(server, 4, trees)
            found = server.run(ForwardMode.TARGET_VERIFY, [4] * 3, spec_info=spec)
            self.assert_close(found, server.defined([4] * 3, mask))
            found = server.run(ForwardMode.TARGET_VERIFY, [4] * 3, layer_of(sliding_window_size=5), spec_info=spec)
            self.assert_close(found, server.defined([4] * 3, lambda *at: mask(*at) & (at[2] - at[3] <= 5)))  # noqa: B023
        spec = verification(server, 4, [chain] * 3)
        spec.custom_mask = None
        found = server.run(ForwardMode.TARGET_VERIFY, [4] * 3, spec_info=spec)
        self.assert_close(found, server.defined([4] * 3))

    def test_trees_that_come_late(self):
        """SGLang may prepare a batch before its tree is known."""
        server, layer = Server([30, 9]), layer_of()
        spec = verification(server, 4, [TREE, TREE])
        late = spec.custom_mask
        for early in (torch.ones_like(late), None):
            spec.custom_mask = early
            batch, backend = server.batch(ForwardMode.TARGET_VERIFY, [4, 4], layer, spec), AttncBackend(server.runner)
            backend.init_forward_metadata(batch)
            spec.custom_mask = late
            backend.update_verify_buffers_to_fill_after_draft(spec, None)
            expected = server.defined([4, 4], seen_by(server, 4, [TREE, TREE]))
            self.assert_close(server.attend(backend, layer, batch), expected)

    def test_graphs(self):
        """A graph reads what a later batch has: lengths, pages, trees. Padding has length 1."""
        for mode, drafts in ((ForwardMode.DECODE, 1), (ForwardMode.TARGET_VERIFY, 4)):
            server, layer = Server([30, 299, 9, 40]), layer_of()
            backend, count = AttncBackend(server.runner), 4
            backend.init_cuda_graph_state(8, 8 * drafts)
            trees = [TREE, TREE.tril(-1) | torch.eye(4, dtype=torch.bool, device=DEVICE), TREE, TREE]
            spec = verification(server, 4, trees) if drafts > 1 else None
            real = server.batch(mode, [drafts] * count, layer, spec)
            dummy = server.batch(mode, [drafts] * count, layer, spec and verification(server, 4, [torch.ones_like(TREE)] * 4))
            dummy.seq_lens = torch.full((count,), backend.get_cuda_graph_seq_len_fill_value(), device=DEVICE)
            dummy.req_pool_indices = torch.zeros_like(real.req_pool_indices)
            backend.init_forward_metadata_out_graph(dummy, in_capture=True)
            inputs = [x.clone() for x in (server.q.flatten(1), *server.new)]
            forward = lambda: backend.forward(*inputs, layer, dummy)  # noqa: B023
            replay = forward
            if DEVICE == "cuda":
                with torch.cuda.stream(torch.cuda.Stream()):
                    forward()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    result = forward()
                replay = lambda: (graph.replay(), result)[1]  # noqa: B023
            captured = backend.forward_metadata
            # Eager batches between replays have metadata of their own.
            backend.init_forward_metadata(server.batch(ForwardMode.EXTEND, [3, 5, 1, 2], layer))
            real = server.batch(mode, [drafts] * count, layer, spec)
            real.seq_lens[3], real.req_pool_indices[3] = 1, 0  # padding
            backend.init_forward_metadata_out_graph(real)
            if spec is not None:
                spec.custom_mask = verification(server, 4, trees).custom_mask
                backend.update_verify_buffers_to_fill_after_draft(spec, count)
            backend.forward_metadata = captured
            for to, now in zip((*inputs, dummy.out_cache_loc), (server.q.flatten(1), *server.new, real.out_cache_loc)):
                to.copy_(now)
            found = replay().view(-1, H, D)
            expected = server.defined([drafts] * count, seen_by(server, 4, trees) if spec else causal)
            self.assert_close(found[: 3 * drafts], expected[: 3 * drafts])

    def test_mods(self):
        """A function that the environment names tells the mods of each layer."""
        mask = lambda b, h, q, kv: (q >= kv) & ((kv % 3 != b % 2) | (q == kv))
        score = lambda s, b, h, q, kv: s + 0.1 * h * b
        module = types.ModuleType("my_module")
        module.mods_of = lambda layer_id: (score, mask) if layer_id == 1 else (None, None)
        q_lens = MIXED["q_lens"]
        with (
            unittest.mock.patch.dict(sys.modules, my_module=module),
            unittest.mock.patch.dict("os.environ", ATTNC_SGLANG_MODS="my_module.mods_of"),
        ):
            server = Server(MIXED["lengths"])
            self.assert_close(server.run(ForwardMode.MIXED, q_lens, layer_of(0)), server.defined(q_lens))
            self.assert_close(server.run(ForwardMode.MIXED, q_lens, layer_of(1)), server.defined(q_lens, mask, score))
            server = Server([30, 9])
            spec = verification(server, 4, [TREE, TREE])
            found = server.run(ForwardMode.TARGET_VERIFY, [4, 4], layer_of(1), spec_info=spec)
            tree = seen_by(server, 4, [TREE, TREE])
            self.assert_close(found, server.defined([4, 4], lambda *at: tree(*at) & mask(*at), score))


    def test_mods_by_request(self):
        """Requests of all kinds share launches; SGLang's own hooks tell what they chose."""
        own = lambda b, h, q, kv: (q >= kv) & (q - kv < 9)
        near = lambda b, h, q, kv: (q >= kv) & (kv % 3 != 1)
        scaled = lambda s, b, h, q, kv: s * 0.5 + 0.1 * h
        module = types.ModuleType("my_module")
        module.mods_of = lambda layer_id: (None, own)
        module.mods = {"own": (None, None), "near": (None, near), "both": (scaled, near)}
        masks, scores = {"own": own, "near": near, "both": near}, {"both": scaled}
        environment = {"ATTNC_SGLANG_MODS": "my_module.mods_of", "ATTNC_SGLANG_REQUEST_MODS": "my_module.mods"}
        q_lens = MIXED["q_lens"]
        with (
            unittest.mock.patch.dict(sys.modules, my_module=module),
            unittest.mock.patch.dict("os.environ", environment),
        ):
            server = Server(MIXED["lengths"])
            backend, layer = AttncBackend(server.runner), layer_of()
            for names in (["own", "near", "both", "near", "own", "both"], ["both"] * 6, ["near", "own"] * 3):
                chosen = lambda b, *at: masks[names[b]](b, *at)  # noqa: B023
                changed = lambda s, b, *at: scores[names[b]](s, b, *at) if names[b] in scores else s  # noqa: B023
                requests = [
                    types.SimpleNamespace(
                        req_pool_idx=slot, sampling_params=SamplingParams(custom_params=name and {"attnc_mod": name})
                    ) for slot, name in zip(server.indices.tolist(), [name if name != "own" else None for name in names])
                ]  # fmt: skip
                batch = server.batch(ForwardMode.MIXED, q_lens, layer)
                attnc.sglang._note_requests(None, None, types.SimpleNamespace(forward_mode=batch.forward_mode, reqs=requests))
                backend.init_forward_metadata(batch)
                self.assert_close(server.attend(backend, layer, batch), server.defined(q_lens, chosen, changed))
                batch = server.batch(ForwardMode.DECODE, [1] * 6, layer)  # knows no requests
                backend.init_forward_metadata(batch)
                self.assert_close(server.attend(backend, layer, batch), server.defined([1] * 6, chosen, changed))
            backend.init_cuda_graph_state(8, 8)
            batch = server.batch(ForwardMode.DECODE, [1] * 6, layer)
            backend.init_forward_metadata_out_graph(batch, in_capture=True)
            self.assert_close(server.attend(backend, layer, batch), server.defined([1] * 6, chosen, changed))
            server.runner.server_args.disable_radix_cache = False
            with self.assertRaisesRegex(NotImplementedError, "--disable-radix-cache"):
                AttncBackend(server.runner)

    def test_hooks_of_mods_by_request(self):
        module = types.ModuleType("other_module")
        module.mods = {"own": (None, None), "causal": (None, causal)}
        with (
            unittest.mock.patch.dict(sys.modules, other_module=module),
            unittest.mock.patch.dict("os.environ", ATTNC_SGLANG_REQUEST_MODS="other_module.mods"),
            unittest.mock.patch.object(SamplingParams, "verify", SamplingParams.verify),
            unittest.mock.patch.object(ForwardBatch, "init_new", ForwardBatch.__dict__["init_new"]),
            unittest.mock.patch.object(attnc.sglang, "_note_requests", unittest.mock.Mock(return_value=None)) as noted,
        ):
            attnc.sglang.register()
            with unittest.mock.patch.object(ForwardBatch, "init_new", classmethod(lambda cls, batch, runner: "made")):
                HookRegistry.apply_hooks()
                self.assertEqual(ForwardBatch.init_new("batch", "runner"), "made")
            noted.assert_called_once_with("made", ForwardBatch, "batch", "runner")
            for params in (None, {"attnc_mod": "causal"}, {"thinking_budget": 3}):
                SamplingParams(custom_params=params).verify(64)
            with self.assertRaisesRegex(ValueError, "attnc_mod is 'tree': give one of 'own', 'causal'"):
                SamplingParams(custom_params={"attnc_mod": "tree"}).verify(64)
        HookRegistry.reset()


class Interface(unittest.TestCase):
    def test_registered(self):
        """SGLang finds the backend by the entry point of the package."""
        with entry_point_of("sglang"):
            sglang.srt.plugins.load_plugins()
        self.assertEqual(ATTENTION_BACKEND_CHOICES.count("attnc"), 1)
        attnc.sglang.register()
        self.assertEqual(ATTENTION_BACKEND_CHOICES.count("attnc"), 1)
        server = Server([3])
        self.assertIsInstance(ATTENTION_BACKENDS["attnc"](server.runner), AttncBackend)

    def test_refusals(self):
        """What is not served is refused, and the setting is named."""
        runner = vars(Server([3]).runner)
        of = types.SimpleNamespace
        for changes, text in (
            (dict(use_mla_backend=True), "--attention-backend"), (dict(page_size=24), "--page-size"),
            (dict(is_draft_worker=True), "--speculative-draft-attention-backend"),
            (dict(server_args=of(dcp_size=2)), "--dcp-size"),
            (dict(model_config=of(context_len=9, is_encoder_decoder=True)), "--attention-backend"),
            (dict(model_config=of(is_encoder_decoder=False, hf_config=of(architectures=["Gemma3ForConditionalGeneration"]))), "images"),
            (dict(token_to_kv_pool=of(dtype=torch.float8_e5m2)), "--kv-cache-dtype"),
            (dict(token_to_kv_pool=of(dtype=torch.bfloat16, full_kv_pool=1)), "--disable-hybrid-swa-memory"),
            (dict(token_to_kv_pool=of(dtype=torch.bfloat16, kv_cache_layout="hnd")), "SGLANG_USE_HND_KVCACHE"),
        ):  # fmt: skip
            with self.assertRaisesRegex(NotImplementedError, text):
                AttncBackend(of(**runner | changes))
        for options, text in (
            (dict(is_cross_attention=True), "is_cross_attention"), (dict(use_irope=True), "use_irope"),
            (dict(attn_type=AttentionType.ENCODER_ONLY), "attn_type"), (dict(pos_encoding_mode="ALIBI"), "ALIBI"),
            (dict(logit_cap=2.0, logit_capping_method="other"), "logit_capping_method"),
        ):  # fmt: skip
            with self.assertRaisesRegex(NotImplementedError, text):
                Server([3]).run(ForwardMode.DECODE, [1], layer_of(**options))
        wide = RadixAttention(H, 260, 1.0, HKV, 0)
        with self.assertRaisesRegex(NotImplementedError, "head dims 260"):
            AttncBackend(Server([3]).runner)._layer(wide, None)
        with self.assertRaisesRegex(NotImplementedError, "q_rope"):
            Server([3]).run(ForwardMode.DECODE, [1], q_rope=torch.ones(1))
        for mode, text in (
            (ForwardMode.DRAFT_EXTEND_V2, "--speculative-draft-attention-backend"),
            (ForwardMode.DLLM_EXTEND, "--dllm-algorithm"), (ForwardMode.SPLIT_PREFILL, "--enable-pdmux"),
        ):  # fmt: skip
            with self.assertRaisesRegex(NotImplementedError, text):
                Server([3]).run(mode, [1])
        server = Server([3])
        backend = AttncBackend(server.runner)
        backend.init_cuda_graph_state(4, 4)
        with self.assertRaisesRegex(NotImplementedError, "--disable-prefill-cuda-graph"):
            backend.init_forward_metadata_out_graph(server.batch(ForwardMode.EXTEND, [2], layer_of()), in_capture=True)


if __name__ == "__main__":
    unittest.main()
