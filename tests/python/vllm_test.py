#!/usr/bin/env python3
"""Feeds attnc's backend of vLLM batches in vLLM's own metadata, and compares out with the definition.

  ATTNC_LIBRARY=libattnc.so python3 vllm_test.py [NAMES]

Without a GPU, the reference computes, and rows reach the cache by PyTorch's indexing. Prints SKIPPED if torch or vllm is
not installed.
"""

import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import typing
import unittest
import unittest.mock
import warnings

import needs

logging.disable(logging.WARNING)  # vLLM says what it lacks here
warnings.simplefilter("ignore")
try:
    import numpy
    import torch
    import vllm.plugins
    from vllm.config import CUDAGraphMode
    from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata, MultipleOf
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality, validate_logits_processors_parameters
    from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors_params_validator
except ImportError as error:
    sys.exit(print(f"SKIPPED: {error}"))
import attnc.vllm
from attnc.torch import serving
from attnc.torch.translation import translate
from attnc.vllm import AttncBackend, AttncImpl
from attnc.vllm_requests import RequestMods
from requests_attention import attention_of_requests, causal, entry_point_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
H, HKV, D, PAGE = 4, 2, 32, 16
LAYER = types.SimpleNamespace(
    _k_scale=torch.ones((), device=DEVICE), _v_scale=torch.ones((), device=DEVICE), logical_mask_mod=None
)
CONFIG = types.SimpleNamespace(
    additional_config={}, speculative_config=None, model_config=types.SimpleNamespace(logits_processors=None),
    use_v2_model_runner=True, scheduler_config=types.SimpleNamespace(max_num_seqs=8),
    parallel_config=types.SimpleNamespace(decode_context_parallel_size=1, pipeline_parallel_size=1, use_ubatching=False),
    cache_config=types.SimpleNamespace(enable_prefix_caching=False),
    compilation_config=types.SimpleNamespace(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE),
)  # fmt: skip


class Batch:
    """Requests with `lengths` of tokens in all, the last `q_lens` of which are new."""

    def __init__(self, q_lens, lengths, page=PAGE, seed=0, **more):
        torch.manual_seed(seed)
        self.q_lens, self.lengths, self.page = q_lens, lengths, page
        make = lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device=DEVICE)
        self.all = [(make(length, HKV, D), make(length, HKV, D)) for length in lengths]
        of_request = [-(-length // page) for length in lengths]
        order = (torch.randperm(sum(of_request) + 3) + 1).tolist()
        self.cache = torch.full((len(order) + 1, page, HKV, 2 * D), torch.nan, dtype=torch.bfloat16, device=DEVICE)
        self.cache = self.cache.transpose(1, 2)
        table = torch.zeros(len(lengths), max(of_request) + 2, dtype=torch.int32)
        slots = []
        for request, count in enumerate(of_request):
            table[request, :count] = torch.tensor([order.pop() for _ in range(count)])
            first = lengths[request] - q_lens[request]
            places = [int(table[request, at // page]) * page + at % page for at in range(lengths[request])]
            k, v = self.all[request]
            for at in range(first):  # what earlier steps wrote
                self.cache[places[at] // page, :, places[at] % page] = torch.cat((k[at], v[at]), dim=-1)
            slots += places[first:]
        # Rows past a sequence in its last page must be finite, as vLLM's are.
        self.cache.nan_to_num_(nan=3.0)
        self.q = make(sum(q_lens), H, D)
        self.new = [torch.cat([x[i][n - q :] for x, n, q in zip(self.all, lengths, q_lens)]) for i in (0, 1)]
        starts = torch.tensor([0, *q_lens]).cumsum(0).int()
        lengths = torch.tensor(lengths, dtype=torch.int32)
        self.common = CommonAttentionMetadata(
            query_start_loc=starts.to(DEVICE), query_start_loc_cpu=starts, seq_lens=lengths.to(DEVICE),
            num_reqs=len(q_lens), num_actual_tokens=sum(q_lens), max_query_len=max(q_lens),
            max_seq_len=int(lengths.max()), block_table_tensor=table.to(DEVICE),
            slot_mapping=torch.tensor(slots, device=DEVICE), seq_lens_cpu_upper_bound=lengths, **more,
        )  # fmt: skip

    def attend(self, layer=LAYER, padding=0, **options):
        """Returns out as vLLM gets it: cache update, then forward. `padding`: rows of q of no request."""
        impl = AttncImpl(H, D, D**-0.5, HKV, **options)
        metadata = builder(self.page).build(0, self.common)
        pad = lambda x: torch.cat((x, x.new_full((padding, *x.shape[1:]), torch.nan)))
        k, v = map(pad, self.new)
        slots = torch.cat((self.common.slot_mapping, self.common.slot_mapping.new_full((padding,), -1)))
        impl.do_kv_cache_update(layer, k, v, self.cache, slots)
        out = torch.full_like(pad(self.q), torch.nan)
        result = impl.forward(layer, pad(self.q), k, v, self.cache, metadata, out)
        assert result is out
        return out

    def defined(self, mask=None, score=None, sinks=None):
        """Returns out by the definition, in fp64. mask(request, h, q, kv) and score(score, request, h, q, kv)."""
        return attention_of_requests(self.q, self.all, self.q_lens, mask, score, sinks)


class Fp8Batch(Batch):
    """A batch over a cache of fp8, in vLLM's dtype for it. Queries of prompts are fp8 numbers times the layer's scale."""

    def __init__(self, layer, few, *args, **options):
        super().__init__(*args, **options)

        def rounded(x, scale):
            return (x.float() / scale.view(-1, 1)).clamp(-448, 448).to(torch.float8_e4m3fn)

        k, v = self.cache.transpose(1, 2).split(D, dim=-1)
        pools = [rounded(x, scale) for x, scale in ((k, layer._k_scale), (v, layer._v_scale))]
        self.cache = torch.cat([x.view(torch.uint8) for x in pools], dim=-1).transpose(1, 2)
        self.all = [
            tuple(rounded(x, s).float() * s.view(-1, 1) for x, s in zip(pair, (layer._k_scale, layer._v_scale)))
            for pair in self.all
        ]
        starts = self.common.query_start_loc_cpu.tolist()
        for start, end in zip(starts, starts[1:]):
            if end - start > few:
                q = rounded(self.q[start:end], layer._q_scale.reshape(-1)[:1])
                self.q[start:end] = (q.float() * layer._q_scale.reshape(-1)[:1]).bfloat16()


def builder(page, config=CONFIG):
    spec = types.SimpleNamespace(block_size=page)
    return AttncBackend.get_builder_cls()(spec, ["layer"], config, torch.device(DEVICE))


def prefix(b, h, q, kv):
    return (q >= kv) | (kv < 12)


def scaled(score, b, h, q, kv):
    return score * 0.5 + 0.1 * h


def same(score, *_):
    return score


class Requests(RequestMods):
    mods: typing.ClassVar = {
        "own": (None, None), "prefix": (None, prefix), "scaled": (scaled, None), "both": (scaled, prefix)
    }  # fmt: skip


def everything(b, h, q, kv):
    return kv >= 0


MIXED = dict(q_lens=[1, 1, 3, 3, 40, 7], lengths=[33, 5, 19, 100, 40, 64])  # decodes, drafts, a prompt, part of one


class Kernels(unittest.TestCase):
    def assert_close(self, found, expected, limit=8e-3):
        error = float((found.double() - expected).norm() / expected.norm())
        self.assertLess(error, limit)

    def test_batches(self):
        """Decodes, drafts and prompts in one batch; pages of every size; padding."""
        for page in (16, 32, 64, 128, 256):
            batch = Batch(**MIXED, page=page)
            self.assert_close(batch.attend(), batch.defined())
        batch = Batch([1] * 5, [1, 16, 17, 300, 31])
        self.assert_close(batch.attend(), batch.defined())
        batch = Batch(**MIXED)
        out = batch.attend(padding=9)
        self.assert_close(out[:-9], batch.defined())
        self.assertTrue(out[-9:].isnan().all())
        self.assertFalse(batch.cache.isnan().any())

    def test_launches(self):
        """Decodes share a launch, and so does everything else: as a ragged batch if it has several lengths."""

        def launches(q_lens, few=1):
            batch, made = Batch(q_lens, [n + 20 for n in q_lens]), builder(PAGE)
            made.reorder_batch_threshold = few
            groups = made.build(0, batch.common).groups
            self.assertEqual(sum(group.count for group in groups), len(q_lens))
            of = lambda group: group.sequences.cu_seqlens_q is not None and group.sequences.cu_seqlens_q.tolist()
            return [(group.count, group.q_len, of(group)) for group in groups]

        self.assertEqual(launches([1, 1, 1]), [(3, 1, False)])
        self.assertEqual(launches([1, 1, 40]), [(2, 1, False), (1, 40, False)])
        self.assertEqual(launches([1, 40, 7, 9]), [(1, 1, False), (3, 56, [0, 40, 47, 56])])
        self.assertEqual(launches([40, 300, 300]), [(3, 512, [0, 40, 340, 640])])
        self.assertEqual(launches([8, 8]), [(2, 8, False)])
        self.assertEqual(launches([3, 1, 2, 7, 7], few=3), [(3, 4, [0, 3, 4, 6]), (2, 7, False)])
        self.assertEqual(launches([1, 5, 6, 1]), [(1, 1, False), (2, 8, [0, 5, 11]), (1, 1, False)])

    def test_drafts(self):
        """Requests with unequal numbers of drafts share the launch of decodes."""
        batch = Batch([3, 1, 2, 3, 17], [33, 5, 100, 3, 90])
        made = builder(PAGE)
        made.reorder_batch_threshold = 3
        with unittest.mock.patch.object(sys.modules[__name__], "builder", lambda page: made):
            sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], device=DEVICE)
            self.assert_close(batch.attend(sinks=sinks), batch.defined(sinks=sinks))

    def test_requests_of_padding_are_left_out(self):
        batch = Batch([1, 1, 2], [9, 30, 8])
        expected = batch.defined()
        common, more = batch.common, torch.zeros(2, dtype=torch.int32)
        batch.common = common.replace(
            query_start_loc_cpu=torch.cat((common.query_start_loc_cpu, torch.tensor([4, 4], dtype=torch.int32))),
            seq_lens=torch.cat((common.seq_lens, more.to(DEVICE))), num_reqs=5,
            seq_lens_cpu_upper_bound=torch.cat((common.seq_lens_cpu_upper_bound, more)),
            block_table_tensor=torch.cat((common.block_table_tensor, common.block_table_tensor[:2])),
        )  # fmt: skip
        self.assert_close(batch.attend(), expected)
        self.assertEqual([group.count for group in builder(PAGE).build(0, batch.common).groups], [2, 1])

    def test_layers(self):
        """Windows, soft caps, ALiBi, sinks, and all of them."""
        batch = Batch(**MIXED)
        window = lambda b, h, q, kv: (q >= kv) & (q - kv < 6)
        slopes = [0.5, 0.25, 0.125, 0.0625]
        of_head = torch.tensor(slopes, device=DEVICE)
        sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], device=DEVICE)
        alibi = lambda s, b, h, q, kv: s + of_head[h] * (kv - q)
        cap = lambda s, *_: 2 * torch.tanh(s / 2)
        self.assert_close(batch.attend(sliding_window=6), batch.defined(window))
        self.assert_close(batch.attend(alibi_slopes=slopes), batch.defined(score=alibi))
        self.assert_close(batch.attend(logits_soft_cap=2.0), batch.defined(score=cap))
        self.assert_close(batch.attend(sinks=sinks), batch.defined(sinks=sinks))
        self.assert_close(
            batch.attend(sliding_window=6, alibi_slopes=slopes, logits_soft_cap=2.0, sinks=sinks),
            batch.defined(window, lambda s, *where: alibi(cap(s), *where), sinks),
        )

    def test_fp8_caches(self):
        """Scales of layers and of heads; decodes keep queries in 16 bits; graphs of any batch."""
        of = lambda *numbers: torch.tensor(numbers, device=DEVICE)
        limit = 5e-2 if DEVICE == "cuda" else 8e-3  # forward kernels round weights
        alone = dict(q_lens=[1, 1, 40, 7], lengths=[33, 100, 40, 64])
        for q, k, v in ((of(0.5), of(0.25), of(0.5)), (of(0.5, 0.5), of(0.25, 0.015625), of(0.5, 4.0))):
            layer = types.SimpleNamespace(
                **vars(LAYER) | {"_q_scale": q.squeeze(), "_k_scale": k.squeeze(), "_v_scale": v.squeeze()}
            )
            for page in (16, 64):
                batch = Fp8Batch(layer, 1, **alone, page=page)
                found, expected = batch.attend(layer, kv_cache_dtype="fp8"), batch.defined()
                self.assert_close(found[:2], expected[:2])
                self.assert_close(found[2:], expected[2:], limit)
            slopes = [0.5, 0.25, 0.125, 0.0625]
            of_head = torch.tensor(slopes, device=DEVICE)
            batch = Fp8Batch(layer, 1, **alone)
            found = batch.attend(layer, kv_cache_dtype="fp8_e4m3", alibi_slopes=slopes)
            expected = Fp8Batch(layer, 1, **alone).defined(score=lambda s, b, h, q, kv: s + of_head[h] * (kv - q))
            self.assert_close(found, expected, limit)
            # Decodes of unequal numbers share a launch that keeps queries and weights in 16 bits.
            batch = Fp8Batch(layer, 3, [3, 1, 2], [33, 5, 100])
            made = builder(PAGE)
            made.reorder_batch_threshold = 3
            with unittest.mock.patch.object(sys.modules[__name__], "builder", lambda page, made=made: made):
                self.assertEqual(len(made.build(0, batch.common).groups), 1)
                self.assert_close(batch.attend(layer, kv_cache_dtype="fp8"), batch.defined())

    def test_scales_that_change(self):
        """A layer's scales are read by each launch."""
        one = lambda: torch.ones(1, device=DEVICE)
        layer = types.SimpleNamespace(**vars(LAYER) | {"_q_scale": one(), "_k_scale": one(), "_v_scale": one()})
        batch, impl = Fp8Batch(layer, 1, [1, 1, 9], [33, 100, 40]), AttncImpl(H, D, D**-0.5, HKV, kv_cache_dtype="fp8")
        metadata = builder(PAGE).build(0, batch.common)
        attend = lambda: impl.forward(layer, batch.q, *batch.new, batch.cache, metadata, torch.empty_like(batch.q))
        before = attend()
        layer._v_scale.mul_(2)
        self.assert_close(attend(), 2 * before.double())
        layer._v_scale = layer._v_scale * 2
        self.assert_close(attend(), 4 * before.double())

    def test_layers_of_one_group_with_scales_of_layers_and_of_heads(self):
        of = lambda *numbers: torch.tensor(numbers, device=DEVICE)
        layers = [
            types.SimpleNamespace(**vars(LAYER) | {"_q_scale": of(0.5), "_k_scale": k, "_v_scale": v})
            for k, v in ((of(0.25), of(0.5)), (of(0.25, 0.5), of(0.5, 2.0)))
        ]
        batch, impl = Fp8Batch(layers[0], 1, [1, 1, 9], [33, 100, 40]), AttncImpl(H, D, D**-0.5, HKV, kv_cache_dtype="fp8")
        shared = builder(PAGE).build(0, batch.common)
        for layer in layers + layers:
            attend = lambda metadata: impl.forward(  # noqa: E731
                layer, batch.q, *batch.new, batch.cache, metadata, torch.empty_like(batch.q)  # noqa: B023
            )
            self.assertTrue(torch.equal(attend(shared), attend(builder(PAGE).build(0, batch.common))))

    def test_layers_share_what_a_launch_is_made_of(self):
        batch = Batch(**MIXED)
        metadata = builder(PAGE).build(0, batch.common)
        layers = [AttncImpl(H, D, D**-0.5, HKV, sliding_window=window) for window in (None, None, 6, None, 6)]
        with unittest.mock.patch.object(serving, "translate", side_effect=serving.translate) as translated:
            for impl in layers:
                impl.do_kv_cache_update(LAYER, *batch.new, batch.cache, batch.common.slot_mapping)
                out = impl.forward(LAYER, batch.q, *batch.new, batch.cache, metadata, torch.empty_like(batch.q))
                window = impl.attention.window or 1000
                expected = batch.defined(lambda b, h, q, kv: (q >= kv) & (q - kv < window))  # noqa: B023
                self.assert_close(out, expected)
            self.assertEqual(translated.call_count, 2 * len(metadata.groups))
            builder(PAGE).update_block_table(metadata, batch.common.block_table_tensor, None).groups[0]._kept.clear()
            self.assertTrue(all(group._kept for group in metadata.groups))

    def test_bidirectional(self):
        batch = Batch(**MIXED, causal=False)
        self.assert_close(batch.attend(), batch.defined(everything))
        near = lambda b, h, q, kv: (q - kv).abs() < 6
        self.assert_close(batch.attend(sliding_window=6), batch.defined(near))

    def test_images(self):
        """Tokens of an image see one another, also where a prompt is read in parts; other requests do not."""
        images = {4: [(2, 11), (20, 29), (33, 33)], 5: [(10, 20), (58, 63)], 3: [(98, 99)]}

        def mask(b, h, q, kv, without=causal):
            live = without(b, h, q, kv)
            for start, end in images.get(b, ()):
                live = live | (q >= start) & (q <= end) & (kv >= start) & (kv <= end)
            return live

        batch = Batch(**MIXED, mm_req_doc_ranges=images)
        self.assert_close(batch.attend(), batch.defined(mask))
        images = {0: [(2, 5), (20, 34)]}
        near = lambda b, h, q, kv: (q >= kv) & (q - kv < 6)
        batch = Batch([40], [40], mm_req_doc_ranges=images)
        self.assert_close(batch.attend(sliding_window=6), batch.defined(lambda *at: mask(*at, near)))
        near = lambda b, h, q, kv: (q - kv).abs() < 6
        batch = Batch([40], [40], mm_req_doc_ranges=images, causal=False)
        self.assert_close(batch.attend(sliding_window=6), batch.defined(lambda *at: mask(*at, near)))
        third = lambda b, h, q, kv: (q >= kv) & (kv % 3 == 0)  # a mask of the layer
        layer = types.SimpleNamespace(**vars(LAYER) | {"logical_mask_mod": third})
        batch = Batch([40, 6], [40, 36], mm_req_doc_ranges=images)
        self.assert_close(batch.attend(layer), batch.defined(lambda *at: mask(*at, third)))
        decodes, prompts = builder(PAGE).build(0, Batch(**MIXED, mm_req_doc_ranges={4: [(2, 3)], 5: [(0, 57)]}).common).groups
        self.assertIsNone(decodes.images)
        self.assertEqual(prompts.images.tolist(), [[[1, 0]], [[1, 0]], [[2, 3]], [[1, 0]]])

    def test_loops_are_bounded(self):
        """Masks of images bound the loop over keys, and are not evaluated score by score."""
        images = {0: [(2, 5), (20, 24), (30, 40)]}
        group = builder(PAGE).build(0, Batch([64], [64], mm_req_doc_ranges=images).common).groups[0]
        for window, causal in ((None, True), (6, True), (6, False)):
            mask_mod = AttncImpl(H, D, 1.0, HKV, sliding_window=window).attention._mask_mod(None, group, causal)
            problem = 1, H, HKV, 256, 256
            text, tensors, _ = translate(None, mask_mod, device=group.images.device, problem=problem).given()
            try:
                found = attnc.Mod.parse_ir(text).explain(
                    problem, captures={name: x.cpu() for name, x in tensors.items()}, head_dim=128, arch="sm_90a"
                )
            except attnc.RunError as error:
                if "nvrtc" in str(error):
                    self.skipTest(f"SKIPPED: {error}")
                raise
            self.assertEqual(found["kvLoop"], "bounds")

    def test_mods(self):
        """A layer's own mods see heads, positions, and the request's place in the batch."""
        bias = torch.linspace(-1, 1, 6, device=DEVICE)
        layer = types.SimpleNamespace(
            **vars(LAYER) | {"logical_mask_mod": lambda b, h, q, kv: (q >= kv) & ((kv % 3 != b % 2) | (q == kv))},
            logical_score_mod=lambda score, b, h, q, kv: score * bias[b] + 0.1 * h,
        )
        batch = Batch(**MIXED)
        expected = batch.defined(
            lambda b, h, q, kv: (q >= kv) & ((kv % 3 != b % 2) | (q == kv)), lambda s, b, h, q, kv: s * bias[b] + 0.1 * h
        )
        self.assert_close(batch.attend(layer), expected)

    def test_mods_by_name(self):
        """A function that the configuration names tells the mods of each layer."""
        module = types.ModuleType("my_module")
        module.mods_of = lambda name: (None, everything if name.startswith("layers.1.") else None)
        layers = {name: types.SimpleNamespace(**vars(LAYER)) for name in ("layers.0.attn", "layers.1.attn")}
        config = types.SimpleNamespace(
            **vars(CONFIG) | {
                "additional_config": {"attnc_mods": "my_module.mods_of"},
                "compilation_config": types.SimpleNamespace(static_forward_context=layers),
            }
        )  # fmt: skip
        with unittest.mock.patch.dict(sys.modules, my_module=module):
            AttncBackend.get_builder_cls()(types.SimpleNamespace(), list(layers), config, torch.device(DEVICE))
        for name, mask in (("layers.0.attn", causal), ("layers.1.attn", everything)):
            batch = Batch(**MIXED)
            self.assert_close(batch.attend(layers[name]), batch.defined(mask))

    def test_wrong_mods_are_refused_by_name(self):
        module = types.ModuleType("my_module")
        for mods, reason in (
            (None, "give a pair"),
            (causal, "give a pair"),
            ((causal,), "give a pair"),
            ((causal, None), "score_mod, which takes no score, b, h, q_idx, kv_idx"),
            ((None, lambda q, kv: q >= kv), "mask_mod, which takes no b, h, q_idx, kv_idx"),
            (("a", None), "score_mod"),
        ):
            module.mods_of = lambda name, mods=mods: mods
            with unittest.mock.patch.dict(sys.modules, my_module=module), self.subTest(mods):
                with self.assertRaisesRegex(ValueError, r"attnc_mods: my_module\.mods_of\('layers\.3'\) returns .*" + reason):
                    serving.mods_of_layers("my_module.mods_of", "attnc_mods")("layers.3")
        for name in ("my_module:mods_of", "mods_of", "my_module.other", "no_module_of_mine.mods_of"):
            with unittest.mock.patch.dict(sys.modules, my_module=module), self.subTest(name):
                with self.assertRaisesRegex(ValueError, 'attnc_mods is .*give "module.name"'):
                    serving.mods_of_layers(name, "attnc_mods")

    def test_mods_by_request(self):
        """Requests of all kinds share launches, whose kernels stay when the mixture changes."""
        config = types.SimpleNamespace(
            **vars(CONFIG) | {"model_config": types.SimpleNamespace(logits_processors=[f"{__name__}:Requests"])}
        )
        own = lambda b, h, q, kv: (q >= kv) & (q - kv < 9)
        layer = types.SimpleNamespace(**vars(LAYER) | {"logical_mask_mod": own})
        masks = {"own": own, "prefix": prefix, "scaled": own, "both": prefix}
        scores = {"scaled": scaled, "both": scaled}
        texts = []
        for is_second, names in (
            (True, ("own", "prefix", "scaled", "both", "prefix", "own")),
            (True, ("both",) * 6),
            (True, (None, "scaled", None, "prefix", "both", "both")),
            (False, ("prefix", "own", "scaled", "both", "own", "both")),
        ):
            names = [name or "own" for name in names]
            config.use_v2_model_runner = is_second
            processor = Requests(config, None)
            batch, made = Batch(**MIXED), builder(PAGE, config)
            asked = [types.SimpleNamespace(extra_args={"attnc_mod": name} if name != "own" else None) for name in names]
            if is_second:  # places in the runner's table are not those in the batch
                places = [7, 0, 3, 1, 2, 5]
                batch.common.req_idx = numpy.array(places)
                for place, parameters in zip(places, asked):
                    processor.add_request(place, parameters)
            else:
                moved = [(0, 5, MoveDirectionality.SWAP), (7, 1, MoveDirectionality.UNIDIRECTIONAL)]
                at = [5, 7, 2, 3, 4, 0]
                added = [(place, parameters, None, []) for place, parameters in zip(at, asked)]
                processor.update_state(BatchUpdate(6, removed=[6], added=added, moved=moved))
                processor.update_state(None)
            expected = batch.defined(
                lambda b, *at: masks[names[b]](b, *at), lambda s, b, *at: scores.get(names[b], same)(s, b, *at)  # noqa: B023
            )
            with unittest.mock.patch.object(sys.modules[__name__], "builder", lambda page, made=made: made):
                with unittest.mock.patch.object(serving, "call_of", wraps=serving.call_of) as called:
                    self.assert_close(batch.attend(layer), expected)
            texts.append({call.args[0].mod for call in called.call_args_list})
        # Where a launch's requests begin is a constant at first.
        self.assertEqual(texts[1:], texts[1:2] * 3)

    def test_kernels_tell_requests_apart(self):
        """Also in launches whose first request is not the batch's: they compute only what a request chose."""
        chosen = serving.Chosen(Requests.named, torch.zeros(6, dtype=torch.int32))
        for group in builder(PAGE).build(0, Batch(**MIXED).common).groups:
            score_mod, mask_mod = chosen.of(group, (None, None))
            attention, problem = AttncImpl(H, D, 1.0, HKV).attention, (group.count, H, HKV, 64, 128)
            mods = attention._score_mod(score_mod, 0), attention._mask_mod(mask_mod, group, True, 0)
            text, tensors, _ = translate(*mods, problem=problem).given()
            try:
                found = attnc.Mod.parse_ir(text).explain(problem, captures=tensors, head_dim=128, arch="sm_90a")
            except attnc.RunError as error:
                if "nvrtc" in str(error):
                    self.skipTest(f"SKIPPED: {error}")
                raise
            told = [one["when"] for one in found["variants"]]
            self.assertEqual(told[:4], [f"which[b] == {number}" for number in range(4)])

    def test_wrong_names_of_mods_are_refused(self):
        parameters = types.SimpleNamespace(extra_args={"attnc_mod": "tree"})
        with self.assertRaisesRegex(ValueError, "attnc_mod is 'tree': give one of 'own', 'prefix', 'scaled', 'both'"):
            Requests.validate_params(parameters)
        for given in (None, {}, {"attnc_mod": None}, {"attnc_mod": "both", "other": 1}):
            Requests.validate_params(types.SimpleNamespace(extra_args=given))
        names = (f"{__name__}:Requests",)
        with self.assertRaisesRegex(VLLMValidationError, "attnc_mod is 'tree'"):  # as each of vLLM's runners asks it
            build_custom_logits_processors_params_validator(names)(parameters)
        with self.assertRaisesRegex(VLLMValidationError, "attnc_mod is 'tree'"):
            validate_logits_processors_parameters(names, parameters)
        for mods, message in (({}, "a dictionary"), ([causal], "a dictionary"), ({"a": causal}, "give a pair"),
                              ({"a": (causal, None)}, "as score_mod, which takes no score")):
            with self.assertRaisesRegex(ValueError, message):
                type("Wrong", (RequestMods,), {"mods": mods})

    def test_what_mods_by_request_need(self):
        for changes, message in (
            ({"cache_config": types.SimpleNamespace(enable_prefix_caching=True)}, "--no-enable-prefix-caching"),
            ({"parallel_config": types.SimpleNamespace(**vars(CONFIG.parallel_config) | {"pipeline_parallel_size": 2})}, "--pipeline-parallel-size 1"),
            ({"parallel_config": types.SimpleNamespace(**vars(CONFIG.parallel_config) | {"use_ubatching": True})}, "--enable-dbo"),
        ):
            config = types.SimpleNamespace(
                **vars(CONFIG) | {"model_config": types.SimpleNamespace(logits_processors=[Requests]), **changes}
            )
            with self.assertRaisesRegex(NotImplementedError, message):
                builder(PAGE, config)

    def captured(self, batch, q_lens, longest, mode):
        """Returns the metadata with which vLLM captures a graph over the buffers of `batch`, for a dummy batch."""
        starts = torch.tensor([0, *q_lens]).cumsum(0).int()
        common = batch.common.replace(
            query_start_loc=starts.to(DEVICE), query_start_loc_cpu=starts, num_reqs=len(q_lens),
            seq_lens=torch.tensor(q_lens, dtype=torch.int32, device=DEVICE), num_actual_tokens=sum(q_lens),
            max_query_len=longest, block_table_tensor=torch.zeros_like(batch.common.block_table_tensor),
            seq_lens_cpu_upper_bound=torch.tensor(q_lens, dtype=torch.int32),
        )  # fmt: skip
        made = builder(PAGE)
        made.vllm_config = types.SimpleNamespace(compilation_config=types.SimpleNamespace(cudagraph_mode=mode))
        return made.build_for_cudagraph_capture(common), common

    def test_graphs_of_mixed_batches(self):
        """A graph of any batch has one launch, which serves others of up to as many requests and tokens."""
        batch = Batch(**MIXED)
        real = batch.common
        for q_lens in ([10] * 6, [9, 9, 9, 9, 9, 15]):
            metadata, common = self.captured(batch, q_lens, 60, CUDAGraphMode.FULL)
            self.assertEqual(len(metadata.groups), 1)
            common.query_start_loc.copy_(real.query_start_loc)
            common.seq_lens.copy_(real.seq_lens)
            common.block_table_tensor.copy_(real.block_table_tensor)
            pad = lambda x: torch.cat((x, x.new_full((5, *x.shape[1:]), torch.nan)))
            impl = AttncImpl(H, D, D**-0.5, HKV, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0], device=DEVICE))
            impl.do_kv_cache_update(LAYER, *batch.new, batch.cache, real.slot_mapping)
            k, v = map(pad, batch.new)
            out = impl.forward(LAYER, pad(batch.q), k, v, batch.cache, metadata, torch.full_like(pad(batch.q), torch.nan))
            self.assert_close(out[:-5], batch.defined(sinks=impl.attention.sinks))
        # One token of each request, but a graph of any batch of six tokens.
        metadata, _ = self.captured(batch, [1] * 6, 6, CUDAGraphMode.FULL)
        self.assertEqual([(group.q_len, group.sequences.cu_seqlens_q is None) for group in metadata.groups], [(6, False)])
        metadata, _ = self.captured(Batch([8], [20]), [8], 8, CUDAGraphMode.FULL)
        self.assertEqual([(group.q_len, group.sequences.cu_seqlens_q is None) for group in metadata.groups], [(8, False)])
        # Decodes of up to three queries, and of equally many.
        metadata, _ = self.captured(batch, [1] * 6, 3, CUDAGraphMode.FULL_AND_PIECEWISE)
        self.assertEqual([(group.q_len, group.sequences.cu_seqlens_q is None) for group in metadata.groups], [(3, False)])
        metadata, _ = self.captured(batch, [1] * 6, 1, CUDAGraphMode.FULL_AND_PIECEWISE)
        self.assertEqual([(group.q_len, group.sequences.cu_seqlens_q is None) for group in metadata.groups], [(1, True)])

    def test_other_pages(self):
        """Layers of another group of caches share lengths, and have pages of their own."""
        batch, other = Batch(**MIXED), Batch(**MIXED, seed=1)
        metadata = builder(PAGE).build(0, batch.common)
        moved = builder(PAGE).update_block_table(metadata, other.common.block_table_tensor, other.common.slot_mapping)
        impl = AttncImpl(H, D, D**-0.5, HKV)
        impl.do_kv_cache_update(LAYER, *other.new, other.cache, moved.slot_mapping)
        out = impl.forward(LAYER, other.q, *other.new, other.cache, moved, torch.empty_like(other.q))
        self.assert_close(out, other.defined())


class Benchmark(unittest.TestCase):
    def test_peers(self):
        """What the benchmark gives attnc, Triton's kernel and FlexAttention's backend are the same batches."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "times.jsonl"
            command = [sys.executable, needs.ROOT / "bench/vllm_times.py", "--device", "cpu", "--out", out]
            for peers, only in (("attnc,flex_vllm", "tree8-|images"), ("triton_vllm", "images|decode-causal_fp8")):
                environment = {**os.environ, "TRITON_INTERPRET": "1"}
                ran = subprocess.run(
                    [*command, "--peers", peers, "--only", only], env=environment, capture_output=True, text=True, check=False
                )
            lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
            self.assertEqual([line for line in lines if "error" in line], [], ran.stderr)
            timed = [(line["peer"], line["id"].partition("-b")[0]) for line in lines if "ms" in line]
            self.assertEqual(timed, [
                ("attnc", "decode-tree8"), ("attnc", "prefill-images"), ("flex_vllm", "decode-tree8"),
                ("flex_vllm", "prefill-images"), ("triton_vllm", "prefill-images"), ("triton_vllm", "decode-causal_fp8"),
            ])  # fmt: skip
            for line in lines:
                self.assertLess(line.get("rmse", {"out": 0})["out"], 1e-3)


class Interface(unittest.TestCase):
    def reasons(self, **changes):
        return AttncBackend.validate_configuration(**dict(
            head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16, use_mla=False, has_sink=False,
            use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False,
            device_capability=types.SimpleNamespace(major=9, minor=0), attn_type="decoder",
        ) | changes)  # fmt: skip

    def test_registered(self):
        """vLLM finds the backend by the entry point of the package."""
        with entry_point_of("vllm"):
            vllm.plugins.load_general_plugins()
        self.assertIs(AttentionBackendEnum.CUSTOM.get_class(), AttncBackend)
        self.assertEqual(AttncBackend.get_name(), "CUSTOM")  # by which a layer finds the enumerator again

    def test_what_is_taken(self):
        for changes in ({}, dict(has_sink=True), dict(use_mm_prefix=True), dict(has_sliding_window=True),
                        dict(use_non_causal=True), dict(kv_cache_dtype="fp8", use_per_head_quant_scales=True),
                        dict(kv_cache_dtype="fp8_e4m3", head_size=80), dict(head_size=80, dtype=torch.float16, block_size=48)):
            self.assertEqual(self.reasons(**changes), [], changes)
        for changes, reason in (
            (dict(head_size=512), "head_size"), (dict(dtype=torch.float32), "dtype"), (dict(block_size=8), "block_size"),
            (dict(kv_cache_dtype="fp8_e5m2"), "kv_cache_dtype"), (dict(use_mla=True), "MLA"),
            (dict(kv_cache_dtype="fp8", device_capability=types.SimpleNamespace(major=8, minor=6)), "sm_89"),
            (dict(kv_cache_dtype="fp8", head_size=72), "multiples of 16"),
            (dict(attn_type="encoder"), "attention type"), (dict(use_dcp=True), "DCP"),
            (dict(device_capability=types.SimpleNamespace(major=7, minor=5)), "compute capability"),
            (dict(use_adaptive_verification=True), "query lens"),
        ):  # fmt: skip
            self.assertTrue(any(reason in text for text in self.reasons(**changes)), changes)
        self.assertFalse(any(isinstance(x, MultipleOf) for x in AttncBackend.get_supported_kernel_block_sizes()))

    def test_graphs_that_are_taken(self):
        for has_images, support in ((False, AttentionCGSupport.ALWAYS), (True, AttentionCGSupport.UNIFORM_BATCH)):
            config = types.SimpleNamespace(model_config=types.SimpleNamespace(is_mm_prefix_lm=has_images))
            self.assertEqual(AttncBackend.get_builder_cls().get_cudagraph_support(config, None), support)

    def test_refusals(self):
        for options, text in (
            (dict(attn_type="encoder_decoder"), "another backend"), (dict(kv_cache_dtype="int8_per_token_head"), "auto or fp8"),
            (dict(use_irope=True), "use_irope"),
        ):  # fmt: skip
            with self.assertRaisesRegex(NotImplementedError, text):
                AttncImpl(H, D, 1.0, HKV, **options)
        batch = Batch([1], [3])
        batch.common.causal = torch.tensor([True])
        with self.assertRaisesRegex(NotImplementedError, "one kind of mask"):
            builder(PAGE).build(0, batch.common)
        impl, q = AttncImpl(H, D, 1.0, HKV), torch.ones(2, H, D)
        with self.assertRaisesRegex(NotImplementedError, "fuse_attn_quant"):
            impl.forward(LAYER, q, q, q, q, None, q, output_scale=torch.ones(()))
        self.assertEqual(float(impl.forward(LAYER, q, q, q, q, None, q).sum()), 0)  # while memory is measured


if __name__ == "__main__":
    unittest.main()
