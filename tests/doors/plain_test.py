#!/usr/bin/env python3
"""Random mods as text and as IR, by the command, against PyTorch's scalars in Python's numbers. Needs only Python.

  python3 plain_test.py ATTNC [--seed S] [--count N]

doors_test.py has all doors, gradients, and PyTorch itself.
"""

import argparse
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
import trees
from scalars import computed

HEAD_DIM = 16
CODES = {"bool": "?", "u8": "B", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "f16": "e", "f32": "f"}


def bytes_of(dtype, data):
    if dtype == "bf16":
        return b"".join(struct.pack("<f", x)[2:] for x in data)
    return struct.pack(f"<{len(data)}{CODES[dtype]}", *data)


def write_tensors(path, tensors):
    """tensors: name -> (dtype, dims, elements in rows)."""
    head, body = {}, b""
    for name, (dtype, dims, data) in tensors.items():
        start, body = len(body), body + bytes_of(dtype, data)
        head[name] = {"dtype": dtype.upper(), "shape": list(dims), "data_offsets": [start, len(body)]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<q", len(text)) + text + body)


def read_tensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<q", data[:8])
    found = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            found[name] = struct.unpack(f"<{(end - start) // 4}f", data[start:end])
    return found


class Case:
    def __init__(self, seed):
        self.mod = mod = trees.drawn(seed)
        self.batch, self.heads, self.kv_heads, self.q_len, self.kv_len = mod.problem
        draw = random.Random(seed)
        # Multiples of 1/8, so that q.k is exact in any order.
        eighths = lambda count: [draw.randint(-16, 16) / 8 for _ in range(count)]
        self.q = eighths(self.batch * self.heads * self.q_len * HEAD_DIM)
        self.k = eighths(self.batch * self.kv_heads * self.kv_len * HEAD_DIM)
        self.columns = -(-self.kv_len // 16) * 16

    def score_at(self, b, h, i, j):
        q_row = (b * self.heads + h) * self.q_len + i
        k_row = (b * self.kv_heads + h * self.kv_heads // self.heads) * self.kv_len + j
        rows = (x[row * HEAD_DIM : (row + 1) * HEAD_DIM] for x, row in ((self.q, q_row), (self.k, k_row)))
        return sum(a * b for a, b in zip(*rows)) * 0.25

    def write(self, path):
        one_hot = [float(column == row) for row in range(self.kv_len) for column in range(self.columns)]
        one_hot *= self.batch * self.kv_heads
        tensors = {
            "q": ("f32", (self.batch, self.heads, self.q_len, HEAD_DIM), self.q),
            "k": ("f32", (self.batch, self.kv_heads, self.kv_len, HEAD_DIM), self.k),
            "v": ("f32", (self.batch, self.kv_heads, self.kv_len, self.columns), one_hot),
        }
        for capture in self.mod.used():
            if capture.dtype not in trees.NUMBERS:
                dims = [trees.extent_of(dim, self.mod.problem) for dim in capture.dims]
                tensors[capture.name] = capture.dtype, dims, capture.data
        write_tensors(path, tensors)

    def difference(self, found):
        """Describes the first element that differs; empty if none does."""
        rows = {}
        for at, score, live in computed(self.mod, self.score_at):
            rows.setdefault(at[:3], []).append(score if live and score != -math.inf else None)
        for number, (row, scores) in enumerate(rows.items()):
            weights, lse = found["out"][number * self.columns :][: self.kv_len], found["lse"][number]
            if any(score is not None and not math.isfinite(score) for score in scores):
                if lse == lse:
                    return f"row {row}: lse {lse}, and should be NaN"
                continue
            for j, (score, weight) in enumerate(zip(scores, weights)):
                if (score is None) != (weight == 0):
                    return f"(b, h, i, j) = {(*row, j)}: {'live' if weight else 'masked'}, and should not be"
                found_score = None if score is None else math.log(weight) + lse
                if score is not None and not abs(found_score - score) < 4e-5:
                    return f"(b, h, i, j) = {(*row, j)}: score {found_score:.8g}, and should be {score:.8g}"
        return ""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attnc")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    args = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text, ir, given, made = (folder / name for name in ("mod.py", "mod.ir", "in.safetensors", "out.safetensors"))
        for seed in range(args.seed, args.seed + args.count):
            case = Case(seed)
            if case.q_len * case.kv_len > 1000:  # takes Python long
                continue
            text.write_text(trees.text_of(case.mod), encoding="utf-8")
            case.write(given)
            scalars = [f"--set={x.name}={x.data[0]}" for x in case.mod.used() if x.dtype in trees.NUMBERS]
            try:
                ir.write_text(run(args.attnc, "emit", "--stage=ir", text), encoding="utf-8")
                for path in (text, ir):
                    run(args.attnc, "run", path, "--in", given, "--out", made, "--device=cpu", "--lse", *scalars)
                    if answer := case.difference(read_tensors(made)):
                        raise RuntimeError(f"{path.suffix}: {answer}")
            except RuntimeError as error:
                wrong += 1
                print(f"== seed {seed}, {case.mod.problem}\n{text.read_text()}{error}")
    print(f"{args.count} mods from seed {args.seed}, {wrong} of them wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
