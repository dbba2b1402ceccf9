#!/usr/bin/env python3
"""Figures 13 and 14 of FlexAttention (arXiv:2412.05496): neighborhoods whose pixels lie row by row, tile by tile, or along a Morton
curve.

  ATTNC_LIBRARY=libattnc.so python3 bench/papers/neighborhoods.py --out FILE.jsonl --seconds 200

Square images of 32 to 128 pixels, windows of 7 to 25, forward, 4 x 16 heads of 64. Each is a mask_mod of the token's index, for attnc
and for FlexAttention. The table also has the share of blocks of 128 x 128 scores that live.
"""

import dataclasses

import common
from common import Section
from report import OURS, table
from workloads import Workload

NAME = "neighborhoods"
CANVASES, WINDOWS, BLOCK, TILE = (32, 64, 128), (7, 13, 25), 128, 8


def by_rows(index, canvas):
    return index // canvas, index % canvas


def by_tiles(index, canvas):
    tile, inside, tiles = index // (TILE * TILE), index % (TILE * TILE), canvas // TILE
    return tile // tiles * TILE + inside // TILE, tile % tiles * TILE + inside % TILE


def even_bits(index):
    bits = index & 0x5555
    bits = (bits | bits >> 1) & 0x3333
    bits = (bits | bits >> 2) & 0x0F0F
    return (bits | bits >> 4) & 0x00FF


def by_morton(index, canvas):
    return even_bits(index >> 1), even_bits(index)


PLACES = {"naive": by_rows, "tiled": by_tiles, "morton": by_morton}


@dataclasses.dataclass(frozen=True)
class Neighborhood(Workload):
    """A case whose tokens are the pixels of a `canvas` x `canvas` image. `variant`: how they lie. `window`: pixels along an axis."""

    canvas: int = 0

    @property
    def id(self):
        return f"{self.kind}-{self.variant}-b{self.batch}h{self.heads}-{self.canvas}x{self.canvas}-w{self.window}-d{self.width}"

    def pairs(self):
        return self.batch * self.heads * self.length * self.window**2

    def mods_of_positions(self, device):
        place, canvas, half = PLACES[self.variant], self.canvas, self.window // 2

        def mask_mod(b, h, q_idx, kv_idx):
            (q_row, q_column), (kv_row, kv_column) = place(q_idx, canvas), place(kv_idx, canvas)
            near_row = (q_row.clamp(half, canvas - 1 - half) - kv_row).abs() <= half
            return near_row & ((q_column.clamp(half, canvas - 1 - half) - kv_column).abs() <= half)

        return None, mask_mod

    def live_blocks(self):
        """Returns the share of blocks in which a score lives."""
        import torch

        at = torch.arange(self.length)
        row, column = PLACES[self.variant](at, self.canvas)
        token = torch.empty(self.canvas, self.canvas, dtype=torch.int64)
        token[row, column] = at
        first = [(x - self.window // 2).clamp(0, self.canvas - self.window) for x in (row, column)]
        offsets = torch.arange(self.window)
        keys = token[(first[0][:, None] + offsets)[:, :, None], (first[1][:, None] + offsets)[:, None, :]].flatten(1)
        blocks = -(-self.length // BLOCK)
        live = torch.zeros(blocks, blocks, dtype=torch.bool)
        live[(at // BLOCK)[:, None].expand_as(keys), keys // BLOCK] = True
        return float(live.float().mean())

    def tiny(self):
        return dataclasses.replace(self, batch=1, heads=2, kv_heads=2, width=16, width_v=16, canvas=16, length=256, window=5)


CASES = tuple(Neighborhood("forward", variant, 4, 16, 16, canvas * canvas, 64, 64, window, canvas=canvas)
              for canvas in CANVASES[::-1] for window in WINDOWS for variant in PLACES)  # fmt: skip


def mappings(results, section):
    """Returns the table: live blocks, and milliseconds of attnc and FlexAttention, for each of the three orders."""
    rows = []
    for canvas in CANVASES:
        for window in WINDOWS:
            cells = []
            for case in [case for case in section.cases if (case.canvas, case.window) == (canvas, window)]:
                found = [results.best(case.id, peer) for peer in (OURS, "flex")]
                cells += [f"{100 * case.live_blocks():.1f} %", *(f"{row['ms']:.3f}" if row else "" for row in found)]
            if any(not cell.endswith("%") and cell for cell in cells):
                rows.append([f"{window} x {window} of {canvas} x {canvas}", *cells])
    heads = [f"{name}, {what}" for name in PLACES for what in ("live blocks", f"{OURS}, ms", "FlexAttention, ms")]
    return table(["neighborhood", *heads], rows)


SECTIONS = (Section("figures-13-14", CASES, table=mappings),)


def main(arguments=None):
    options = common.parsed(arguments, __doc__, modules=("ours", "flex"), burst=0.0, rounds=10)
    common.run(SECTIONS, options)


if __name__ == "__main__":
    main()
