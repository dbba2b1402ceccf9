#!/usr/bin/env python3
"""Checks and times attnc inside vLLM's engine, next to vLLM's own backends, over Llamas with random weights.

  ATTNC_LIBRARY=libattnc.so python3 bench/vllm_engine.py --out engine.jsonl [--kind check|time] [--backends NAMES]
      [--graphs NAMES] [--only REGEX]
  python3 bench/vllm_engine.py --compare engine.jsonl

Each combination of backend, graphs and model has a process of its own. `check` gets the log-probabilities of prompts and
of greedy tokens. REFERENCE computes them with transformers in fp32, with masks by their definition. `time` gets the time
of prompts, and tokens per second while decoding. A result is one JSON line: `case`, `backend`, `graphs`, and figures or
`error`. --compare exits with 1 unless all checks of CUSTOM agree with REFERENCE, and masks matter.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "bench")]
BACKENDS = "CUSTOM", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN"
# Settings of vLLM: its default compiles and captures pieces, and decodes whole.
GRAPHS = {
    "default": {},
    "whole": {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL"}},
    "decodes": {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}},
    "none": {"enforce_eager": True},
}
SMALL = dict(hidden_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, intermediate_size=2048)
LARGE = dict(hidden_size=4096, num_hidden_layers=8, num_attention_heads=32, num_key_value_heads=8, intermediate_size=14336)
VOCABULARY, SINKS, WINDOW = 2048, 4, 64
CHECKED = 17, 130, 600, 1500  # lengths of prompts; a batch of 512 tokens cuts them
NEW = 24
# (prompts, length, new tokens)
TIMES = {"1x16384": (1, 16384, 128), "16x2048": (16, 2048, 128), "64x4096": (64, 4096, 128)}
# Limits of the root mean square of differences from REFERENCE, by case.
LIMITS = {"causal": 0.05, "sinks": 0.05, "layers": 0.05, "causal_fp8": 0.3}


def sinks(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & ((kv_idx < SINKS) | (q_idx - kv_idx < WINDOW))


def distance(score, b, h, q_idx, kv_idx):
    return score - 0.05 * (h + 1) * (q_idx - kv_idx)


def mods_of_sinks(layer_name):
    return None, sinks


def mods_of_layers(layer_name):
    """Layer 0: a score; layer 2: a mask."""
    return distance if ".layers.0." in layer_name else None, sinks if ".layers.2." in layer_name else None


MODS = {"sinks": mods_of_sinks, "layers": mods_of_layers}


def config_of(size):
    from transformers import LlamaConfig

    return LlamaConfig(
        **size, head_dim=128, vocab_size=VOCABULARY, max_position_embeddings=32768, rope_theta=500000.0,
        tie_word_embeddings=False, dtype="bfloat16", architectures=["LlamaForCausalLM"], bos_token_id=1, eos_token_id=2,
    )  # fmt: skip


def weights(config, device):
    """Yields (name, tensor). Scores of attention have a standard deviation of 2, and its output counts."""
    import torch
    from transformers import LlamaForCausalLM

    gains = {"q_proj": 1.4, "k_proj": 1.4, "o_proj": 3.0, "lm_head": 2.0}
    with torch.device("meta"):
        shapes = {name: x.shape for name, x in LlamaForCausalLM(config).state_dict().items()}
    for seed, (name, shape) in enumerate(shapes.items()):
        if len(shape) == 1:
            yield name, torch.ones(shape, device=device, dtype=torch.bfloat16)
            continue
        made = torch.randn(shape, device=device, generator=torch.Generator(device).manual_seed(seed))
        width = 1 if "embed" in name else shape[1]
        gain = next((gain for part, gain in gains.items() if part in name), 1.0)
        yield name, (made * gain * width**-0.5).bfloat16()


def prompts_of(lengths):
    import torch

    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


# -------------------------------------------------------------------------------------------------------------- engines


def masks_of_flex(mods_of):
    """Gives layers the masks before vLLM's FlexAttention backend looks for them."""
    from vllm.v1.attention.backends.flex_attention import FlexAttentionMetadataBuilder as Builder

    original = Builder.__init__

    def init(self, spec, layer_names, config, *others, **named):
        for name in layer_names:
            config.compilation_config.static_forward_context[name].logical_mask_mod = mods_of(name)[1]
        original(self, spec, layer_names, config, *others, **named)

    Builder.__init__ = init


def engine(size, backend, graphs, variant, **settings):
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    from vllm import LLM

    config, mods_of = config_of(size), MODS.get(variant.removesuffix("_fp8"))
    if mods_of and backend == "CUSTOM":
        settings["additional_config"] = {"attnc_mods": f"vllm_engine.{mods_of.__name__}"}
    elif mods_of:
        masks_of_flex(mods_of)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        llm = LLM(
            folder, skip_tokenizer_init=True, load_format="dummy", dtype="bfloat16", attention_backend=backend,
            kv_cache_dtype="fp8" if variant.endswith("_fp8") else "auto", enable_prefix_caching=False, seed=0,
            **GRAPHS[graphs], **settings,
        )  # fmt: skip

    def fill(model):
        model.load_weights(weights(config, next(model.parameters()).device))
        return sorted({type(layer.impl).__name__ for layer in model.modules() if hasattr(layer, "impl")})

    compiled = llm.llm_engine.vllm_config.compilation_config
    about = {"impl": llm.apply_model(fill)[0], "mode": str(compiled.mode), "cudagraphs": str(compiled.cudagraph_mode)}
    return llm, about


def generate(llm, prompts, new, **more):
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False, **more)
    return llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)


def check(backend, graphs, variant):
    """Yields a line with tokens and log-probabilities."""
    llm, about = engine(
        SMALL, backend, graphs, variant, max_model_len=2048, max_num_batched_tokens=512, max_num_seqs=8,
        gpu_memory_utilization=0.3,
    )  # fmt: skip
    results = generate(llm, prompts_of(CHECKED), NEW, logprobs=1, prompt_logprobs=1)
    tokens = [list(result.outputs[0].token_ids) for result in results]
    of_new = [[row[t].logprob for t, row in zip(r.outputs[0].token_ids, r.outputs[0].logprobs)] for r in results]
    of_prompt = [[row[t].logprob for t, row in zip(r.prompt_token_ids[1:], r.prompt_logprobs[1:])] for r in results]
    yield {**about, "tokens": tokens, "logprobs": of_new, "prompt_logprobs": of_prompt}


def reference(variant):
    """As `check`, with transformers in fp32 and masks by their definition."""
    import torch
    from transformers import LlamaForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config, mods_of = config_of(SMALL), MODS.get(variant.removesuffix("_fp8"))
    model = LlamaForCausalLM(config).float().to(device).eval()
    model.load_state_dict({name: x.float() for name, x in weights(config, device)})

    def hook(name):
        score_mod, mask_mod = mods_of(name) if mods_of else (None, None)

        def replace_mask(module, args, named):
            at = torch.arange(named["hidden_states"].shape[1], device=device)
            h, q, kv = torch.arange(config.num_attention_heads, device=device)[:, None, None], at[:, None], at
            live = mask_mod(0, h, q, kv) if mask_mod else q >= kv
            score = torch.zeros(len(h), len(at), len(at), device=device)
            score = score_mod(score, 0, h, q, kv) if score_mod else score
            return args, named | {"attention_mask": score.masked_fill(~live, -torch.inf)[None]}

        return replace_mask

    for i, layer in enumerate(model.model.layers):
        layer.self_attn.register_forward_pre_hook(hook(f"model.layers.{i}.self_attn"), with_kwargs=True)
    line = {"tokens": [], "logprobs": [], "prompt_logprobs": []}
    for prompt in prompts_of(CHECKED):
        ids = torch.tensor([prompt], device=device)
        for _ in range(NEW):
            with torch.no_grad():
                rows = model(ids, use_cache=False).logits[0].log_softmax(-1)
            ids = torch.cat((ids, rows[-1:].argmax(-1, keepdim=True)), dim=1)
        found = rows[torch.arange(ids.shape[1] - 1), ids[0, 1:]].tolist()
        line["tokens"].append(ids[0, len(prompt) :].tolist())
        line["prompt_logprobs"].append(found[: len(prompt) - 1])
        line["logprobs"].append(found[len(prompt) - 1 :])
    yield line


def times(backend, graphs, variant, names):
    """Yields lines of the cases."""
    llm, about = engine(
        LARGE, backend, graphs, variant, max_model_len=20480, max_num_batched_tokens=16384, max_num_seqs=64,
        gpu_memory_utilization=0.8,
    )  # fmt: skip

    def seconds(prompts, new):
        found = []
        for _ in range(3):
            start = time.perf_counter()
            generate(llm, prompts, new)
            found.append(time.perf_counter() - start)
        return min(found)

    for name in names:
        count, length, new = TIMES[name]
        prompts = prompts_of([length] * count)
        prefill = seconds(prompts, 1)
        decode = seconds(prompts, new + 1) - prefill
        figures = {"prefill_s": prefill, "prefill_tokens_s": count * length / prefill, "decode_tokens_s": count * new / decode}
        yield {**about, "time": name, **{key: round(value, 4) for key, value in figures.items()}}


def serve(options):
    """Runs one engine, and writes its lines."""
    base = {"kind": options.kind, "case": options.case, "backend": options.backends, "graphs": options.graphs}
    try:
        if options.backends == "REFERENCE":
            lines = reference(options.case)
        elif options.kind == "check":
            lines = check(options.backends, options.graphs, options.case)
        else:
            lines = times(options.backends, options.graphs, options.case, TIMES)
        for line in lines:
            write(options.out, {**base, **line})
    except Exception as error:  # of any kind: the other engines go on
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        write(options.out, {**base, "error": f"{type(error).__name__}: {text[0]}"[:300]})


def write(path, line):
    short = {key: value for key, value in line.items() if "tokens" != key and not key.endswith("logprobs")}
    print(json.dumps(short), flush=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


# -------------------------------------------------------------------------------------------------------------- compare


def rms(pairs):
    """Returns root mean square and maximum of differences."""
    differences = [abs(a - b) for a, b in pairs]
    return (sum(x * x for x in differences) / max(1, len(differences))) ** 0.5, max(differences, default=0.0)


def compare(paths):
    """Prints what agrees with REFERENCE. Returns whether all of CUSTOM does, and masks matter."""
    lines = [json.loads(line) for path in paths for line in pathlib.Path(path).read_text().splitlines()]
    checks = [line for line in lines if line["kind"] == "check"]
    right = {line["case"]: line for line in checks if line["backend"] == "REFERENCE" and "tokens" in line}
    good = {"causal"} < right.keys() and any(line["backend"] == "CUSTOM" for line in checks)
    prompt_rows = lambda line: [x for row in line["prompt_logprobs"] for x in row]
    print("case, backend, graphs: differences of prompts' logprobs from REFERENCE (RMS, largest), of new tokens', equal tokens")
    for line in checks:
        if line["backend"] == "REFERENCE":
            continue
        name = f"{line['case']}, {line['backend']}, {line['graphs']}"
        reference = right.get(line["case"].removesuffix("_fp8"))
        if "error" in line or reference is None:
            print(f"{name}: {line.get('error', 'no reference')}")
            good &= line["backend"] != "CUSTOM"
            continue
        of_prompts = rms(zip(prompt_rows(line), prompt_rows(reference)))
        equal, pairs = 0, []
        for i, (ours, theirs) in enumerate(zip(line["tokens"], reference["tokens"])):
            same = next((at for at, (a, b) in enumerate(zip(ours, theirs)) if a != b), NEW)
            equal += same
            pairs += zip(line["logprobs"][i][:same], reference["logprobs"][i][:same])
        of_new = rms(pairs)
        print(f"{name}: {of_prompts[0]:.4f} {of_prompts[1]:.3f}, {of_new[0]:.4f} {of_new[1]:.3f}, {equal} of {NEW * len(CHECKED)}")
        if line["backend"] == "CUSTOM":
            good &= max(of_prompts[0], of_new[0]) < LIMITS[line["case"]]
    for case in right.keys() - {"causal"}:
        change = rms(zip(prompt_rows(right[case]), prompt_rows(right["causal"])))[0]
        print(f"{case} differs from causal by {change:.3f} (RMS)")
        good &= change > 10 * LIMITS[case]
    for line in lines:
        if line["kind"] == "time":
            at = f"{line['case']}, {line.get('time', '')}, {line['backend']}, {line['graphs']}"
            figures = "prefill {prefill_s:.4f} s, {prefill_tokens_s:.0f} tokens/s; decode {decode_tokens_s:.0f} tokens/s"
            print(f"{at}: {line.get('error') or figures.format(**line)}")
    print("checks hold" if good else "CHECKS FAIL")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs="+", help="files of results")
    parser.add_argument("--kind", choices=("check", "time"), default="check")
    parser.add_argument("--backends", default=",".join(("REFERENCE", *BACKENDS)))
    parser.add_argument("--graphs", default="default", help=f"of {', '.join(GRAPHS)}")
    parser.add_argument("--cases", default=",".join(LIMITS))
    parser.add_argument("--only", default="", help="a regular expression on case, backend, graphs")
    parser.add_argument("--out", default="engine.jsonl")
    parser.add_argument("--total", type=int, default=150, help="seconds of an engine")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        sys.exit(not compare(options.compare))
    if options.case:
        serve(options)
        return
    for case in options.cases.split(","):
        for backend in options.backends.split(","):
            for graphs in options.graphs.split(",") if backend != "REFERENCE" else [""]:
                if not re.search(options.only, f"{case} {backend} {graphs}") or is_refused(case, backend, options.kind):
                    continue
                command = [sys.executable, __file__, "--kind", options.kind, "--case", case, "--backends", backend]
                try:
                    subprocess.run([*command, "--graphs", graphs, "--out", options.out], timeout=options.total, check=False)
                except subprocess.TimeoutExpired:
                    base = {"kind": options.kind, "case": case, "backend": backend, "graphs": graphs}
                    write(options.out, {**base, "error": f"stopped after {options.total} s"})


def is_refused(case, backend, kind):
    """Whether a backend has not what the case needs. vLLM's FlexAttention has masks, but no scores of layers or fp8."""
    has = {"REFERENCE": ("causal", "sinks", "layers"), "CUSTOM": tuple(LIMITS), "FLEX_ATTENTION": ("causal", "sinks")}
    return case not in has.get(backend, ("causal", "causal_fp8")) or (kind == "time" and backend == "REFERENCE")


if __name__ == "__main__":
    main()
