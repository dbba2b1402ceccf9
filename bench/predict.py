#!/usr/bin/env python3
"""Fits the constants by which `attnc explain` predicts milliseconds to the times in bench/results, and measures its error.

  ATTNC_COMMAND=build/attnc ATTNC_LIBRARY=build/libattnc.so python3 bench/predict.py

Writes src/inspect/times.def, the table that the library is compiled with, and bench/results/predicted.jsonl: each row
with its time, what the table predicts, and what constants that were fitted without its case predict. The errors that
attnc prints are those of the latter. Needs numpy and NVRTC, and no GPU.

Time of a pass: cycles of the busiest slot of CTAs by a clock, bytes of the other launches by the bandwidth of a copy,
and a constant for the launches. A step takes its products and an amount for each score; masked steps, operations of the
mod and tiles add to it. Under the limit of power, and by L2, the clock falls with the share of cycles in which tensor cores
work: a line for each GPU and clock.
"""

import collections
import json
import pathlib
import re
import statistics
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "python"))
from results import Case
from workloads import CAP, DOCUMENTS, PREFIX, WINDOW, Workload, alibi_slopes

TABLE, PREDICTED = ROOT / "src" / "inspect" / "times.def", ROOT / "bench" / "results" / "predicted.jsonl"
SPEED, TILES, TURNS = "h200-2026-11-29-speed.jsonl", "h200-2026-11-29-clusters.txt", "h100-2026-11-26-turns.jsonl"
COPIES = {"H200": "h200-2026-11-26-rounds.jsonl", "H100": TURNS}  # files whose ceilings tell the bandwidth of a copy
# Tiles of runs before clusters of CTAs, by head dim
WITHOUT_CLUSTERS = {128: "128x128x8", 256: "128x80x8"}
OPERATIONS = ("arithmetic", "tanh", "tanh_approx")
CONSTANTS = ("products", "scores", "masked", "tile", "columns", "loneColumns", *OPERATIONS, "launch")
FIRST = (1, 5, 5, 2000, 2000, 8000, 2, 10, 5, 5)  # where the search begins
LINE = (2000, 500)  # MHz, and what products take of it


def lines_of(name):
    return (ROOT / "bench" / "results" / name).read_text().splitlines()


def workload(case):
    """Returns the Workload of an id."""
    batch, heads, kv_heads, length, _, width = case.shape
    width_v = int(case.rest[1:]) if re.fullmatch(r"v\d+", case.rest) else width
    window = 128 if case.variant == "sliding_window" and (heads, kv_heads) == (64, 8) else WINDOW
    return Workload(case.kind, case.variant, batch, heads, kv_heads, length, width, width_v, window)


def tiles_rows():
    """Yields (id, tile, TFLOP/s under load, TFLOP/s rested, MHz) of the file of tiles, without tiles that attnc has not."""
    fences = False
    for line in lines_of(TILES):
        fences = "fence" in line if line.startswith("==") else fences
        if line.startswith("forward-"):
            case_id = line.strip()
        match = re.match(r"  (\d\S+)\s+load\s+(\S+)\s+rested\s+(\S+)\s+\S+ J\s+(\d+) MHz", line)
        if not match or (fences and match[1].endswith("cluster")):
            continue
        heads, kv_heads = Case.parse(case_id).shape[1:3]
        tile = match[1].replace("cluster", "2tiles" if heads == kv_heads else "2heads")
        yield case_id, tile, float(match[2]), float(match[3]), int(match[4])


def observations():
    """Returns [(id, tile or "", gpu, clock, ms, MHz or None)]. Packed and deterministic cases are left out."""
    found = []
    for line in map(json.loads, lines_of(SPEED)):
        if line["peer"] == "attnc" and not line["id"].endswith("packed"):
            found += [(line["id"], "", "H200", "under load", line["ms"], line["mhz"]),
                      (line["id"], "", "H200", "rested", line["rested_ms"], None)]  # fmt: skip
    for case_id, tile, load, rested, mhz in tiles_rows():
        flops = workload(Case.parse(case_id)).flops() * 1e-9
        found += [(case_id, tile, "H200", "under load", flops / load, mhz), (case_id, tile, "H200", "rested", flops / rested, None)]
    turns = collections.defaultdict(list)
    for line in map(json.loads, lines_of(TURNS)):
        case = Case.parse(line["id"])
        if line["peer"] == "attnc" and "ms" in line and case.kind in ("forward", "backward") and not case.rest:
            turns[line["id"]].append(line["ms"])
    for case_id, times in turns.items():
        case = Case.parse(case_id)
        clusters = case.kind == "forward" and case.variant != "document"
        tile = WITHOUT_CLUSTERS.get(case.shape[5], "") if clusters else ""
        found.append((case_id, tile, "H100", "rested", statistics.mean(times), None))
    return found


def cost_of(case, tile):
    """Returns PassCost and what else decides, as `attnc explain --json` tells them; None: attnc has no such tile."""
    import attnc
    from attnc.pictures import shown

    it = workload(case)
    mod = attnc.Mod.load(ROOT / "dsl" / "mods" / f"{case.variant}.py")
    captures = {"window": it.window, "prefix": PREFIX, "cap": CAP}
    captures |= {"slopes": np.ones(it.heads, np.float32)}
    if case.variant == "document":
        captures["document_id"] = np.repeat(np.arange(len(DOCUMENTS[it.length])), DOCUMENTS[it.length]).astype(np.int32)
    captures = {one.name: captures[one.name] for one in mod.captures}
    tensor = lambda heads, width: ("bf16", (it.batch, heads, it.length, width))
    operands = {"q": tensor(it.heads, it.width), "k": tensor(it.kv_heads, it.width), "v": tensor(it.kv_heads, it.width_v)}
    options = ["--json", "--arch=sm_90a", f"--kernel={it.kind}"] + ([f"--tile={tile}"] if tile else [])
    if it.kind == "backward":
        operands["dout"] = tensor(it.heads, it.width_v)
        options.append("--gradients=none")
    try:
        told = json.loads(shown("explain", mod, captures, *options, operands=operands))
    except attnc.errors.Error as error:
        if "has no tile" not in str(error):
            raise
        return None
    return {**told["cost"], "headDims": f"{it.width}/{it.width_v}"}


def cycles(cost, k):
    """Returns cycles of the busiest slot. `k`: constants by name. As cyclesOf() of src/inspect/pass_cost.cpp."""
    of = lambda counts: sum(k[name] * count for name, count in counts.items())
    step = k["products"] * cost["products"] + cost["scores"] * (k["scores"] + of(cost["perScore"]))
    masked = cost["scores"] * (k["masked"] + of(cost["perMaskedScore"]))
    tile = k["tile"] + cost["widths"] * (k["columns"] + k["loneColumns"] * cost["loneTile"])
    return cost["imbalance"] / cost["slots"] * (cost["tiles"] * tile + cost["steps"] * step + cost["maskedSteps"] * masked)


def use(cost, taken):
    """Returns the share of cycles in which tensor cores work."""
    return cost["steps"] * cost["products"] / cost["slots"] / taken


def predicted(cost, k, line, bandwidth):
    """Returns milliseconds. `bandwidth`: GB/s."""
    taken = cycles(cost, k)
    mhz = line[0] - line[1] * use(cost, taken)
    return max(taken / mhz * 1e-3, cost["bytes"] / bandwidth * 1e-6) + cost["otherBytes"] / bandwidth * 1e-6 + k["launch"] * 1e-3


class Fit:
    """Constants of one kernel, and a clock's line for each (gpu, clock), fitted to rows by Levenberg and Marquardt."""

    def __init__(self, rows, bandwidths, start=None):
        self.rows, self.bandwidths = rows, bandwidths
        self.clocks = sorted({(row["gpu"], row["clock"]) for row in rows})
        at = np.array([*FIRST, *LINE * len(self.clocks)], float) if start is None else start
        damping, found = 1e-2, self.residuals(at)
        for _ in range(60):
            steps = 1e-4 * np.abs(at) + 1e-6
            slopes = np.array([(self.residuals(at + move) - found) / step for move, step in zip(np.diag(steps), steps)]).T
            matrix = slopes.T @ slopes
            scale = np.maximum(np.diag(matrix), 1e-12)
            to = np.maximum(at - np.linalg.solve(matrix + damping * np.diag(scale), slopes.T @ found), 0)
            there = self.residuals(to)
            if there @ there < found @ found:
                done = found @ found - there @ there < 1e-9
                at, found, damping = to, there, damping / 3
                if done:
                    break
            else:
                damping *= 4
        self.at = np.where(np.diag(matrix) > 0, at, 0)  # no row tells the others

    def parts(self, at):
        lines = at[len(CONSTANTS):].reshape(-1, 2)
        return dict(zip(CONSTANTS, at)), dict(zip(self.clocks, lines))

    def ms(self, row, at):
        constants, lines = self.parts(at)
        return predicted(row["cost"], constants, lines[row["gpu"], row["clock"]], self.bandwidths[row["gpu"]])

    def residuals(self, at):
        constants, lines = self.parts(at)
        found = [np.log(self.ms(row, at) / row["ms"]) for row in self.rows]
        for row in self.rows:
            if row["mhz"]:  # what was sampled ties cycles to time
                line = lines[row["gpu"], row["clock"]]
                found.append(np.log((line[0] - line[1] * use(row["cost"], cycles(row["cost"], constants))) / row["mhz"]))
        return np.array(found)


def table(fits, errors, bandwidths):
    """Returns the text of times.def."""
    number = lambda value: f"{value:.6g}"
    guards = lambda directive: "".join(directive.format(name) for name in ("GPU", "KERNEL", "CLOCK"))
    text = "// What times are predicted by: written by bench/predict.py, and not by hand.\n//\n"
    text += "//   GPU(name, GB/s of a copy)\n"
    text += f"//   KERNEL(template, head dims of rows, most operations a score of rows, {', '.join(CONSTANTS)})\n"
    text += "//   CLOCK(template, gpu, clock, MHz, MHz less where tensor cores work in all cycles, median and worst error in\n"
    text += "//         percent, rows, the shortest of them in ms)\n//\n// The file undefines the macros.\n\n"
    text += guards("#ifndef {0}\n#define {0}(...)\n#endif\n") + "\n"
    for gpu, bandwidth in bandwidths.items():
        text += f'GPU("{gpu}", {number(bandwidth)})\n'
    for kernel, fit in fits.items():
        constants, lines = fit.parts(fit.at)
        dims = sorted({row["cost"]["headDims"] for row in fit.rows}, key=lambda dims: int(dims.split("/")[0]))
        most = max(sum((*row["cost"]["perScore"].values(), *row["cost"]["perMaskedScore"].values())) for row in fit.rows)
        text += f'\nKERNEL("{kernel}", "{" ".join(dims)}", {number(most)},\n       {", ".join(map(number, constants.values()))})\n'
        for (gpu, clock), line in lines.items():
            of = errors[kernel, gpu, clock]
            text += f'CLOCK("{kernel}", "{gpu}", "{clock}", {number(line[0])}, {number(line[1])}, '
            shortest = min(row["ms"] for row in fit.rows if (row["gpu"], row["clock"]) == (gpu, clock))
            text += f"{statistics.median(of):.1f}, {max(of):.1f}, {len(of)}, {number(shortest)})\n"
    return text + "\n" + guards("#undef {}\n")


def main():
    bandwidths = {gpu: statistics.median(line["copy_gbps"] for line in map(json.loads, lines_of(name)) if "copy_gbps" in line)
                  for gpu, name in COPIES.items()}  # fmt: skip
    costs, rows = {}, []
    for case_id, tile, gpu, clock, ms, mhz in observations():
        if (case_id, tile) not in costs:
            costs[case_id, tile] = cost_of(Case.parse(case_id), tile)
        if cost := costs[case_id, tile]:
            rows.append({"id": case_id, "tile": tile, "gpu": gpu, "clock": clock, "ms": ms, "mhz": mhz, "cost": cost})
    fits, errors, lines = {}, collections.defaultdict(list), []
    by_kernel = collections.defaultdict(list)
    for row in rows:
        by_kernel[row["cost"]["kernel"]].append(row)
    for kernel, of in by_kernel.items():
        if len(of) < 2 * len(CONSTANTS):
            print(f"{kernel}: {len(of)} rows are too few")
            continue
        fits[kernel] = fit = Fit(of, bandwidths)
        for case in {row["id"] for row in of}:
            without = Fit([row for row in of if row["id"] != case], bandwidths, fit.at)
            for row in of:
                if row["id"] == case:
                    row["apart"] = without.ms(row, without.at)
        for row in of:
            error = 100 * abs(row["apart"] / row["ms"] - 1)
            errors[kernel, row["gpu"], row["clock"]].append(error)
            numbers = {"ms": row["ms"], "predicted": fit.ms(row, fit.at), "apart": row["apart"]}
            lines.append({name: row[name] for name in ("id", "tile", "gpu", "clock")} | {name: round(value, 5) for name, value in numbers.items()})
    for key, of in errors.items():
        print(f"{' '.join(key)}: median error {statistics.median(of):.1f} %, worst {max(of):.1f} % over {len(of)} rows")
    TABLE.write_text(table(fits, errors, bandwidths))
    PREDICTED.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
