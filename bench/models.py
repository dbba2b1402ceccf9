#!/usr/bin/env python3
"""Times transformers' models with attnc, flex_attention and sdpa; and single attention layers with attnc and
FlexAttention.

  ATTNC_LIBRARY=build/libattnc.so python3 bench/models.py --out models.jsonl [--only REGEX] [--limit SECONDS]

A case is `host-N`, `attention-N`, `train-MODEL-N`, `finetune-MODEL-N`, `token-MODEL-CACHE-N` or `generate-MODEL-CACHE-N` with N
tokens. `host` is the host's time for a launch. `attention`, `train` and `finetune` use packed documents. `finetune` keeps the
inputs of layers only, with two numbers of layers, and tells the time of all layers that the model has. The peer "none" computes
no attention: what it takes is the rest. The peer "eager" keeps all scores, for its memory. `generate` compiles what
transformers compiles by itself, with CUDA graphs: models with a static cache. Each implementation runs in its own
process, in which each case has a time limit. A result is one JSON line: `id`, `peer` and `ms`, or `error`, whose trace
goes to stderr. The same command goes on where the last one stopped. Needs a GPU, torch, Triton and transformers; imports attnc from tools/python.
--dry: small models on the CPU.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import traceback

sys.dont_write_bytecode = True
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "python"))

LENGTHS = 32768, 4096, 8192, 16384
CACHES = 65536, 4096, 32768
GENERATED = 65536, 16384, 4096, 1024
FINETUNED = 32768, 16384, 8192, 4096
DEPTHS = 2, 4  # layers of models whose time is told for all of ALL_LAYERS
ALL_LAYERS = {"llama3": 32}
PEERS = (
    "attnc", "flex_attention", "sdpa", "attnc ragged", "attnc compiled", "flex_attention compiled", "sdpa compiled", "none compiled",
    "none", "eager",
)  # fmt: skip
DEVICE = "cuda"
# Layers of known models, but only few of them.
MODELS = {
    "llama": ("LlamaConfig", {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 4, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128,
    }),
    "llama3": ("LlamaConfig", {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 4, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    }),
    "gemma2": ("Gemma2Config", {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
    }),
    "gpt_oss": ("GptOssConfig", {
        "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 4, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }),
}  # fmt: skip
COMMON = {"vocab_size": 8192, "max_position_embeddings": 131072, "use_cache": True, "attention_dropout": 0.0}


def cases():
    """Returns the ids, the most important first; those that compile for long come last."""
    yield f"attention-{LENGTHS[0]}"
    yield "host-128"
    yield f"token-llama-static-{CACHES[0]}"
    yield f"token-llama-dynamic-{CACHES[0]}"
    yield f"train-llama-{LENGTHS[0]}"
    yield from (f"generate-llama-static-{length}" for length in GENERATED)
    yield from (f"finetune-llama3-{length}" for length in FINETUNED)
    yield from (f"attention-{length}" for length in LENGTHS[1:])
    yield from (f"train-llama-{length}" for length in LENGTHS[1:])
    yield from (f"token-llama-dynamic-{length}" for length in CACHES[1:])
    for model in ("gemma2", "gpt_oss"):
        yield f"train-{model}-8192"
        yield f"token-{model}-dynamic-32768"


def documents(length):
    """Draws lengths of documents, evenly by their logarithm: an eighth of all tokens on average."""
    import torch

    generator, found = torch.Generator().manual_seed(1), []
    while sum(found) < length:
        drawn = int(length / 32 * 16 ** torch.rand((), generator=generator).item())
        found.append(min(drawn, length - sum(found)))
    return found


def median_ms(run, repetitions=10, warm_up=3):
    """Returns milliseconds by device events around each run."""
    import torch

    times = []
    for step in range(warm_up + repetitions):
        if DEVICE == "cpu":
            started = time.perf_counter()
            run()
            times.append(1000 * (time.perf_counter() - started))
            continue
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if step >= warm_up:
            times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def no_attention(module, query, key, value, *_, **__):
    """Returns as much as an attention of transformers would, without one."""
    last = value[:, :, -query.shape[2] :]
    return last.repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(1, 2), None


def host(peer, length):
    """Returns the microseconds of calls whose kernels take less time than the calls."""
    import torch

    if peer != "attnc":
        return None
    from attnc.torch import create_block_mask, flex_attention, translate

    q, k, v = (torch.randn(1, 8, length, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    slopes = torch.rand(8, device="cuda")
    causal = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx  # noqa: E731
    alibi = lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx)  # noqa: E731
    mask = create_block_mask(causal, None, None, length, length, device="cuda")

    def us(call):
        best = float("inf")
        for _ in range(30):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                call()
            best = min(best, (time.perf_counter() - start) * 1e4)
        return round(best, 1)

    problem = 1, 8, 8, length, length
    found = {
        "look_up_us": us(lambda: translate(alibi, causal, device=q.device, problem=problem)),
        "noop_us": us(lambda: flex_attention(q, k, v)),
        "causal_us": us(lambda: flex_attention(q, k, v, block_mask=mask)),
        "alibi_causal_us": us(lambda: flex_attention(q, k, v, alibi, mask)),
        "sdpa_us": us(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)),
    }
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    q.requires_grad_()
    out, dout = flex_attention(q, k, v, alibi, mask), torch.randn_like(q)
    found["training_forward_us"] = us(lambda: flex_attention(q, k, v, alibi, mask))
    found["backward_us"] = us(lambda: torch.autograd.grad(out, q, dout, retain_graph=True))
    # What torch.autograd.grad and a function of Python cost by themselves; and PyTorch's own kernel.
    nothing = Nothing.apply(q)
    found["nothing_backward_us"] = us(lambda: torch.autograd.grad(nothing, q, dout, retain_graph=True))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    found["sdpa_backward_us"] = us(lambda: torch.autograd.grad(out, q, dout, retain_graph=True))
    return found


def attention(peer, length):
    """Forward and backward of one of Llama's layers, over packed documents."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if peer not in ("attnc", "attnc ragged", "flex_attention"):
        return None  # sdpa takes packed documents only as a dense mask
    lengths = documents(length)
    q, k, v = (
        torch.randn(1, heads, length, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for heads in (32, 8, 8)
    )
    dout = torch.randn_like(q)
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).cuda()

    def mask_mod(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (ids[q_idx] == ids[kv_idx])

    if peer == "flex_attention":
        compiled = torch.compile(flex_attention, dynamic=False)
        mask = torch.compile(create_block_mask)(mask_mod, None, None, length, length, device="cuda")
        forward = lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)  # noqa: E731
    elif peer == "attnc":
        from attnc import torch as ours

        mask = ours.create_block_mask(mask_mod, None, None, length, length, device="cuda")
        forward = lambda: ours.flex_attention(q, k, v, block_mask=mask, enable_gqa=True)  # noqa: E731
    else:
        from types import SimpleNamespace

        from attnc.transformers import attention as of_model

        starts = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
        module = SimpleNamespace(is_causal=True)
        most = max(lengths)

        def forward():
            given = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": most, "max_length_k": most}
            return of_model(module, q, k, v, None, **given)[0].transpose(1, 2)

    def step():
        torch.autograd.grad(forward(), (q, k, v), dout)

    with torch.no_grad():
        ms = median_ms(forward, 20)
    return {"ms": median_ms(step, 20), "forward_ms": ms, "documents": len(lengths)}


def model_of(name, peer, layers=None):
    import torch
    import transformers

    transformers.AttentionInterface.register("none", no_attention)

    if peer.startswith("attnc"):
        import attnc.transformers

        attnc.transformers.register()
    kind, values = MODELS[name]
    given = {**COMMON, **values} | ({"num_hidden_layers": layers} if layers else {})
    config = getattr(transformers, kind)(**given)
    config.pad_token_id = 0
    torch.manual_seed(1)
    with torch.device(DEVICE):
        return transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation=peer.partition(" ")[0], dtype=torch.bfloat16
        )


def step_of(peer, name, length, model, run):
    """Returns a function that trains by one step over packed documents, and returns the loss: forward, backward and AdamW. For
    GPT-OSS, which transformers packs only with cumulative lengths, over one document."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    lengths = documents(length)
    tokens = torch.randint(1, 8000, (1, length), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    positions = torch.cat([torch.arange(n) for n in lengths]).view(1, -1).to(DEVICE)
    given = {"input_ids": tokens, "labels": tokens, "use_cache": False}
    if name != "gpt_oss" or peer == "attnc ragged":
        given["position_ids"] = positions
    if peer == "attnc ragged":
        starts = torch.tensor([0, *lengths]).cumsum(0).int().to(DEVICE)
        most = max(lengths)
        given |= {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": most, "max_length_k": most}

    def step():
        loss = run(**given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def timed_steps(step, length):
    """Returns the time of a step and the first and the last loss."""
    losses = []
    ms = median_ms(lambda: losses.append(step()), 5, 2)
    return {"ms": ms, "first_loss": losses[0].item(), "last_loss": losses[-1].item(), "documents": len(documents(length))}


def train(peer, name, length):
    import torch

    if peer.partition(" ")[0] in ("none", "eager"):
        return None
    model = model_of(name, peer).train()
    run = torch.compile(model) if peer.endswith("compiled") else model
    return timed_steps(step_of(peer, name, length, model, run), length)


def finetune(peer, name, length):
    """A training step as of a large model: only inputs of layers are kept, and layers are compiled if the peer is."""
    import torch

    if peer == "eager" and length > 4096 or peer == "attnc ragged":
        return None
    of_depth, found = {}, {}
    for layers in DEPTHS:
        model = model_of(name, peer, layers).train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if peer.endswith("compiled"):
            for layer in model.model.layers:
                layer.compile()
        if DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
        found = timed_steps(step_of(peer, name, length, model, model), length)
        of_depth[layers] = found["ms"]
        if DEVICE == "cuda":
            found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
        del model
    few, many = DEPTHS
    layer_ms = (of_depth[many] - of_depth[few]) / (many - few)
    all_ms = of_depth[many] + (ALL_LAYERS[name] - many) * layer_ms
    more = {"layers": many, "layer_ms": layer_ms, "all_layers": ALL_LAYERS[name], "all_layers_ms": all_ms}
    return {**found, **more, "tokens_per_s": 1000 * length / all_ms}


def filled_cache(model, kind, length):
    """Returns a cache of `length` drawn tokens: not of a prompt, whose masks would take queries times keys."""
    import torch
    import transformers

    config, generator = model.config, torch.Generator(DEVICE).manual_seed(1)
    if kind == "static":
        cache = transformers.StaticCache(config=config, max_cache_len=length + 64)
    else:
        cache = transformers.DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        extents = 2, 1, config.num_key_value_heads, length, config.head_dim
        k, v = torch.randn(extents, generator=generator, device=DEVICE, dtype=torch.bfloat16)
        cache.update(k, v, layer)
    return cache


def token(peer, name, kind, length):
    """One token of one sequence after `length` others. The time on the host counts."""
    import torch

    if " " in peer or peer in ("none", "eager"):
        return None
    model = model_of(name, peer).eval()
    cache = filled_cache(model, kind, length)
    tokens = torch.tensor([[7]], device="cuda")
    last = None

    def run():
        nonlocal last
        with torch.no_grad():
            last = model(tokens, past_key_values=cache, logits_to_keep=1).logits

    run()
    first = last.float().norm().item()
    return {"ms": median_ms(run, 20, 8), "norm_of_logits": first}


def generate(peer, name, kind, length):
    """Times a token after `length` others as a user of `generate` sees it: from one token to the next, on the host."""
    import torch

    if " " in peer or peer == "eager":
        return None
    model = model_of(name, peer).eval()
    tokens = torch.randint(1, 8000, (1, length + 1), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    times = []

    class Streamer:
        def put(self, value):  # with the token on the host
            times.append(time.perf_counter())

        def end(self):
            pass

    made = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=40, min_new_tokens=40, do_sample=False,
        past_key_values=filled_cache(model, kind, length), streamer=Streamer(),
    )  # fmt: skip
    between = sorted((after - before) * 1000 for before, after in zip(times[-21:], times[-20:]))
    return {"ms": between[len(between) // 2], "last_tokens": made[0, -5:].tolist()}


class TimeIsUp(Exception):
    pass


@contextlib.contextmanager
def limit(seconds):
    def stop(*_):
        raise TimeIsUp(f"took more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def made_dry():
    """Makes everything small enough for the CPU, in this process."""
    global DEVICE, FINETUNED, GENERATED, DEPTHS
    DEVICE, FINETUNED, GENERATED, DEPTHS = "cpu", (64,), (64,), (1, 2)
    for _, values in MODELS.values():
        values |= {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 8192}  # fmt: skip


def measure(peer, only, seconds, out):
    import torch
    import transformers

    about = {"torch": torch.__version__, "transformers": transformers.__version__, "date": time.strftime("%Y-%m-%d")}
    command = f"python3 bench/models.py --peers '{peer}' --only '{only}'"
    with open(out, "a", encoding="utf-8") as file:
        gpu = torch.cuda.get_device_name() if DEVICE == "cuda" else "none"
        file.write(json.dumps({"id": "ceilings", "peer": gpu, **about}) + "\n")
    with open(out, encoding="utf-8") as file:
        known = {(line["id"], line["peer"]) for line in map(json.loads, file) if "ms" in line}
    for case in filter(re.compile(only).search, cases()):
        if (case, peer) in known:
            continue
        what, *of, length = case.split("-")
        started = time.monotonic()
        function = {
            "host": host, "attention": attention, "train": train, "finetune": finetune, "token": token, "generate": generate,
        }[what]  # fmt: skip
        try:
            with limit(seconds.get(what, seconds.get("", 60))):
                result = function(peer, *of, int(length))
        except Exception as error:  # of any kind: the other cases go on
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}
        if result is None:
            continue
        line = {"id": case, "peer": peer, **result, "wall_s": round(time.monotonic() - started, 1), "command": command}
        print(json.dumps(line), flush=True)
        with open(out, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        torch._dynamo.reset()
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="models.jsonl")
    parser.add_argument("--only", default="", help="a regular expression that ids must match")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--limit", default="60", help="seconds of a case; of some kinds others: 60,train=100,token=40")
    parser.add_argument("--total", type=int, default=600, help="seconds of a peer")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dry:
        made_dry()
    if options.peer:
        limits = {kind: int(number) for kind, _, number in (x.rpartition("=") for x in options.limit.split(","))}
        measure(options.peer, options.only, limits, options.out)
        return
    for peer in options.peers.split(","):
        command = [sys.executable, __file__, "--peer", peer, "--out", options.out, "--only", options.only]
        try:
            command += ["--dry"] if options.dry else []
            subprocess.run([*command, "--limit", options.limit], timeout=options.total, check=False)
        except subprocess.TimeoutExpired:
            print(f"{peer}: stopped after {options.total} s", flush=True)


if __name__ == "__main__":
    main()
