#!/usr/bin/env python3
"""Builds over_c.cpp against an install, and runs it: the C++ header over the C library.

  python3 tests/consumer/over_c.py --build FOLDER --cxx COMPILER [--flags FLAGS]

FOLDER is attnc's build folder. The program is compiled by COMPILER, and by g++ and clang++ where they are, as C++17
without exceptions and as C++20 with them, and links only libattnc.so. It must call each function that include/attnc/c
declares, except those of NOT_WRAPPED. So it fails if a function of C is new and attnc/c.hpp does not wrap it.
"""

import argparse
import itertools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
NOT_WRAPPED = {
    "attnc_dtype_bytes": "C++ calls it as it is",
    "attnc_dtype_name": "C++ calls it as it is",
    "attnc_family_count": "C++ calls it as it is",
    "attnc_family_name": "C++ calls it as it is",
    "attnc_get_family": "C++ calls it as it is",
    "attnc_status_name": "C++ calls it as it is",
    "attnc_version": "C++ calls it as it is",
    "attnc_version_text": "C++ calls it as it is",
    "attnc_xla_attention_on_cpu": "XLA calls it",
    "attnc_xla_attention_on_cuda": "XLA calls it",
    "attnc_xla_set_compiler": "C++ calls it as it is",
}


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def coverage(program):
    """Yields what is wrong with the set of functions of C that a program calls."""
    headers = "".join(path.read_text() for path in (ROOT / "include/attnc/c").glob("*.h"))
    declared = set(re.findall(r"^ATTNC_API [^;(]*?(\w+)\(", headers, re.M))
    called = set(re.findall(r" U (attnc_\w+)", output("nm", "-u", program)))
    wrapper = "".join(path.read_text() for path in (ROOT / "include/attnc").glob("**/*.hpp"))
    for name in sorted(declared - called - set(NOT_WRAPPED)):
        yield f"{name}: attnc/c.hpp does not wrap it, or over_c.cpp does not call its wrapper"
    for name in sorted(NOT_WRAPPED):
        if name not in declared or re.search(rf"\b{name}\((?!\))", wrapper):
            yield f"{name}: NOT_WRAPPED names it, and it is not declared, or wrapped"
    for name, members in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", headers, re.S):
        if "size_t struct_size;" in members and not re.search(rf"(Sized|Kept)<{name}>", wrapper):
            yield f"{name}: attnc/c.hpp has no struct of it"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--flags", default="")
    options = parser.parse_args()
    work = options.build / "consumer/over_c"
    prefix, program = work / "prefix", work / "over_c"
    shutil.rmtree(work, ignore_errors=True)
    output("cmake", "--install", options.build, "--prefix", prefix)
    (library,) = prefix.glob("**/libattnc.so")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    # A sanitizer's runtime is of the compiler that made the library.
    names = (options.cxx,) if "-fsanitize" in options.flags else ("g++", "clang++", options.cxx)
    compilers = {os.path.realpath(found): found for name in names if (found := shutil.which(name))}
    errors = []
    for compiler, (standard, exceptions) in itertools.product(
        compilers.values(), (("17", ("-fno-exceptions", "-fno-rtti")), ("20", ()))
    ):
        how = [compiler, f"-std=c++{standard}", *exceptions]
        subprocess.run([*how, *STRICT, *shlex.split(options.flags), f"-I{prefix}/include",
                        ROOT / "tests/consumer/over_c.cpp", library, "-o", program], check=True)  # fmt: skip
        said = output(program, env=environment)
        if not re.fullmatch(r"attnc \S+: all is well\n", said):
            errors.append(f"{how}: {said}")
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", program))
        if [name for name in needed if re.search("attnc|LLVM|fmt", name)] != ["libattnc.so.0"]:
            errors.append(f"{how}: needs {needed}")
        print(*how, said, end="")
    errors += coverage(program)
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
