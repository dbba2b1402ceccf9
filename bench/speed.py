#!/usr/bin/env python3
"""Times attnc and its peers in one process on one GPU by two clocks: under load, with joules of a call, and rested.

  ATTNC_LIBRARY=libattnc.so python3 bench/speed.py --out FILE.jsonl [--only REGEX] [--seconds 550]
  python3 bench/speed.py --list

Cases are those of workloads.py, the most important first; peers are the modules of peers/ whose library can be imported.
Results of each peer are compared with attnc's first (out within 1.5 %, gradients within 3 % of their norm): one that
differs is told and not timed. If a peer has several ways to ask for a case, the fastest counts. Then come short bursts
of each after a rest, with L2 flushed; then all take turns, ABBA, with bursts of --burst seconds under load, and NVML
says joules and MHz.

--out: a JSON line for each case and peer, written when the case is done; cases that the file has are skipped, so the
same command goes on where the last one stopped. --seconds: of the whole program, imports included: no case
begins that may end later, and one that lasts longer is given up. --peer-seconds: a peer whose first call takes longer is
told and not timed. --rounds: even, of all peers. --peers: modules of peers/ to try. --part I/N: each N-th case from the
I-th on, so that N cards of one host take turns: a process for each, with CUDA_VISIBLE_DEVICES and a file of its own.
--list: the cases in their order, without a GPU. stderr has what is imported, compiled and timed, with seconds.
speed_report.py makes tables, front_chart.py draws the chart.
"""

import argparse
import contextlib
import datetime
import functools
import json
import pathlib
import re
import shlex
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))
import clocks
import peers
from results import UNITS, read_results, unit_of
from workloads import workloads

OURS = "attnc"
LIMITS = {"out": 0.015, "dq": 0.03, "dk": 0.03, "dv": 0.03}  # of differences from attnc's, relative to the norm
LIMIT_E4M3 = 0.08  # the same of out, over operands of e4m3: peers also round weights
DTYPES = {"fp16": "float16", "fp32": "float32"}  # others are drawn in bf16
PROBES = 10  # calls that choose between ways
SINGLES = 4  # rounds of single calls for one of bursts


class TimeIsUp(BaseException):  # peers catch exceptions
    pass


@contextlib.contextmanager
def within(seconds, error):
    """Raises the error in the block when the seconds are over; inf: never. Blocks nest. A call into a library ends first."""

    def over(*_):
        raise error

    outer, _ = signal.getitimer(signal.ITIMER_REAL)
    if seconds == float("inf") or 0 < outer <= seconds:
        yield
        return
    handler, begin = signal.signal(signal.SIGALRM, over), time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer:
            signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - begin), 1e-3))


class Operands:
    """Tensors of a case, the same values for all peers. Makes their runs."""

    def __init__(self, case, device="cuda"):
        import torch

        self.torch, self.case = torch, case
        torch.manual_seed(0)
        sequences, length = case.sequences()
        q_length, dtype = length if case.kind != "decode" else 1, getattr(torch, DTYPES.get(case.dtype, "bfloat16"))
        draw = lambda heads, rows, width: torch.randn(sequences, heads, rows, width, device=device, dtype=dtype)
        k = draw(case.kv_heads, length, case.width)
        v = k if case.is_latent else draw(case.kv_heads, length, case.width_v)
        self.qkv = draw(case.heads, q_length, case.width), k, v
        self.dout = draw(case.heads, length, case.width_v) if case.kind == "backward" else None

    def runs(self, peer):
        """Returns {how: function that returns (function to time, function that returns {name: result [B, H, L, D]})}."""
        swap = lambda x: x.transpose(1, 2) if peer.is_heads_last(self.case) else x
        leaves = [swap(x).detach().contiguous() for x in self.qkv]
        dout = None if self.dout is None else swap(self.dout).contiguous()
        for leaf in leaves if self.case.kind == "backward" else ():
            leaf.requires_grad_()
        ways = peer.ways(self.case, *leaves)
        return {how: functools.partial(self._run, call, leaves, dout, swap) for how, call in ways.items()}

    def _run(self, call, leaves, dout, swap):
        if self.case.kind != "backward":
            return call, lambda: {"out": swap(call())}
        out = call()
        run = lambda: self.torch.autograd.grad(out, leaves, dout, retain_graph=True)
        return run, lambda: dict(zip(LIMITS, map(swap, (out.detach(), *run()))))

    def gradients(self):
        """Returns the context in which runs are made and timed."""
        return contextlib.nullcontext() if self.case.kind == "backward" else self.torch.no_grad()

    def replay(self, call):
        """Returns a function that replays a graph of the call: what the host does for it is not timed."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            call()
        return functools.partial(self._replay, graph, call)

    @staticmethod
    def _replay(graph, _):  # the call holds what the graph reads
        graph.replay()

    def difference(self, actual, expected):
        return float((actual.float() - expected.float()).norm() / expected.float().norm())

    def release(self):
        self.qkv = self.dout = None
        self.torch.cuda.empty_cache()


def differences(operands, results, expected):
    """Returns {name: difference from attnc's} and which are beyond their limits; one that is not a number is."""
    found = {name: operands.difference(results[name], expected[name]) for name in expected}
    limit_of = lambda name: LIMIT_E4M3 if operands.case.dtype == "e4m3" else LIMITS[name]
    return found, {name: f"{value:.1e}" for name, value in found.items() if not value <= limit_of(name)}


def contender(gpu, operands, peer, expected, is_replayed, seconds):
    """Returns (its fastest way that is right as a function, a line with what was found), and results if none are expected.
    The function is None if all ways fail; if it `is_replayed`, it is a graph. `seconds` are those of a way's first call."""
    line = {"id": operands.case.id, "peer": peer.NAME, "version": peer.version()}
    best, failed, results = None, [], None
    in_time = lambda: within(seconds, TimeoutError(f"not ready in {seconds:g} s"))
    try:
        with peers.told(f"  {peer.NAME}: operands"), in_time():
            runs = operands.runs(peer)
    except Exception as error:
        return None, {**line, "error": peers.reason(error)}, None
    for how, make in runs.items():
        try:
            with peers.told(f"  {peer.NAME}: first call {how}".rstrip()), in_time():
                run, results_of = make()
                results = results_of()
            # Self attention next to a neighborhood is another function, and is_other says so.
            off, wrong = ({}, {}) if getattr(peer, "is_other", False) else differences(operands, results, expected or results)
            if wrong:
                failed.append(f"{how} differs from attnc's: {wrong}".strip())
                continue
            if is_replayed:
                try:
                    run = operands.replay(run)
                except Exception as error:
                    how = f"{how}, no graph: {peers.reason(error)}".strip(", ")
            ms = clocks.milliseconds(gpu, run, PROBES)
        except Exception as error:
            failed.append(f"{how} {peers.reason(error)}".strip())
            continue
        if best is None or ms < best[0]:
            best = ms, run, {"how": how, "off": off}
    if best is None:
        return None, {**line, "error": "; ".join(failed)}, None
    return best[1], {**line, **best[2], **({"failed": failed} if failed else {})}, results


def contenders(gpu, operands, modules, options, is_replayed):
    """Returns ({peer: function to time}, {peer: line}) of a case. Without attnc's results nobody is timed."""
    functions, lines, expected = {}, {}, None
    for peer in sorted((peer for peer in modules if peer.serves(operands.case)), key=lambda peer: peer.NAME != OURS):
        function, lines[peer.NAME], results = contender(gpu, operands, peer, expected, is_replayed, options.peer_seconds)
        if function:
            functions[peer.NAME] = function
        expected = expected or results
        del results
        if OURS not in functions:
            return {}, lines
    return functions, lines


def measure(gpu, operands, modules, options):
    """Returns the lines of a case. Without bursts under load, all take short turns, with L2 flushed: cases that decode call
    by call, and short ones as graphs."""
    case, rounds = operands.case, options.rounds
    functions, lines = contenders(gpu, operands, modules, options, not options.burst and case.is_short)
    if functions and not options.burst:
        turns = {"rounds": rounds * SINGLES, "burst_ms": 0} if case.kind == "decode" else {"rounds": rounds}
        with peers.told("  all take turns"):
            times = clocks.in_turns(gpu, functions, **turns)
        for name, ms in times.items():
            lines[name] |= {"ms": round(ms, 5), **case.rate(ms)}
    if not functions or not options.burst:
        return list(lines.values())
    bursts, rested = clocks.abba(gpu, functions, options.burst, rounds)
    tflops = lambda ms: round(case.flops() / ms / 1e9, 1)
    for name, taken in bursts.items():
        ms, joules, mhz = (sum(values) / rounds for values in zip(*((x.ms, x.joules, x.mhz) for x in taken)))
        lines[name] |= {
            "ms": round(ms, 4), "tflops": tflops(ms),
            "rested_ms": round(rested[name], 4), "rested_tflops": tflops(rested[name]),
            "joules": round(joules, 4), "mhz": round(mhz), "rounds": rounds,
            "bursts": [[round(x.ms, 4), round(x.joules, 4), round(x.mhz)] for x in taken],
        }  # fmt: skip
    return list(lines.values())


def run(gpu, cases, modules, options, operands_of=Operands, measure=measure):
    """Measures cases until the time is up, and appends their lines to options.out."""
    begin, longest = gpu.now(), 0
    done = read_results([options.out]).rows if pathlib.Path(options.out).exists() else {}
    about = {"gpu": gpu.name, "driver": gpu.driver, "date": datetime.date.today().isoformat(), "command": options.command}
    with open(options.out, "a", encoding="utf-8") as file:
        for case in cases:
            if case.id in done:
                continue
            start = gpu.now()
            # Bursts and what settles them; a case also compiles, as the longest one so far shows.
            least = sum(peer.serves(case) for peer in modules) * options.rounds * options.burst * 1.25
            if start - begin + max(longest, least) > options.seconds:
                print(f"time is up before {case.id}: the same command goes on there", flush=True)
                return
            operands = None
            try:
                with within(options.seconds - (start - begin), TimeIsUp()), peers.told(case.id):
                    operands = operands_of(case)
                    with operands.gradients():
                        lines = measure(gpu, operands, modules, options)
            except TimeIsUp:
                print(f"time is up in {case.id}: the same command begins with it, so give more --seconds", flush=True)
                return
            except Exception as error:  # while all took turns: nobody has a figure
                lines = [{"id": case.id, "peer": OURS, "error": f"while all took turns: {peers.reason(error)}"}]
            file.write("".join(json.dumps({**line, **about}) + "\n" for line in lines))
            file.flush()
            show(case, lines, gpu.now() - start)
            if not gpu.is_alive():
                sys.exit(f"the GPU refuses all work since {case.id}: the same command goes on behind it")
            if operands:
                operands.release()
            longest = max(longest, gpu.now() - start)


def show(case, lines, seconds):
    print(f"{case.id}  ({seconds:.0f} s)")
    for line in lines:
        said = line.get("error")
        if said is None:
            unit = unit_of(line)
            said = f"{line['ms']:9.4f} ms, {line[unit]:7.1f} {UNITS[unit]}"
            if "joules" in line:
                said += f" under load, {line['rested_tflops']:.1f} rested, {line['joules']:.3f} J a call, {line['mhz']} MHz"
            said += f"  {line['how']}"
        print(f"  {line['peer']:12} {said}", flush=True)


def parsed(arguments, about=__doc__, modules=peers.MODULES, burst=2.0, rounds=2):
    """Returns the options of speed.py, or of a program that measures by run(), with its defaults."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE")
    parser.add_argument("--only", default="", metavar="REGEX", help="of ids of cases")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N")
    parser.add_argument("--peer-seconds", type=float, default=100.0, metavar="N", help="default: %(default)s")
    parser.add_argument("--burst", type=float, default=burst, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help="default: %(default)s")
    parser.add_argument("--peers", nargs="+", default=modules, choices=peers.ALL, metavar="MODULE")
    parser.add_argument("--part", default="1/1", metavar="I/N")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    if options.rounds < 2 or options.rounds % 2:
        parser.error(f"--rounds {options.rounds}: give an even number, so that all contenders come as early as late")
    part = re.fullmatch(r"(\d+)/(\d+)", options.part)
    if not part or not 1 <= int(part[1]) <= int(part[2]):
        parser.error(f"--part {options.part}: give I/N with 1 <= I <= N")
    options.cases = slice(int(part[1]) - 1, None, int(part[2]))
    if not options.list and not options.out:
        parser.error("give --out FILE, or --list")
    options.begin = time.monotonic()
    options.command = shlex.join([pathlib.Path(sys.executable).name, *sys.argv])
    return options


def main(arguments=None):
    options = parsed(arguments)
    cases = [case for case in workloads() if re.search(options.only, case.id)][options.cases]
    if options.list:
        print("\n".join(case.id for case in cases))
        return
    modules = peers.found(options.peers)
    if OURS not in [peer.NAME for peer in modules]:
        sys.exit("speed.py: attnc is not among the peers, and results are compared with its: set ATTNC_LIBRARY")
    gpu = clocks.Gpu()
    options.seconds -= time.monotonic() - options.begin
    run(gpu, cases, modules, options)


if __name__ == "__main__":
    main()
