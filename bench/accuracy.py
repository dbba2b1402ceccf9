#!/usr/bin/env python3
"""Measures errors of out and gradients against fp64, for attnc, an unfused attention of the same dtype, FlexAttention
and SDPA.

  python3 bench/accuracy.py --attnc build/attnc --out accuracy.jsonl

Writes one JSON line a case and peer: {"id", "peer", "rmse": {"out", "dq", "dk", "dv"}}, root mean squared errors
against fp64 on the same tensors: normal q, k, v and dout of [1, 8, LENGTH, D]; softcap has a cap of 30, a window and a
prefix have 256 keys, slopes are 2^-1 to 2^-8, and documents have an eighth of the tokens on average. "unfused"
keeps q k^T, P, dP and dS in the dtype between products; its softmax is f32. Needs torch, triton and safetensors; prints
SKIPPED without them. Without a GPU, attnc computes with its reference, and "unfused" is the only peer.
Exit codes: 0 done; 1 a gradient of attnc has more than 1.1 times the error of "unfused", or could not be computed.
"""
import argparse
import json
import pathlib
import sys

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch_mods import Mod, extents_of, gradients, run_attnc
    from workloads import alibi_slopes
except ImportError as missing:
    sys.exit(print(f"SKIPPED: {missing}"))

LIMIT = 1.1  # times the error of "unfused"
MODS = pathlib.Path(__file__).resolve().parents[1] / "dsl" / "mods"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SCALARS = {"cap": 30.0, "window": 256, "prefix": 256}


def by_autograd(attention, tensors):
    """Returns the results of a peer: out = attention(q, k, v), and its gradients."""
    leaves = [tensors[name].detach().requires_grad_() for name in "qkv"]
    out = attention(*leaves)
    return dict(zip(("out", "dq", "dk", "dv"), (out.detach(), *torch.autograd.grad(out, leaves, tensors["dout"]))))


def by_flex(mod, tensors, scalars):
    torch._dynamo.reset()
    captures = {name: tensors[name] for name in mod.captures if name in tensors}
    names = mod.namespace({**extents_of(tensors["q"], tensors["k"]), **scalars, **captures})
    length, mask_mod = tensors["q"].shape[2], names.get("mask_mod")
    mask = mask_mod and create_block_mask(mask_mod, None, None, length, length, device="cuda")
    return by_autograd(lambda q, k, v: torch.compile(flex_attention, dynamic=False)(
        q, k, v, score_mod=names.get("score_mod"), block_mask=mask), tensors)


def by_sdpa(backend, tensors):
    def attention(q, k, v):
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return by_autograd(attention, tensors)


def results(variant, mod, tensors, args):
    """Yields (peer, its out and gradients), fp64 first. An exception replaces results that cannot be computed."""
    scalars = {name: SCALARS[name] for name in mod.scalars()}
    options = ["--backward", *([f"--kernel-family={args.kernel_family}"] if args.kernel_family else [])]
    every = {"attnc": lambda: run_attnc(args.attnc, mod, tensors, scalars, *options),
             "unfused": lambda: gradients(mod, tensors, scalars, products=tensors["q"].dtype)}
    if torch.cuda.is_available():
        every["flex"] = lambda: by_flex(mod, tensors, scalars)
        if variant == "causal":
            every["sdpa_cudnn"] = lambda: by_sdpa(SDPBackend.CUDNN_ATTENTION, tensors)
            every["sdpa_flash"] = lambda: by_sdpa(SDPBackend.FLASH_ATTENTION, tensors)
    yield "fp64", gradients(mod, tensors, scalars)
    for peer in args.peers.split(","):
        if peer not in every:
            continue
        try:
            yield peer, every[peer]()
        except Exception as error:  # a peer may not support a case
            yield peer, error


def id_of(variant, dtype, head_dim, args):
    return f"accuracy-{variant}-b1h8k8-q{args.length}k{args.length}-d{head_dim}-{dtype}"


def measure(variant, dtype, head_dim, args):
    """Returns the lines of a case."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = {name: torch.randn(1, 8, args.length, head_dim, device=device, dtype=DTYPES[dtype])
               for name in ("q", "k", "v", "dout")}
    case, mod = id_of(variant, dtype, head_dim, args), Mod.load(MODS / f"{variant}.py")
    drawn = mod.draw(extents_of(tensors["q"], tensors["k"]), SCALARS, torch.Generator().manual_seed(0))
    drawn |= {"slopes": alibi_slopes(8, "cpu")} if "slopes" in drawn else {}
    found = results(variant, mod, tensors | {name: x.to(device) for name, x in drawn.items()}, args)
    _, exact = next(found)
    for peer, result in found:
        if isinstance(result, Exception):
            yield {"id": case, "peer": peer, "error": f"{type(result).__name__}: {str(result)[:300]}"}
            continue
        errors = {name: (result[name].to(exact[name]) - exact[name]).square().mean().sqrt().item()
                  for name in ("out", "dq", "dk", "dv") if name in result}
        yield {"id": case, "peer": peer, "rmse": {name: float(f"{error:.4g}") for name, error in errors.items()}}


def failures(lines):
    """Describes the errors of attnc that exceed the limit."""
    ours, unfused = ({line["id"]: line for line in lines if line["peer"] == peer} for peer in ("attnc", "unfused"))
    for case, line in ours.items():
        if "rmse" not in line:
            yield f"{case}: {line['error']}"
            continue
        for name in ("dq", "dk", "dv"):
            bar = unfused.get(case, {}).get("rmse", {}).get(name, float("nan"))
            ratio = line["rmse"].get(name, float("nan")) / bar
            if not ratio <= LIMIT:
                yield f"{case}: the error of {name} is {ratio:.3f} times that of an unfused attention"


def main(arguments=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--attnc", default="build/attnc", help="the command")
    args.add_argument("--kernel-family", default="", help="of attnc; default: the GPU's best")
    args.add_argument("--peers", default="attnc,unfused,flex,sdpa_cudnn,sdpa_flash")
    args.add_argument("--length", type=int, default=2048)
    args.add_argument("--variants", default="causal,softcap", help="mods of the library")
    args.add_argument("--dtypes", default="bf16,fp16")
    args.add_argument("--head-dims", default="64,128,256")
    args.add_argument("--out", help="file that the lines are appended to; they are printed as well")
    args = args.parse_args(arguments)
    lines = []
    for variant in args.variants.split(","):
        for dtype in args.dtypes.split(","):
            for head_dim in map(int, args.head_dims.split(",")):
                for line in measure(variant, dtype, head_dim, args):
                    print(json.dumps(line), flush=True)
                    lines.append(line)
                    if args.out:
                        with open(args.out, "a", encoding="utf-8") as file:
                            file.write(json.dumps(line) + "\n")
    bad = list(failures(lines))
    for text in bad:
        print(f"accuracy.py: {text}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
