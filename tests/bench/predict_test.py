#!/usr/bin/env python3
"""Tests of bench/predict.py: errors of src/inspect/times.def are those of bench/results/predicted.jsonl, and a fit finds
the constants of times that are made up. The latter needs numpy."""
import collections
import json
import pathlib
import re
import statistics
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
try:
    import predict
except ImportError:
    predict = None

CLOCK = r'CLOCK\("(\w+)_sm90.cu", "(\w+)", "([\w ]+)", [\d.]+, [\d.]+, ([\d.]+), ([\d.]+), (\d+),'


class Errors(unittest.TestCase):
    def test_table_has_errors_of_rows(self):
        rows = map(json.loads, (ROOT / "bench/results/predicted.jsonl").read_text().splitlines())
        errors = collections.defaultdict(list)
        for row in rows:
            error = 100 * abs(row["apart"] / row["ms"] - 1)
            errors[row["id"].split("-")[0], row["gpu"], row["clock"]].append(error)
        table = re.findall(CLOCK, (ROOT / "src/inspect/times.def").read_text())
        self.assertEqual({tuple(line[:3]) for line in table}, set(errors))
        for kind, gpu, clock, median, worst, count in table:
            of = errors[kind, gpu, clock]
            self.assertEqual(int(count), len(of))
            self.assertAlmostEqual(float(median), statistics.median(of), delta=0.1)
            self.assertAlmostEqual(float(worst), max(of), delta=0.1)
            self.assertLessEqual(float(median), 7)
            self.assertLessEqual(float(worst), 15)


@unittest.skipUnless(predict, "numpy is missing")
class Fits(unittest.TestCase):
    def test_finds_constants(self):
        constants = dict(zip(predict.CONSTANTS, (0.8, 6, 3, 3000, 500, 9000, 2.5, 10, 8, 6)))
        rows = []
        for products, steps, masked, lone, operation in [
            (1536, 4e4, 0, 0, ""), (2048, 6e4, 2e3, 0, ""), (2048, 2e4, 8e3, 0, "arithmetic"), (2560, 5e4, 1e3, 1, ""),
            (1536, 6e4, 0, 0, "tanh"), (2048, 6e4, 2e3, 0, "tanh"), (1024, 3e3, 2e3, 0, ""), (2560, 9e3, 0, 1, "tanh_approx"),
            (2048, 4e3, 1e3, 0, "tanh_approx"), (1536, 3e4, 9e3, 0, "arithmetic"),
        ]:  # fmt: skip
            for tiles in (512, 2048):
                cost = {"tiles": tiles, "steps": steps, "maskedSteps": masked, "loneTile": bool(lone), "widths": products / 2048,
                        "slots": 132, "imbalance": 1.01, "products": products, "scores": 128, "bytes": 1e6, "otherBytes": 0,
                        "perScore": {operation: 1} if operation else {}, "perMaskedScore": {}}  # fmt: skip
                line = (1990, 560)
                mhz = line[0] - line[1] * predict.use(cost, predict.cycles(cost, constants))
                ms = predict.predicted(cost, constants, line, 4000)
                rows.append({"gpu": "G", "clock": "under load", "ms": ms, "mhz": mhz, "cost": cost})
        fit = predict.Fit(rows, {"G": 4000})
        for row in rows:
            self.assertAlmostEqual(fit.ms(row, fit.at) / row["ms"], 1, delta=0.01)
        found, lines = fit.parts(fit.at)
        self.assertAlmostEqual(found["tanh"], constants["tanh"], delta=0.5)
        self.assertAlmostEqual(lines["G", "under load"][0], 1990, delta=40)


if __name__ == "__main__":
    unittest.main()
