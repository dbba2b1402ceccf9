#!/usr/bin/env python3
"""Checks attnc's candidates in FlexAttention's autotuning by Inductor.

  ATTNC_LIBRARY=libattnc.so python3 inductor_test.py [-v ...]

Without a GPU, graphs are lowered for a device that is not there, and the code that Inductor writes runs on the CPU.
Where PyTorch lacks the hooks, inductor_hooks.py adds them. Prints SKIPPED if torch is not installed.
"""

import contextlib
import logging
import math
import re
import sys
import threading
import types
import unittest
import unittest.mock

import needs

needs.modules("attention")
import torch
from attention import by_definition, relative_error
try:
    import inductor_hooks
    from inductor_hooks import HAS_FORWARD
    from torch._inductor.kernel.flex import flex_attention as lowering
except ImportError:
    sys.exit(print(f"SKIPPED: PyTorch {torch.__version__} has FlexAttention's lowering elsewhere"))
import attnc.torch
from attnc.torch import inductor, operator
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.select_algorithm import AlgorithmSelectorCache
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn.attention import flex_attention as flex
from torch.utils._pytree import tree_map

CUDA = torch.device("cuda", 0)
B, H, HKV, L, D = 2, 4, 2, 320, 16


def _can_lower():
    """Whether this PyTorch makes fake tensors for a GPU that is not there."""
    try:
        with FakeTensorMode():
            return torch.empty(1, device=CUDA).copy_(torch.empty(1, device=CUDA)).device == CUDA
    except RuntimeError:
        return False


needs_lowering = unittest.skipUnless(_can_lower(), "this PyTorch lowers nothing for a GPU that is not there")


class Hooks(contextlib.ExitStack):
    """Installs attnc's candidates, with the hooks that this PyTorch lacks. `offered` is a copy of the newest choices;
    `only` leaves out Triton's."""

    def __init__(self, only=True):
        super().__init__()
        self.only, self.offered = only, []

    def __enter__(self):
        super().__enter__()
        self.enter_context(inductor_hooks.hooks(lambda choices: setattr(self, "offered", choices)))
        inductor.install()
        self.callback(inductor.uninstall)
        if self.only:
            for template in (lowering.flex_attention_template, lowering.flex_attention_backward_template):
                self.enter_context(unittest.mock.patch.object(template, "maybe_append_choice", lambda *_, **__: None))
        return self


class Absent(contextlib.ExitStack):
    """A GPU of Hopper that is not there, for lowering."""

    PROPERTIES = types.SimpleNamespace(
        major=9, minor=0, multi_processor_count=132, name="H100", total_memory=80 << 30, warp_size=32,
        regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, L2_cache_size=50 << 20,
        shared_memory_per_block_optin=232448, shared_memory_per_block=49152, gcnArchName="",
    )  # fmt: skip

    def __enter__(self):
        super().__enter__()
        interface = "torch._dynamo.device_interface.CudaInterface"
        for name, result in (
            ("torch.cuda.get_device_properties", self.PROPERTIES),
            ("torch.cuda.get_device_capability", (9, 0)),
            ("torch.cuda.current_device", 0),
            ("torch.cuda.is_available", True),
            (f"{interface}.get_device_properties", self.PROPERTIES),
            (f"{interface}.Worker.get_device_properties", self.PROPERTIES),
            (f"{interface}.is_available", True),
            ("torch.utils._triton.triton_hash_with_backend", ""),
            ("torch._inductor.scheduler.has_triton", True),
        ):
            replaced = lambda *_, result=result, **__: result
            self.enter_context(
                unittest.mock.patch(name, staticmethod(replaced) if interface in name else replaced)
            )  # fmt: skip
        return self


def moved(graph, inputs):
    """Returns the inputs as tensors on the absent GPU, after moving the graph there."""
    mode = next(x.fake_mode for x in inputs if isinstance(x, FakeTensor))
    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                there = lambda x: CUDA if isinstance(x, torch.device) else x
                node.args, node.kwargs = tree_map(there, (node.args, node.kwargs))
            module.recompile()
    with mode:
        found = [
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=CUDA) if isinstance(x, torch.Tensor) else x
            for x in inputs
        ]
    FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*found)
    return found, mode


class Kernel:
    """In place of a Triton kernel: does nothing."""

    run = staticmethod(lambda *_, **__: None)


class Lowered:
    """A function as torch.compile lowers it for the absent GPU. Calls run on the CPU. `codes` has the code of each
    graph."""

    def __init__(self, function, **options):
        torch._dynamo.reset()
        self.codes, self.hooks = [], Hooks()
        how = dict.fromkeys(("fw_compiler", "bw_compiler", "inference_compiler"), self._compile)
        backend = aot_autograd(**how, decompositions=select_decomp_table())
        self.compiled = torch.compile(function, backend=backend, fullgraph=True, **options)

    def __call__(self, *args):
        with unittest.mock.patch.object(flex, "_validate_device", lambda *_: None):  # it refuses gradients on CPUs
            return self.compiled(*args)

    def _compile(self, graph, inputs):
        inputs, mode = moved(graph, inputs)
        with Absent(), self.hooks:
            lowered = GraphLowering(graph, example_inputs=inputs, shape_env=mode.shape_env)
            with V.set_fake_mode(mode), V.set_graph_handler(lowered), V.set_debug_handler(DebugContext()):
                lowered.run(*inputs)
                code, *_ = lowered.codegen()
        self.codes.append(getattr(code, "value", code))
        return self._on_cpu(self.codes[-1])

    @staticmethod
    def _on_cpu(code):
        code = re.sub(r"^(\w+) = async_compile\.triton\(.*?^'''.*?\)$", r"\1 = Kernel", code, flags=re.S | re.M)
        code = code.replace("empty_strided_cuda(", "empty_strided_cpu(")
        code = re.sub(r"with torch\.cuda\._DeviceGuard\(\d\):", "if True:", code)
        code = re.sub(r"torch\.cuda\.set_device\(\d\)|^import triton.*$|.*_cuda_getCurrentRawStream.*", "pass", code, flags=re.M)
        code = re.sub(r"get_raw_stream\(\d\)", "None", code)
        scope = {"Kernel": Kernel}
        exec(compile(code, "<lowered>", "exec"), scope)
        return lambda *args: scope["call"]([*args])


def operands(requires_grad=False, q_len=L, kv_len=L, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = (B, H, q_len, D), (B, HKV, kv_len, D), (B, HKV, kv_len, D)
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_(requires_grad) for s in shapes]


def causal(b, h, q, k):
    return q >= k


def mask_of(mask_mod, q_len=L, kv_len=L, device="cpu", **options):
    return flex.create_block_mask(mask_mod, None, None, q_len, kv_len, device=device, **options)


def attention(q, k, v, score_mod=None, mask=None, **options):
    return flex.flex_attention(q, k, v, score_mod, mask, enable_gqa=True, **options)


class InductorTest(unittest.TestCase):
    def near(self, actual, expected, limit=2e-5):
        self.assertLess(relative_error(actual, expected), limit)

    @needs_lowering
    def test_forward(self):
        q, k, v = operands()
        slopes, documents = torch.rand(H), torch.arange(L) // 256
        score = lambda s, b, h, q, k: s + slopes[h] * (k - q)  # noqa: E731
        mask_mod = lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k)  # noqa: E731
        mask = mask_of(mask_mod)
        self.assertTrue(mask.full_kv_num_blocks.any() and mask.kv_num_blocks.any())
        lowered = Lowered(lambda q, k, v, mask: attention(q, k, v, score, mask))
        out = lowered(q, k, v, mask)
        self.near(out, by_definition(score, mask_mod, q, k, v)[0])
        self.assertIn("torch.ops.attnc.attention_into.default(", lowered.codes[0])
        self.assertEqual(len(lowered.hooks.offered), 1)

    @needs_lowering
    def test_lists_count(self):
        """Lists of blocks may say more than mask_mod does."""
        q, k, v = operands()
        count, indices = torch.ones(1, 1, 3, dtype=torch.int32), torch.zeros(1, 1, 3, 3, dtype=torch.int32)
        mask = flex.BlockMask.from_kv_blocks(count, indices, count, indices + 1, BLOCK_SIZE=128, seq_lengths=(L, L))
        by_lists = lambda b, h, q, k: k < 256  # noqa: E731
        out = Lowered(lambda *x: attention(*x[:3], None, x[3]))(q, k, v, mask)
        self.near(out, by_definition(None, by_lists, q, k, v)[0])

    @needs_lowering
    def test_without_a_mask(self):
        q, k, v = operands()
        q = q.transpose(1, 2).contiguous().transpose(1, 2)  # the result keeps its order
        lowered = Lowered(lambda *x: attention(*x, lambda s, b, h, q, k: torch.tanh(s / 3) * 3))
        out = lowered(q, k, v)
        self.near(out, by_definition(lambda s, b, h, q, k: torch.tanh(s / 3) * 3, None, q, k, v)[0])
        self.assertEqual(out.stride(), q.stride())

    @needs_lowering
    def test_training(self):
        q, k, v = operands(True)
        table, cap = torch.randn(H, L, requires_grad=True), torch.tensor(4.0, requires_grad=HAS_FORWARD)
        frozen = torch.randn(L)
        score = lambda s, b, h, q, k: torch.tanh((s + table[h, k] + frozen[q]) / cap) * cap  # noqa: E731
        lowered = Lowered(lambda q, k, v, mask: attention(q, k, v, score, mask))
        leaves = q, k, v, table, *[cap] * HAS_FORWARD  # before, Inductor has no gradients of 0-d tensors
        dout = torch.randn(B, H, L, D)
        found = torch.autograd.grad(lowered(q, k, v, mask_of(causal)), leaves, dout)
        expected = torch.autograd.grad(by_definition(score, causal, q, k, v)[0], leaves, dout.double())
        self.assertIn("torch.ops.attnc.attention_backward_into.default(", lowered.codes[1])
        for actual, right in zip(found, expected):
            self.near(actual, right)

    def test_gradients_of_lse(self):
        """Where lse is used, its gradient comes in base 2, as lse itself."""
        q, k, v = operands(True)
        text = "output score(score, b, h, q_idx, kv_idx) -> %score\n"
        lse, row_max = torch.empty(2, B, H, L)
        out = torch.empty(H, B, L, D).transpose(0, 1)  # not in the order of q
        kinds = [], [], 0.25, [], [], [1 << 30, 1 << 30]
        torch.ops.attnc.attention_into(text, q.detach(), k.detach(), v.detach(), *kinds, out, lse, row_max)
        right, lse_right = by_definition(None, None, q, k, v, 0.25)
        self.near(lse * math.log(2), lse_right)
        self.near(out, right)
        self.near(row_max * math.log(2), (q @ k.repeat_interleave(H // HKV, 1).mT * 0.25).amax(-1))
        dout, dlse = torch.randn(B, H, L, D), torch.randn(B, H, L)
        expected = torch.autograd.grad((right, lse_right), (q, k, v), (dout.double(), dlse.double()))
        # Results in other orders of strides than kernels write.
        results = [torch.empty(x.transpose(1, 2).shape).transpose(1, 2) for x in (q, k, v)]
        with unittest.mock.patch.object(operator, "run_backward", wraps=operator.run_backward) as called:
            torch.ops.attnc.attention_backward_into(
                text, q.detach(), k.detach(), v.detach(), *kinds, "", out, lse, dout, dlse * math.log(2), *results, []
            )
        self.near(called.call_args.args[7], lse_right)  # which the reference does not read
        for actual, right in zip(results, expected):
            self.near(actual, right)

    @needs_lowering
    def test_lengths_may_change(self):
        slopes = torch.rand(H)
        score = lambda s, b, h, q, k: s + slopes[h] * (k - q)  # noqa: E731
        lowered = Lowered(lambda *x: attention(*x[:3], score, x[3]), dynamic=True)
        for q_len, kv_len in ((320, 700), (600, 900), (450, 1000)):
            q, k, v = operands(q_len=q_len, kv_len=kv_len)
            out = lowered(q, k, v, mask_of(causal, q_len, kv_len))
            self.near(out, by_definition(score, causal, q, k, v)[0])
        self.assertEqual(len(lowered.codes), 1)

    @needs_lowering
    def test_captures_of_the_graph(self):
        """A captured tensor that the graph computes is made before the kernel runs; numbers may change."""
        q, k, v = operands()
        lowered = Lowered(
            lambda q, k, v, t, n: self.with_a_bias(q, k, v, t * 2, n), dynamic=True
        )
        lowered(q, k, v, torch.rand(H), 3)  # not compared: the kernels before it are Triton's
        call = re.search(r"attention_into\.default\((.*)", lowered.codes[0])[1]
        self.assertRegex(call, r"'tensor (\w+): f32\[4\]\\\\ntensor (\w+): i64\\\\n.*, \[buf\d+, buf\d+\], \[\], 0.25")

    @staticmethod
    def with_a_bias(q, k, v, bias, number):
        return attention(q, k, v, lambda s, b, h, i, j: s + bias[h] + number * (i - j))

    def refused(self, reason, *args, **options):
        """Lowers a flex_attention that attnc refuses, next to a candidate of Triton."""
        theirs = types.SimpleNamespace(name="theirs", input_nodes=[])

        class Stop(Exception):
            pass

        def select(name, choices, *_, **__):
            self.assertEqual(choices, [theirs])
            raise Stop

        lowered = Lowered(lambda *x: attention(*x, **options))
        append = lambda choices, **_: choices.append(theirs)  # noqa: E731
        with unittest.mock.patch.object(lowering, "autotune_select_algorithm", select):
            lowered.hooks.only = False
            with unittest.mock.patch.object(lowering.flex_attention_template, "maybe_append_choice", append):
                with self.assertLogs("attnc.torch.inductor", logging.INFO) as logs:
                    with self.assertRaisesRegex(Exception, "Stop"):
                        lowered(*args)
        self.assertIn(reason, " ".join(logs.output))
        self.assertNotIn("WARNING", " ".join(logs.output))

    @needs_lowering
    def test_what_attnc_cannot_serve_stays_as_it_was(self):
        q, k, v = operands()
        self.refused("ask for TRITON", q, k, v, kernel_options={"BACKEND": "TRITON"})
        self.refused("blocks of the mask are 64x64", q, k, v, None, mask_of(causal, BLOCK_SIZE=64))
        one = torch.ones(1, 1, 3, dtype=torch.int32)
        narrow = flex.BlockMask.from_kv_blocks(one, one[..., None], BLOCK_SIZE=128, mask_mod=causal, seq_lengths=(L, L))
        self.refused("lists of torch.int32 [1, 1, 3, 1]", q, k, v, None, narrow)
        self.refused("keys are shared", q, k[:1], v[:1], None, flex.create_block_mask(causal, B, None, L, L, "cpu"))
        self.refused("dtypes", *(x.double() for x in (q, k, v)))
        self.refused("aten.lgamma", q, k, v, lambda s, b, h, q, k: torch.lgamma(s))
        few = torch.rand(100)
        self.refused("too short", q, k, v, lambda s, b, h, q, k: s + few[k])
        with config.patch(autotune_in_subproc=True):
            self.refused("process of their own", q, k, v)

    @needs_lowering
    def test_timed_next_to_others(self):
        """A candidate is timed with the examples that Inductor makes, and with its own for captured tensors."""
        slopes, found = torch.rand(H), []
        score = lambda s, b, h, q, k: s + slopes[h] * (k - q)  # noqa: E731

        def model(qkv, mask):
            q, k, v = qkv.view(B, L, 3, H, D).permute(2, 0, 3, 1, 4)  # views of one buffer
            return attention(q, k, v, score, mask)

        lowered = Lowered(model)

        def on_cpu(size, stride, device, dtype, *_):
            return torch.empty_strided(size, stride, dtype=dtype).copy_(torch.randn(size))

        output_node = inductor._Candidate.output_node

        def timing(candidate):
            with unset_fake_temporarily():
                time(candidate)
            return output_node(candidate)

        def time(candidate):
            given = dict.fromkeys(node.get_name() for node in candidate.input_nodes)
            examples = [AlgorithmSelectorCache.benchmark_example_value(node) for node in candidate.input_nodes]
            named = dict(zip((node.get_name() for node in candidate.input_nodes), examples))
            lists = {node.get_name(): x for node, x in zip(candidate.input_nodes[5:], (
                torch.full((1, 1, 3), 3), torch.arange(3).expand(1, 1, 3, 3), torch.zeros(1, 1, 3), torch.zeros(1, 1, 3, 3)
            ))}  # fmt: skip
            named.update((name, x.int().contiguous()) for name, x in lists.items())
            out = torch.empty(B, L, H, D).transpose(1, 2)
            candidate.to_callable()(*(named[name] for name in given), out=out)
            found.append((next(iter(named.values())), out, candidate.hash_key(), candidate.info_dict()))

        with unittest.mock.patch.object(AlgorithmSelectorCache, "generate_example_value", staticmethod(on_cpu)):
            with unittest.mock.patch.object(inductor._Candidate, "output_node", timing):
                qkv, mask = torch.randn(B, L, 3 * H * D), mask_of(causal)
                lowered(qkv, mask)
        example, out, key, info = found[0]
        q, k, v = example.view(B, L, 3, H, D).permute(2, 0, 3, 1, 4)
        self.assertTrue(out.isfinite().all() and out.any())
        self.assertEqual(info["backend"], "attnc")
        self.assertRegex(key, "^attnc-[0-9a-f]{64}$")

    def test_a_candidate_that_fails_is_not_taken(self):
        candidate = inductor._Candidate(None, None, None, [])
        with unittest.mock.patch.object(inductor._Candidate, "to_callable", side_effect=ValueError("no kernel")):
            with self.assertLogs("attnc.torch.inductor", logging.WARNING) as logs:
                self.assertEqual(candidate.benchmark(out=torch.empty(1)), math.inf)
        self.assertIn("no kernel", logs.output[0])

    @needs_lowering
    def test_faults_of_attnc_do_not_stop_a_compilation(self):
        q, k, v = operands()
        with unittest.mock.patch.object(inductor, "_translation", side_effect=KeyError("a fault")):
            with self.assertLogs("attnc.torch.inductor", logging.WARNING), self.assertRaisesRegex(Exception, "No choices"):
                Lowered(attention)(q, k, v)

    @unittest.skipIf(HAS_FORWARD, "this PyTorch has the hook")
    def test_without_the_hook(self):
        with self.assertRaisesRegex(NotImplementedError, "append_flex_attention_choices, which came with 2.14"):
            inductor.install()

    @unittest.skipUnless(HAS_FORWARD, "this PyTorch lacks the hook")
    def test_install(self):
        class Others(inductor.InductorChoices):
            def uuid(self):
                return "others"

            def get_flex_decode_configs(self, *_):
                return ["theirs"]

        self.addCleanup(V.set_choices_handler, inductor.InductorChoices())
        with config.patch(inductor_choices_class=Others):
            inductor.install(), inductor.install()
            graph = types.SimpleNamespace(current_node=types.SimpleNamespace(target="flex_attention"))
            with unittest.mock.patch.object(inductor, "forward_candidate", lambda *_: "ours"):
                with V.set_graph_handler(graph):
                    offered = V.choices.append_flex_attention_choices(["triton"], [], [], [], None, {}, 128, 128)
            self.assertEqual(offered, ["triton", "ours"])
            self.assertEqual(V.choices.get_flex_decode_configs(D, torch.float32), ["theirs"])
            self.assertRegex(str(V.choices.uuid()), "attnc.*others|others.*attnc")
            if hasattr(inductor.choices, "register_inductor_choices"):  # for all threads
                seen = []
                thread = threading.Thread(target=lambda: seen.append(V.choices.uuid()))
                thread.start(), thread.join()
                self.assertIn("attnc", str(seen))
            inductor.uninstall(), inductor.uninstall()
            self.assertEqual(V.choices.uuid(), "others")


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class OnGpuTest(unittest.TestCase):
    """Models that Inductor compiles, with its own timing of candidates."""

    def compare(self, only, dtype, limit):
        torch._dynamo.reset()
        q, k, v = (x.detach().cuda().requires_grad_() for x in operands(dtype=dtype, q_len=512, kv_len=512))
        table, slopes = torch.randn(H, 512, device="cuda", requires_grad=True), torch.rand(H, device="cuda")
        mask, dout = mask_of(causal, 512, 512, "cuda"), torch.randn(B, H, 512, D, device="cuda", dtype=dtype)

        def model(q, k, v, table):
            bias = slopes * 2
            return attention(q * 1.0, k, v, lambda s, b, h, i, j: s + table[h, j] + bias[h] * (j - i), mask)

        with config.patch(force_disable_caches=True), Hooks(only) as hooks:
            out = torch.compile(model, fullgraph=True)(q, k, v, table)
            counts = [len(hooks.offered)]
            found = torch.autograd.grad(out, (q, k, v, table), dout)
            counts.append(len(hooks.offered))
        self.assertEqual(type(hooks.offered[-1]), inductor._Candidate)
        self.assertEqual(counts, [1, 1] if only else [2, 2])
        leaves = [x.detach().cpu().double().requires_grad_() for x in (q, k, v)] + [table.detach().cpu().requires_grad_()]
        bias, table_cpu = slopes.cpu() * 2, leaves[3]
        right, _ = by_definition(lambda s, b, h, i, j: s + table_cpu[h, j] + bias[h] * (j - i), causal, *leaves[:3])
        expected = torch.autograd.grad(right, leaves, dout.cpu().double())
        for actual, wanted in zip((out, *found), (right, *expected)):
            self.assertLess(relative_error(actual.detach().cpu(), wanted.detach()), limit)

    def test_attnc_is_taken(self):
        self.compare(True, torch.float32, 1e-4)
        self.compare(True, torch.bfloat16, 2e-2)

    def test_the_faster_one_is_taken(self):
        self.compare(False, torch.bfloat16, 2e-2)

    def test_cuda_graphs(self):
        q, k, v = (x.cuda() for x in operands(dtype=torch.bfloat16, q_len=512, kv_len=512))
        mask = mask_of(causal, 512, 512, "cuda")
        with config.patch(force_disable_caches=True), Hooks(), torch.no_grad():
            compiled = torch.compile(lambda *x: attention(*x, None, mask), mode="reduce-overhead")
            for _ in range(3):
                out = compiled(q, k, v).clone()
        right, _ = by_definition(None, causal, *(x.cpu().double() for x in (q, k, v)))
        self.assertLess(relative_error(out.cpu(), right), 2e-2)


if __name__ == "__main__":
    unittest.main()
