#!/usr/bin/env python3
"""Runs the examples in Python of tools/examples.

  python_test.py [--gpu]

Each must say that its result is right. --gpu: prints SKIPPED without a GPU. Also prints SKIPPED without torch.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = {
    "serving": r"lengths \[57, 40\], 7 pages, 20 (steps|replays of one graph): largest difference 0\.0[01]\d*",
    "training": r"loss 0\.1\d+ to 0\.0\d+ in 12 steps, largest relative error of a gradient \S+",
    "meanflow": r"loss 1\.\d+ to 0\.\d+ in 8 steps, largest relative error of a gradient \S+",
    "gradient_penalty": r"penalty 0\.\d+ to 0\.\d+ in 8 steps, largest relative error of a gradient \S+",
    "force_field": r"loss 0\.\d+ to 0\.\d+ in 20 steps, largest relative error of a gradient \S+",
    "grid": r"24 x 20 pixels see 16 to 49 keys: largest difference 0\.0[01]\d*",
}


def main():
    try:
        import torch
    except ImportError as error:
        sys.exit(print(f"SKIPPED: {error}"))
    is_gpu = "--gpu" in sys.argv[1:]
    if is_gpu and not torch.cuda.is_available():
        sys.exit(print("SKIPPED: PyTorch finds no GPU"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools/python"), "PYTHONDONTWRITEBYTECODE": "1"}
    wrong = []
    for name, expected in EXPECTED.items():
        done = subprocess.run(
            [sys.executable, ROOT / f"tools/examples/{name}.py"], env=environment, capture_output=True, text=True
        )
        print(f"{name}.py: {done.stdout}{done.stderr}", end="")
        if done.returncode or not re.fullmatch(rf".*\n{expected}\n", done.stdout):
            wrong.append(f"{name}.py gave {done.returncode}")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
