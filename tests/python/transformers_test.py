#!/usr/bin/env python3
"""Compares small random models of transformers with attn_implementation="attnc" and "eager": logits, gradients, tokens.

  ATTNC_LIBRARY=libattnc.so python3 transformers_test.py [--jobs N] [--limit SECONDS] [--only REGEX] [--list]

Runs on the CPU, and on a GPU if there is one; with ATTNC_TEST_DEVICE=cuda, only on the GPU. Prints SKIPPED if torch or
transformers is not installed.
"""

import contextlib
import copy
import functools
import io
import os
import unittest
import unittest.mock

import needs

os.environ["HF_HUB_OFFLINE"] = "1"
needs.modules("transformers", "attention")
import torch
import transformers
from attention import by_definition, relative_error
import attnc.transformers
import side_by_side
from transformers import Gemma2Config, GptOssConfig, LlamaConfig

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
if "ATTNC_TEST_DEVICE" in os.environ:
    DEVICES = [os.environ["ATTNC_TEST_DEVICE"]]
COMMON = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
CONFIGS = {
    "llama": lambda: LlamaConfig(**COMMON),
    "gemma2": lambda: Gemma2Config(**COMMON, sliding_window=7, query_pre_attn_scalar=16, attn_logit_softcapping=5.0),
    "gpt_oss": lambda: GptOssConfig(**COMMON, sliding_window=7, num_local_experts=4, num_experts_per_tok=2),
}
LENGTH = 21


def enlarged(model):
    """With larger weights: those that models begin with would hide the attention."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2 if parameter.dim() > 1 else 1.0)
    return model


def model_of(name, device, implementation="attnc"):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation=implementation)
    return enlarged(model).to(device, torch.float32).eval()


def in_parts(model, parts, input_ids, attention_mask, use_cache):
    """Returns the logits of a model that reads parts one after the other."""
    cache, logits, end = transformers.DynamicCache(config=model.config), [], 0
    for part in input_ids.split(parts, 1):
        end += part.shape[1]
        logits.append(model(part, attention_mask=attention_mask[:, :end], past_key_values=cache).logits)
    return torch.cat(logits, 1)


def tokens(device, batch=2, length=LENGTH):
    return torch.randint(2, 64, (batch, length), generator=torch.Generator().manual_seed(2)).to(device)


def long_from(rows):
    """Lowers the length from which sequences count as long to this many rows."""
    return unittest.mock.patch.object(attnc.transformers, "_LONG", rows)


@functools.cache
def why_untraced(name):
    """Returns why Dynamo cannot trace the model with attention of transformers; None: it can. That of 2.6 cannot in 5.24."""
    try:
        torch.compile(model_of(name, "cpu", "eager"), backend="eager", fullgraph=True)(tokens("cpu"), use_cache=False)
    except torch._dynamo.exc.Unsupported as error:
        return str(error).strip().splitlines()[0]


def of_models(*names):
    """Makes one test for each model and device of a function of the names of these."""

    def mark(test):
        test.models = names
        return test

    return mark


def one_test_for_each(case):
    for name, test in [*vars(case).items()]:
        for model in getattr(test, "models", ()):
            for device in DEVICES:
                setattr(case, f"test_{name}_of_{model}_on_{device}", functools.partialmethod(test, model, device))
    return case


@one_test_for_each
class TransformersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        attnc.transformers.register()

    def near(self, actual, expected, limit=1e-4):
        self.assertLess(relative_error(actual.detach().cpu(), expected.detach().cpu()), limit)

    def compare(self, name, device, live=None, parts=None, **inputs):
        """Logits, where they are live, and gradients of all parameters. `parts`: of how many tokens attnc reads, one part
        after the other, through a cache."""
        results = []
        for implementation in ("attnc", "eager"):
            model = model_of(name, device, implementation)
            logits = model(**inputs).logits if parts is None or implementation == "eager" else in_parts(model, parts, **inputs)
            logits = logits if live is None else logits[live]
            logits.log_softmax(-1)[..., 3].sum().backward()
            results.append((logits, {key: p.grad for key, p in model.named_parameters() if p.grad is not None}))
        (actual, gradients), (expected, wanted) = results
        self.near(actual, expected)
        self.assertEqual(gradients.keys(), wanted.keys())
        for key, gradient in gradients.items():
            self.near(gradient, wanted[key], 5e-4)

    @of_models(*CONFIGS)
    def training(self, name, device):
        self.compare(name, device, input_ids=tokens(device), use_cache=False)

    @of_models(*CONFIGS)
    def padding(self, name, device):
        kept = torch.ones(2, LENGTH, dtype=torch.long, device=device)
        kept[0, :6] = 0
        kept[1, 15:] = 0
        self.compare(name, device, input_ids=tokens(device), attention_mask=kept, use_cache=False, live=kept.bool())

    @of_models(*CONFIGS)
    def packed_sequences(self, name, device):
        lengths = 9, 4, 8
        packed = tokens(device, 1)
        positions = torch.cat([torch.arange(length) for length in lengths]).view(1, -1).to(device)
        starts = torch.tensor([0, 9, 13, 21], dtype=torch.int32, device=device)
        given = {
            "positions": {"position_ids": positions},
            "positions of long sequences": {"position_ids": positions},
            "cumulative lengths": {
                "position_ids": positions, "cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 9,
                "max_length_k": 9,
            },
        }  # fmt: skip
        model, eager = model_of(name, device), model_of(name, device, "eager")
        alone = [eager(part, use_cache=False).logits[0] for part in packed.split(lengths, 1)]
        for kind, arguments in given.items():
            if name == "gpt_oss" and "positions" in kind:
                continue  # it makes its masks without positions
            with self.subTest(kind), long_from(1 if "long" in kind else 128):
                logits = model(packed, use_cache=False, **arguments).logits[0]
                self.near(logits, torch.cat(alone))
                actual = torch.autograd.grad(logits.square().sum(), model.parameters(), allow_unused=True)
                wanted = torch.autograd.grad(
                    sum(x.square().sum() for x in alone), eager.parameters(), allow_unused=True, retain_graph=True
                )
                for x, y in zip(actual, wanted):
                    if y is not None:
                        self.near(x, y, 5e-4)

    @of_models(*CONFIGS)
    def generate(self, name, device):
        model, eager = model_of(name, device), model_of(name, device, "eager")
        prompt = tokens(device, 2, 9)
        kept = torch.ones_like(prompt)
        kept[0, :4] = 0
        for cache in ("dynamic", "static"):
            with self.subTest(cache):
                options = {
                    "attention_mask": kept, "max_new_tokens": 12, "do_sample": False, "cache_implementation": cache,
                    "disable_compile": True, "return_dict_in_generate": True, "output_logits": True,
                }  # fmt: skip
                actual, expected = (x.generate(prompt, **options) for x in (model, eager))
                self.assertEqual(actual.sequences.tolist(), expected.sequences.tolist())
                for x, y in zip(actual.logits, expected.logits):
                    self.near(x, y)

    @of_models("llama", "gemma2")
    def compiled_training(self, name, device):
        if reason := why_untraced(name):
            self.skipTest(reason)
        packed = torch.cat([torch.arange(length) for length in (9, 4, 8)]).view(1, -1).to(device)
        given = {"input_ids": tokens(device, 1), "position_ids": packed, "use_cache": False}
        results = []
        for compiled in (False, True):
            torch._dynamo.reset()
            model = model_of(name, device)
            run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
            logits = run(**given).logits
            results.append((logits, *torch.autograd.grad(logits.square().sum(), [*model.parameters()][1:8])))
        for x, y in zip(*results):
            self.near(x, y, 2e-4)

    @of_models("llama", "gemma2")
    def compiled_generation(self, name, device):
        """A static cache, whose tokens transformers compiles in one graph."""
        if reason := why_untraced(name):
            self.skipTest(reason)
        torch._dynamo.reset()
        model, eager = model_of(name, device), model_of(name, device, "eager")
        prompt = tokens(device, 2, 9)
        kept = torch.ones_like(prompt)
        kept[0, :4] = 0
        compile_config = transformers.CompileConfig(backend="aot_eager", mode=None, fullgraph=True)
        compile_config._compile_all_devices = True
        if device == "cuda":
            compile_config = None  # what generate takes by itself: Inductor, and CUDA graphs
        options = {
            "attention_mask": kept, "max_new_tokens": 6, "do_sample": False, "cache_implementation": "static",
        }  # fmt: skip
        expected = eager.generate(prompt, **options, disable_compile=True)
        counters = torch._dynamo.utils.counters
        counters.clear()
        actual = model.generate(prompt, **options, compile_config=compile_config)
        self.assertEqual(actual.tolist(), expected.tolist())
        self.assertLessEqual(counters["stats"]["unique_graphs"], 3)  # not one for each token

    @of_models(*CONFIGS)
    def prompts_in_parts(self, name, device):
        model, prompt = model_of(name, device), tokens(device)
        whole = model_of(name, device, "eager")(prompt, use_cache=False).logits
        for make in (
            lambda: transformers.DynamicCache(config=model.config),
            lambda: transformers.StaticCache(config=model.config, max_cache_len=32),
        ):
            cache, parts = make(), []
            for part in prompt.split((5, 9, 1, 6), 1):
                with torch.no_grad():
                    parts.append(model(part, past_key_values=cache).logits)
            self.near(torch.cat(parts, 1), whole)

    @of_models(*CONFIGS)
    def training_in_parts(self, name, device):
        kept = torch.ones(2, LENGTH, dtype=torch.long, device=device)
        for padding in (0, 6):
            kept[0, :padding] = 0
            inputs = {"input_ids": tokens(device), "attention_mask": kept, "use_cache": False}
            self.compare(name, device, live=kept.bool(), parts=(9, 5, 1, 6), **inputs)

    @of_models("llama", "gemma2")  # experts would be chosen otherwise
    def half_precision(self, name, device):
        """Decode kernels serve it; it may be as far off as eager attention, twice."""
        if device == "cpu":
            self.skipTest("the reference computes in fp64")
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(f"{name}, {dtype}"):
                results = []
                for kind, of in (("eager", torch.float32), ("eager", dtype), ("attnc", dtype)):
                    model, prompt = model_of(name, device, kind).to(of), tokens(device)
                    cache, parts = transformers.DynamicCache(config=model.config), []
                    with torch.no_grad():
                        for part in prompt.split((9, 1, 1, 3, 1, 6), 1):
                            parts.append(model(part, past_key_values=cache).logits)
                    logits = model(prompt, use_cache=False).logits
                    logits.float().log_softmax(-1)[..., 3].sum().backward()
                    of_layers = [p.grad.flatten() for n, p in model.named_parameters() if "self_attn" in n]
                    results.append((torch.cat(parts, 1), logits.detach(), torch.cat(of_layers)))
                for right, rounded, actual in zip(*results):
                    allowed = max(2 * relative_error(rounded, right), 1e-2)
                    self.assertLess(relative_error(actual, right), allowed)

    def test_masks_of_tensors(self):
        for device in DEVICES:
            seen = torch.rand(2, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(3)).to(device) < 0.7
            seen |= torch.eye(LENGTH, dtype=torch.bool, device=device)
            added = torch.zeros(seen.shape, device=device).masked_fill(~seen, torch.finfo(torch.float32).min)
            expected = model_of("llama", device, "eager")(tokens(device), attention_mask=added, use_cache=False).logits
            for mask in (seen, added):
                actual = model_of("llama", device)(tokens(device), attention_mask=mask, use_cache=False).logits
                self.near(actual, expected)

    def test_the_example_of_the_documents(self):
        text = (needs.ROOT / "docs/transformers.md").read_text(encoding="utf-8")
        example = text.partition("transformers_test.py -->\n```python\n")[2].partition("```")[0]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example, "transformers.md", "exec"), {})
        self.assertRegex(printed.getvalue(), r"\[1, 2[1-5]\]")  # random weights may end the text early

    def test_kernels_read_no_rows_that_a_cache_has_not_reached(self):
        functions = transformers.masking_utils
        sliding = functions.sliding_window_causal_mask_function(8)
        for function in (functions.causal_mask_function, sliding, functions.and_masks(sliding, lambda *at: at[3] > 1)):
            for offset in (9, torch.tensor(9)):
                made = attnc.transformers.mask(2, 1, 64, offset, 0, function)
                self.assertEqual(made.at_end[1].tolist(), [10, 10])
        # Keys behind the queries may be seen, or there are none.
        self.assertIsNone(attnc.transformers.mask(2, 3, 64, 0, 0, functions.bidirectional_mask_function).at_end)
        self.assertIsNone(attnc.transformers.mask(2, 64, 64, 0, 0, functions.causal_mask_function).at_end)

    def test_packed_sequences_are_found_in_masks(self):
        """Kernels take long ones as a ragged batch. Masks that depend on where a sequence stands are not taken apart."""
        functions = transformers.masking_utils
        ids = torch.tensor([[0] * 9 + [1] * 4 + [2] * 8])
        apart, causal = functions.packed_sequence_mask_function(ids), functions.causal_mask_function
        sliding = functions.sliding_window_causal_mask_function(3)
        for function in (causal, sliding):
            mask_function = functions.and_masks(function, apart)
            with long_from(8):
                self.assertIsNone(attnc.transformers.mask(1, LENGTH, LENGTH, mask_function=mask_function).packed)
            with long_from(7):
                made = attnc.transformers.mask(1, LENGTH, LENGTH, mask_function=mask_function)
            within, starts, longest = made.packed
            self.assertEqual((starts.tolist(), longest), ([0, 9, 13, 21], 9))
            q, k, zero = torch.arange(9).unsqueeze(1), torch.arange(9), torch.tensor(0)
            seen, window = within(zero, zero, q, k), 9 if function is causal else 3
            self.assertEqual(seen.tolist(), ((k <= q) & (k > q - window)).tolist())
        kept = torch.ones(1, LENGTH, dtype=torch.bool)
        kept[0, 20] = False
        chunked = functions.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.int32))
        for function in (chunked, lambda b, h, q_idx, kv_idx: q_idx > 3):
            with long_from(1):
                made = attnc.transformers.mask(1, LENGTH, LENGTH, mask_function=functions.and_masks(causal, function, apart))
            self.assertIsNone(made.packed)
        for rows, padding in ((LENGTH, kept), (64, None)):
            with long_from(1):
                made = attnc.transformers.mask(
                    1, LENGTH, rows, mask_function=functions.and_masks(causal, apart), attention_mask=padding
                )
            self.assertIsNone(made.packed)

    def test_an_encoder_and_a_decoder(self):
        """Keys of cross attention have nothing to do with where the queries stand."""
        for device in DEVICES:
            config = transformers.BartConfig(
                vocab_size=64, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
                decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, pad_token_id=0, bos_token_id=1,
                eos_token_id=None, decoder_start_token_id=2, forced_eos_token_id=None, is_encoder_decoder=True,
            )  # fmt: skip
            models = []
            for kind in ("attnc", "eager"):
                torch.manual_seed(1)
                model = transformers.BartForConditionalGeneration._from_config(
                    copy.deepcopy(config), attn_implementation=kind
                )
                models.append(enlarged(model).to(device).eval())
            source, kept = tokens(device), torch.ones(2, LENGTH, dtype=torch.long, device=device)
            kept[0, 15:] = 0
            given = {"input_ids": source, "attention_mask": kept, "decoder_input_ids": tokens(device, length=5)}
            for mode in (torch.no_grad, torch.enable_grad):
                with mode():
                    actual, expected = (model(**given, use_cache=False).logits for model in models)
                self.near(actual, expected)
            for cache in ("dynamic", "static"):
                options = {
                    "attention_mask": kept, "max_new_tokens": 6, "do_sample": False, "cache_implementation": cache,
                    "disable_compile": True, "return_dict_in_generate": True, "output_logits": True,
                }  # fmt: skip
                actual, expected = (torch.stack(model.generate(source, **options).logits) for model in models)
                self.near(actual, expected)

    def test_models_with_attention_of_their_own_are_right_or_refused(self):
        """Of these, transformers gives more and more the attention that a user can choose."""
        sizes = {"vocab_size": 64, "hidden_size": 64, "n_layer": 1, "n_head": 4, "num_attention_heads": 4}
        for name, config in {
            "Bloom": transformers.BloomConfig(**sizes),
            "Falcon": transformers.FalconConfig(**sizes),
            "GPTJ": transformers.GPTJConfig(vocab_size=64, n_embd=64, n_layer=1, n_head=4, rotary_dim=8),
            "Mpt": transformers.MptConfig(d_model=64, n_heads=4, n_layers=1, vocab_size=64),
        }.items():
            with self.subTest(name):
                models, refusal = [], None
                for kind in ("eager", "attnc"):
                    torch.manual_seed(1)
                    try:
                        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=kind)
                        models.append(enlarged(model).eval())
                    except ValueError as error:
                        refusal = str(error)
                if refusal is not None:
                    self.assertRegex(refusal, f"{name}\\w* computes attention in code of its own")
                    self.assertEqual(len(models), 1)
                    continue
                with torch.no_grad():
                    expected, actual = (model(tokens("cpu")).logits for model in models)
                self.near(actual, expected)

    def test_gpt2_with_a_static_cache(self):
        config = transformers.GPT2Config(
            vocab_size=64, n_embd=64, n_layer=2, n_head=4, pad_token_id=0, bos_token_id=1, eos_token_id=None
        )
        results = []
        for implementation in ("attnc", "eager"):
            torch.manual_seed(1)
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
            results.append(
                enlarged(model).eval().generate(
                    tokens("cpu"), max_new_tokens=5, do_sample=False, cache_implementation="static", disable_compile=True
                )
            )
        self.assertTrue(torch.equal(*results))

    def test_weights_of_attention_are_not_returned_without_a_warning(self):
        model = model_of("llama", "cpu")
        with self.assertLogs("attnc.transformers", "WARNING") as told:
            model(tokens("cpu"), output_attentions=True)
        self.assertIn("attn_implementation='eager'", told.output[0])

    def test_positions_that_begin_anew_while_a_cache_is_in_use(self):
        model, packed = model_of("llama", "cpu"), torch.cat([torch.arange(6), torch.arange(4)]).view(1, -1)
        padded = torch.ones(2, 10, dtype=torch.int64)
        padded[0, :4] = 0
        for is_told, given in (
            (True, {"position_ids": packed}),
            (True, {"position_ids": packed, "attention_mask": torch.ones_like(packed), "use_cache": False}),
            (False, {"position_ids": packed, "use_cache": False}),
            (False, {}),
            (False, {"attention_mask": padded, "position_ids": (padded.cumsum(1) - 1).masked_fill(padded == 0, 1)}),
        ):
            with unittest.mock.patch.object(attnc.transformers, "_warn") as warn:
                model(tokens("cpu", 2 if "attention_mask" in given and len(given) == 2 else 1, 10), **given)
                self.assertEqual(warn.called, is_told, given)
            if is_told:
                self.assertIn("use_cache=False", warn.call_args.args[0])

    def test_float64_is_refused(self):
        model = model_of("llama", "cpu").double()
        for call in (model, torch.compile(model, backend="eager")):
            torch._dynamo.reset()
            with self.assertRaisesRegex(ValueError, r"float64; attnc computes bfloat16.*model\.float\(\)"):
                call(tokens("cpu"))

    def test_dropout_while_training(self):
        """Gradients by central differences, since eager attention drops other weights; layers drop weights of their own."""
        torch.manual_seed(1)
        config = LlamaConfig(**COMMON, attention_dropout=0.5)
        model = enlarged(transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attnc")).eval()

        def logits(seed=7, **options):
            torch.manual_seed(seed)
            return model(tokens("cpu"), **options).logits

        plain = logits()
        self.assertTrue(torch.equal(plain, logits(8)))
        model.train()
        found = logits()
        self.assertTrue(torch.equal(found, logits()))
        for other in (plain, logits(8)):
            self.assertGreater(relative_error(other.detach(), found.detach()), 0.1)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        self.assertTrue(torch.equal(found, logits(use_cache=False)))
        weight = model.model.layers[0].self_attn.v_proj.weight
        loss = lambda: logits(use_cache=False).double().log_softmax(-1)[..., 3].mean()
        (gradient,) = torch.autograd.grad(loss(), weight)
        direction, step = torch.randn_like(weight), 1e-3
        with torch.no_grad():
            ahead = weight.add_(direction, alpha=step) is not None and loss()
            behind = weight.sub_(direction, alpha=2 * step) is not None and loss()
        slope = float((ahead - behind) / (2 * step))
        self.assertAlmostEqual(slope, float((gradient * direction).sum()), delta=0.02 * abs(slope))

    def test_dropout_is_that_of_the_definition(self):
        module = torch.nn.Module()
        module.num_key_value_groups, module.is_causal = 2, True
        q, k, v = (torch.randn(1, heads, 24, 16) for heads in (4, 2, 2))
        bias = torch.randn(1, 1, 24, 24)
        call = lambda **options: attnc.transformers.attention(module, q, k, v, bias, dropout=0.25, softcap=2.0, **options)[0]
        seed = torch.tensor(5)
        drop = lambda p, b, h, q, k: torch.where(attnc.random(seed, b, h, q, k) < 0.25, 0.0, p / 0.75)
        cap = lambda s, b, h, q, k: 2 * torch.tanh(s / 2) + bias[0, 0, q, k]
        with unittest.mock.patch.object(attnc.transformers, "seed_like", lambda tensor: seed):
            self.near(call().transpose(1, 2), by_definition(cap, None, q, k, v, prob_mod=drop)[0])
            module.eval()
            self.near(call().transpose(1, 2), by_definition(cap, None, q, k, v)[0])


def run(name):
    return side_by_side.run_test(TransformersTest, name)


if __name__ == "__main__":
    side_by_side.main(run, side_by_side.tests_of(TransformersTest), __doc__)
