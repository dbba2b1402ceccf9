#!/usr/bin/env python3
"""Runs the lies of tests/refusals/cases.json on a GPU: values that name rows, pages and blocks that do not exist, rows
that two sequences have, and scales that are no numbers.

  lies.py                  with the check, each lie is the error of the table; without it, nothing is written outside
  lies.py --sanitize       the second part under compute-sanitizer: no write outside an allocation, whatever is read
  lies.py --case N DTYPE   one lie, without the check

ATTNC_LIBRARY names the library. Each lie without the check has a process of its own, since a read may end in an illegal
address. Prints a line a lie; exit code 1 if a write or an answer is wrong. SKIPPED without a GPU.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "refusals"))
sys.path.insert(0, str(HERE.parents[1] / "tools" / "python"))
DTYPES = "bfloat16", "float32"  # families sm90 and sm80 on a Hopper GPU
GUARD = 1 << 16  # bytes around each tensor that is written


def lies():
    """Returns the cases that change only values: what a launch on a GPU does not read."""
    table = json.loads((HERE.parent / "refusals" / "cases.json").read_text())
    found = []
    for case in table["cases"]:
        problem = table["problems"][case["problem"]]
        members = {**problem["operands"], **problem.get("lists", {}), **problem.get("captures", {})}
        if case["problem"] not in ("dense", "backward", "window") and all(
            value is not None and name != "shape"
            and (shape_of(value) == shape_of(members[name]) if name in members else name == "q_offsets")
            for name, value in case["set"].items()
        ):  # fmt: skip
            found.append((case, problem))
    return found


def shape_of(spec):
    return spec["shape"] if isinstance(spec, dict) else [len(spec), *shape_of(spec[0])] if isinstance(spec, list) else []


def places():
    """Returns each lie by its number, with each dtype that q may have, or that out has if q is e4m3."""
    is_fp8 = [problem["operands"]["k"].get("dtype") == "e4m3" for _, problem in lies()]
    return [(number, dtype) for number, of in enumerate(is_fp8) for dtype in DTYPES[: 1 if of else None]]


class Guarded:
    """Tensors on the GPU in the middle of larger ones, whose ends must stay as they are."""

    def __init__(self):
        self.all = []

    def tensor(self, x):
        import torch

        bytes = x.numel() * x.element_size()
        whole = torch.full((bytes + 2 * GUARD,), 0x5A, dtype=torch.uint8, device="cuda")
        self.all.append((whole, bytes))
        view = whole[GUARD : GUARD + bytes].view(x.dtype).view(x.shape)
        return view.copy_(x)

    def are_whole(self):
        return all(bool((w[:GUARD] == 0x5A).all() and (w[GUARD + n :] == 0x5A).all()) for w, n in self.all)


def launch(case, problem, dtype, guarded):
    """Launches forward, and where kernels have it backward."""
    import numpy as np
    import torch

    import attnc
    import attnc.torch
    import refusals_test as table
    from attnc.torch import flash

    of = table.Problem(problem, case["set"])

    def on_gpu(array, at=None):
        x = torch.from_numpy(np.ascontiguousarray(array))
        if x.is_floating_point() and at != "table" and not str(at).endswith("_scales"):
            x = x.to(getattr(torch, dtype))
        x = x.view(torch.float8_e4m3fn) if x.dtype == torch.uint8 else x
        return (guarded.tensor if at in ("k", "v", "out") else lambda y: y.cuda())(x)

    operands = {name: on_gpu(table.array_of(spec), name) for name, spec in of.operands.items() if name != "dout"}
    q, k, v = (operands[name] for name in "qkv")
    if of.lists is not None:
        lists = {name: on_gpu(table.array_of(of.lists[name])) for name in table.LISTS if name in of.lists}
        mask = attnc.torch.BlockMask.from_kv_blocks(
            *(on_gpu(table.array_of(problem["lists"][name])) for name in table.LISTS[:4]), BLOCK_SIZE=128,
            mask_mod=lambda b, h, i, j: i >= j, seq_lengths=(256, 256),
        )  # fmt: skip
        for name, tensor in lists.items():
            setattr(mask, name, tensor)
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        attnc.torch.flex_attention(q, k, v, block_mask=mask).sum().backward()
    else:
        captures = {name: on_gpu(of.capture(name), name) for name in of.captures}
        out = guarded.tensor(torch.zeros_like(q, dtype=getattr(torch, dtype)))
        attnc.attention(of.mod, captures=captures, out=out, **operands)
        if "cu_seqlens_kv" in operands and "q_offsets" not in operands:
            packed = [x[0].transpose(0, 1).contiguous() for x in (q, k, v)]
            arguments = operands["cu_seqlens_q"], operands["cu_seqlens_kv"], 90, 90, 0.0, False
            out, lse, _ = flash._forward(None, *packed, *arguments, False)
            flash._flash_attention_backward(out, *packed, out, lse, *arguments, None, None)
    torch.cuda.synchronize()


def run_one(number, dtype):
    case, problem = lies()[number]
    guarded = Guarded()
    launch(case, problem, dtype, guarded)
    return 0 if guarded.are_whole() else 3


def run_checked():
    """Returns the lies whose answer with the check is not the table's."""
    os.environ["ATTNC_CHECK"] = "1"
    wrong = []
    for number, dtype in places():
        case, problem = lies()[number]
        try:
            launch(case, problem, dtype, Guarded())
            answer = "nothing"
        except Exception as error:
            answer = str(error)
        text = case["error"]
        if text not in answer:
            wrong.append(f"{dtype} {case['problem']} {case['set']}: expected {text}\n  is {answer}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--case", nargs=2)
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"SKIPPED: {error}")
        return 0

    if not torch.cuda.is_available():
        print("SKIPPED: there is no GPU")
        return 0
    if options.case:
        return run_one(int(options.case[0]), options.case[1])
    wrong = run_checked()
    print(f"with ATTNC_CHECK=1: {len(places()) - len(wrong)} of {len(places())} lies are refused by their text")
    environment = {name: value for name, value in os.environ.items() if name != "ATTNC_CHECK"}
    environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    before = ["compute-sanitizer", "--tool", "memcheck", "--print-limit", "1000"] if options.sanitize else []

    def run(place):
        return subprocess.run([*before, sys.executable, __file__, "--case", *place], env=environment,
                              capture_output=True, text=True)  # fmt: skip

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(run, ((str(number), dtype) for number, dtype in places())))
    for (number, dtype), done in zip(places(), runs):
        case, text = lies()[number][0], done.stdout + done.stderr
        writes, reads = (len(re.findall(f"Invalid __[a-z]+__ (?:{what})", text)) for what in ("write|atomic", "read"))
        illegal = "illegal memory access" in text
        is_wrong = writes or done.returncode == 3 or (done.returncode and not illegal and not reads)
        outside = f"{writes} writes and {reads} reads outside" + (", an illegal address" if illegal else "")
        print("WRONG" if is_wrong else "ok", dtype, case["problem"], f"{case['set']}: {outside}")
        if is_wrong:
            wrong.append(text[-2000:])
    print("\n".join(wrong) or "no lie is written outside a tensor")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
