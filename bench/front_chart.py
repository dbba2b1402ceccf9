#!/usr/bin/env python3
"""Draws the chart of the front page from committed result files: attnc and others, by mod, forward and backward.

  python3 bench/front_chart.py            # writes docs/assets/chart.svg
  python3 bench/front_chart.py --check    # whether that file is what would be written
  python3 bench/front_chart.py --speed FILE.jsonl [--output FILE.svg]

Each panel is one run on one GPU. A bar is the best time of that run. Nobody is given a bar that was not measured there.
--speed: draws result lines of speed.py instead, in two panels: under load next to FlexAttention, and next to the fastest
other library of each case.
Needs matplotlib: pip install matplotlib==3.11.2, whose bytes --check compares.
Exit codes: 0 done; 1 the file differs (--check), or cannot be read or written.
"""
import argparse
import dataclasses
import pathlib
import sys

from bar_chart import COLOURS, FAINT, NAMES, draw_legend, draw_panel, new_figure, svg_of
from report import OURS, peer_name
from results import ResultError, read_results
from speed_report import FLEX, best_other, read_speed

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
NOTES = """A panel is one run on one GPU. Compare only within it.
A missing bar was not measured in that run.
Documents: the best of a mask and packed sequences.
The figures are in bench/results."""


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


def draw_about(figure):
    figure.text(0.99, 0.95, "bf16, 2 x 16 heads x 8192 tokens, head dim 128; masked pairs do not count", ha="right",
                color=FAINT, fontsize=7)


def chart_figure():
    """Returns the chart."""
    panels = [(run, bars_of(run)) for run in RUNS]
    top = 1.12 * max(value for _, bars in panels for group in bars.values() for value in group.values())
    colours = dict(zip(SERIES, COLOURS))
    figure = new_figure(8, 4.4)
    places = figure.subplots(2, 2, gridspec_kw={"left": 0.05, "right": 0.99, "top": 0.81, "bottom": 0.06, "hspace": 0.36,
                                                "wspace": 0.1}).flat
    handles = {}
    for (run, bars), axes in zip(panels, places):
        groups = [(NAMES.get(mod, mod), group) for mod, group in bars.items()]
        draw_panel(axes, f"{run.kind.capitalize()}, run of {run.day}", groups, colours, top)
        handles.update(zip(*reversed(axes.get_legend_handles_labels())))
    places[3].axis("off")
    places[3].text(0, 0.9, NOTES, va="top", color=FAINT, linespacing=1.6)
    figure.text(0.015, 0.95, "TFLOP/s on an NVIDIA H200", fontsize=11, weight="bold")
    draw_about(figure)
    draw_legend(figure, SERIES, handles, (0, 0.945), len(SERIES))
    return figure


def speed_groups(results, without):
    """Returns groups [(label, {name: TFLOP/s})]: attnc and the best peer that is not in `without`, by pass and mod.
    Documents: the best of a mask and packed sequences, for each."""
    groups = []
    for kind in ("forward", "backward"):
        for mod in MODS:
            rows, case = {}, f"{kind}-{mod}-{SHAPE}"
            for peer in results.peers:
                timed = [row for row in (results.best(case, peer), results.best(f"{case}-packed", peer)) if row]
                rows |= {peer: min(timed, key=lambda row: row["ms"])} if timed else {}
            other = best_other(rows, "under load", without)
            if OURS in rows and other:
                bars = {peer_name(peer): rows[peer]["tflops"] for peer in (OURS, other)}
                groups.append((f"{NAMES.get(mod, mod)}\n{kind}", bars))
    return groups


def speed_figure(path):
    """Returns the chart of a result file of speed.py."""
    results = read_speed([path])
    libraries = [peer for peer in results.peers if peer not in (OURS, FLEX)]
    panels = [("Next to FlexAttention", speed_groups(results, libraries)),
              ("Next to the fastest other library", speed_groups(results, [FLEX]))]
    values = [value for _, groups in panels for _, bars in groups for value in bars.values()]
    if not values:
        raise ResultError(f"{path}: no case of {SHAPE} has both {OURS} and another")
    names = [OURS, *map(peer_name, (FLEX, *libraries))]
    colours, handles, figure = dict(zip(names, COLOURS)), {}, new_figure(10, 4.6)
    places = figure.subplots(2, 1, gridspec_kw={"left": 0.05, "right": 0.99, "top": 0.81, "bottom": 0.08, "hspace": 0.5})
    for (title, groups), axes in zip(panels, places):
        draw_panel(axes, title, groups, colours, 1.12 * max(values))
        handles.update(zip(*reversed(axes.get_legend_handles_labels())))
    gpu = next(row["gpu"] for rows in results.rows.values() for row in rows.values())
    figure.text(0.015, 0.95, f"TFLOP/s under load, {gpu}", fontsize=11, weight="bold")
    draw_about(figure)
    draw_legend(figure, names, handles, (0, 0.945), len(names))
    return figure


def main(arguments=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--check", action="store_true", help="write nothing; say whether the file is up to date")
    args.add_argument("--speed", metavar="FILE.jsonl", help="result lines of speed.py")
    args.add_argument("--output", type=pathlib.Path, default=CHART, metavar="FILE.svg", help="default: %(default)s")
    args = args.parse_args(arguments)
    try:
        svg = svg_of(speed_figure(args.speed) if args.speed else chart_figure())
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
