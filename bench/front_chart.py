#!/usr/bin/env python3
"""Draws the chart of the front page from result lines of speed.py: attnc and others, by mod, forward and backward.

  python3 bench/front_chart.py            # writes docs/assets/chart.svg, and chart-narrow.svg for phones
  python3 bench/front_chart.py --check    # whether that file is what would be written
  python3 bench/front_chart.py FILE.jsonl [--output FILE.svg]

Two panels, under load: next to FlexAttention, and next to the fastest other library of each case. Nobody is given a bar
that was not measured. Needs matplotlib: pip install matplotlib==3.11.2, whose bytes --check compares.
Exit codes: 0 done; 1 the file differs (--check), or cannot be read or written.
"""
import argparse
import pathlib
import sys

from bar_chart import COLOURS, FAINT, NAMES, draw_legend, draw_panel, new_figure, svg_of
from report import OURS, peer_name
from results import ResultError
from speed_report import FLEX, best_other, read_speed

BENCH = pathlib.Path(__file__).resolve().parent
CHART = BENCH.parent / "docs" / "assets" / "chart.svg"
RESULTS = BENCH / "results" / "h200-2026-11-29-speed.jsonl"
SHAPE = "b2h16k16-q8192k8192-d128"
MODS = ("noop", "causal", "alibi", "softcap", "sliding_window", "document")
# A series is the best of these peers: FlashAttention-4 and cuDNN also take documents as packed sequences.
def draw_about(figure, height):
    figure.text(0.99, height, "bf16, 2 x 16 heads x 8192 tokens, head dim 128; masked pairs do not count", ha="right",
                color=FAINT, fontsize=7)


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


def chart_figure(path, is_narrow=False):
    """Returns the chart of a result file of speed.py; for a phone, with a panel for each pass."""
    results = read_speed([path])
    libraries = [peer for peer in results.peers if peer not in (OURS, FLEX)]
    panels = [("Next to FlexAttention", speed_groups(results, libraries)),
              ("Next to the fastest other library", speed_groups(results, [FLEX]))]
    values = [value for _, groups in panels for _, bars in groups for value in bars.values()]
    if not values:
        raise ResultError(f"{path}: no case of {SHAPE} has both {OURS} and another")
    names = [OURS, *map(peer_name, (FLEX, *libraries))]
    if is_narrow:
        panels = [(title if kind == "forward" else "", [group for group in groups if group[0].endswith(kind)])
                  for title, groups in panels for kind in ("forward", "backward")]
    colours, handles, figure = dict(zip(names, COLOURS)), {}, new_figure(*((4.9, 8.4) if is_narrow else (10, 4.6)))
    left, top, bottom = (0.09, 0.82, 0.05) if is_narrow else (0.05, 0.81, 0.08)
    places = figure.subplots(len(panels), 1, gridspec_kw={"left": left, "right": 0.99, "top": top, "bottom": bottom, "hspace": 0.55})
    for (title, groups), axes in zip(panels, places):
        draw_panel(axes, title, groups, colours, 1.12 * max(values))
        handles.update(zip(*reversed(axes.get_legend_handles_labels())))
    gpu = next(row["gpu"] for rows in results.rows.values() for row in rows.values())
    figure.text(0.015, 0.95, f"TFLOP/s under load, {gpu}", fontsize=11, weight="bold")
    draw_about(figure, 0.925 if is_narrow else 0.95)
    draw_legend(figure, names, handles, (0, 0.915) if is_narrow else (0, 0.945), 3 if is_narrow else len(names))
    return figure


def main(arguments=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--check", action="store_true", help="write nothing; say whether the file is up to date")
    args.add_argument("results", nargs="?", type=pathlib.Path, default=RESULTS, metavar="FILE.jsonl", help="default: %(default)s")
    args.add_argument("--output", type=pathlib.Path, default=CHART, metavar="FILE.svg", help="default: %(default)s")
    args = args.parse_args(arguments)
    try:
        for is_narrow, path in ((False, args.output), (True, args.output.with_stem(f"{args.output.stem}-narrow"))):
            svg = svg_of(chart_figure(args.results, is_narrow))
            if not args.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(svg, encoding="utf-8")
            elif path.read_text(encoding="utf-8") != svg:
                raise ResultError(f"{path} is not what bench/front_chart.py draws: run it")
    except (ResultError, OSError) as error:
        print(f"front_chart.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
