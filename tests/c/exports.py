#!/usr/bin/env python3
"""Checks the exports and dependencies of libattnc.so.

  python3 tests/c/exports.py LIBRARY

The library must export exactly the functions that the headers in include/attnc/c declare, and depend only on libc,
whatever else is linked into it. Each function must be called in tests/c. Prints each offence and exits with 1 if there
is any.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NEEDED = re.compile(r"(libc|libm|libdl|libpthread|ld-linux-[\w-]+)\.so\.\d+")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    library = sys.argv[1]
    headers = "".join(path.read_text() for path in sorted((ROOT / "include/attnc/c").glob("*.h")))
    declared = set(re.findall(r"^ATTNC_API [^;(]*?(\w+)\(", headers, re.M))
    # The name of the symbols' version is also a symbol, of type A.
    lines = [line.split() for line in output("nm", "-D", "--defined-only", library).splitlines()]
    exported = {name.split("@")[0] for _, kind, name in lines if kind != "A"}
    errors = [f"exported, but not declared: {name}" for name in sorted(exported - declared)]
    errors += [f"declared, but not exported: {name}" for name in sorted(declared - exported)]
    sanitized = "__asan" in (symbols := output("nm", "-D", library)) or "__tsan" in symbols
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library)):
        if not NEEDED.fullmatch(name) and not sanitized:
            errors.append(f"needed: {name}")
    tests = "".join(path.read_text() for path in (ROOT / "tests/c").glob("*.c*"))
    errors += [f"not tested: {name}" for name in sorted(declared) if not re.search(rf"\b{name}\(", tests)]
    if not declared:
        errors.append("no function is declared in include/attnc/c")
    print("\n".join(errors) or f"{library}: {len(exported)} functions, and what they need is inside")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
