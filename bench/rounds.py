#!/usr/bin/env python3
"""Times attnc-bench and its peers in rounds that take turns on one GPU: ratios then do not depend on when each ran.

  bench/rounds.py --peers DIR --out DIR [--attnc build/bench/attnc-bench] [--nvrtc LIBRARY] [--only REGEX] [--seconds 500]

First all compile, side by side, and check their results. Then, while nothing else runs, each in turn times its cases,
up to --rounds times, forward before backward. FlashAttention-4 and cudnn.flex take seconds to compile a case: their
cases are dealt to several processes.

--peers: a folder with peers.py, fa4_peer.py, fa3_peer.py, cudnn_flex_peer.py and cases.json, harnesses outside this
repository; their packages must be importable. --nvrtc: times attnc a second time, with this compiler. --only: a regular
expression on what follows "forward-" or "backward-" in a case's id; decode cases run in every second round. --unchecked:
attnc's results are not checked again.
Writes DIR/NAME.jsonl for each process, in the format of attnc-bench, and NAME.log. Needs what the peers need.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("forward", "backward")
SCRIPTS = {"fa4": "fa4_peer.py", "cudnn_flex": "cudnn_flex_peer.py", "fa3": "fa3_peer.py", "sdpa_cudnn": "peers.py"}
PROCESSES = {"fa4": 2, "cudnn_flex": 2}  # of a kind of cases
NOT_OF = {"fa3": "backward"}


# ------------------------------------------------------------------------------------------------- a peer's process


def cases_of(folder, only):
    return [case for case in json.loads((folder / "cases.json").read_text()) if re.search(only, case["id"])]


class Sdpa:
    """PyTorch's scaled_dot_product_attention with cuDNN, by peers.py."""

    def __init__(self, folder, only):
        import peers  # of --peers

        self.peers, self.cases, self.timer = peers, cases_of(folder, only), peers.do_bench
        pairs, count = {}, peers.unmasked_pairs
        peers.unmasked_pairs = lambda case: pairs.get(case["id"]) or pairs.setdefault(case["id"], count(case))

    def ceilings(self):
        self.peers.do_bench = self.timer
        return self.peers.ceilings()

    def rows(self, times):
        self.peers.do_bench = self.timer if times else lambda call, **_: (call(), 1.0)[1]
        for case in self.cases:
            try:
                row = self.peers.measure(case, "sdpa_cudnn")
            except Exception as error:  # another case may run
                row = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            if row:
                yield {"id": case["id"], "peer": "sdpa_cudnn", **row}


class Peer:
    """A harness that has ways(case), measure(case, ...) and peerlib's timer. It is executed up to its own main part."""

    def __init__(self, peer, folder, only):
        script = SCRIPTS[peer]
        more = ["--no-bsa"] if peer == "cudnn_flex" else []
        sys.argv = [script, "--only", only, "--out", os.devnull, *more]
        text = (folder / script).read_text()
        self.space = {"__name__": "harness", "__file__": script}
        exec(compile(text[: text.index("\nemit = " if peer == "fa3" else "\nif __name__")], script, "exec"), self.space)
        import peerlib  # of --peers

        self.peer, self.lib, self.timer, self.args = peer, peerlib, peerlib.timed, self.space["args"]
        self.ways, self.failed = [], set()
        for case in self.args.cases:
            try:
                self.ways += [(case, way) for way in self.space["ways"](case)]
            except Exception as error:
                print(case["id"], error, file=sys.stderr)

    def measure(self, case, way):
        if self.peer != "fa3":
            return self.space["measure"](case, *way)
        import torch

        with torch.no_grad():
            return self.space["measure"](case, *way[1:])

    def rows(self, times):
        self.lib.timed = self.timer if times else lambda run, graph=False: {"ms": 1.0}
        self.args.no_check = times
        for i, (case, way) in enumerate(self.ways):
            if i in self.failed:
                continue
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    row = self.measure(case, way)
            except Exception as error:
                row = self.lib.error_row(error)
            if "error" in row:
                self.failed.add(i)
            yield {"id": case["id"], "peer": way[0], **row}


def serve(peer, folder, only, out):
    """Compiles and checks a peer's cases and prints "ready"; then times them once for each line of stdin."""
    import torch

    sys.path.insert(0, str(folder))
    os.chdir(folder)
    harness = Sdpa(folder, only) if peer == "sdpa_cudnn" else Peer(peer, folder, only)
    with open(out, "a") as file:

        def run(times):
            for row in harness.rows(times):
                if times or "error" in row:
                    print(json.dumps(row), file=file, flush=True)
                torch.cuda.empty_cache()

        run(times=False)
        print("ready", flush=True)
        for _ in sys.stdin:
            if peer == "sdpa_cudnn":
                print(json.dumps(harness.ceilings()), file=file, flush=True)
            run(times=True)
            print("done", flush=True)


# ------------------------------------------------------------------------------------------------------- the rounds


class Worker:
    def __init__(self, name, peer, arguments, only):
        self.name, out = name, arguments.out / name
        self.process = subprocess.Popen(
            [sys.executable, HERE / "rounds.py", "--serve", peer, "--peers", arguments.peers, "--only", only, "--out", f"{out}.jsonl"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(f"{out}.log", "w"), text=True,
        )  # fmt: skip
        self.is_ready = False

    def wait(self, word):
        self.is_ready = self.process.stdout.readline().strip() == word

    def turn(self):
        if not self.is_ready:
            return
        print("", file=self.process.stdin, flush=True)
        self.wait("done")


def workers_of(arguments):
    result = {kind: [] for kind in KINDS}
    for kind in KINDS:
        cases = cases_of(arguments.peers, f"^{kind}-({arguments.only})$")
        for peer in SCRIPTS:
            processes = 0 if NOT_OF.get(peer) == kind else PROCESSES.get(peer, 1)
            for i in range(processes):
                if ids := [re.escape(case["id"]) for case in cases[i::processes]]:
                    only = f"^({'|'.join(ids)})$"
                    result[kind].append(Worker(f"{peer}-{kind}-{i}", peer, arguments, only))
    return result


class Attnc:
    """attnc-bench, with the usual compiler or with another one."""

    def __init__(self, arguments, name, nvrtc=None):
        self.arguments, self.out = arguments, arguments.out / name
        # A compiler of this name may be the usual one's as well, so only this process sees its folder.
        self.environment = {**os.environ, "ATTNC_CACHE_DIR": str(arguments.out / "cache"), "ATTNC_DEFAULT_PACK": "0"}
        if nvrtc:
            self.environment.update(ATTNC_NVRTC=str(nvrtc), LD_LIBRARY_PATH=str(nvrtc.parent))
        self.is_second = bool(nvrtc)

    def run(self, kind, file=None, again=True):
        only = "^(decode|paged)-" if kind == "decode" else f"^{kind}-({self.arguments.only})"
        if self.is_second:
            only += "$"
        command = [self.arguments.attnc, "--cases", self.arguments.peers / "cases.json", "--cases", HERE / "cases.json",
                   "--only", only if self.is_second or kind == "decode" else f"{only}(-packed|-deterministic)?$",
                   "--out", file or f"{self.out}.jsonl"]  # fmt: skip
        command += ["--again"] if again else []
        command += [] if self.is_second else ["--packed", "--deterministic"]
        with open(f"{self.out}.log", "a") as log:
            subprocess.run(command, env=self.environment, stdout=log, stderr=log, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--attnc", type=pathlib.Path, default=HERE.parent / "build/bench/attnc-bench")
    parser.add_argument("--nvrtc", type=pathlib.Path)
    parser.add_argument("--only", default=".*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no round that may end later")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve, arguments.peers, arguments.only, arguments.out)
    begin = time.perf_counter()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in ("peers", "out", "attnc"):
        setattr(arguments, name, getattr(arguments, name).resolve())

    def say(*words):
        print(f"{time.perf_counter() - begin:6.0f} s ", *words, flush=True)

    workers = workers_of(arguments)
    everyone = workers["forward"] + workers["backward"]
    ours = Attnc(arguments, "attnc")
    second = Attnc(arguments, "attnc-nvrtc", arguments.nvrtc) if arguments.nvrtc else None

    def prepare(attnc, kind):
        if not arguments.unchecked and not attnc.is_second:
            attnc.run(kind, arguments.out / "checked.jsonl", again=False)
        attnc.run(kind, os.devnull)
        say("attnc compiled", kind, "with the second compiler" if attnc.is_second else "")

    tasks = [threading.Thread(target=prepare, args=(ours, kind)) for kind in (*KINDS, "decode")]
    if second:
        tasks += [threading.Thread(target=prepare, args=(second, kind)) for kind in KINDS]
    tasks += [threading.Thread(target=worker.wait, args=("ready",)) for worker in everyone]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    say("compiled; without:", *[worker.name for worker in everyone if not worker.is_ready])
    longest = 0
    for i in range(arguments.rounds):
        start = time.perf_counter()
        if start - begin + longest > arguments.seconds:
            break
        for kind in KINDS:
            ours.run(kind)
            for worker in workers[kind]:
                worker.turn()
            if second:
                second.run(kind)
        if i % 2 == 0:
            ours.run("decode")
        longest = max(longest, time.perf_counter() - start)
        say("round", i + 1, "done")
    for worker in everyone:
        worker.process.kill()


if __name__ == "__main__":
    main()
