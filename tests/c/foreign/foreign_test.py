#!/usr/bin/env python3
"""Compiles a source of this folder, which compares declarations of ours with the header of a Python package.

  foreign_test.py CXX SOURCE PYTHON PACKAGE

Prints SKIPPED if PYTHON has no PACKAGE.
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIND = "import importlib.util, sys; spec = importlib.util.find_spec(sys.argv[1]); print(spec.submodule_search_locations[0])"

compiler, source, python, package = sys.argv[1:]
found = subprocess.run([python, "-c", FIND, package], capture_output=True, text=True)
if found.returncode:
    sys.exit(print(f"SKIPPED: {python} has no {package}"))
folders = ["-I", HERE.parents[2] / "src", "-isystem", pathlib.Path(found.stdout.strip()) / "include"]
sys.exit(subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *folders, HERE / source]).returncode)
