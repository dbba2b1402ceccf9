#!/usr/bin/env python3
"""Times tiles of attnc's forward kernels by two clocks, next to FlashAttention-3 if it can be imported.

  ATTNC_LIBRARY=libattnc.so python3 bench/tiles.py causal 2,64,8,8192,8192,128 128x128x8 128x128x8-2heads

The mod is a variant of workloads.py; the shape is B,H,HKV,Q_LEN,KV_LEN,D or ...,D,DV, with Q_LEN as long as KV_LEN. Tiles
take turns, with bursts of --burst seconds under load. Out of each tile may differ by 1 % of its norm from the first's.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import clocks
import peers
from workloads import Workload


def functions_of(case, tiles):
    """Returns {tile or peer: function that enqueues a call}."""
    import torch
    from attnc.torch import create_block_mask, flex_attention

    torch.manual_seed(0)
    draw = lambda heads, width: torch.randn(case.batch, heads, case.length, width, device="cuda", dtype=torch.bfloat16)
    q, k, v = draw(case.heads, case.width), draw(case.kv_heads, case.width), draw(case.kv_heads, case.width_v)
    score_mod, mask_mod = case.mods(q.device)
    mask = mask_mod and create_block_mask(mask_mod, None, None, case.length, case.length, device=q.device)
    of_tile = lambda tile: lambda: flex_attention(q, k, v, score_mod, mask, enable_gqa=True, kernel_options={"tile": tile})
    functions = {tile: of_tile(tile) for tile in tiles}
    first, *others = [function().float() for function in functions.values()]
    for tile, out in zip(tiles[1:], others):
        if not (out - first).norm() <= 0.01 * first.norm():
            sys.exit(f"tiles.py: {tile} differs from {tiles[0]}")
    for peer in peers.found(["flash3"]):
        if peer.serves(case):
            (functions[peer.NAME],) = peer.ways(case, *(x.transpose(1, 2).contiguous() for x in (q, k, v))).values()
    return functions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant")
    parser.add_argument("shape", type=lambda text: [int(n) for n in text.split(",")], metavar="SHAPE")
    parser.add_argument("tiles", nargs="+", metavar="TILE")
    parser.add_argument("--burst", type=float, default=1.0, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="default: %(default)s")
    options = parser.parse_args()
    batch, heads, kv_heads, length, _, width, *width_v = options.shape
    case = Workload("forward", options.variant, batch, heads, kv_heads, length, width, (width_v or [width])[0])

    import torch

    gpu = clocks.Gpu()
    with torch.no_grad():
        bursts, rested = clocks.abba(gpu, functions_of(case, options.tiles), options.burst, options.rounds)
    print(f"{case.id} on {gpu.name}")
    for name, taken in bursts.items():
        ms, joules, mhz = (statistics.mean(values) for values in zip(*((x.ms, x.joules, x.mhz) for x in taken)))
        tflops = [case.flops() / each / 1e9 for each in (ms, rested[name])]
        print(f"  {name:18} {tflops[0]:6.1f} TFLOP/s under load, {tflops[1]:.1f} rested, {joules:.4f} J a call, {mhz:.0f} MHz")


if __name__ == "__main__":
    main()
