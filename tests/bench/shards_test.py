#!/usr/bin/env python3
"""Tests of bench/shards_model.py and shards_report.py on made-up steps and results. With torch, also of
shards_predicted.py on the CPU: what ranks trace is what their plan says.

  ATTNC_LIBRARY=build/libattnc.so python3 tests/bench/shards_test.py"""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import shards_model
import shards_report
from shards_model import Begin, Wait

try:
    import shards
    import shards_predicted
    import torch
except ImportError as error:
    print(f"without torch: {error}")
    torch = None

MS = 1000  # bytes that take 1 ms at RATE
RATE = 1e6


class ModelTest(unittest.TestCase):
    def ends(self, *ranks):
        return shards_model.ends(ranks, RATE, latency=0)

    def test_attention_hides_a_transfer(self):
        self.assertEqual(self.ends([1, Begin(0, 3 * MS), 5, Wait(0), 2], [1, Begin(3 * MS, 0), 5, Wait(0), 2]), [8, 8])

    def test_a_transfer_that_is_longer_is_waited_for(self):
        self.assertEqual(self.ends([1, Begin(0, 7 * MS), 5, Wait(0), 2], [1, Begin(MS, 0), 5, Wait(0), 2]), [10, 8])

    def test_both_directions_at_once(self):
        self.assertEqual(self.ends([Begin(4 * MS, 3 * MS), Wait(0)], [Begin(3 * MS, 4 * MS), Wait(0)]), [4, 4])

    def test_a_transfer_waits_for_the_last_rank(self):
        self.assertEqual(self.ends([Begin(0, MS), Wait(0)], [6, Begin(MS, 0), Wait(0)]), [7, 7])

    def test_transfers_are_one_behind_another(self):
        own = [Begin(0, 4 * MS), Begin(0, MS), 1, Wait(0), Wait(1)]
        self.assertEqual(self.ends(own, [Begin(4 * MS, 0), Begin(MS, 0)]), [5, 0])

    def test_every_transfer_has_its_latency(self):
        found = shards_model.ends([[Begin(0, 0), Wait(0)]] * 2, RATE, latency=2e-3)
        self.assertEqual(found, [2, 2])

    def test_without_transfers_ranks_only_compute(self):
        self.assertEqual(self.ends([1, 2], [4]), [3, 4])
        self.assertEqual(shards_model.computed([1, Begin(3, 4), 2, Wait(0)]), 3)

    def test_ranks_must_agree_on_transfers(self):
        with self.assertRaisesRegex(ValueError, "different numbers of transfers"):
            self.ends([Begin(1, 1)], [1])


class ReportTest(unittest.TestCase):
    HEAD = {"gpu": "A GPU", "torch": "2.11", "date": "2026-01-02", "command": "bench/x.py --a"}

    def written(self, *lines):
        with tempfile.TemporaryDirectory() as folder:
            results, page = pathlib.Path(folder) / "r.jsonl", pathlib.Path(folder) / "page.md"
            results.write_text("".join(json.dumps(line) + "\n" for line in lines))
            page.write_text("before\n<!-- results shards -->\nold\n<!-- /results shards -->\nbehind\n")
            code = shards_report.main([str(results), "--table", str(page)])
            return code, page.read_text()

    def test_predictions(self):
        def of(*efficiencies):
            return {"efficiency_300": efficiencies[0], "efficiency_450": efficiencies[1], "most_bytes": 2500000}

        common = {"mask": "causal", "rows": 8192, "heads": 32, "kv_heads": 8}
        code, page = self.written(
            {**self.HEAD, "prediction": True},
            {**common, "world": 8, "forward": of(0.91, 0.92), "both": of(0.93, 0.94)},
            {**common, "world": 2, "forward": of(0.95, 0.96), "both": of(0.97, 0.98)},
            {"mask": "window", "world": 8, "rows": 8192, "error": "OutOfMemoryError: a|b"},
        )
        self.assertEqual(code, 0)
        self.assertIn("A GPU, PyTorch 2.11, 2026-01-02: `python3 bench/x.py --a`.", page)
        self.assertIn("| causal | 8192 | 32 : 8 | forward | 0.950 | 0.910 | 0.960 | 0.920 | 2.5 |", page)
        self.assertIn("| causal | 8192 | 32 : 8 | both | 0.970 | 0.930 | 0.980 | 0.940 | 2.5 |", page)
        self.assertIn("Not measured: window 8 8192: OutOfMemoryError: a\\|b.", page)
        self.assertTrue(page.startswith("before\n") and page.endswith("behind\n") and "old" not in page)

    def test_measured_ways_and_settings(self):
        line = {"mask": "causal", "world": 4, "rows": 16384, "layout": "zigzag", "pass": "training", "t1_ms": 8.0,
                "t_ms": 2.5, "efficiency": 0.8, "predicted": 0.98}
        code, page = self.written(
            {**self.HEAD, "count": 4}, {"check": "causal", "rows": 4001, "error": 0.003},
            {**line, "way": "keys", "setting": "default"}, {**line, "way": "heads", "setting": "default", "efficiency": 0.7},
            {**line, "way": "keys", "setting": "ctas 8", "efficiency": 0.9},
            {"setting": "start", "error": "it took too long"},
        )
        self.assertEqual(code, 0)
        self.assertIn("4 x A GPU, PyTorch 2.11, 2026-01-02: `", page)
        self.assertIn("| causal | heads | 16384 | both | 8.000 | 2.500 | 0.700 | 0.980 |", page)
        self.assertIn("| efficiency by setting | rows of a rank | passes | default | ctas 8 |", page)
        self.assertIn("| causal | 16384 | both | 0.800 | 0.900 |", page)
        self.assertIn("Not measured: start: it took too long.", page)

    def test_a_file_that_is_none_leaves_the_page_as_it_is(self):
        for lines in ([{"mask": "causal"}], []):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                code, page = self.written(*lines)
            self.assertEqual(code, 1)
            self.assertIn("old", page)
            self.assertIn("no result file of shards", said.getvalue())

    def test_the_committed_results_are_read(self):
        for path in (pathlib.Path(shards_report.__file__).parent / "results").glob("*shards*.jsonl"):
            self.assertGreater(len(shards_report.tables_of(path)), 8, path)


@unittest.skipIf(torch is None, "needs torch")
class PredictedTest(unittest.TestCase):
    def predicted(self, mask, world, rows, groups=1):
        return shards_predicted.predict(mask, world, rows, (2, 2), groups, torch.device("cpu"))

    def setUp(self):
        self.addCleanup(setattr, shards_predicted, "MOST_REPETITIONS", shards_predicted.MOST_REPETITIONS)
        shards_predicted.MOST_REPETITIONS = 1

    def test_the_bytes_are_those_of_the_plan(self):
        for mask, world, rows in (("causal", 3, 131), ("documents", 4, 90)):
            line = self.predicted(mask, world, rows)
            self.assertGreater(line["forward"]["bytes"], 0)
            self.assertEqual(line["forward"]["bytes"], line["planned_bytes"])
            # Keys and values travel again, and their gradients travel back.
            self.assertEqual(line["both"]["bytes"], 3 * line["planned_bytes"])
            self.assertEqual(len(line["both"]["ranks_ms"]), world)

    def test_slower_links_and_gradients_of_captures(self):
        line = self.predicted("alibi", 2, 70)
        self.assertGreaterEqual(line["both"]["t_ms_300"], line["both"]["t_ms_450"])
        self.assertGreaterEqual(line["both"]["t_ms_450"], max(line["both"]["ranks_ms"]) - 0.01)
        self.assertGreater(line["both"]["bytes"], 3 * line["planned_bytes"])  # also the sum of the gradients of slopes

    def test_groups_of_heads(self):
        line = self.predicted("causal", 2, 64, groups=2)
        self.assertEqual(line["head_groups"], 2)
        self.assertEqual(line["forward"]["bytes"], line["planned_bytes"])

    def test_collectives_are_put_back(self):
        kept = shards.dist.all_to_all_single
        self.predicted("causal", 2, 64)
        self.assertIs(shards.dist.all_to_all_single, kept)


if __name__ == "__main__":
    unittest.main()
