#!/usr/bin/env python3
"""Writes tables of result files of grids.py into a Markdown file, between `<!-- results grids -->` and its end.

  python3 bench/grids_report.py bench/results/h200-2026-11-2?-grids*.jsonl --table bench/README.md

Each file has a table, under its GPU, day and command; each case has a row: TFLOP/s of live pairs. With --name NAME the
markers are `<!-- results NAME -->`. Without --table they are printed. Exit codes: 0 done; 1 a file is malformed, or
cannot be read or written.
"""
import json
import sys

from report import plain, table, write_tables
from results import ResultError

NAMES = {
    ("attnc", "forward"): "forward",
    ("attnc", "backward"): "backward",
    ("naive", None): "naive, forward",
    ("gemm", None): "GEMM-based, forward",
    ("flex", None): "FlexAttention, forward",
}


def figure(line):
    if line is None:
        return ""
    return "error" if "error" in line else f"{line['tflops']:.3g}"


def tables_of(path):
    with open(path, encoding="utf-8") as file:
        try:
            lines = [json.loads(text) for text in file]
            head, lines = lines[0], [line for line in lines[1:] if line.get("kind") != "bytes"]
            rows = {}
            for line in lines:
                key = line["peer"], line.get("kind")
                rows.setdefault(line["id"], {})[key if key in NAMES else ("attnc", "forward")] = line
            columns = [key for key in NAMES if any(key in row for row in rows.values())]
            cells = [[plain(case), *(figure(row.get(key)) for key in columns)] for case, row in rows.items()]
            text = [f"{plain(head['device'])}, {head['date']}.", "", "```sh", head["command"], "```", ""]
        except (ValueError, KeyError, IndexError) as fault:
            raise ResultError(f"{path}: no result file of grids.py: {fault}") from fault
    return [*text, *table(["case", *(NAMES[key] for key in columns)], cells), ""]


def main(arguments=None):
    return write_tables("grids_report.py", __doc__, tables_of, "grids", arguments)


if __name__ == "__main__":
    sys.exit(main())
