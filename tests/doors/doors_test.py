#!/usr/bin/env python3
"""Random mods at every door: what a mod gives as text, as IR, traced by PyTorch and JAX, and by the command must be
what PyTorch, or jax.numpy, gives without attnc.

  ATTNC_LIBRARY=libattnc.so python3 doors_test.py ATTNC [--jax PYTHON] [--seed S] [--seconds N | --count N]
                            [--doors text,ir,...] [--device cuda] [--numbers-only] [--keep-going]

Prints what differs: the seed, the door, and the mod, shrunk. Exit code 1: something differs. PYTHON has JAX. Without
PyTorch here it prints SKIPPED.
"""

import argparse
import collections
import pathlib
import pickle
import struct
import subprocess
import sys
import time
import warnings

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "python"), str(pathlib.Path(__file__).parent)]
try:
    import torch
    from torch_doors import Case
except ImportError as error:
    sys.exit(print(f"SKIPPED: {error}"))
import trees
from shrinking import shrunk

DOORS = ("text", "ir", "ir_of_torch", "torch", "blocks", "command", "jax")
# Doors that cost much, and every which mod they see.
RARE = {"ir": 3, "ir_of_torch": 8, "blocks": 3, "command": 4}


class Server:
    """The process of JAX. It is started again if a mod ends it."""

    def __init__(self, python):
        self.python, self.process = python, None

    def send(self, mod):
        if self.process is None:
            script = pathlib.Path(__file__).with_name("jax_doors.py")
            self.process = subprocess.Popen([self.python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        data = pickle.dumps([mod])
        self.process.stdin.write(struct.pack("q", len(data)) + data)
        self.process.stdin.flush()

    def answer(self):
        try:
            (size,) = struct.unpack("q", self.process.stdout.read(8))
            return pickle.loads(self.process.stdout.read(size))[0]
        except struct.error:
            code, self.process = self.process.wait(), None
            return f"the process of JAX ended with code {code}"


class Doors:
    def __init__(self, args):
        self.args, self.server = args, Server(args.jax)
        self.seen, self.spent = collections.Counter(), collections.Counter()

    def names(self, seed):
        return [door for door in self.args.doors if seed % RARE.get(door, 1) == 0]

    def differs(self, mod, door, case=None):
        """Describes what differs at a door; None if the mod means nothing there."""
        if door == "jax":
            if case is None:  # else it was sent before
                self.server.send(mod)
            answer = self.server.answer()
            return None if answer.startswith("skipped") else answer
        case = case or self.case(mod)
        if case is None:
            return None
        return case.differs({
            "text": case.as_text, "ir": case.as_ir, "ir_of_torch": case.as_ir_of_torch,
            "blocks": case.differs_in_blocks, "torch": lambda: case.in_torch(self.args.device),
            "command": lambda: case.by_command(self.args.attnc),
        }[door])  # fmt: skip

    @staticmethod
    def case(mod):
        """Returns the mod with what PyTorch says of it; None if PyTorch refuses it."""
        try:
            return Case(mod)
        except Exception:  # of any kind that PyTorch has
            return None

    def found(self, seed):
        """Yields (door, description) of what differs for a seed."""
        mod = trees.drawn(seed)
        if "jax" in self.names(seed):  # computes while the other doors do
            self.server.send(mod)
        case = self.case(mod)
        self.seen["mods"] += 1
        self.seen["refused by PyTorch"] += case is None
        for door in self.names(seed):
            start = time.monotonic()
            is_sent = door == "jax"
            answer = None if case is None and not is_sent else self.differs(mod, door, case or is_sent)
            self.spent[door] += time.monotonic() - start
            self.seen[door] += answer is not None
            if answer and not (self.args.numbers_only and answer.startswith("refused")):
                yield door, answer, mod

    def told(self, seed, door, answer, mod):
        """Returns the shrunk mod as text. It differs in the same way: by a refusal, or by a number."""
        refused = answer.startswith("refused")

        def still(candidate):
            found = self.differs(candidate, door)
            return bool(found) and found.startswith("refused") == refused

        small = shrunk(mod, still, self.args.shrink)
        captures = [f"  {x.name} = {list(x.data) if x.dims or len(x.data) > 1 else x.data[0]}" for x in small.used()]
        text = trees.functions_of(small, trees.Jax) if door == "jax" else trees.text_of(small)
        wide = ", 64 bits" if small.is_wide and door == "jax" else ""
        return "\n".join([f"== seed {seed} at {door}{wide}, (B, H, HKV, Q_LEN, KV_LEN) = {small.problem}",
                          text.strip(), *captures, f"-> {self.differs(small, door) or answer}"])  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attnc")
    parser.add_argument("--jax", help="a Python that has JAX")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=int, default=1, help="of seeds, for several processes")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--doors", type=lambda text: text.split(","))
    parser.add_argument("--device", default="cpu", help="of attnc.torch")
    parser.add_argument("--shrink", type=int, default=150, help="mods tried to shrink one")
    parser.add_argument("--numbers-only", action="store_true", help="do not tell mods that a door refuses")
    parser.add_argument("--keep-going", action="store_true", help="tell every mod that differs, not only five")
    args = parser.parse_args()
    has_jax = args.jax and subprocess.run([args.jax, "-c", "import jax"], capture_output=True).returncode == 0
    args.doors = args.doors or [door for door in DOORS if has_jax or door != "jax"]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    doors, start, seed, differences = Doors(args), time.monotonic(), args.seed, collections.Counter()
    while (time.monotonic() - start < args.seconds) if args.seconds else (seed - args.seed < args.count * args.step):
        for found in doors.found(seed):
            differences[found[0]] += 1
            print(f"[{time.monotonic() - start:.0f} s]", doors.told(seed, *found), flush=True)
        if sum(differences.values()) >= 5 and not args.keep_going:
            break
        seed += args.step
    numbers = ", ".join(f"{name} {count}" for name, count in doors.seen.items())
    print(f"seeds {args.seed} to {seed} by {args.step} in {time.monotonic() - start:.0f} s: {numbers}; "
          f"seconds {({name: round(spent) for name, spent in doors.spent.items()})}; "
          f"differences: {dict(differences) or 'none'}")  # fmt: skip
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
