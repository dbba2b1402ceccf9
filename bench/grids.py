#!/usr/bin/env python3
"""Times attention over images and video: attnc, and the baselines of Faster Neighborhood Attention in PyTorch.

  python3 bench/grids.py --attnc build/attnc --out grids.jsonl [--only REGEX] [--no-peers] [--bytes]

attnc's lines come from `attnc bench --json` of the mods of dsl/mods. The baselines (Hassani et al., arXiv:2403.04690,
section 2):

  naive   each query gathers the keys and values of its own window, and multiplies vectors
  gemm    each tile of queries gathers the keys that some of them see; products are batched GEMMs, with the weights
          in memory between them
  flex    shifted windows: FlexAttention over tokens that are permuted window by window beforehand (not timed), with the
          bias as its score_mod; windows are then blocks of its block mask

A result is one JSON line: `id`, `peer`, `ms` (median by device events, the L2 cache overwritten before each run) and
`tflops`, which counts only live pairs: 4 * pairs * head_dim forward, 10 * backward. The first line names the GPU, its
driver, the day and the command.
With --bytes, ncu counts the bytes that the forward kernel of the first case moves to and from memory. If they exceed
1.1 times q, k, v and out, the exit status is 1. Nothing is permuted or copied, and the workspace is negligible.
Needs a GPU; torch for the baselines, ncu for --bytes.
"""

import argparse
import csv
import datetime
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
JOINT = {"mod": "joint_image", "extents": (64, 64), "text": 512, "window": 17, "heads": 24, "head_dim": 128}
CROSS = {"mod": "criss_cross", "extents": (128, 128), "heads": 24, "head_dim": 128}
IMAGE = {"mod": "neighborhood2d", "extents": (128, 128), "window": (13, 13), "heads": 24}
VIDEO = {"mod": "neighborhood3d", "extents": (30, 48, 80), "window": (18, 24, 24), "heads": 24, "head_dim": 128}
CASES = {
    "13x13 of 128x128 d128": {**IMAGE, "head_dim": 128},
    "13x13 of 128x128 d64": {**IMAGE, "head_dim": 64},
    "80x80 of 256x256 d128": {**IMAGE, "extents": (256, 256), "window": (80, 80), "head_dim": 128},
    "18x24x24 of 30x48x80 d128": VIDEO,
    "18x24x24 of 30x48x80 stride 16x8x8 d128": {**VIDEO, "defines": {"STRIDE": "(16, 8, 8)"}},
    "shifted 8x8 of 64x64 d32": {
        "mod": "shifted_window", "extents": (64, 64), "window": 8, "heads": 24, "batch": 8, "head_dim": 32,
        "defines": {"SHIFT": "4"},
    },
    "17x17 of 64x64 behind 512 d128": JOINT,
    "17x17 of 64x64 behind 512, lists of tokens d128": {**JOINT, "family": "sm90"},
    "criss-cross of 128x128 d128": CROSS,
    "criss-cross of 128x128, lists of tokens d128": {**CROSS, "family": "sm90"},
    "all of 128x128 d128": {**IMAGE, "window": (128, 128), "head_dim": 128},  # the compiler detects this
    "all of 128x128, extents of the launch d128": {
        **IMAGE, "window": (128, 128), "head_dim": 128, "at_launch": True, "family": "grid",
    },
    "noop 16384 d128": {"mod": "noop", "extents": (16384,), "heads": 24, "head_dim": 128},
}  # fmt: skip
AXES = {1: (), 2: ("HEIGHT", "WIDTH"), 3: ("FRAMES", "HEIGHT", "WIDTH")}


def tokens(case):
    product = 1
    for extent in case["extents"]:
        product *= extent
    return product + case.get("text", 0)


def bench_command(case, command, kernels):
    """Runs `attnc bench` for a case."""
    extents = dict(zip(AXES[len(case["extents"])], map(str, case["extents"])))
    defines = case.get("defines", {}) | ({} if case.get("at_launch") else extents)
    if "text" in case:
        defines["TEXT"] = str(case["text"])
    if "window" in case:
        defines["WINDOW"] = str(case["window"])
    shape = [case.get("batch", 1), case["heads"], case["heads"], tokens(case), tokens(case)]
    arguments = [command, "bench", str(ROOT / "dsl" / "mods" / f"{case['mod']}.py"), "--json"]
    arguments += ["--shape", ",".join(map(str, shape)), "--head-dim", str(case["head_dim"]), "--kernel", kernels]
    arguments += ["--kernel-family", case.get("family", "auto")]
    if "backward" in kernels:
        arguments += ["--gradients", "none"]
    for name, value in defines.items():
        arguments += ["-D", f"{name}={value}"]
    if case.get("at_launch"):
        for name, value in extents.items():
            arguments += ["--capture", f"{name}: int", "--set", f"{name}={value}"]
    return arguments


def attnc_lines(case, command, kernels):
    """Returns what `attnc bench` reports for each kernel."""
    done = subprocess.run(bench_command(case, command, kernels), capture_output=True, text=True)
    if done.returncode:
        return [{"error": done.stderr.strip()[-400:]}]
    return json.loads(done.stdout)["kernels"]


def moved_bytes(case, command):
    """Returns the bytes that a launch of the forward kernel reads and writes, from empty caches, and the bytes of q, k,
    v and out."""
    metrics = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
    profiler = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base"]
    profiler += ["--metrics", ",".join(metrics.values()), "-k", "attnc_forward", "--launch-count", "1"]
    done = subprocess.run(profiler + bench_command(case, command, "forward"), capture_output=True, text=True)
    rows = list(csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"')))
    counted = {row["Metric Name"]: float(row["Metric Value"].replace(",", "")) for row in rows}
    if set(counted) != set(metrics.values()):
        return {"error": (done.stderr or done.stdout).strip()[-400:]}
    moved = {name: counted[metric] for name, metric in metrics.items()}
    operands = 4 * 2 * case.get("batch", 1) * case["heads"] * tokens(case) * case["head_dim"]
    return {**moved, "operands": operands, "share": sum(moved.values()) / operands}


def timed(call, torch):
    """Returns the median milliseconds of some runs, each after a fill that overwrites L2."""
    fill = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        call()
    times = []
    for _ in range(15):
        fill.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def window_begin(torch, extent, window):
    """Returns the first key of each query's window along an axis, moved inside at borders."""
    return (torch.arange(extent, device="cuda") - window // 2).clamp(0, extent - window)


def naive(q, k, v, case, torch):
    (height, width), (rows, columns) = case["extents"], case["window"]
    y = window_begin(torch, height, rows)[:, None] + torch.arange(rows, device="cuda")
    x = window_begin(torch, width, columns)[:, None] + torch.arange(columns, device="cuda")
    keys = (y[:, None, :, None] * width + x[None, :, None, :]).reshape(height * width, rows * columns)
    scale = case["head_dim"] ** -0.5

    def call():
        out = torch.empty_like(q)
        for h in range(q.shape[1]):  # one head at a time, because windows take `window` times the memory of k
            scores = torch.einsum("qd,qkd->qk", q[0, h], k[0, h][keys]) * scale
            weights = torch.softmax(scores.float(), -1).to(q.dtype)
            out[0, h] = torch.einsum("qk,qkd->qd", weights, v[0, h][keys])
        return out

    return call


def gemm(q, k, v, case, torch):
    (height, width), (rows, columns), tile = case["extents"], case["window"], 8

    def axis(extent, window):
        begin = window_begin(torch, extent, window)
        first = begin.reshape(-1, tile)[:, 0]
        keys = (first[:, None] + torch.arange(window + tile - 1, device="cuda")).clamp(max=extent - 1)  # [tiles, keys]
        place = torch.arange(window + tile - 1, device="cuda")
        offset = begin.reshape(-1, tile, 1) - first[:, None, None]
        return keys, (place >= offset) & (place < offset + window)  # [tiles, queries, keys]

    keys_y, live_y = axis(height, rows)
    keys_x, live_x = axis(width, columns)
    keys = (keys_y[:, None, :, None] * width + keys_x[None, :, None, :]).flatten(2).flatten(0, 1)
    live = live_y[:, None, :, None, :, None] & live_x[None, :, None, :, None, :]
    live = live.flatten(4).flatten(2, 3).flatten(0, 1)  # [tiles, queries, keys]
    grid = torch.arange(height * width, device="cuda").reshape(height // tile, tile, width // tile, tile)
    queries = grid.transpose(1, 2).reshape(-1, tile * tile)
    scale, dead = case["head_dim"] ** -0.5, torch.finfo(torch.float32).min

    def call():
        out = torch.empty_like(q)
        for h in range(q.shape[1]):
            scores = torch.bmm(q[0, h][queries], k[0, h][keys].transpose(1, 2)) * scale
            weights = torch.softmax(scores.float().masked_fill(~live, dead), -1).to(q.dtype)
            out[0, h][queries.flatten()] = torch.bmm(weights, v[0, h][keys]).flatten(0, 1)
        return out

    return call


def flex(q, k, v, case, torch):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    height, width = case["extents"]
    window, shift = case["window"], int(case["defines"]["SHIFT"])
    bias = torch.randn(case["heads"], 2 * window - 1, 2 * window - 1, device="cuda")
    y, x = torch.meshgrid(torch.arange(height, device="cuda"), torch.arange(width, device="cuda"), indexing="ij")
    cell = ((y - shift) // window + 1) * 1000 + (x - shift) // window + 1
    order = torch.argsort(cell.flatten(), stable=True)
    cells, ys, xs = cell.flatten()[order], y.flatten()[order], x.flatten()[order]

    def score_mod(score, b, h, q_idx, kv_idx):
        rows = (ys[q_idx] - ys[kv_idx]).clamp(1 - window, window - 1)
        columns = (xs[q_idx] - xs[kv_idx]).clamp(1 - window, window - 1)
        return score + bias[h, rows + window - 1, columns + window - 1]

    def mask_mod(b, h, q_idx, kv_idx):
        return cells[q_idx] == cells[kv_idx]

    mask = create_block_mask(mask_mod, None, None, height * width, height * width)
    compiled = torch.compile(flex_attention)
    with torch.no_grad():
        compiled(q, k, v, score_mod=score_mod, block_mask=mask)
    return lambda: compiled(q, k, v, score_mod=score_mod, block_mask=mask)


def peers_of(case):
    if case["mod"] == "shifted_window":
        return {"flex": flex}
    return {"naive": naive, "gemm": gemm} if case.get("window") == (13, 13) else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attnc", default=str(ROOT / "build" / "attnc"), help="the command")
    parser.add_argument("--out", default="grids.jsonl")
    parser.add_argument("--only", default="")
    parser.add_argument("--kernels", default="forward,backward")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--bytes", action="store_true")
    options = parser.parse_args()
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True)
    failed = False
    with open(options.out, "w") as out:

        def emit(**line):
            text = json.dumps(line)
            print(text, flush=True)
            out.write(text + "\n")
            out.flush()

        command = shlex.join(["python3", "bench/grids.py", *sys.argv[1:]])
        emit(id="ceilings", device=gpu.stdout.strip(), date=str(datetime.date.today()), command=command)
        for name, case in CASES.items():
            if not re.search(options.only, name):
                continue
            pairs = None
            for line in attnc_lines(case, options.attnc, options.kernels):
                emit(id=name, peer="attnc", **line)
                if line.get("kind") == "forward":
                    pairs = line["tflops"] * line["ms"] * 1e9 / (4 * case["head_dim"])
            if options.bytes and name == next(iter(CASES)):
                moved = moved_bytes(case, options.attnc)
                emit(id=name, peer="attnc", kind="bytes", **moved)
                failed |= not moved.get("share", 2) <= 1.1
            if options.no_peers or not pairs:
                continue
            import torch

            for peer, make in peers_of(case).items():
                torch.manual_seed(0)
                shape = [case.get("batch", 1), case["heads"], tokens(case), case["head_dim"]]
                q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
                try:
                    ms = timed(make(q, k, v, case, torch), torch)
                    tflops = 4 * pairs * case["head_dim"] / ms / 1e9
                    emit(id=name, peer=peer, ms=ms, tflops=tflops, torch=torch.__version__)
                except Exception as failure:  # the others still run
                    emit(id=name, peer=peer, error=f"{type(failure).__name__}: {failure}"[:400])
    sys.exit(failed)


if __name__ == "__main__":
    main()
