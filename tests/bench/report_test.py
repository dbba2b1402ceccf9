#!/usr/bin/env python3
"""Tests of bench/report.py, grids_report.py and compare.py on made-up results: tables, charts, and messages about wrong
files. Tests of front_chart.py and gallery_speed.py on the committed results."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import bar_chart
import front_chart
import gallery_speed
import grids_report
import report
from bar_chart import svg_of
from results import Case

SVG = "{http://www.w3.org/2000/svg}"
SHAPE = "b2h16k16-q8192k8192-d128"
CEILINGS = {"id": "ceilings", "peer": "Test GPU", "matmul_tflops": 790.4, "copy_gbps": 4270.0, "torch": "2.11",
            "cudnn": 91900}
PAGE = "# Bench\n\nBefore, `<!-- results -->` in a sentence.\n\n<!-- results -->\nold\n<!-- /results -->\n\nAfter.\n"


def row(variant, peer, ms, tflops, shape=SHAPE, kind="forward", **more):
    return {"id": f"{kind}-{variant}-{shape}", "peer": peer, "ms": ms, "tflops": tflops, **more}


class Made(unittest.TestCase):
    """Runs report.py on made-up results."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def results(self, name, rows):
        return self.file(name, "".join(json.dumps(r) + "\n" for r in rows))

    def run_report(self, *arguments):
        """(exit code, stdout, stderr) of the program."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = report.main(["--date", "2026-11-20", *arguments])
        return code, out.getvalue(), err.getvalue()

    def printed(self, *rows, options=()):
        code, out, err = self.run_report(self.results("all.jsonl", rows), *options)
        self.assertEqual((code, err), (0, ""))
        return out

    def refused(self, *arguments):
        code, out, err = self.run_report(*arguments)
        self.assertEqual((code, out), (1, ""))
        return err


class ReportTest(Made):
    def test_a_case_is_one_row_with_figures_and_ratios_by_time(self):
        out = self.printed(row("causal", "attnc", 0.8, 650.04), row("causal", "flex", 1.2, 390.0),
                           row("causal", "sdpa_cudnn", 0.6, 900.0))
        self.assertIn("| forward, TFLOP/s | attnc | FlexAttention | attnc / it | cuDNN | attnc / it |", out)
        self.assertIn("| causal, 2 x 16 x 8192, d 128 | 650.0 | 390.0 | 1.50 | 900.0 | 0.75 |", out)

    def test_the_best_time_of_repeated_lines_counts(self):
        out = self.printed(row("noop", "attnc", 1.0, 500.0), row("noop", "attnc", 0.5, 1000.0),
                           row("noop", "attnc", 2.0, 250.0), row("noop", "flex", 2.0, 250.0),
                           row("noop", "flex", 3.0, 166.0))
        self.assertIn("| 1000.0 | 250.0 | 4.00 |", out)

    def test_files_are_joined_by_case(self):
        ours = self.results("attnc.jsonl", [row("noop", "attnc", 1.0, 500.0)])
        peers = self.results("peers.jsonl", [CEILINGS, row("noop", "flex", 1.1, 450.0)])
        code, out, _ = self.run_report(ours, peers)
        self.assertEqual(code, 0)
        self.assertIn("| noop, 2 x 16 x 8192, d 128 | 500.0 | 450.0 | 1.10 |", out)

    def test_a_peer_or_ours_that_is_missing_leaves_its_cells_empty(self):
        out = self.printed(row("noop", "attnc", 1.0, 500.0), row("noop", "sdpa_flash", 2.0, 250.0),
                           row("alibi", "attnc", 1.0, 400.0), row("document", "sdpa_flash", 1.0, 100.0))
        self.assertIn("| alibi, 2 x 16 x 8192, d 128 | 400.0 |  |  |", out)
        self.assertIn("| document, 2 x 16 x 8192, d 128 |  | 100.0 |  |", out)

    def test_ours_alone_make_a_table_without_ratios(self):
        out = self.printed(row("noop", "attnc", 1.0, 500.0))
        self.assertIn("| forward, TFLOP/s | attnc |\n|---|---:|\n| noop, 2 x 16 x 8192, d 128 | 500.0 |\n", out)

    def test_an_error_is_said_in_its_row_and_below_the_tables(self):
        out = self.printed(row("noop", "attnc", 1.0, 500.0), row("noop", "flex", 2.0, 250.0),
                           {"id": f"forward-causal-{SHAPE}", "peer": "attnc",
                            "error": "differs\nby a | b <!-- /results -->"},
                           row("causal", "flex", 2.0, 250.0))
        self.assertIn("| causal, 2 x 16 x 8192, d 128 | error | 250.0 |  |", out)
        self.assertIn(f"- forward-causal-{SHAPE}, attnc: differs by a \\| b &lt;!-- /results -->\n", out)

    def test_an_error_beside_a_figure_of_the_same_case_is_not_lost(self):
        out = self.printed(row("noop", "attnc", 1.0, 500.0),
                           {"id": f"forward-noop-{SHAPE}", "peer": "attnc", "error": "wrong once"})
        self.assertIn("| 500.0 |", out)
        self.assertIn(f"- forward-noop-{SHAPE}, attnc: wrong once\n", out)

    def test_names_tell_kv_heads_unequal_lengths_and_pages(self):
        out = self.printed(row("causal", "attnc", 1.0, 500.0, shape="b2h16k2-q8192k8192-d128"),
                           {"id": "paged-causal-b32h16k16-q1k16384-d64-p128", "peer": "attnc", "ms": 1.0,
                            "gbps": 2351.6},
                           {"id": "something else", "peer": "attnc", "ms": 0.25})
        self.assertIn("| causal, 2 x 16/2 x 8192, d 128 | 500.0 |", out)
        self.assertIn("| paged, GB/s | attnc |", out)
        self.assertIn("| causal, 32 x 16 x (q 1, kv 16384), d 64, page 128 | 2351.6 |", out)
        self.assertIn("| something else | 0.25 ms |", out)

    def test_variants_stand_beside_our_own_causal_of_the_same_shape(self):
        other = "b4h16k16-q16384k16384-d64"
        out = self.printed(row("causal", "attnc", 1.0, 500.0), row("alibi", "attnc", 1.25, 400.0),
                           row("prefix_lm", "attnc", 1.2, 480.0), row("softcap_approx", "attnc", 2.0, 250.0),
                           row("softcap", "attnc", 4.0, 125.0), row("document", "attnc", 1.0, 300.0),
                           row("alibi", "attnc", 1.0, 450.0, shape=other), row("softcap", "flex", 1.0, 100.0))
        _, own = out.split("| attnc next to itself | relative to | ratio |")
        expected = [("alibi", "0.80"), ("prefix_lm", "0.96"), ("softcap_approx", "0.50"), ("softcap", "0.25")]
        lines = [f"| forward {variant}, 2 x 16 x 8192, d 128 | causal | {ratio} |" for variant, ratio in expected]
        self.assertEqual(own.strip().split("\n")[1:], lines)

    def test_own_cases_of_a_later_file_stand_with_those_of_their_shape(self):
        wide = "b2h8k8-q8192k8192-d256"
        path = self.results("attnc.jsonl", [row("causal", "attnc", 1.0, 500.0), row("softcap", "attnc", 2.0, 250.0),
                                            row("causal", "attnc", 1.0, 600.0, shape=wide),
                                            row("softcap_approx", "attnc", 1.25, 400.0)])
        peers = self.results("peers.jsonl", [row("causal", "flex", 2.0, 250.0), row("softcap", "flex", 4.0, 125.0)])
        code, out, err = self.run_report(path, peers)
        self.assertEqual((code, err), (0, ""))
        tables, own = out.split("| attnc next to itself | relative to | ratio |")
        self.assertEqual(tables.split("|---|---:|---:|---:|\n")[1].strip().split("\n"),
                         ["| causal, 2 x 16 x 8192, d 128 | 500.0 | 250.0 | 2.00 |",
                          "| softcap, 2 x 16 x 8192, d 128 | 250.0 | 125.0 | 2.00 |",
                          "| softcap_approx, 2 x 16 x 8192, d 128 | 400.0 |  |  |",
                          "| causal, 2 x 8 x 8192, d 256 | 600.0 |  |  |"])
        self.assertIn("| forward softcap_approx, 2 x 16 x 8192, d 128 | causal | 0.80 |\n", own)

    def test_our_own_cases_are_named_after_what_they_are(self):
        sizes = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim")
        for case in json.loads((BENCH / "cases.json").read_text(encoding="utf-8")):
            with self.subTest(case=case["id"]):
                lengths = set(case.get("kv_lengths", ()))
                rest = f"q_std{case['q_std']:g}" if "q_std" in case else ""
                rest += case.get("kv_dtype", "") + (f"p{case['page_size']}" if "page_size" in case else "")
                rest += "ragged" if len(lengths) > 2 else "equal" if lengths else ""
                named = Case(case["id"], case["kind"], case["variant"], tuple(case[size] for size in sizes), rest)
                self.assertEqual(Case.parse(case["id"]), named)
                self.assertTrue((BENCH.parent / "dsl" / "mods" / f"{case['variant']}.py").exists())

    def test_grouped_query_stands_beside_multi_head(self):
        out = self.printed(row("alibi", "attnc", 1.0, 400.0),
                           row("alibi", "attnc", 1.0, 380.0, shape="b2h16k2-q8192k8192-d128"))
        self.assertIn("| forward alibi, 2 x 16/2 x 8192, d 128 | alibi with 16 kv heads | 0.95 |", out)

    def test_forward_and_backward_of_a_case_stand_side_by_side_with_the_ratios_to_each_peer(self):
        out = self.printed(row("causal", "attnc", 1.0, 500.0), row("causal", "flex", 1.5, 333.3),
                           row("noop", "attnc", 1.0, 600.0),
                           row("causal", "attnc", 2.0, 600.0, kind="backward"),
                           row("causal", "fa4", 2.2, 545.5, kind="backward"),
                           row("alibi", "attnc", 2.0, 550.0, kind="backward"))
        both = out[out.index("| forward and backward, TFLOP/s | "):out.index("| forward, TFLOP/s | ")]
        self.assertEqual(both.splitlines()[0], "| forward and backward, TFLOP/s | forward | attnc / FlexAttention | backward "
                                               "| attnc / FlashAttention-4 |")
        self.assertEqual(both.splitlines()[2:], ["| causal, 2 x 16 x 8192, d 128 | 500.0 | 1.50 | 600.0 | 1.10 |", ""])

    def test_errors_against_fp64_make_a_table_with_the_ratio_to_each_peer(self):
        case = f"accuracy-causal-{SHAPE}-bf16"
        out = self.printed({"id": case, "peer": "attnc", "rmse": {"dq": 9e-5, "dk": 2e-4}},
                           {"id": case, "peer": "unfused", "rmse": {"out": 3e-4, "dq": 1e-4}},
                           {"id": case, "peer": "flex", "error": "no"}, row("causal", "attnc", 1.0, 500.0))
        self.assertIn("| RMSE against fp64 | attnc | unfused | attnc / it |", out)
        self.assertIn("| dq: causal, 2 x 16 x 8192, d 128, bf16 | 9e-05 | 0.0001 | 0.90 |\n", out)
        self.assertIn("| dk: causal, 2 x 16 x 8192, d 128, bf16 | 0.0002 |  |  |\n", out)
        self.assertIn("| out: causal, 2 x 16 x 8192, d 128, bf16 |  | 0.0003 |  |\n", out)
        self.assertIn(f"- {case}, FlexAttention: no\n", out)
        self.assertNotIn("| accuracy", out)

    def test_a_case_stands_beside_the_same_without_what_it_adds(self):
        out = self.printed(row("causal", "attnc", 1.0, 500.0, kind="backward"),
                           row("causal", "attnc", 1.1, 450.0, kind="backward", shape=f"{SHAPE}-deterministic"))
        self.assertIn("| backward causal, 2 x 16 x 8192, d 128, deterministic | without deterministic | 0.90 |", out)

    def decode(self, variant, ms, gbps, q_len=1, rest="", peer="attnc", **more):
        shape = f"b2h16k2-q{q_len}k16384-d128" + (f"-{rest}" if rest else "")
        return {"id": f"decode-{variant}-{shape}", "peer": peer, "ms": ms, "gbps": gbps, **more}

    def test_decode_cases_have_bytes_and_latencies(self):
        out = self.printed(self.decode("noop", 0.02, 3900.0, graph_ms=0.0171), self.decode("noop", 0.04, 1950.0, peer="flex"),
                           self.decode("alibi", 0.02, 3800.0))
        self.assertIn("| decode, GB/s | attnc | FlexAttention | attnc / it | attnc, us | in a graph, us |\n", out)
        self.assertIn("| noop, 2 x 16/2 x (q 1, kv 16384), d 128 | 3900.0 | 1950.0 | 2.00 | 20.0 | 17.1 |\n", out)
        self.assertIn("| 3800.0 |  |  | 20.0 |  |\n", out)

    def test_decode_cases_stand_beside_noop_one_query_and_equal_lengths(self):
        out = self.printed(self.decode("noop", 1.0, 4000.0), self.decode("alibi", 1.1, 3600.0),
                           self.decode("alibi", 1.2, 3240.0, q_len=4), self.decode("causal", 1.0, 4000.0, rest="equal"),
                           self.decode("causal", 1.25, 3200.0, rest="ragged"))
        case = "decode {}, 2 x 16/2 x (q {}, kv 16384), d 128"
        self.assertIn(f"| {case.format('alibi', 1)} | noop | 0.90 |\n", out)
        self.assertIn(f"| {case.format('alibi', 4)} | 1 query | 0.90 |\n", out)
        self.assertIn(f"| {case.format('causal', 1)}, ragged | equal lengths | 0.80 |\n", out)
        self.assertEqual(out.count("| noop |"), 1)

    def test_the_header_has_gpu_date_versions_and_command(self):
        out = self.printed(CEILINGS, {**CEILINGS, "matmul_tflops": 700.2}, row("noop", "attnc", 1.0, 500.0),
                           options=["--command", "attnc-bench --cases c.json && peers.py"])
        self.assertIn("Test GPU, 2026-11-20, PyTorch 2.11, cuDNN 9.19.0.\n", out)
        self.assertIn("A large bf16 matrix product in the same run: 700 to 790 TFLOP/s.\n", out)
        self.assertIn("```sh\nattnc-bench --cases c.json && peers.py\n```\n", out)

    def test_without_a_ceilings_line_the_gpu_is_said_to_be_unknown(self):
        self.assertIn("GPU not recorded", self.printed(row("noop", "attnc", 1.0, 500.0)))

    def test_first_calls_are_shown_on_request_the_best_of_each(self):
        rows = [row("noop", "attnc", 1.0, 500.0, first_call_s=0.9), row("noop", "attnc", 1.1, 490.0, first_call_s=0.3),
                row("noop", "flex", 1.0, 500.0, first_call_s=2.0)]
        self.assertNotIn("first call", self.printed(*rows))
        self.assertIn("| 500.0 | 500.0 | 1.00 | 0.30 | 2.00 |", self.printed(*rows, options=["--first-call"]))

    def test_only_leaves_other_cases_out(self):
        out = self.printed(row("noop", "attnc", 1.0, 500.0), row("noop", "flex", 5.0, 100.0, kind="backward"),
                           options=["--only", "^forward-"])
        self.assertIn("| forward, TFLOP/s | attnc |\n", out)
        self.assertNotIn("backward", out)

    def test_a_malformed_line_is_told_with_file_and_line(self):
        good = json.dumps(row("noop", "attnc", 1.0, 500.0))
        for bad, message in [
            ('{"id": ', "not JSON"),
            ("[1]", "a result is a JSON object"),
            ('{"peer": "attnc", "ms": 1}', 'no "id"'),
            ('{"id": "x", "ms": 1}', 'no "peer"'),
            ('{"id": "x", "peer": "attnc"}', 'neither "ms" nor "error"'),
            ('{"id": "x", "peer": "attnc", "ms": 0}', '"ms" is 0'),
            ('{"id": "x", "peer": "attnc", "rmse": 1}', '"rmse" is 1'),
            ('{"id": "x", "peer": "attnc", "rmse": {"dq": NaN}}', '"dq" is NaN'),
            ('{"id": "x", "peer": "attnc", "ms": NaN}', '"ms" is NaN'),
            ('{"id": "x", "peer": "attnc", "ms": 1, "tflops": "fast"}', '"tflops" is "fast"'),
            ("[" * 100000, "not JSON"),
        ]:
            with self.subTest(bad=bad[:60]):
                path = self.file("bad.jsonl", good + "\n\n" + bad + "\n")
                self.assertIn(f"{path}:3: {message}", self.refused(path))

    def test_results_of_two_gpus_are_refused(self):
        path = self.results("two.jsonl", [CEILINGS, row("noop", "attnc", 1.0, 500.0),
                                          {**CEILINGS, "peer": "Other GPU"}])
        self.assertIn(f"{path}:3: another GPU", self.refused(path))

    def test_no_file_and_no_results_are_told(self):
        self.assertIn("absent.jsonl", self.refused(str(self.folder / "absent.jsonl")))
        self.assertIn("no results", self.refused(self.file("empty.jsonl", "")))

    def test_tables_replace_what_stands_between_the_markers(self):
        page = self.file("page.md", PAGE)
        path = self.results("all.jsonl", [row("noop", "attnc", 1.0, 500.0)])
        for _ in range(2):  # a second run replaces the first's
            self.assertEqual(self.run_report(path, "--table", page), (0, "", ""))
            before, after = PAGE.split("old\n")
            text = pathlib.Path(page).read_text(encoding="utf-8")
            self.assertTrue(text.startswith(before) and text.endswith(after))
            self.assertEqual(text.count("| noop, 2 x 16 x 8192, d 128 | 500.0 |"), 1)
            self.assertNotIn("old", text)

    def test_tables_of_a_name_replace_those_of_that_name_alone(self):
        page = self.file("page.md", PAGE + "<!-- results again -->\nold, too\n<!-- /results again -->\n")
        path = self.results("all.jsonl", [row("noop", "attnc", 1.0, 500.0)])
        self.assertEqual(self.run_report(path, "--table", page, "--name", "again"), (0, "", ""))
        text = pathlib.Path(page).read_text(encoding="utf-8")
        self.assertTrue(text.startswith(PAGE + "<!-- results again -->\n"))
        self.assertIn("| 500.0 |", text)
        self.assertNotIn("old, too", text)

    def test_a_page_without_both_markers_is_refused_and_nothing_is_written(self):
        path = self.results("all.jsonl", [row("noop", "attnc", 1.0, 500.0)])
        plot = self.folder / "plot.svg"
        options = ["--plot", str(plot)] if installed() else []
        for text in ["", "<!-- results -->\n", "<!-- /results -->\n<!-- results -->\n", PAGE + PAGE]:
            page = self.file("page.md", text)
            self.assertIn(f"{page}: expected one line", self.refused(path, "--table", page, *options))
            self.assertEqual(pathlib.Path(page).read_text(encoding="utf-8"), text)
            self.assertFalse(plot.exists())

    def test_a_chart_without_matplotlib_is_refused_and_nothing_is_written(self):
        page, plot = self.file("page.md", PAGE), self.folder / "plot.svg"
        path = self.results("all.jsonl", [row("noop", "attnc", 1.0, 500.0)])
        with mock.patch.dict(sys.modules, {"matplotlib": None}):
            said = self.refused(path, "--table", page, "--plot", str(plot))
        self.assertIn("pip install matplotlib==", said)
        self.assertEqual(pathlib.Path(page).read_text(encoding="utf-8"), PAGE)
        self.assertFalse(plot.exists())

    def test_the_page_of_the_benchmarks_takes_the_tables(self):
        page = self.file("page.md", (BENCH / "README.md").read_text(encoding="utf-8"))
        path = self.results("all.jsonl", [row("noop", "attnc", 1.0, 123.4)])
        for name in ("", "turns", "decode"):
            self.assertEqual(self.run_report(path, "--table", page, "--name", name), (0, "", ""))
        self.assertEqual(pathlib.Path(page).read_text(encoding="utf-8").count("| 123.4 |"), 3)


def installed():
    """Returns the version of matplotlib, or None."""
    try:
        import matplotlib
    except ImportError:
        return None
    return matplotlib.__version__


@unittest.skipUnless(installed(), "matplotlib is not installed")
class ChartTest(Made):
    def plot(self, *rows):
        """Returns the figure of --plot, its bars by axes, and its texts."""
        plot, figures = self.folder / "plot.svg", []
        drawn = lambda figure: figures.append(figure) or svg_of(figure)
        with mock.patch.object(bar_chart, "svg_of", drawn):
            self.printed(*rows, options=["--plot", str(plot)])
        texts = [part.text for part in xml.etree.ElementTree.parse(plot).iter(SVG + "text")]
        return figures[0], [[bar for part in axes.containers for bar in part] for axes in figures[0].axes], texts

    def test_the_chart_has_a_bar_for_each_figure_as_tall_as_it_says(self):
        figure, (bars,), texts = self.plot(row("noop", "attnc", 1.0, 500.0), row("noop", "flex", 2.0, 250.0),
                                           row("noop", "<$peer$>", 4.0, 125.0),
                                           {"id": f"forward-causal-{SHAPE}", "peer": "flex", "error": "no"})
        self.assertEqual([part.get_label() for part in figure.axes[0].containers], ["attnc", "FlexAttention", "<$peer$>"])
        self.assertEqual([(bar.get_y(), bar.get_height()) for bar in bars], [(0, 500), (0, 250), (0, 125)])
        self.assertEqual(len({bar.get_facecolor() for bar in bars}), 3)
        self.assertLessEqual({"500", "250", "125", "attnc", "FlexAttention", "<$peer$>"}, set(texts))

    def test_own_cases_that_nobody_else_has_are_left_out_and_those_of_a_shape_stand_together(self):
        _, bars, texts = self.plot(row("causal", "attnc", 1.0, 500.0), row("softcap", "attnc", 2.0, 250.0),
                                   row("causal", "attnc", 1.0, 600.0, shape="b2h8k8-q8192k8192-d256"),
                                   row("softcap_approx", "attnc", 1.25, 400.0), row("causal", "flex", 2.0, 250.0),
                                   row("softcap", "flex", 4.0, 125.0))
        self.assertEqual([[bar.get_height() for bar in part] for part in bars], [[500, 250, 250, 125]])
        self.assertLess(texts.index("causal"), texts.index("soft cap"))

    def test_the_chart_stays_inside_its_picture_with_many_cases(self):
        shapes = [f"b{b}h{h}k{k}-q{n}k{n}-d{d}" for b in (1, 2) for h, k in ((16, 16), (16, 2))
                  for n in (512, 8192) for d in (64, 128)]
        variants = ("noop", "causal", "sliding_window", "softcap_approx", "neighborhood2d")
        cases = [(v, s) for v in variants for s in shapes]
        cases += [("noop", f"b1h1k1-q512k512-d{d}") for d in range(1, 20)]  # a panel each
        figure, bars, _ = self.plot(*[row(v, p, 1.0, 500.0, shape=s) for v, s in cases
                                      for p in ("attnc", "flex", "sdpa_cudnn")])
        self.assertEqual(sum(map(len, bars)), len(cases) * 3)
        boxes = sorted((-box.y0, box.x0, box.x1) for part in bars for box in (bar.get_window_extent() for bar in part))
        for y, x0, x1 in boxes:
            self.assertTrue(0 < x0 < x1 < figure.bbox.x1 and 0 < -y < figure.bbox.y1)
        for (y, _, x1), (next_y, next_x, _) in zip(boxes, boxes[1:]):
            self.assertTrue(next_y > y + 1 or next_x >= x1, "bars overlap")
        panels = [axes.get_position() for axes in figure.axes]
        self.assertTrue(all(not one.overlaps(two) for i, one in enumerate(panels) for two in panels[:i]))

    def test_a_long_legend_stays_inside_its_picture(self):
        peers = ["attnc", *(f"a peer with a long name {i}" for i in range(8))]
        figure, _, texts = self.plot({**CEILINGS}, *[row("noop", peer, 1.0, 500.0) for peer in peers])
        self.assertLessEqual({*peers, "a large matrix product: 790"}, set(texts))
        box, panel = figure.legends[0].get_window_extent(), figure.axes[0].title.get_window_extent()
        self.assertTrue(0 < box.x0 < box.x1 < figure.bbox.x1 and box.y0 > panel.y1)

    def test_a_row_of_the_chart_is_of_one_kind(self):
        figure, *_ = self.plot(row("noop", "attnc", 1.0, 500.0), row("noop", "attnc", 1.0, 500.0, kind="backward"))
        self.assertEqual([axes.get_title("left") for axes in figure.axes], ["forward, head dim 128", "backward, head dim 128"])
        forward, backward = (axes.get_position() for axes in figure.axes)
        self.assertGreater(forward.y0, backward.y1)

    def test_names_in_the_chart_are_words(self):
        *_, texts = self.plot(*[row("prefix_lm", p, 1.0, 500.0, shape=f"{SHAPE}-q_std64") for p in ("attnc", "fa3")])
        self.assertLessEqual({"prefix LM", "2 x 16, scores of std 64", "FlashAttention-3"}, set(texts))

    def test_a_chart_without_figures_is_still_a_picture(self):
        _, bars, texts = self.plot({"id": "decode-noop-b2h16k2-q1k131072-d128", "peer": "attnc", "ms": 1.0, "gbps": 100.0})
        self.assertEqual(bars, [])
        self.assertTrue(texts)

    def test_the_chart_of_the_front_page_is_drawn_from_the_committed_results(self):
        drawn = svg_of(front_chart.chart_figure(front_chart.RESULTS))
        self.assertEqual(drawn, svg_of(front_chart.chart_figure(front_chart.RESULTS)))
        if installed() == bar_chart.MATPLOTLIB:
            self.assertEqual(front_chart.CHART.read_text(encoding="utf-8"), drawn)
            self.assertEqual(front_chart.main(["--check"]), 0)

    def test_an_outdated_chart_is_told(self):
        path = self.folder / "chart.svg"
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(front_chart.main(["--check", "--output", str(path)]), 1)
            path.write_text("<svg/>", encoding="utf-8")
            self.assertEqual(front_chart.main(["--check", "--output", str(path)]), 1)
            self.assertIn("run it", err.getvalue())
        self.assertEqual(front_chart.main(["--output", str(path)]), 0)
        self.assertEqual(front_chart.main(["--check", "--output", str(path)]), 0)


class CommittedResults(unittest.TestCase):
    def test_the_speeds_of_the_gallery_are_of_library_mods_beside_flexattention_in_one_run(self):
        speeds = gallery_speed.speeds()
        self.assertIn({"case": "forward, 2 x 16 x 8192, d 128", "attnc": 685.4, "flex": 361.8, "unit": "TFLOP/s",
                       "source": ["bench/results/h200-2026-11-21-attnc.jsonl", "bench/results/h200-2026-11-21-peers.jsonl"],
                       "gpu": "NVIDIA H200", "date": "2026-11-21"}, speeds["alibi"])
        for mod, entries in speeds.items():
            self.assertTrue((BENCH.parent / "dsl" / "mods" / f"{mod}.py").exists())
            for entry in entries:
                self.assertTrue(all((BENCH.parent / source).exists() for source in entry["source"]))


class GridTables(unittest.TestCase):
    HEAD = {"id": "ceilings", "device": "A GPU", "date": "2026-01-02", "command": "python3 bench/grids.py --only 'a|b'"}

    def written(self, *lines):
        with tempfile.TemporaryDirectory() as folder:
            results, page = pathlib.Path(folder) / "grids.jsonl", pathlib.Path(folder) / "page.md"
            results.write_text("".join(json.dumps(line) + "\n" for line in lines))
            page.write_text("before\n<!-- results grids -->\nold\n<!-- /results grids -->\nbehind\n")
            code = grids_report.main([str(results), "--table", str(page)])
            return code, page.read_text()

    def test_a_case_is_a_row_and_who_ran_it_a_column(self):
        code, page = self.written(
            self.HEAD,
            {"id": "13x13", "peer": "attnc", "kind": "forward", "ms": 1.0, "tflops": 185.37},
            {"id": "13x13", "peer": "attnc", "kind": "bytes", "share": 0.98},
            {"id": "13x13", "peer": "gemm", "ms": 9.0, "tflops": 5.283},
            {"id": "a|b", "peer": "attnc", "error": "it failed"},
        )
        self.assertEqual(code, 0)
        self.assertIn("A GPU, 2026-01-02.", page)
        self.assertIn("python3 bench/grids.py --only 'a|b'", page)
        self.assertIn("| case | forward | GEMM-based, forward |", page)
        self.assertIn("| 13x13 | 185 | 5.28 |", page)
        self.assertIn("| a\\|b | error |  |", page)
        self.assertTrue(page.startswith("before\n") and page.endswith("behind\n") and "old" not in page)

    def test_a_file_that_is_none_leaves_the_page_as_it_is(self):
        for lines in ([{"id": "13x13", "peer": "attnc", "kind": "forward", "tflops": 1.0}], []):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                code, page = self.written(*lines)
            self.assertEqual(code, 1)
            self.assertIn("old", page)
            self.assertIn("no result file of grids.py", said.getvalue())


class CompareTest(unittest.TestCase):
    """bench/compare.py with programs that stand for attnc-bench and ncu."""

    BENCH = """import json, sys
for case in json.load(open(sys.argv[sys.argv.index("--cases") + 1])):
    print(json.dumps({"id": case["id"], "ms": next(TIMES)} if case["id"] != "broken" else {"id": "broken", "error": ""}))
"""
    NCU = """print("==PROF== a line")
print('"ID","Kernel Name","Metric Name","Metric Value"')
for cycles in (CYCLES):
    print(f'"0","attnc_forward(Params, ModArgs)","sm__cycles_elapsed.max","{cycles}"')
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        cases = [{"id": name, "kind": "forward"} for name in ("causal", "broken", "other")]
        (self.folder / "cases.json").write_text(json.dumps(cases))

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return str(path)

    def compared(self, before, after, *options):
        command = [sys.executable, str(BENCH / "compare.py"), before, after, "--cases", str(self.folder / "cases.json")]
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run([*command, *options], capture_output=True, text=True, check=True, env=environment).stdout

    def test_times_are_the_best_of_all_rounds(self):
        state = str(self.folder / "count")
        slower = f"""import pathlib
count = pathlib.Path({state!r})
turn = int(count.read_text()) if count.exists() else 0
count.write_text(str(turn + 1))
TIMES = iter([3.0, 4.0] if turn == 0 else [2.2, 5.0])
"""
        before = self.program("before", "TIMES = iter([2.0, 2.0])\n" + self.BENCH)
        said = self.compared(before, self.program("after", slower + self.BENCH), "--only", "causal|broken", "--rounds", "2")
        self.assertRegex(said, r"causal +2\.0000 +2\.2000 +\+10\.00 % +rounds: 2\n")
        self.assertRegex(said, r"broken +not measured\n")
        self.assertNotIn("other", said)

    def test_cycles_are_the_fewest_of_all_launches(self):
        self.program("ncu", self.NCU.replace("CYCLES", '"3,000", "2,000", "2,500"'))
        self.assertRegex(self.compared("before", "after", "--cycles"), r"causal +2000\.0000 +2000\.0000 +\+0\.00 %\n")


if __name__ == "__main__":
    unittest.main()
