#!/usr/bin/env python3
"""Prints what the mods of dsl/mods reach next to FlexAttention, from result files, as JSON:

  {mod: [{"case": "forward, 2 x 16 x 8192, d 128", "attnc": 719.2, "flex": 394.1, "unit": "TFLOP/s",
          "source": ["bench/results/h200-2026-11-21-attnc.jsonl", ...], "gpu": "NVIDIA H200", "date": "2026-11-21"}]}

  python3 bench/gallery_speed.py

A figure is the best of its run. Both are of one run on one GPU. Exit codes: 0 done; 1 a file cannot be read.
"""
import json
import pathlib
import sys

from results import UNITS, Case, ResultError, read_results, unit_of

BENCH = pathlib.Path(__file__).resolve().parent
RUNS = {"2026-11-21": ("h200-2026-11-21-attnc.jsonl", "h200-2026-11-21-peers.jsonl")}
GRID_RUNS = {"2026-11-22": "h200-2026-11-22-grids-others.jsonl"}
GRID_MODS = {"shifted": "shifted_window"}  # the first word of a case of grids.py -> its mod


def source(files):
    return [f"bench/results/{file}" for file in files]


def of_run(date, files):
    """Yields (mod, entry) of a run of attnc-bench and peers.py."""
    results = read_results([BENCH / "results" / file for file in files])
    for case_id in results.rows:
        case = Case.parse(case_id)
        ours, theirs = results.best(case_id, "attnc"), results.best(case_id, "flex")
        if case.shape and ours and theirs:
            unit = unit_of(ours)
            yield case.variant, {
                "case": f"{case.kind}, {case.name().split(', ', 1)[1]}", "attnc": ours[unit], "flex": theirs[unit],
                "unit": UNITS[unit], "source": source(files), "gpu": results.ceilings[0]["peer"], "date": date}


def of_grids(date, file):
    """Yields (mod, entry) of a run of grids.py."""
    lines = [json.loads(text) for text in (BENCH / "results" / file).read_text(encoding="utf-8").splitlines()]
    flex = {line["id"]: line for line in lines if line.get("peer") == "flex" and "tflops" in line}
    for line in lines[1:]:
        mod, _, shape = line["id"].partition(" ")
        if mod in GRID_MODS and line["id"] in flex and line["peer"] == "attnc" and line.get("kind") == "forward":
            yield GRID_MODS[mod], {
                "case": f"forward, {shape}", "attnc": round(line["tflops"], 1),
                "flex": round(flex[line["id"]]["tflops"], 1), "unit": UNITS["tflops"], "source": source([file]),
                "gpu": lines[0]["device"].split(",")[0], "date": date}


def speeds():
    """Returns what is printed."""
    found = {}
    for entries in [*(of_run(*run) for run in RUNS.items()), *(of_grids(*run) for run in GRID_RUNS.items())]:
        for mod, entry in entries:
            found.setdefault(mod, []).append(entry)
    return found


def main():
    try:
        print(json.dumps(speeds(), indent=1))
    except (ResultError, OSError, KeyError, ValueError) as error:
        print(f"gallery_speed.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
