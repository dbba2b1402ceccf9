#!/usr/bin/env python3
"""Times attnc next to FlashAttention-3 and -4 and cuDNN where bench/rounds.py has no cases: e4m3, and head dims 192 and 128.

  ATTNC_LIBRARY=libattnc.so python3 bench/flash_times.py [--only REGEX] [--out FILE]

forward-e4m3: q, k and v of e4m3 with a scale for each head; FlashAttention-3 (fa3-fwd) is the only peer.
forward-bf16, backward-bf16: q and k of 192 columns and v of 128, as latent attention has them in prompts and training; a
peer that refuses them is told. Each peer that can be imported takes part. Results are compared with attnc's, whose own are
compared with fp64 on some rows; then all take turns, forward passes as replayed CUDA graphs. --out: also gets the
figures as JSON lines. --only: a regular expression on a case's id.
"""

import argparse
import importlib
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import torch
from in_turns import in_turns
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import attnc
from attnc.torch import create_block_mask, flex_attention

MODS = {"noop": "score", "causal": "q_idx >= kv_idx"}
CHECKED_ROWS = 128
LIMIT = {"e4m3": 0.08, "bf16": 0.01}  # of errors of out, relative to its norm

# (pass, dtype, batch, heads, length, head dims)
CASES = [
    ("forward", "e4m3", 2, 32, 8192, 64, 64),
    ("forward", "e4m3", 2, 16, 8192, 128, 128),
    ("forward", "e4m3", 1, 16, 16384, 128, 128),
    ("forward", "e4m3", 2, 8, 8192, 256, 256),
    ("forward", "e4m3", 1, 8, 16384, 256, 256),
    ("forward", "bf16", 2, 16, 8192, 192, 128),
    ("forward", "bf16", 2, 128, 4096, 192, 128),
    ("backward", "bf16", 2, 16, 8192, 192, 128),
    ("backward", "bf16", 2, 128, 4096, 192, 128),
]


def module(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # a package may also be there in part
        print(f"without {name}: {reason(error)}", file=sys.stderr)


def off(actual, right):
    return float((actual.double() - right.double()).norm() / right.double().norm())


def reason(error):
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"


def by_definition(q, k, v, causal):
    """Returns the last rows of the first head [CHECKED_ROWS, EV], in fp64."""
    q, k, v = q[0, 0, -CHECKED_ROWS:].double(), k[0, 0].double(), v[0, 0].double()
    score = q @ k.T * q.shape[-1] ** -0.5
    if causal:
        score = score.masked_fill(~torch.ones_like(score, dtype=torch.bool).tril(len(k) - len(q)), -torch.inf)
    return score.softmax(-1) @ v


def heads_last(*tensors):
    """Returns [B, L, H, D] of [B, H, L, D], dense, as FlashAttention has its tensors."""
    return [x.transpose(1, 2).contiguous() for x in tensors]


def calls_e4m3(q, k, v, causal):
    """Returns what each peer calls: {name: function that returns out [B, H, L, EV]}."""
    (q8, q_scales), (k8, k_scales), (v8, v_scales) = (attnc.quantise(x) for x in (q, k, v))
    mod, scales = attnc.Mod.parse(MODS[causal]), {"q_scales": q_scales, "k_scales": k_scales, "v_scales": v_scales}
    calls = {"attnc": lambda: attnc.attention(mod, q8, k8, v8, **scales)}
    if fa3 := module("fa3_fwd_interface"):
        dense = heads_last(q8, k8, v8)
        descale = {"q_descale": q_scales, "k_descale": k_scales, "v_descale": v_scales}
        first = lambda x: x[0] if isinstance(x, tuple) else x
        calls["fa3"] = lambda: first(fa3.flash_attn_func(*dense, causal=causal == "causal", **descale)).transpose(1, 2)
    return calls


def calls_bf16(q, k, v, causal):
    """As calls_e4m3(). Operands whose gradients are wanted are leaves of each peer: also returns them."""
    length, is_causal = q.shape[2], causal == "causal"
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cuda") if is_causal else None
    dense = [x.detach().requires_grad_() for x in heads_last(q, k, v)]
    leaves = {"attnc": [q, k, v], "fa3": dense, "fa4": dense, "cudnn": [q, k, v]}
    calls = {"attnc": lambda: flex_attention(q, k, v, block_mask=mask)}
    first = lambda x: (x[0] if isinstance(x, tuple) else x).transpose(1, 2)
    if not torch.is_grad_enabled() and (fa3 := module("fa3_fwd_interface")):
        calls["fa3"] = lambda: first(fa3.flash_attn_func(*dense, causal=is_causal))
    if fa4 := module("flash_attn.cute.interface"):
        calls["fa4"] = lambda: first(fa4.flash_attn_func(*dense, causal=is_causal))

    def cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    calls["cudnn"] = cudnn
    return calls, leaves


def gradient_calls(calls, leaves, dout):
    """Returns a function for each peer that computes its gradients, of an out that is kept; and those it refused."""
    functions, refused = {}, {}
    for name, call in calls.items():
        try:
            out = call()
            run = lambda out=out, of=leaves[name]: torch.autograd.grad(out, of, dout, retain_graph=True)
            run()
            functions[name] = run
        except Exception as error:
            refused[name] = reason(error)
    return functions, refused


def checked(calls, expected, dtype):
    """Returns those calls whose results are right, and why the others are not."""
    right, refused, reference = {}, {}, None
    for name, call in calls.items():
        try:
            out = call()
        except Exception as error:
            refused[name] = reason(error)
            continue
        error = off(out[0, 0, -CHECKED_ROWS:], expected)
        reference = out if reference is None else reference
        if max(error, off(out, reference)) > LIMIT[dtype]:
            refused[name] = f"wrong: {error:.1e} from fp64, {off(out, reference):.1e} from the first"
        else:
            right[name] = call
    return right, refused


def graphs_of(calls, refused):
    """Returns functions that replay calls: what the host does for them is not timed."""
    replays = {}
    for name, call in calls.items():
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                call()
            replays[name] = graph.replay
        except Exception as error:
            refused[name] = reason(error)
    return replays


def measure(which, dtype, batch, heads, length, width_qk, width_v, causal):
    """Returns milliseconds and TFLOP/s of unmasked pairs, by peer, and why others are missing."""
    torch.manual_seed(0)
    draw = lambda width: torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16)
    q, k, v = draw(width_qk), draw(width_qk), draw(width_v)
    pairs = batch * heads * (length * (length + 1) // 2 if causal == "causal" else length * length)
    # Products of q and k columns: one forward, three backward; of v columns one and two.
    flops = 2 * pairs * (width_qk + width_v) if which == "forward" else 2 * pairs * (3 * width_qk + 2 * width_v)
    expected = by_definition(q, k, v, causal == "causal")
    if which == "forward":
        with torch.no_grad():
            calls = calls_e4m3(q, k, v, causal) if dtype == "e4m3" else calls_bf16(q, k, v, causal)[0]
            right, refused = checked(calls, expected, dtype)
            times = in_turns(graphs_of(right, refused))
    else:
        leaves = [x.requires_grad_() for x in (q, k, v)]
        calls, of = calls_bf16(*leaves, causal)
        right, refused = checked(calls, expected, dtype)
        functions, more = gradient_calls(right, of, torch.randn_like(v))
        times = in_turns(functions)
        refused.update(more)
    return {"ms": times, "tflops": {name: round(flops / took / 1e9, 1) for name, took in times.items()}, "refused": refused}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=argparse.FileType("a"))
    options = parser.parse_args()
    gpu = torch.cuda.get_device_name()
    print(f"{gpu}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    for which, dtype, batch, heads, length, width_qk, width_v in CASES:
        for causal in MODS:
            name = f"{which}-{dtype}-{causal}-b{batch}h{heads}-{length}-d{width_qk}-{width_v}"
            if not re.search(options.only, name):
                continue
            row = measure(which, dtype, batch, heads, length, width_qk, width_v, causal)
            print(f"{name:48} " + "  ".join(f"{peer} {rate:.1f}" for peer, rate in row["tflops"].items()), flush=True)
            for peer, why in row["refused"].items():
                print(f"  {peer}: {why}", flush=True)
            if options.out:
                print(json.dumps({"id": name, **row, "gpu": gpu, "torch": torch.__version__}), file=options.out, flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
