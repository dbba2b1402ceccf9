#!/usr/bin/env python3
"""Tests of bench/speed.py, clocks.py and workloads.py with a GPU and peers that are made up, and of speed_report.py and
front_chart.py on their lines. With torch, also of operands and mods on the CPU: attnc's results are the definition's.

  ATTNC_LIBRARY=build/libattnc.so python3 tests/bench/speed_test.py"""
import collections
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import clocks
import front_chart
import peers
import speed
import speed_report
import workloads
from results import ResultError
from workloads import Workload

try:
    import torch
except ImportError as error:
    print(f"without torch: {error}")
    torch = None

CASES = [Workload(kind, variant, *workloads.D128) for variant in ("causal", "noop") for kind in ("forward", "backward")]


class FakeGpu:
    """A GPU whose time goes by with the calls in its queue. Knows what ran in each burst under load."""

    name, driver, dies = "Fake GPU", "1.2", False  # of a kernel that is called "fault"

    def __init__(self):
        self.seconds = self.joules = self.finished = 0.0  # of all that was enqueued; up to the last wait
        self.calls, self.waited, self.queued = [], 0, 0
        self.bursts, self.flushed, self.pauses = [], [], []
        self.marks = collections.deque()

    def function(self, name, ms, watts):
        def call():
            self.dies |= name == "fault"
            if self.dies:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            self.calls.append(name)
            self.seconds += ms / 1000
            self.joules += watts * ms / 1000
            self.queued = max(self.queued, len(self.calls) - self.waited)

        return call

    def now(self):
        return self.finished

    def is_alive(self):
        return not self.dies

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.seconds += seconds
        self.finished = self.seconds

    def mark(self):
        return self.seconds, len(self.calls)

    def wait(self, mark):
        self.finished, self.waited = max(self.finished, mark[0]), max(self.waited, mark[1])

    def between(self, start, end):
        return 1000 * (end[0] - start[0])

    def flush(self):
        self.flushed.append(len(self.calls))

    @contextlib.contextmanager
    def watch(self):
        samples, start, joules, first = [], self.seconds, self.joules, len(self.calls)
        yield samples
        self.bursts.append((self.calls[first], len(self.calls) - first))
        power = (self.joules - joules) / (self.seconds - start)
        for i in range(int((self.seconds - start) / 0.01)):
            counter = power * (i // 10) * 0.1  # moves every 0.1 s
            samples.append(clocks.Sample(start + 0.01 * i, joules + counter, 1500 if i % 2 else 1600))


class FakePeer:
    """A peer by its ways: {how: (ms, watts, result)}. A result that is an exception is raised."""

    def __init__(self, name, ways, kinds=("forward", "backward")):
        self.NAME, self.ways, self.kinds = name, ways, kinds

    def version(self):
        return f"{self.NAME} 1.0"

    def serves(self, case):
        return case.kind in self.kinds


class FakeOperands:
    def __init__(self, gpu, case):
        self.gpu, self.case = gpu, case

    def runs(self, peer):
        def make(ms, watts, result):
            if isinstance(result, Exception):
                raise result
            return self.gpu.function(peer.NAME, ms, watts), lambda: {"out": result}

        return {how: lambda way=way: make(*way) for how, way in peer.ways.items()}

    def gradients(self):
        return contextlib.nullcontext()

    def difference(self, actual, expected):
        return abs(actual - expected) / expected

    def release(self):
        pass


class ClockTest(unittest.TestCase):
    def setUp(self):
        self.gpu = FakeGpu()

    def in_turns(self, rounds=2, **watts):
        functions = {name: self.gpu.function(name, 1 + i, power) for i, (name, power) in enumerate(watts.items())}
        return clocks.abba(self.gpu, functions, 2.0, rounds)

    def test_bursts_come_in_the_order_abba(self):
        self.in_turns(a=700, b=600, c=500)
        self.assertEqual([name for name, _ in self.gpu.bursts], list("abccba"))

    def test_all_have_the_same_number_of_bursts_of_two_seconds(self):
        bursts, _ = self.in_turns(4, a=700, b=600)
        self.assertEqual({name: len(taken) for name, taken in bursts.items()}, {"a": 4, "b": 4})
        self.assertEqual({(name, calls) for name, calls in self.gpu.bursts}, {("a", 2000), ("b", 1000)})

    def test_means_are_of_bursts_and_have_a_line_each(self):
        functions, out = {"a": self.gpu.function("a", 1, 700), "b": self.gpu.function("b", 2, 600)}, io.StringIO()
        with mock.patch.object(clocks, "about", lambda gpu: {"gpu": "Fake"}):
            found = clocks.means(self.gpu, functions, 2.0, 2, out, "call", head_dim=64)
        lines = list(map(json.loads, out.getvalue().splitlines()))
        self.assertEqual([(line["call"], line["head_dim"], line["gpu"]) for line in lines], [("a", 64, "Fake"), ("b", 64, "Fake")])
        for (name, ms), line, watts in zip(found.items(), lines, (700, 600)):
            self.assertAlmostEqual(line["ms"], ms, places=3)
            self.assertAlmostEqual(line["joules"], ms * watts / 1000, delta=0.02, msg=name)

    def test_short_turns_flush_before_each_burst_and_take_the_median(self):
        functions = {"a": self.gpu.function("a", 1, 0), "b": self.gpu.function("b", 2.5, 0)}
        self.assertEqual({"a": 1.0, "b": 2.5}, {name: round(ms, 6) for name, ms in clocks.in_turns(self.gpu, functions, 4).items()})
        self.assertEqual(self.gpu.calls, [*"aaaaabbbbb", *(["a"] * 5 + ["b"] * 2 + ["b"] * 2 + ["a"] * 5) * 2])
        self.assertEqual(self.gpu.flushed, [10, 15, 17, 19, 24, 29, 31, 33])
        clocks.in_turns(self.gpu, functions, 1, burst_ms=0)
        self.assertEqual("".join(self.gpu.calls[-2:]), "ab")

    def test_at_most_a_hundred_calls_are_in_the_queue(self):
        self.in_turns(a=700)
        self.assertLessEqual(self.gpu.queued, 100)
        self.assertGreater(self.gpu.queued, 60)  # but never an empty queue

    def test_joules_and_clocks_are_of_the_burst(self):
        (burst, _), (other, _) = self.in_turns(a=700, b=500)[0].values()
        self.assertAlmostEqual(burst.joules, 0.7, places=3)
        self.assertAlmostEqual(other.joules, 1.0, places=3)
        self.assertAlmostEqual(burst.mhz, 1550, delta=1)

    def test_a_burst_in_which_the_counter_stands_still_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "take longer bursts"):
            clocks.under_load(self.gpu, self.gpu.function("a", 1, 700), 1, 0.15)

    def test_power_is_between_moves_of_the_counter(self):
        samples = [clocks.Sample(*x, 1500) for x in ((0.05, 10), (0.1, 80), (0.15, 80), (0.2, 150), (0.28, 150))]
        self.assertAlmostEqual(clocks.watts(samples), 700)

    def test_rested_bursts_are_of_five_milliseconds_behind_pauses_with_l2_flushed(self):
        self.assertAlmostEqual(clocks.rested(self.gpu, self.gpu.function("a", 0.5, 700), 0.5), 0.5)
        self.assertEqual(self.gpu.flushed, [10 * i for i in range(clocks.SHORTS)])
        self.assertEqual(self.gpu.pauses, [clocks.REST_S] + [clocks.GAP_S] * clocks.SHORTS)


class Made(unittest.TestCase):
    """Runs speed.py on the fake GPU."""

    PEERS = (FakePeer("flex", {"": (1.5, 690, 1.0)}), FakePeer("fa4", {"slow": (2.0, 700, 1.0), "fast": (0.8, 700, 1.0)}),
             FakePeer("attnc", {"": (1.0, 700, 1.001)}), FakePeer("fa3", {"": (0.9, 650, 1.0)}, kinds=("forward",)))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out, self.gpu = pathlib.Path(folder.name) / "speed.jsonl", FakeGpu()

    def lines(self):
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def run_speed(self, *modules, cases=CASES, options=()):
        options = speed.parsed(["--out", str(self.out), *options])
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
            speed.run(self.gpu, cases, modules or self.PEERS, options, lambda case: FakeOperands(self.gpu, case))
        return said.getvalue()


class SpeedTest(Made):
    def test_lines_have_all_members(self):
        self.run_speed()
        lines = self.lines()
        self.assertEqual([(line["id"], line["peer"]) for line in lines],
                         [(case.id, peer) for case in CASES
                          for peer in ("attnc", "flex", "fa4", "fa3") if peer != "fa3" or case.kind == "forward"])
        for line in lines:
            self.assertLessEqual({"id", "peer", "how", "ms", "off", "bursts", *speed_report.MEMBERS}, line.keys())
            self.assertEqual((line["gpu"], line["driver"], line["rounds"], len(line["bursts"])), ("Fake GPU", "1.2", 2, 2))
        first = lines[0]
        self.assertAlmostEqual(first["ms"], 1.0)
        self.assertAlmostEqual(first["rested_ms"], 1.0)
        self.assertAlmostEqual(first["joules"], 0.7, places=3)
        self.assertAlmostEqual(first["tflops"], 4 * 2 * 16 * 8192 * 8193 / 2 * 128 / 1e9, places=1)
        speed_report.read_speed([self.out])

    def test_the_fastest_way_of_a_peer_counts(self):
        self.run_speed(cases=CASES[:1])
        line = next(line for line in self.lines() if line["peer"] == "fa4")
        self.assertEqual((line["how"], line["ms"]), ("fast", 0.8))

    def test_a_peer_that_differs_from_attnc_is_told_and_not_timed(self):
        wrong = FakePeer("fa3", {"": (0.1, 700, 1.1)})
        broken = FakePeer("fa2", {"": (0.1, 700, ValueError("no window")), "nan": (0.1, 700, float("nan"))})
        half = FakePeer("fa4", {"wrong": (0.1, 700, 2.0), "right": (0.9, 700, 1.0)})
        said = self.run_speed(self.PEERS[2], wrong, broken, half, cases=CASES[:1])
        by_peer = {line["peer"]: line for line in self.lines()}
        self.assertRegex(by_peer["fa3"]["error"], "differs from attnc's: .*'out': '9.9e-02'")
        self.assertRegex(by_peer["fa2"]["error"], "ValueError: no window; nan differs from attnc's: .*nan")
        self.assertEqual(by_peer["fa4"]["how"], "right")
        self.assertIn("wrong differs", by_peer["fa4"]["failed"][0])
        self.assertEqual({name for name, _ in self.gpu.bursts}, {"attnc", "fa4"})
        self.assertIn("no window", said)

    def test_without_results_of_attnc_nobody_is_timed(self):
        self.run_speed(FakePeer("attnc", {"": (1, 700, ValueError("no kernel"))}), self.PEERS[0], cases=CASES[:1])
        self.assertEqual([(line["peer"], line["error"]) for line in self.lines()], [("attnc", "ValueError: no kernel")])
        self.assertFalse(self.gpu.bursts)

    def test_time_that_is_up_keeps_what_is_there_and_the_next_run_goes_on(self):
        said = self.run_speed(options=["--seconds", "60"])
        self.assertIn(f"time is up before {CASES[2].id}", said)
        self.assertLess(self.gpu.now(), 60)
        first = self.lines()
        self.assertEqual({line["id"] for line in first}, {case.id for case in CASES[:2]})
        self.gpu.calls.clear()
        self.run_speed()
        self.assertEqual(self.lines()[: len(first)], first)
        self.assertEqual(list(dict.fromkeys(line["id"] for line in self.lines())), [case.id for case in CASES])
        begun = len(self.gpu.calls)
        self.run_speed()
        self.assertEqual(len(self.gpu.calls), begun)

    def test_a_peer_that_is_not_ready_in_time_is_told_and_not_timed(self):
        slow = FakePeer("slow", {"": (1, 700, 1.0)})
        runs_of = FakeOperands.runs
        runs = lambda self, peer: time.sleep(5) if peer is slow else runs_of(self, peer)
        begin = time.monotonic()
        with mock.patch.object(FakeOperands, "runs", runs):
            self.run_speed(self.PEERS[2], slow, cases=CASES[:1], options=["--peer-seconds", "0.1"])
        self.assertLess(time.monotonic() - begin, 4)
        by_peer = {line["peer"]: line for line in self.lines()}
        self.assertEqual(by_peer["slow"]["error"], "TimeoutError: not ready in 0.1 s")
        self.assertEqual(by_peer["attnc"]["ms"], 1.0)

    def test_a_case_that_outlasts_the_time_is_given_up(self):
        begin = time.monotonic()
        with mock.patch.object(FakeOperands, "runs", lambda *_: time.sleep(5)):
            said = self.run_speed(cases=CASES[:1], options=["--seconds", "0.1", "--burst", "0"])
        self.assertLess(time.monotonic() - begin, 4)
        self.assertIn(f"time is up in {CASES[0].id}", said)
        self.assertEqual(self.lines(), [])

    def test_without_bursts_all_take_short_turns(self):
        self.run_speed(cases=CASES[:1], options=["--burst", "0"])
        by_peer = {line["peer"]: line for line in self.lines()}
        self.assertEqual({peer: line["ms"] for peer, line in by_peer.items()}, {"attnc": 1.0, "flex": 1.5, "fa4": 0.8, "fa3": 0.9})
        self.assertFalse(self.gpu.bursts)
        self.assertNotIn("joules", by_peer["attnc"])

    def test_a_fault_of_a_kernel_ends_the_run_and_the_next_goes_on_behind_the_case(self):
        faulty = FakePeer("fault", {"": (1, 700, 1.0)}, kinds=("forward",))
        with self.assertRaisesRegex(SystemExit, f"since {CASES[0].id}: the same command goes on"):
            self.run_speed(*self.PEERS[2:], faulty, cases=CASES[:2])
        self.assertIn("while all took turns: RuntimeError: CUDA error", self.lines()[0]["error"])
        self.gpu = FakeGpu()
        self.run_speed(*self.PEERS[2:], faulty, cases=CASES[:2])
        self.assertEqual(list(dict.fromkeys(line["id"] for line in self.lines())), [case.id for case in CASES[:2]])
        speed_report.read_results([self.out])

    def test_an_odd_number_of_rounds_is_refused(self):
        for options in (["--rounds", "3"], ["--rounds", "0"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                speed.parsed(["--out", "x", *options])
            self.assertIn("give an even number", said.getvalue())

    def test_parts_have_each_case_once(self):
        ids = [case.id for case in workloads.workloads()]
        parts = [ids[speed.parsed(["--list", "--part", f"{part}/3"]).cases] for part in (1, 2, 3)]
        self.assertEqual(sorted(sum(parts, [])), sorted(ids))
        self.assertEqual(parts[1][:2], [ids[1], ids[4]])

    def test_a_part_beyond_their_number_is_refused(self):
        for part in ("0/3", "4/3", "2", "1/0"):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                speed.parsed(["--list", "--part", part])
            self.assertIn("give I/N", said.getvalue())


class WorkloadTest(unittest.TestCase):
    def test_ids_occur_once_and_both_passes_follow_each_other(self):
        ids = [case.id for case in workloads.workloads()]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual([name.replace("forward", "backward") for name in ids[::2]], ids[1::2])
        self.assertIn("forward-causal-b2h16k16-q8192k8192-d192-v128", ids)

    def test_pairs_are_those_that_masks_leave(self):
        shape = (2, 3, 1, 64, 8, 4)
        with mock.patch.object(workloads, "PREFIX", 20), mock.patch.dict(workloads.DOCUMENTS, {64: (40, 3, 21)}):
            for variant in ("noop", "causal", "sliding_window", "prefix_lm"):
                case = Workload("forward", variant, *shape, window=10)
                mask = case.mods(None)[1] or (lambda *_: True)
                pairs = 6 * sum(bool(mask(0, 0, q, k)) for q in range(64) for k in range(64))
                self.assertEqual(case.pairs(), pairs, variant)
            for is_packed in (False, True):
                case = Workload("backward", "document", *shape, is_packed=is_packed)
                self.assertEqual(case.pairs(), 6 * (40 * 41 + 3 * 4 + 21 * 22) // 2)
                self.assertEqual(case.flops(), 2 * case.pairs() * (3 * 8 + 2 * 4))

    def test_modules_of_peers_that_cannot_be_imported_are_told(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            modules = peers.found((*peers.MODULES, "no_such"))
        self.assertIn("without no_such: ModuleNotFoundError", said.getvalue())
        for peer in modules:
            for case in workloads.workloads():
                self.assertIsInstance(peer.serves(case), bool)
                self.assertIsInstance(peer.is_heads_last(case), bool)

    @unittest.skipUnless(torch and hasattr(torch.nn.attention, "restore_flash_attention_impl"), "needs torch 2.11")
    def test_results_of_attnc_are_the_definitions_on_the_same_operands(self):
        def ways(case, q, k, v):
            def call():
                score_mod, mask_mod = case.mods("cpu")
                column, h = torch.arange(q.shape[1]), torch.arange(case.heads)[:, None, None]
                row = column[:, None]
                wide = [x.transpose(1, 2).float() for x in (q, k, v)]
                wide[1:] = [x.repeat_interleave(case.heads // case.kv_heads, 1) for x in wide[1:]]
                score = wide[0] @ wide[1].mT * case.width**-0.5
                score = score_mod(score, 0, h, row, column) if score_mod else score
                score = score.masked_fill(~mask_mod(0, 0, row, column), -torch.inf) if mask_mod else score
                return (score.softmax(-1) @ wide[2]).to(q.dtype).transpose(1, 2)

            return {"": call}

        definition = types.SimpleNamespace(ways=ways, is_heads_last=lambda case: True)
        from peers import ours

        on_cpu = mock.patch.object(ours.attnc.torch.flash._Active.__init__, "__defaults__", ("CPU",))
        self.addCleanup(torch.nn.attention.restore_flash_attention_impl)
        with mock.patch.object(workloads, "PREFIX", 20), mock.patch.dict(workloads.DOCUMENTS, {48: (20, 3, 25)}), on_cpu:
            for variant, kind, is_packed in (("alibi", "backward", False), ("prefix_lm", "forward", False),
                                             ("softcap", "forward", False), ("document", "backward", False),
                                             ("document", "forward", True), ("document", "backward", True)):
                width_v = 32 if is_packed else 16
                operands = speed.Operands(Workload(kind, variant, 2, 4, 2, 48, 32, width_v, is_packed=is_packed), "cpu")
                with operands.gradients():
                    found, expected = ((make()[1]() for make in operands.runs(peer).values()) for peer in (ours, definition))
                    off, wrong = speed.differences(operands, next(found), next(expected))
                self.assertFalse(wrong, f"{variant} {kind}")
                self.assertEqual(list(off), ["out"] if kind == "forward" else ["out", "dq", "dk", "dv"])


class ReportTest(Made):
    def rows(self, *changes):
        """Returns the lines of a run in which `changes` ((case number, peer, {member: value})) were made."""
        self.run_speed()
        lines = self.lines()
        for number, peer, members in changes:
            next(line for line in lines if (line["id"], line["peer"]) == (CASES[number].id, peer)).update(members)
        self.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return speed_report.read_speed([self.out])

    def printed(self, *options):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = speed_report.main([str(self.out), *options])
        return code, out.getvalue() + err.getvalue()

    def ahead(self):
        """Makes attnc the first in all rows."""
        self.PEERS = (FakePeer("attnc", {"": (0.5, 700, 1.0)}), *[peer for peer in self.PEERS if peer.NAME != "attnc"])

    def test_a_row_that_is_behind_is_found_by_the_clock_in_which_it_is(self):
        self.ahead()
        self.assertEqual(speed_report.behind(self.rows()), [])
        self.assertIn("No row is behind.", self.printed()[1])
        # 0.4 ms where attnc takes 0.5, only when rested.
        self.out.unlink()
        forward = 4 * CASES[0].pairs() * 128 / 0.4 / 1e9
        results = self.rows((0, "fa3", {"rested_ms": 0.4, "rested_tflops": forward}))
        self.assertEqual([(row[0], row[1], round(row[2], 3), row[3]) for row in speed_report.behind(results)],
                         [(CASES[0].id, "rested", 0.8, "fa3")])
        self.assertIn(f"- {CASES[0].id}, rested: 0.80 of FlashAttention-3\n", self.printed()[1])

    def test_ratios_are_of_their_time_to_ours_and_the_best_is_the_fastest(self):
        out = self.printed()[1] if self.rows() else ""
        # attnc 1.0, flex 1.5, fa4 0.8, fa3 0.9 ms
        forward = round(4 * CASES[0].pairs() * 128 / 1e9)
        self.assertIn("| forward, TFLOP/s under load / rested | attnc | attnc / best, under load | attnc / best, rested | "
                      "FlexAttention | FlashAttention-4 | FlashAttention-3 |", out)
        self.assertIn(f"| causal, 2 x 16 x 8192, d 128 | {forward} / {forward}, 0.7 J | 0.80 (FlashAttention-4) | "
                      "0.80 (FlashAttention-4) |", out)
        self.assertRegex(out, r"\| causal, 2 x 16 x 8192, d 128 \| \d+ \| 1.50 \| 0.80 \(FlashAttention-4\) "
                              r"\| \d+ \| 1.50 \| 0.80 \(FlashAttention-4\) \|")

    def test_figures_that_were_exchanged_are_caught(self):
        self.run_speed()
        lines = {line["peer"]: line for line in self.lines() if line["id"] == CASES[0].id}
        ours, theirs = ({"tflops": lines[peer]["tflops"]} for peer in ("attnc", "fa4"))
        with self.assertRaisesRegex(ResultError, f"{CASES[0].id}: TFLOP/s do not belong"):
            self.rows((0, "attnc", theirs), (0, "fa4", ours))
        code, said = self.printed()
        self.assertEqual(code, 1)
        self.assertIn("do not belong", said)

    def test_unequal_rounds_and_lines_of_other_programs_are_refused(self):
        with self.assertRaisesRegex(ResultError, "different numbers of rounds"):
            self.rows((1, "flex", {"rounds": 4}))
        self.out.write_text(json.dumps({"id": CASES[0].id, "peer": "attnc", "ms": 1.0, "tflops": 5.0}) + "\n")
        with self.assertRaisesRegex(ResultError, 'no "version": not a line of speed.py'):
            speed_report.read_speed([self.out])

    def test_tables_stand_between_the_markers(self):
        self.run_speed(*self.PEERS, FakePeer("sdpa_cudnn", {"": (1, 1, ValueError("no kernel"))}))
        page = self.out.with_name("page.md")
        page.write_text("before\n<!-- results speed -->\nold\n<!-- /results speed -->\nbehind\n")
        self.assertEqual(self.printed("--table", str(page)), (0, ""))
        text = page.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("behind\n") and "old" not in text)
        self.assertIn("Fake GPU, driver 1.2, ", text)
        self.assertIn("| cuDNN |", text)
        self.assertIn(f"- {CASES[0].id}, cuDNN: ValueError: no kernel\n", text)
        self.assertEqual(self.printed("--short", str(page))[0], 0)
        self.assertIn("| TFLOP/s under load | forward | attnc / FlexAttention |", page.read_text())


class ChartTest(Made):
    def test_panels_have_attnc_next_to_flexattention_and_next_to_the_fastest_other_library(self):
        packed = Workload("forward", "document", *workloads.D128, is_packed=True)
        dense = Workload("forward", "document", *workloads.D128)
        self.run_speed(cases=[CASES[0], CASES[3], dense], options=["--rounds", "2"])
        self.run_speed(self.PEERS[2], FakePeer("fa3", {"": (0.4, 700, 1.0)}), cases=[packed])
        results = speed_report.read_speed([self.out])
        flex = front_chart.speed_groups(results, ["fa4", "fa3"])
        self.assertEqual([label for label, _ in flex], ["causal\nforward", "documents\nforward", "no mod\nbackward"])
        self.assertEqual([list(bars) for _, bars in flex], [["attnc", "FlexAttention"]] * 3)
        best = front_chart.speed_groups(results, ["flex"])
        self.assertEqual([list(bars)[1] for _, bars in best], ["FlashAttention-4", "FlashAttention-3", "FlashAttention-4"])
        ours, theirs = best[0][1].values()
        self.assertAlmostEqual(theirs / ours, 1 / 0.8, places=3)

    def test_the_chart_is_drawn(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("matplotlib is not installed")
        self.run_speed()
        svg = self.out.with_name("chart.svg")
        self.assertEqual(front_chart.main([str(self.out), "--output", str(svg)]), 0)
        self.assertEqual(front_chart.main([str(self.out), "--output", str(svg), "--check"]), 0)
        for text in ("Next to FlexAttention", "Next to the fastest other library", "Fake GPU", "FlashAttention-4"):
            self.assertIn(text, svg.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
