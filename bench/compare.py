#!/usr/bin/env python3
"""Compares two builds of attnc-bench on the same workloads, in one run on one GPU.

  bench/compare.py BEFORE AFTER [--cases FILE] [--only REGEX] [--rounds 3]     times: interleaved rounds, the best of each
  bench/compare.py BEFORE AFTER --settled [...]                                the same, when clocks have settled
  bench/compare.py BEFORE AFTER --cycles [...]                                 cycles of each kernel, counted by ncu

Times of single runs move by 8 % with the GPU's power, and the first 100 ms of a kernel that meets the limit of power say
more about what ran before: --settled waits for half a second. Cycles of kernels that compute hardly move. BEFORE and
AFTER are executables.
Prints a line a case: before, after, by how much AFTER is slower; or that one of them gave no result. Stops at
--seconds with what it has, and begins no group of cases that may take longer.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
METRIC = "sm__cycles_elapsed.max"
KERNELS = {"forward": "attnc_forward", "backward": "attnc_backward", "decode": "attnc_decode", "paged": "attnc_decode"}
GROUP = 4  # cases of a process: starting one takes longer than a case


def run_bench(executable, cases, before=(), more=()):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(cases, file)
        file.flush()
        command = [*before, executable, "--cases", file.name, "--mods", str(HERE.parent / "dsl/mods"), *more]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def milliseconds(executable, cases, more):
    """{id of a case: its time}"""
    lines = [json.loads(line) for line in run_bench(executable, cases, more=more) if line.startswith("{")]
    return {line["id"]: line["ms"] for line in lines if "ms" in line}


def cycles(executable, case):
    """{kernel: its cycles}, the fewest of some launches behind the first ones."""
    is_backward = case["kind"] == "backward"
    skip, count = ("8", "24") if is_backward else ("2", "6")
    ncu = ["ncu", "--clock-control", "none", "--csv", "--metrics", METRIC, "--kernel-name", f"regex:{KERNELS[case['kind']]}",
           "--launch-skip", skip, "--launch-count", count, "--kill", "yes"]  # fmt: skip
    fewest = {}
    for row in csv.reader(line for line in run_bench(executable, [case], ncu) if line.startswith('"')):
        if METRIC in row:
            kernel = next(cell for cell in row if cell.startswith("attnc_")).split("(")[0]
            number = float(row[-1].replace(",", ""))
            fewest[kernel] = min(number, fewest.get(kernel, number))
    return fewest


def report(case, before, after, more=""):
    if not before or not after:
        print(f"{case['id']:62} not measured", flush=True)
        return
    print(f"{case['id']:62} {before:12.4f} {after:12.4f} {100 * (after / before - 1):+7.2f} %{more}", flush=True)


def compare_times(executables, cases, rounds, end, more):
    groups = [cases[at : at + GROUP] for at in range(0, len(cases), GROUP)]
    times = collections.defaultdict(lambda: ([], []))
    longest = 0  # seconds of a group
    for turn in range(rounds):
        for group in groups:
            begin = time.monotonic()
            if begin + longest > end:
                break
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                for name, ms in milliseconds(executables[which], group, more).items():
                    times[name][which].append(ms)
            longest = max(longest, time.monotonic() - begin)
    for case in cases:
        before, after = times[case["id"]]
        report(case, min(before, default=0), min(after, default=0), f"   rounds: {len(after)}")


def compare_cycles(executables, cases, end):
    for case in cases:
        if time.monotonic() > end:
            break
        before, after = [cycles(executable, case) for executable in executables]
        parts = {kernel: (before.get(kernel), after.get(kernel)) for kernel in {**before, **after}}
        report(case, sum(before.values()), sum(after.values()), f"   {parts}" if len(parts) > 1 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("--cases", action="append", metavar="FILE", help="default: bench/cases.json; repeatable")
    parser.add_argument("--only", default="", metavar="REGEX", help="of ids of cases")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--cycles", action="store_true", help="by ncu instead of times")
    parser.add_argument("--settled", action="store_true", help="attnc-bench --settled, which both executables must know")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    files = options.cases or [HERE / "cases.json"]
    cases = [case for file in files for case in json.loads(pathlib.Path(file).read_text())]
    cases = [case for case in cases if re.search(options.only, case["id"])]
    end, executables = time.monotonic() + options.seconds, (options.before, options.after)
    if options.cycles:
        compare_cycles(executables, cases, end)
    else:
        compare_times(executables, cases, options.rounds, end, ["--settled"] if options.settled else [])


if __name__ == "__main__":
    main()
