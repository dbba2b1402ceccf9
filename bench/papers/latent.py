#!/usr/bin/env python3
"""A query of latent attention (MLA) over caches in pages of 64: attnc, FlashMLA and FlashAttention-3.

  ATTNC_LIBRARY=libattnc.so python3 bench/papers/latent.py --out FILE.jsonl --seconds 200

K has 576 columns, and V is its first 512. heads-128, heads-16: query heads of one GPU, or of one of eight. Batches of 1 to 128,
1k to 64k keys a sequence. Calls are timed one by one, with L2 flushed.
"""

import common
from common import Section
from report import peer_name, table
from workloads import Workload

NAME = "latent"
PEERS = ("ours", "flashmla", "flash3_vllm")
OURS = "attnc"
LENGTHS = [1024 << i for i in range(0, 7, 2)]
BATCHES = (128, 32, 8, 1)


def cases(heads):
    return tuple(Workload("decode", "latent", batch, heads, 1, n, 576, 512, page=64) for batch in BATCHES for n in LENGTHS)


def times(results, section):
    """Returns the table of a section: microseconds, what they are in bytes and FLOPs, and the ratio of each peer to attnc."""
    peers = [peer for peer in results.peers if peer != OURS]
    rows = []
    for case in section.cases:
        if not (ours := results.best(case.id, OURS)):
            continue
        ms, found = ours["ms"], [results.best(case.id, peer) for peer in peers]
        figures = f"{1000 * ms:.1f}", f"{case.rate(ms)['gbps']:.0f}", f"{case.flops() / ms / 1e9:.0f}"
        rows.append([f"{case.batch} x {case.length}", *figures, *(f"{1000 * x['ms']:.1f} ({x['ms'] / ms:.2f})" if x else "" for x in found)])
    return table(["sequences, keys", "attnc, us", "GB/s", "TFLOP/s", *(f"{peer_name(peer)}, us" for peer in peers)], rows)


SECTIONS = tuple(Section(f"heads-{heads}", cases(heads), table=times) for heads in (128, 16))


def main(arguments=None):
    common.run(SECTIONS, common.parsed(arguments, __doc__, modules=PEERS, burst=0.0, rounds=10))


if __name__ == "__main__":
    main()
