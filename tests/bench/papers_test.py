#!/usr/bin/env python3
"""Tests of bench/papers: each program runs dry on the CPU, goes on where it stopped, and its page is made of its results.

  ATTNC_LIBRARY=build/libattnc.so python3 tests/bench/papers_test.py build/attnc"""
import contextlib
import functools
import importlib.util
import io
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "papers")]
sys.path.insert(0, str(BENCH.parent / "tests" / "python"))
import needs

needs.modules("torch", "safetensors")
import common
import fna
import neighborhoods
import page
import torch
import workloads
from results import read_results

torch.set_num_threads(1)  # tensors are tiny
DRY = ["--dry", "--rounds", "2", "--peers", "ours", "flex"]
PROGRAMS = {
    "flexattention": [*DRY, "--only", "causal.*(h4k4|h8k8)"],
    "flashattention3": [*DRY, "--only", "noop|accuracy"],
    "latent": DRY,
    "neighborhoods": DRY,
    "vision": ["--dry", "--rounds", "2", "--only", "classify-nat_tiny|generate"],
    "fna": ["--dry", "--rounds", "2", "--only", "d-[0-5]-b", "--processes", "0"],
}


def quietly(call, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        call(*arguments)
    return said.getvalue()


class DryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out.jsonl"

    def run_dry(self, name, *more):
        program = importlib.import_module(name)
        said = quietly(program.main, ["--out", str(self.out), *PROGRAMS[name], *more])
        return said, read_results([self.out])

    def test_each_program_runs_and_the_same_command_goes_on(self):
        for name in PROGRAMS:
            with self.subTest(name):
                self.out.unlink(missing_ok=True)
                said, results = self.run_dry(name)
                self.assertTrue(results.rows, said)
                for case_id, by_peer in results.rows.items():
                    self.assertIn("attnc", by_peer, f"{case_id}: {results.errors}")
                wrong = [error for error in results.errors if "differs" in error[2]]
                self.assertFalse(wrong)
                before = self.out.read_text()
                self.run_dry(name)
                self.assertEqual(self.out.read_text(), before)

    def test_ablations_of_flexattention_are_timed(self):
        _, results = self.run_dry("flexattention")
        peers = set(results.rows["forward-causal-b1h4k4-q64k64-d16"])
        self.assertLessEqual({"attnc", "attnc_lists", "attnc_partial", "flex", "flex_lists", "flex_partial"}, peers)
        self.assertEqual(set(results.rows["decode-causal-b1h4k4-q1k64-d16-p16"]), {"attnc", "attnc_contiguous"})
        self.assertEqual({"out", "dq", "dk", "dv"}, set(results.rmse["accuracy-causal-b1h8k8-q64k64-d64-bf16"]["attnc"]))

    def test_time_that_is_up_ends_a_run(self):
        said, results = self.run_dry("flashattention3", "--seconds", "0")
        self.assertIn("time is up before", said)
        self.assertFalse(results.rows)

    def test_tables_of_errors_end_in_time(self):
        program = importlib.import_module("flashattention3")
        with mock.patch.object(program, "outliers", lambda *_: time.sleep(9)):
            said, results = self.run_dry("flashattention3", "--only", "accuracy", "--seconds", "2")
        self.assertIn("time is up in the table of errors", said)
        self.assertFalse(results.rmse)

    def test_imports_of_peers_count(self):
        program = importlib.import_module("flexattention")
        with mock.patch.object(program, "extras", lambda options: time.sleep(1) or ()):
            said, results = self.run_dry("flexattention", "--seconds", "0.9")
        self.assertIn("time is up before", said)
        self.assertIn("import ours", said)
        self.assertFalse(results.rows)


@unittest.skipUnless(importlib.util.find_spec("transformers"), "needs transformers")
class ModelsTest(unittest.TestCase):
    def test_models_train_dry_and_their_table_has_a_row(self):
        import models

        models.made_dry()
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "models.jsonl")
            for peer in ("attnc", "sdpa", "none"):
                quietly(models.measure, peer, "finetune", {"": 60}, out)
            before = out.read_text()
            quietly(models.measure, "sdpa", "finetune", {"": 60}, out)
            self.assertEqual([line for line in out.read_text()[len(before) :].split("\n") if '"ms"' in line], [])
            results = read_results([out])
            rows = results.rows["finetune-llama3-64"]
            self.assertEqual(set(rows), {"attnc", "sdpa", "none"}, results.errors)
            self.assertAlmostEqual(rows["attnc"]["first_loss"], rows["sdpa"]["first_loss"], places=2)
            program = importlib.import_module("end_to_end")
            lines = program.finetuning(results, common.Section("", program.cases("finetune-llama3")))
            self.assertRegex(lines[2], r"^\| 64 \| -?[0-9.]+, -?[0-9]+ % \| -?[0-9.]+, ")


class PeersTest(unittest.TestCase):
    def test_an_itemized_mask_says_what_the_mods_say(self):
        from peers import itemized, ours

        from speed import Operands, differences

        anything = mock.patch.object(itemized, "sdpa_kernel", lambda backend: contextlib.nullcontext())
        with anything, torch.no_grad(), mock.patch.object(workloads, "PREFIX", 20), mock.patch.dict(workloads.DOCUMENTS, common.DRY):
            for kind, variant in itertools.product(("forward", "decode"), ("causal", "alibi", "sliding_window", "prefix_lm", "document")):
                case = common.tiny(workloads.Workload(kind, variant, 2, 16, 2, 8192, 64, 64, window=9))
                operands = Operands(case, "cpu")
                found, expected = (next(iter(operands.runs(peer).values()))()[1]() for peer in (itemized, ours))
                self.assertFalse(differences(operands, found, expected)[1], f"{kind} {variant}")


    def test_lists_without_full_blocks_have_the_same_blocks(self):
        import flexattention

        case = workloads.Workload("forward", "causal", 1, 2, 2, 512, 16, 16)
        full, partial = (flexattention.lists_of(case, is_partial, "cpu") for is_partial in (False, True))
        self.assertEqual(full.full_kv_num_blocks.flatten().tolist(), [0, 1, 2, 3])
        self.assertIsNone(partial.full_kv_num_blocks)
        self.assertTrue(torch.equal(full.to_dense(), partial.to_dense()))


def rows_of(pool, table, length):
    """Returns [B, length, H, D] of a pool of pages [PAGES, page, H, D]."""
    return pool[table.long()].flatten(1, 2)[:, :length]


def attended(q, k, v, scale, window=(-1, -1), cap=0.0):
    """Returns out [B, L, H, D] by definition; the last query is at the last key. A window of -1 has no end."""
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    score = q @ k.mT.repeat_interleave(q.shape[1] // k.shape[1], 1) * scale
    score = cap * torch.tanh(score / cap) if cap else score
    behind = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - torch.arange(k.shape[2])
    left, right = (10**9 if n < 0 else n for n in window)
    score = score.masked_fill((behind > left) | (behind < -right), -torch.inf)
    return (score.softmax(-1) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)).transpose(1, 2).bfloat16()


FA3_SCHEMA = (
    "fwd(Tensor q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor? out, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? seqused_k, int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table, "
    "Tensor? kv_batch_idx, Tensor? leftpad_k, Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, Tensor? q_descale, "
    "Tensor? k_descale, Tensor? v_descale, float softmax_scale, bool is_causal, int window_size_left, int window_size_right, "
    "float softcap, bool is_rotary_interleaved, Tensor? scheduler_metadata, int num_splits, bool? pack_gqa, int sm_margin, Tensor? s_aux, "
    "int cp_world_size, int cp_rank, Tensor? cp_tot_seqused_k) -> Tensor[]"
)


FA3_PLAN_SCHEMA = (
    "get_scheduler_metadata(int batch_size, int max_seqlen_q, int max_seqlen_k, int num_heads, int num_heads_k, int headdim, int headdim_v, "
    "ScalarType qkv_dtype, Tensor seqused_k, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q, "
    "Tensor? leftpad_k, int? page_size, int max_seqlen_k_new, bool is_causal, int window_size_left, int window_size_right, "
    "bool has_softcap, int num_splits, bool? pack_gqa, int sm_margin) -> Tensor"
)


LIBRARIES = []  # they live to the end: torch lists the operations of those that are gone


def operations(namespace, **by_name):
    """Makes operations of the CPU: {name: (schema, function)}."""
    LIBRARIES.append(library := torch.library.Library(namespace, "DEF"))
    for name, (schema, function) in by_name.items():
        library.define(schema)
        library.impl(name, function, "CPU")


def fa3_by_definition(*arguments):
    """The operation of vLLM's library."""
    names = [argument.name for argument in torch.ops._vllm_fa3_C.fwd.default._schema.arguments]
    given = types.SimpleNamespace(**dict(zip(names, arguments)))
    q, k, v = given.q, given.k, given.v
    assert (given.seqused_k is None) == (given.page_table is None) and given.is_rotary_interleaved and given.cp_world_size == 1
    if given.page_table is not None:
        k, v = (rows_of(x, given.page_table, int(given.seqused_k[0])) for x in (k, v))
    if given.q_v is not None:
        q, k = torch.cat((given.q_v, q), -1), torch.cat((v, k), -1)
    if given.q_descale is not None:
        scales = given.q_descale, given.k_descale, given.v_descale
        q, k, v = (x.float() * scale[:, None, :, None] for x, scale in zip((q, k, v), scales))
    how = given.softmax_scale, (-1, 0) if given.is_causal else (given.window_size_left, given.window_size_right), given.softcap
    if given.cu_seqlens_q is None:
        return [attended(q, k, v, *how), torch.empty(0)]
    spans = list(itertools.pairwise(given.cu_seqlens_q.tolist()))
    assert given.max_seqlen_q == max(end - begin for begin, end in spans)
    return [torch.cat([attended(*(x[None, begin:end] for x in (q, k, v)), *how)[0] for begin, end in spans]), torch.empty(0)]


class CallsTest(unittest.TestCase):
    """Peers whose libraries are stood in for by definitions: their operands and options say what attnc's mods say."""

    def imported(self, name, package, load):
        """Returns a module of peers, with `package` in place of flash_mla and `load` of load_of_vllm; no other test finds it."""
        self.addCleanup(sys.modules.pop, f"peers.{name}", None)
        self.addCleanup(sys.modules.pop, "flash_mla", None)
        sys.modules.pop(f"peers.{name}", None)
        sys.modules["flash_mla"] = package
        with mock.patch("peers.load_of_vllm", load):
            return importlib.import_module(f"peers.{name}")

    def check(self, peer, *cases):
        from peers import ours

        from speed import Operands, differences

        with torch.no_grad(), mock.patch.dict(workloads.DOCUMENTS, common.DRY):
            for case in cases:
                self.assertTrue(peer.serves(case), case.id)
                operands = Operands(case, "cpu")
                expected = next(iter(operands.runs(ours).values()))()[1]()
                for how, run in operands.runs(peer).items():
                    self.assertFalse(differences(operands, run()[1](), expected)[1], f"{case.id} {how}")

    def test_vllms_flash_attention_3(self):
        plans = []
        plan = lambda *sizes: plans.append(sizes[:7]) or torch.empty(0)
        operations("_vllm_fa3_C", fwd=(FA3_SCHEMA, fa3_by_definition), get_scheduler_metadata=(FA3_PLAN_SCHEMA, plan))
        load = mock.Mock()
        flash3_vllm = self.imported("flash3_vllm", None, load)
        load.assert_called_once_with("vllm_flash_attn/_vllm_fa3_C.abi3.so")
        case = functools.partial(workloads.Workload, width=16, width_v=16)
        of = [case("forward", variant, 2, 4, 2, 64, window=9) for variant in ("noop", "causal", "sliding_window", "softcap")]
        of += [case("forward", "causal", 1, 2, 2, 64, dtype="e4m3"), case("forward", "document", 1, 2, 2, 64, is_packed=True)]
        of.append(case("decode", "causal", 2, 4, 2, 64, page=16))
        self.check(flash3_vllm, *of, workloads.Workload("decode", "latent", 2, 4, 1, 64, 24, 16, page=16))
        self.assertEqual(plans, [(2, 1, 64, 4, 2, 16, 16), (2, 1, 64, 4, 1, 8, 16)])

    def test_flashmla_of_vllm_and_of_both_packages(self):
        case = workloads.Workload("decode", "latent", 2, 4, 1, 128, 24, 16, page=64)

        def decoded(q, pool, table, lengths, width_v, plan, splits, **how):
            self.assertEqual(how.pop("use_legacy", False), plan == "sglang")
            self.assertEqual(how, {"causal": True})
            k = rows_of(pool, table, int(lengths[0]))
            return attended(q, k, k[..., :width_v], q.shape[-1] ** -0.5), None

        for whose in ("sglang", "deepseek"):
            library = types.SimpleNamespace(get_mla_metadata=lambda *_, whose=whose: (whose, None), flash_mla_with_kvcache=decoded)
            if whose == "sglang":
                library.has_legacy = lambda: True
            flashmla = self.imported("flashmla", library, mock.Mock(side_effect=OSError))
            self.assertFalse(flashmla.IS_IN_VLLM)
            self.check(flashmla, case)

        def of_vllm(q, pool, width_v, lengths, table, scale, is_causal, plan, splits, out):
            self.assertEqual((is_causal, out), (True, None))
            plans.append(plan)
            k = rows_of(pool, table, int(lengths[0]))
            return attended(q, k, k[..., :width_v], scale), torch.empty(0), torch.ones(1), torch.ones(1)

        plans = []
        schema = (
            "dense_decode_fwd(Tensor q, Tensor kcache, int head_size_v, Tensor seqlens_k, Tensor block_table, float softmax_scale, "
            "bool is_causal, Tensor? tile_scheduler_metadata, Tensor? num_splits, Tensor? out_) -> (Tensor, Tensor, Tensor?, Tensor?)"
        )
        operations("_flashmla_C", dense_decode_fwd=(schema, of_vllm))
        flashmla = self.imported("flashmla", None, mock.Mock())
        self.assertEqual(list(flashmla.ways(case, *[torch.ones(2, 128, 1, 24)] * 3)), ["vllm"])
        self.check(flashmla, case)
        self.assertEqual([plan is None for plan in plans], [True, False])
        with self.assertRaises(OSError):
            self.imported("flashmla", None, mock.Mock(side_effect=OSError))

    def test_a_library_of_vllm_is_found_without_vllm(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder]), mock.patch.object(torch.ops, "load_library") as load:
            pathlib.Path(folder, "vllm").mkdir()
            common.peers.load_of_vllm("lib.so")
            load.assert_called_once_with(f"{folder}/vllm/lib.so")
            self.assertNotIn("vllm", sys.modules)


class BundleTest(unittest.TestCase):
    def run_bundle(self, *arguments):
        command = [sys.executable, str(BENCH / "peers" / "bundle.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    def test_what_is_packed_in_parts_is_unpacked_and_a_missing_part_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "natten" / "deep").mkdir(parents=True)
            content = random.Random(0).randbytes(3 << 19)
            (folder / "natten" / "deep" / "lib.so").write_bytes(content)
            done = self.run_bundle("pack", folder / "pack", "--only", "natten", "--natten", folder / "natten", "--part", 1)
            self.assertRegex(done.stdout, r"natten: 1\.6 MB in 2 parts", done.stderr)
            done = self.run_bundle("unpack", folder / "site", folder / "pack")
            self.assertIn(f"export PYTHONPATH={folder / 'site'}", done.stdout, done.stderr)
            self.assertEqual((folder / "site" / "natten" / "deep" / "lib.so").read_bytes(), content)
            (folder / "pack" / "natten.tar.xz.2-of-2").unlink()
            self.assertIn("natten is without part 2 of 2", self.run_bundle("unpack", folder / "site", folder / "pack").stderr)
        self.assertIn("build it by build_natten.py", self.run_bundle("pack", "/nowhere", "--only", "natten").stderr)

    def test_libraries_that_nobody_loads_are_left_out(self):
        sys.path.append(str(BENCH / "peers"))
        self.addCleanup(sys.path.remove, str(BENCH / "peers"))
        from bundle import is_wanted

        for path, size in (("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", 172 << 20), ("vllm-0.33.0.dist-info/METADATA", 1 << 10),
                           ("vllm/_flashmla_C.abi3.so", 4 << 20)):
            self.assertTrue(is_wanted(path, size), path)
        for path, size in (("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", 307 << 20), ("vllm/config.py", 1 << 10), ("vllm/_flashmla_extension_C.abi3.so", 1 << 10)):
            self.assertFalse(is_wanted(path, size), path)

    def test_kernels_of_natten_that_are_built_are_its_defaults(self):
        sys.path.append(str(BENCH / "peers"))
        self.addCleanup(sys.path.remove, str(BENCH / "peers"))
        from build_natten import is_wanted

        for name in ("hopper_fna2d_bfloat16_128x128x128_coop_Q16x8_KV16x8_causal1x0", "reference_fna1d_backward_bfloat16_causal1", "reference_fna2d_float32_causal1x0",
                     "hopper_fna3d_backward_bfloat16_64x128x128_Q4x4x4_KV4x4x8_causal0x0x0"):
            self.assertTrue(is_wanted(name), name)
        self.assertTrue(is_wanted("hopper_fna1d_bfloat16_64x128x32_Q64_KV128_causal0", ["32"]))
        for name in ("hopper_fna2d_bfloat16_128x128x128_pp_Q16x8_KV16x8_causal1x0", "hopper_fna1d_float16_64x128x64_Q64_KV128_causal0",
                     "hopper_fna2d_bfloat16_64x128x64_Q8x8_KV16x8_causal0x1", "hopper_fna1d_bfloat16_64x128x32_Q64_KV128_causal0",
                     "hopper_fna2d_backward_bfloat16_128x128x64_Q16x8_KV16x8_causal0x0"):
            self.assertFalse(is_wanted(name), name)


class ProblemTest(unittest.TestCase):
    def test_problems_are_all_different_and_within_their_grids(self):
        cases = [case for section in fna.SECTIONS for case in section.cases]
        self.assertEqual(len({case.id for case in cases}), len(cases))
        self.assertGreaterEqual(len(fna.FORWARD), 300)
        self.assertEqual({len(case.extents) for case in fna.BACKWARD}, {1, 2, 3})
        for case in cases:
            for n, w, d in zip(case.extents, case.window, case.dilation):
                self.assertTrue(2 <= w <= n // d, case.id)

    def test_pairs_are_those_of_nattens_definition(self):
        of_dsl = mock.patch.object(sys, "path", [str(BENCH.parent / "tests" / "dsl"), *sys.path])
        with of_dsl, mock.patch.dict(sys.modules):  # it has a torch of its own
            from natten import generalized

        for case in [case.tiny() for case in fna.FORWARD[:24]]:
            pairs = case.batch * case.heads
            for axis in zip(case.extents, case.window, case.dilation, case.is_causal):
                n, w, d, is_causal = axis
                pairs *= sum(len(generalized(i, n, w, d, 1, is_causal)) for i in range(n))
            self.assertEqual(case.pairs(), pairs, case.id)


    def test_pixels_in_other_orders_see_the_same_neighborhoods(self):
        at = torch.arange(256)
        pixels = {}
        for case in dict.fromkeys(case.tiny() for case in neighborhoods.CASES):
            mask = case.mods_of_positions("cpu")[1](0, 0, at[:, None], at)
            row, column = neighborhoods.PLACES[case.variant](at, case.canvas)
            pixel = row * case.canvas + column
            pixels[case.variant] = set(map(tuple, torch.stack((pixel[mask.nonzero()[:, 0]], pixel[mask.nonzero()[:, 1]]), 1).tolist()))
            self.assertEqual(int(mask.sum()) * case.batch * case.heads, case.pairs())
            blocks = mask.unflatten(0, (-1, 128)).unflatten(2, (-1, 128)).any(3).any(1)
            self.assertEqual(case.live_blocks(), float(blocks.float().mean()))
        self.assertEqual(pixels["naive"], pixels["tiled"])
        self.assertEqual(pixels["naive"], pixels["morton"])


def made_up(program, path):
    """Writes results of all cases of a program: attnc takes 1 ms, flex 2, natten 4."""
    with open(path, "w", encoding="utf-8") as file:
        for case in dict.fromkeys(case for section in program.SECTIONS for case in section.cases):
            for peer, ms in (("attnc", 1.0), ("flex", 2.0), ("natten", 4.0), ("attnc_contiguous", 0.8), ("attnc_lists", 1.1), ("attnc_partial", 1.32)):
                about = {"gpu": "Fake GPU", "driver": "1", "date": "2026-12-01", "version": "1", "command": "python3 x"}
                file.write(json.dumps({"id": case.id, "peer": peer, "ms": ms, **case.rate(ms), **about}) + "\n")
        for name in ("accuracy-causal-b1h8k8-q2048k2048-d64-bf16",):
            file.write(json.dumps({"id": name, "peer": "attnc", "rmse": {"out": 1e-3, "dq": 2e-3, "dk": 1e-3, "dv": 1e-3}}) + "\n")


def committed(name):
    return (BENCH.parent / "docs" / "papers" / f"{name}.md").read_text(encoding="utf-8")


def page_of(name, results):
    """Returns the sections that were written, and the page."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = pathlib.Path(folder, "papers", f"{name}.md")
        path.parent.mkdir()
        path.write_text(committed(name), encoding="utf-8")
        if importlib.util.find_spec("matplotlib") is None:
            stack.enter_context(mock.patch.object(page, "plot", lambda *_: ""))
        return page.write_page(importlib.import_module(name), results, pathlib.Path(folder)), path.read_text(encoding="utf-8")


class PageTest(unittest.TestCase):
    def tables(self, name):
        program = importlib.import_module(name)
        with tempfile.TemporaryDirectory() as folder:
            made_up(program, made := pathlib.Path(folder, "made.jsonl"))
            done, text = page_of(name, read_results([made]))
        self.assertEqual(done, [section.name for section in program.SECTIONS])
        return text

    def test_pages_have_a_table_for_each_section(self):
        text = self.tables("flexattention")
        self.assertIn("| causal, 4 x 16 x 16384, d 64 |", text)
        self.assertIn("2.00 (FlexAttention)", text)
        self.assertIn("| +25.0 % |", text)  # 1 ms in pages, 0.8 ms contiguous
        self.assertIn("| forward causal, 4 x 16 x 16384, d 64 | 1.20 |", text)  # 1.32 ms without full blocks, 1.1 ms with them
        self.assertIn("| 1-D, forward, NATTEN | 120 | 100.0 % | 4.00 |", self.tables("fna"))
        self.assertIn("| 7 x 7 of 32 x 32 | 34.4 % | 1.000 | 2.000 |", self.tables("neighborhoods"))
        self.assertIn("| attnc | 1.00e-03 |", self.tables("flashattention3"))
        self.assertIn("| 128 x 65536 | 1000.0 | 9664 | 2336 | 2000.0 (2.00) |", self.tables("latent"))

    def test_a_model_has_images_a_second_and_the_share_of_attention(self):
        import vision

        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder, "made.jsonl")
            times = {"attnc": 8.0, "natten": 10.0, "none": 6.0}
            lines = [{"id": vision.TRAIN[0].id, "peer": peer, "ms": ms, **vision.TRAIN[0].rate(ms)} for peer, ms in times.items()]
            made.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            done, text = page_of("vision", read_results([made]))
        self.assertEqual(done, ["table-8"])
        self.assertIn("| nat_tiny | 16000 | 25 % | 12800 (1.25) |", text)

    def test_committed_pages_have_the_figures_of_the_newest_results_and_no_others(self):
        for name in (*PROGRAMS, "end_to_end"):
            files = sorted((BENCH / "results").glob(f"*-{name}.jsonl"))
            if files:
                self.assertEqual(page_of(name, read_results(files[-1:]))[1], committed(name), f"run bench/papers/page.py {name} {files[-1]}")
            for marker in () if files else re.findall("<!-- results (.*) -->", committed(name)):
                self.assertIn(f"<!-- results {marker} -->\n<!-- /results {marker} -->", committed(name))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
