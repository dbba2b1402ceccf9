#!/usr/bin/env python3
"""Checks and times attnc's candidates in FlexAttention's autotuning by torch.compile, on a GPU.

  ATTNC_LIBRARY=libattnc.so python3 bench/inductor_times.py [--check only beside] [--times CASE ...] [--layer] [--out FILE]

--check: results and gradients next to those of eager FlexAttention in f32; `only`: with attnc's kernels, `beside`: with
what Inductor chooses. --times: attention before and after install(), with mode="max-autotune-no-cudagraphs". --layer: a
transformer layer, forward and backward, as torch.compile compiles it. Where PyTorch lacks the hooks (before 2.14), those
of tests/python/inductor_hooks.py take their place. --out: also gets the figures as JSON lines.
"""

import argparse
import contextlib
import json
import pathlib
import sys
import time
import traceback
import types
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "python")]
import torch
from in_turns import in_turns
from inductor_hooks import HAS_BACKWARD, HAS_FORWARD, hooks, lowering
from torch._inductor import config, select_algorithm
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnc.torch import inductor

BATCH, HEADS, LENGTH, WIDTH = 2, 16, 8192, 128
offered = []  # names of the choices of each selection
selections = []  # of what Inductor timed: {name of a choice: milliseconds}


def select_saver(timings, name, *_):
    selections.append((name, {f"{choice.name} {i}": float(took) for i, (choice, took) in enumerate(timings.items())}))


def chosen():
    """Returns what the selections were, as text, and forgets them."""
    found = []
    for name, timings in selections:
        ours = [took for choice, took in timings.items() if choice.startswith("attnc")]
        theirs = [took for choice, took in timings.items() if not choice.startswith("attnc")]
        if name.startswith("flex"):
            best = min(timings, key=timings.__getitem__).split()[0]
            times = [f"{min(x):.4f}" if x else "none" for x in (ours, theirs)]
            found.append(f"{name}: {best} of {len(timings)} (attnc {times[0]} ms, others from {times[1]} ms)")
    selections.clear()
    return "; ".join(found) or "nothing timed"


def again(function):
    """Returns a copy of a function, which torch.compile takes for another."""
    return types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )  # fmt: skip


@contextlib.contextmanager
def installed(only=False):
    with contextlib.ExitStack() as stack:
        inductor.install()
        stack.callback(inductor.uninstall)
        if only:
            for template in (lowering.flex_attention_template, lowering.flex_attention_backward_template):
                stack.enter_context(unittest.mock.patch.object(template, "maybe_append_choice", lambda *_, **__: None))
        yield


# ---- Results ----------------------------------------------------------------------------------------------------


def causal(b, h, q, k):
    return q >= k


def operands(batch, heads, kv_heads, q_len, kv_len, width, dtype=torch.bfloat16):
    shapes = (batch, heads, q_len, width), (batch, kv_heads, kv_len, width), (batch, kv_heads, kv_len, width)
    return [torch.randn(shape, device="cuda", dtype=dtype).requires_grad_() for shape in shapes]


def alibi(slopes):
    return lambda s, b, h, q, k: s + slopes[h] * (k - q)


def document_mask(length):
    documents = torch.searchsorted(torch.tensor([300, 517, 800], device="cuda"), torch.arange(length, device="cuda"), right=True)
    return lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k)


def cases():
    """Returns (name, B, H, HKV, lengths and head dim, score_mod of a captured tensor, the tensor, mask_mod)."""
    wide, odd = (1024, 1024), (1000, 1000)
    slopes = lambda heads: (torch.rand(heads, device="cuda") / 8).requires_grad_()
    table = lambda heads, length: torch.randn(heads, length, device="cuda").requires_grad_()
    by_table = lambda t: lambda s, b, h, q, k: s + t[h, k]
    capped = lambda _: lambda s, b, h, q, k: torch.tanh(s / 20) * 20
    return [
        ("causal", (2, 4, 4, *wide, 128), None, None, causal),
        ("causal, odd", (2, 4, 4, *odd, 64), None, None, causal),
        ("no mask, softcap", (2, 4, 4, *wide, 128), capped, None, None),
        ("ALiBi", (2, 4, 4, *wide, 128), alibi, slopes(4), causal),
        ("documents, GQA", (2, 8, 2, *odd, 128), None, None, document_mask(1000)),
        ("table, 300 x 1000", (1, 4, 2, 300, 1000, 64), by_table, table(4, 1000), None),
    ]


def expected(score_mod, mask_mod, leaves, dout, extra):
    wide = [x.detach().float().requires_grad_() for x in leaves]
    q, k, v = wide
    mask = mask_mod and create_block_mask(mask_mod, None, None, q.shape[2], k.shape[2], device="cuda")
    out = flex_attention(q, k, v, score_mod, mask, enable_gqa=True)
    return [out, *torch.autograd.grad(out, [*wide, *extra], dout.float())]


def off(actual, right):
    return float((actual.double() - right.double()).norm() / right.double().norm())


def compare(name, shape, make, tensor, mask_mod, compiled):
    leaves, extra = operands(*shape), [] if tensor is None else [tensor]
    score_mod = make and make(tensor)
    q, k, v = leaves
    mask = mask_mod and create_block_mask(mask_mod, None, None, q.shape[2], k.shape[2], device="cuda")
    out = compiled(q, k, v, score_mod, mask)
    dout = torch.randn_like(out)
    found = [out, *torch.autograd.grad(out, [*leaves, *extra], dout)]
    right = expected(score_mod, mask_mod, leaves, dout, extra)
    errors = [off(*pair) for pair in zip(found, right)]
    is_right = all(x < 0.02 for x in errors)
    print(f"{'ok  ' if is_right else 'FAIL'} {name:24} {' '.join(f'{x:.1e}' for x in errors)}  {chosen()}", flush=True)
    return is_right


def holds(name, *case, **options):
    """Returns whether compare() succeeds."""
    try:
        return compare(name, *case, **options)
    except Exception:
        print(f"FAIL {name}")
        traceback.print_exc(limit=-4)
        return False


def attend(q, k, v, score_mod, mask):
    return flex_attention(q, k, v, score_mod, mask, enable_gqa=True)


def check(only):
    """Returns whether all cases are right."""
    right = []
    print(f"attnc {'only' if only else 'next to Triton'}: errors of out, dq, dk, dv and of captures", flush=True)
    for name, *case in cases():
        torch._dynamo.reset()
        with installed(only):
            right.append(holds(name, *case, compiled=torch.compile(again(attend), fullgraph=True, dynamic=False)))
    torch._dynamo.reset()
    offered.clear()
    with installed(only):
        compiled = torch.compile(again(attend), fullgraph=True, dynamic=True)
        for lengths in ((512, 512), (700, 700), (1000, 1300), (333, 900)):
            right.append(holds(f"dynamic {lengths}", (2, 4, 2, *lengths, 64), None, None, causal, compiled=compiled))
    print(f"choices of the dynamic function: {offered}")
    return all(right)


# ---- Times ------------------------------------------------------------------------------------------------------


def report(out, what, times, **more):
    before = times[next(iter(times))]
    print(f"{what}: " + ", ".join(f"{name} {took:.3f} ms ({before / took:.2f}x)" for name, took in times.items()), flush=True)
    if out:
        row = {"what": what, "ms": times, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **more}
        print(json.dumps(row), file=out, flush=True)


def compiled_both(function, **options):
    """Returns two compiled copies of a function: before install(), and for after it. The second compiles when called."""
    return {"before": torch.compile(again(function), **options), "after": torch.compile(again(function), **options)}


def first_calls(functions, call):
    """Compiles, and returns what Inductor chose after install()."""
    found = []
    for name, function in functions.items():
        with installed() if name == "after" else contextlib.nullcontext():
            start = time.perf_counter()
            call(function)
            found.append(chosen())
            print(f"  {name}: {time.perf_counter() - start:.0f} s; {found[-1]}", flush=True)
    return found[-1]


def times(out, which):
    length = LENGTH
    shape = BATCH, HEADS, HEADS, length, length, WIDTH
    slopes = torch.rand(HEADS, device="cuda") / 8
    mask = create_block_mask(causal, None, None, length, length, device="cuda")
    ends = torch.tensor([700, 2800, 3100, 4600, 4690, 6490, 7390], device="cuda")
    documents = torch.searchsorted(ends, torch.arange(length, device="cuda"), right=True)
    apart = lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k)
    cases = {
        "causal": (None, mask),
        "ALiBi, causal": (alibi(slopes), mask),
        "documents": (None, create_block_mask(apart, None, None, length, length, device="cuda")),
    }
    for name in which:
        score_mod, block_mask = cases[name]

        def attend(q, k, v):
            return flex_attention(q, k, v, score_mod, block_mask)

        leaves = operands(*shape)
        dout = torch.randn_like(leaves[0])
        with torch.no_grad():
            functions = compiled_both(attend, mode="max-autotune-no-cudagraphs", dynamic=False)
            what = first_calls(functions, lambda f: f(*leaves))
            calls = {name: lambda f=f: f(*leaves) for name, f in functions.items()}
            report(out, f"{name}, forward", in_turns(calls), chosen=what)
        functions = compiled_both(attend, dynamic=False)
        train = lambda f: torch.autograd.grad(f(*leaves), leaves, dout)
        what = first_calls(functions, train)
        calls = {name: lambda f=f: train(f) for name, f in functions.items()}
        report(out, f"{name}, forward and backward, default mode", in_turns(calls), chosen=what)


def layer(out):
    """A layer of width 2048: 16 heads of 128, a feed-forward network of 5632, 2 x 8192 tokens, bf16."""
    width, hidden = HEADS * WIDTH, 5632
    new = lambda *shape: (torch.randn(shape, device="cuda", dtype=torch.bfloat16) / shape[0] ** 0.5).requires_grad_()
    weights = new(width, 3 * width), new(width, width), new(width, 2 * hidden), new(hidden, width)
    x = torch.randn(BATCH, LENGTH, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cuda")
    norm = lambda x: torch.nn.functional.rms_norm(x, (width,))

    def forward(x, qkv, project, up, down):
        q, k, v = (norm(x) @ qkv).view(BATCH, LENGTH, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        mixed = flex_attention(q, k, v, None, mask)
        x = x + mixed.transpose(1, 2).reshape(BATCH, LENGTH, width) @ project
        gate, value = (norm(x) @ up).chunk(2, -1)
        return x + (torch.nn.functional.silu(gate) * value) @ down

    dout = torch.randn_like(x)
    functions = compiled_both(forward, fullgraph=True, dynamic=False)
    train = lambda f: torch.autograd.grad(f(x, *weights), [x, *weights], dout)
    what = first_calls(functions, train)
    found = [train(f) for f in functions.values()]
    print("  gradients differ by " + " ".join(f"{off(a, b):.1e}" for a, b in zip(*found)))
    report(out, "a layer, forward and backward", in_turns({name: lambda f=f: train(f) for name, f in functions.items()}), chosen=what)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="*", default=[], choices=("only", "beside"))
    parser.add_argument("--times", nargs="*", default=[], metavar="CASE", help="causal; ALiBi, causal; documents")
    parser.add_argument("--layer", action="store_true")
    parser.add_argument("--out", type=argparse.FileType("a"))
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, hooks of its own: {HAS_FORWARD}, {HAS_BACKWARD}")
    torch.manual_seed(0)
    config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = False  # a graph of before is not one of after
    select_algorithm.add_feedback_saver(select_saver)
    with hooks(lambda choices: offered.append([x.name for x in choices])):
        if not all([check(which == "only") for which in options.check]):
            sys.exit(1)
        times(options.out, options.times)
        if options.layer:
            layer(options.out)


if __name__ == "__main__":
    main()
