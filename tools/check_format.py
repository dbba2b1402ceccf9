#!/usr/bin/env python3
"""Checks that sources have the layout of .clang-format, and that none is too long to be about one thing.

  python3 tools/check_format.py [--fix]

Prints each offence and exits with 1 if there is any. --fix lays the sources out. Needs clang-format 14, since versions
differ in what they do; without it says SKIPPED.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("src", "include", "dsl", "templates", "tests", "bench", "tools")
SUFFIXES = {".cpp", ".h", ".hpp", ".cu", ".cuh"}
VERSION = "14"
MOST_LINES = 600
GENERATED = ("tests/codegen/golden", "templates/mod/identity", "templates/mod/identity_sm90")


def clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if path := shutil.which(name):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            if re.search(rf"version {VERSION}\.", said):
                return path
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true")
    options = parser.parse_args()
    sources = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    sources = [path for path in sources if not str(path.parent.relative_to(ROOT)).startswith(GENERATED)]
    errors = []
    for path in sources:
        lines = path.read_text().count("\n")
        if lines > MOST_LINES:
            errors.append(f"{path.relative_to(ROOT)}: {lines} lines, of {MOST_LINES} at most; split it")
    command = clang_format()
    if command and options.fix:
        subprocess.run([command, "-i", *sources], check=True)
    elif command:
        said = subprocess.run([command, "--dry-run", *sources], capture_output=True, text=True, check=True).stderr
        for name in sorted(set(re.findall(r"^(.+?):\d+:\d+: warning", said, re.M))):
            errors.append(f"{pathlib.Path(name).relative_to(ROOT)}: run tools/check_format.py --fix")
    print("\n".join(errors) or (f"format: {len(sources)} sources" if command else f"SKIPPED: no clang-format {VERSION}"))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
