#!/usr/bin/env python3
"""Writes tables of result files of shards.py and shards_predicted.py into a Markdown file, between `<!-- results shards -->`
and its end.

  python3 bench/shards_report.py bench/results/h100-*-shards*.jsonl --table docs/shards.md

Each file has its tables, under its GPU, day and command. With --name NAME the markers are `<!-- results NAME -->`. Without
--table they are printed. Exit codes: 0 done; 1 a file is malformed, or cannot be read or written.
"""
import json
import sys

from report import plain, table, write_tables
from results import ResultError

PASSES = {"forward": "forward", "both": "both", "training": "both"}


def failures(lines):
    """Returns a sentence for each line that failed."""
    named = [(" ".join(str(line[key]) for key in ("setting", "mask", "world", "rows") if key in line), line["error"])
             for line in lines if "error" in line and "check" not in line]
    return [text for name, error in named for text in ("", f"Not measured: {plain(name)}: {plain(error)[:200]}.")]


def predicted(lines):
    """Returns the table of shards_predicted.py: a row for each mask, rows of a rank and passes."""
    rows, worlds = {}, sorted({line["world"] for line in lines if "forward" in line})
    for line in lines:
        if "forward" not in line:
            continue
        for name in ("forward", "both"):
            key = line["mask"], line["rows"], f"{line['heads']} : {line['kv_heads']}", name
            rows.setdefault(key, {})[line["world"]] = line[name]
    heads = ["mask", "rows of a rank", "heads", "passes"]
    heads += [f"{world} ranks at {rate} GB/s" for rate in (300, 450) for world in worlds]
    heads += [f"MB to a rank, of {worlds[-1]}"] if worlds else []
    cells = []
    for (mask, count, shape, name), by in rows.items():
        row = [plain(mask), str(count), shape, name]
        row += [f"{by[w][f'efficiency_{rate}']:.3f}" if w in by else "" for rate in (300, 450) for w in worlds]
        last = by.get(worlds[-1])
        cells.append([*row, f"{last['most_bytes'] / 1e6:.1f}" if last else ""])
    return table(heads, cells)


def measured(lines):
    """Returns the tables of shards.py: ways to divide the work, and settings of NCCL."""
    timed = [line for line in lines if "t_ms" in line]
    lists = {}
    for line in timed:
        lists.setdefault(line.get("setting", "default"), []).append(line)
    heads = ["mask", "way", "rows of a rank", "passes", "t1, ms", "t, ms", "efficiency", "of the plan"]
    cells = [[plain(line["mask"]), plain(line.get("way", "keys")), str(line["rows"]), PASSES[line["pass"]],
              f"{line['t1_ms']:.3f}", f"{line['t_ms']:.3f}", f"{line['efficiency']:.3f}",
              f"{line['predicted']:.3f}" if "predicted" in line else ""] for line in lists.get("default", [])]
    found = table(heads, cells)
    settings = [name for name in lists if name != "default"]
    if not settings:
        return found
    rows = {}
    for name in ("default", *settings):
        for line in lists.get(name, []):
            if line.get("way", "keys") == "keys":
                key = line["mask"], line["rows"], PASSES[line["pass"]]
                rows.setdefault(key, {})[name] = f"{line['efficiency']:.3f}"
    heads = ["efficiency by setting", "rows of a rank", "passes", "default", *settings]
    cells = [[plain(mask), str(count), name, *(by.get(setting, "") for setting in heads[3:])]
             for (mask, count, name), by in rows.items()]
    return [*found, "", *table(heads, cells)]


def tables_of(path):
    with open(path, encoding="utf-8") as file:
        try:
            head, *lines = [json.loads(text) for text in file]
            count = f"{head['count']} x " if "count" in head else ""
            # No block, since those of pages are run.
            about = f"{count}{plain(head['gpu'])}, PyTorch {plain(head['torch'])}, {head['date']}"
            text = [f"{about}: `python3 {head['command']}`.", ""]
            body = predicted(lines) if head.get("prediction") else measured(lines)
            return [*text, *body, *failures(lines), ""]
        except (ValueError, KeyError, IndexError, TypeError) as fault:
            raise ResultError(f"{path}: no result file of shards: {fault!r}") from fault


def main(arguments=None):
    return write_tables("shards_report.py", __doc__, tables_of, "shards", arguments)


if __name__ == "__main__":
    sys.exit(main())
