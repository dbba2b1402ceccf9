#!/usr/bin/env python3
"""Draws the chart of the front page from committed result files: attnc and others, by mod, forward and backward.

  python3 bench/front_chart.py            # writes docs/assets/chart.svg
  python3 bench/front_chart.py --check    # whether that file is what would be written

Each panel is one run on one GPU. A bar is the best time of that run. Nobody is given a bar that was not measured there.
Exit codes: 0 done; 1 the file differs (--check), or cannot be read or written.
"""
import argparse
import dataclasses
import pathlib
import sys

from bar_chart import COLOURS, FAINT, GRID, INK, NAMES, line, picture, scale_step, text
from results import ResultError, read_results

BENCH = pathlib.Path(__file__).resolve().parent
CHART = BENCH.parent / "docs" / "assets" / "chart.svg"
SHAPE = "b2h16k16-q8192k8192-d128"
MODS = ("noop", "causal", "alibi", "softcap", "sliding_window", "document")
# A series is the best of these peers: FlashAttention-4 and cuDNN also take documents as packed sequences.
SERIES = {
    "attnc": ("attnc",),
    "FlexAttention": ("flex", "flex_autotuned"),
    "FlashAttention-4": ("fa4", "fa4_varlen"),
    "cuDNN": ("sdpa_cudnn",),
    "cuDNN's flex_attention": ("cudnn_flex", "cudnn_flex_varlen"),
}
WIDTH, LEFT, GAP, MARGIN = 800, 34, 34, 12
BAR, BETWEEN, LEAST = 17, 14, 62  # widths: of a bar, between groups, of a group with its name
TOP, PLOT, BELOW = 66, 150, 44


@dataclasses.dataclass
class Run:
    kind: str
    day: str
    files: tuple


RUNS = (
    Run("forward", "21 November 2026", ("h200-2026-11-21-attnc.jsonl", "h200-2026-11-21-peers.jsonl")),
    Run("forward", "23 November 2026", ("h200-2026-11-23-peers.jsonl",)),
    Run("backward", "23 November 2026", ("h200-2026-11-23-peers.jsonl",)),
)


def bars_of(run):
    """Returns mod -> {series: TFLOP/s}, of mods for which attnc and another were timed."""
    results = read_results([BENCH / "results" / file for file in run.files])
    bars = {}
    for mod in MODS:
        timed = {name: [results.best(f"{run.kind}-{mod}-{SHAPE}", peer) for peer in peers]
                 for name, peers in SERIES.items()}
        best = {name: max(row["tflops"] for row in rows if row) for name, rows in timed.items() if any(rows)}
        if "attnc" in best and len(best) > 1:
            bars[mod] = best
    return bars


def group_width(group):
    return max(len(group) * BAR + BETWEEN, LEAST)


def draw_panel(run, bars, x, y, top):
    """Returns the panel's parts, and where it ends on the right."""
    parts, left, base = [], x, y + PLOT
    width = sum(map(group_width, bars.values()))
    height = lambda value: PLOT * value / top
    for i in range(int(top / scale_step(top)) + 1):
        at = base - height(i * scale_step(top))
        parts.append(line(x, at, x + width, at, INK if i == 0 else GRID))
        parts.append(text(x - 5, at + 3.5, f"{i * scale_step(top):g}", 10, "end", FAINT))
    parts.append(text(x, y - 8, f"{run.kind.capitalize()}, run of {run.day}", 12, "start", bold=True))
    for mod, group in bars.items():
        middle = left + group_width(group) / 2
        for i, (name, value) in enumerate(group.items()):
            at = middle + (i - len(group) / 2) * BAR
            colour = COLOURS[list(SERIES).index(name)]
            parts.append(f'<rect x="{at + 1:.1f}" y="{base - height(value):.1f}" width="{BAR - 2}" '
                         f'height="{height(value):.1f}" fill="{colour}"><title>{run.kind} {mod}, {name}: {value:g} TFLOP/s'
                         "</title></rect>")
            parts.append(text(at + BAR / 2, base - height(value) - 3, f"{value:.0f}", 8.5, bold=name == "attnc"))
        parts.append(text(middle, base + 15, NAMES.get(mod, mod), 11))
        left += group_width(group)
    return parts, left


def chart():
    """Returns the SVG."""
    panels = [(run, bars_of(run)) for run in RUNS]
    top = 1.12 * max(value for _, bars in panels for group in bars.values() for value in group.values())
    parts = [text(MARGIN, 22, "TFLOP/s on an NVIDIA H200", 15, "start", bold=True),
             text(WIDTH - MARGIN, 22, "bf16, 2 x 16 heads x 8192 tokens, head dim 128; masked pairs do not count", 10.5, "end",
                  FAINT)]
    x = MARGIN
    present = {name for _, bars in panels for group in bars.values() for name in group}
    for i, name in enumerate(SERIES):
        if name in present:
            parts.append(f'<rect x="{x:.1f}" y="34" width="11" height="11" fill="{COLOURS[i]}"/>')
            parts.append(text(x + 16, 43.5, name, 12, "start", bold=name == "attnc"))
            x += 32 + 6.6 * len(name)
    x, y = LEFT, TOP + 12
    for run, bars in panels:
        wide = sum(map(group_width, bars.values()))
        if x > LEFT and x + wide > WIDTH - MARGIN:
            x, y = LEFT, y + PLOT + BELOW
        drawn, right = draw_panel(run, bars, x, y, top)
        parts += drawn
        x = right + GAP
    if x + 200 < WIDTH:
        notes = ("A panel is one run on one GPU. Compare only within it.", "A missing bar was not measured in that run.",
                 "Documents: the best of a mask and packed sequences.", "The figures are in bench/results.")
        parts += [text(x, y + 12 + 15 * i, words, 11, "start", FAINT) for i, words in enumerate(notes)]
    return picture("TFLOP/s of attnc, FlexAttention, FlashAttention-4 and cuDNN on an NVIDIA H200", WIDTH,
                   y + PLOT + BELOW - 12, parts)


def main(arguments=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--check", action="store_true", help="write nothing; say whether the file is up to date")
    args.add_argument("--output", type=pathlib.Path, default=CHART, metavar="FILE.svg", help="default: %(default)s")
    args = args.parse_args(arguments)
    try:
        svg = chart()
        if args.check:
            if args.output.read_text(encoding="utf-8") == svg:
                return 0
            raise ResultError(f"{args.output} is not what bench/front_chart.py draws: run it")
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(svg, encoding="utf-8")
    except (ResultError, OSError) as error:
        print(f"front_chart.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
