#!/usr/bin/env python3
"""The structs and enumerators of ctypes are those that a C compiler reads in the headers, and no function is missing.

  ATTNC_LIBRARY=libattnc.so python3 spec_test.py CC
"""

import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import needs
import attnc._spec as spec
from attnc._library import library
from attnc.launch import members_of

INCLUDE = needs.ROOT / "include"
COMPILER = sys.argv.pop(1)
HEADERS = "".join(path.read_text() for path in sorted((INCLUDE / "attnc/c").glob("*.h")))


def structs():
    """Returns the classes by the names of their structs in C."""
    found = (made for made in vars(spec).values() if isinstance(made, type) and issubclass(made, ctypes.Structure))
    return {"attnc_" + re.sub(r"(?<!^)(?=[A-Z])", "_", made.__name__).lower(): made for made in found if hasattr(made, "_fields_")}


def layout(made):
    """Returns the expressions of C whose values ctypes knows, with these values."""
    yield "sizeof(T)", ctypes.sizeof(made)
    for name, _ in made._fields_:
        field = getattr(made, name)
        yield f"offsetof(T, {name})", field.offset
        yield f"sizeof(((T*)0)->{name})", field.size


def in_c(name):
    """Returns the name in C of an enumerator in C++: V_IN_K of VInK."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() if re.search("[a-z]", name) else name


def numbers(prefix):
    """Returns the enumerators of C that begin with this, by the rest of their names."""
    return {name.removeprefix(f"{prefix}_"): value for name, value in vars(spec).items() if name.startswith(f"{prefix}_")}


class Spec(unittest.TestCase):
    def test_structs_and_enumerators_are_those_of_c(self):
        claims = [(f"ATTNC_{name}", value) for name, value in vars(spec).items() if isinstance(value, int)]
        for name, made in structs().items():
            claims += [(re.sub(r"\bT\b", name, expression), value) for expression, value in layout(made)]
        self.assertGreater(len(claims), 300)
        lines = [f'_Static_assert({expression} == {value}, "{expression} is not {value}");' for expression, value in claims]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "claims.c"
            source.write_text("\n".join(['#include "attnc/c.h"', *lines, ""]))
            done = subprocess.run(
                [COMPILER, "-std=c11", "-fsyntax-only", "-I", INCLUDE, source], capture_output=True, text=True
            )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_no_struct_enumerator_or_function_is_missing(self):
        self.assertEqual(set(structs()), set(re.findall(r"^\} (attnc_\w+);", HEADERS, re.M)))
        self.assertEqual(set(spec.FUNCTIONS), set(re.findall(r"^ATTNC_API .*?(attnc_\w+)\(", HEADERS, re.M)))
        enumerators = set(re.findall(r"\bATTNC_(\w+) = -?\d", HEADERS))
        self.assertEqual({name for name, value in vars(spec).items() if isinstance(value, int)}, enumerators)

    def test_enumerators_have_the_names_and_the_order_of_cpp(self):
        headers = "".join(path.read_text() for path in sorted((INCLUDE / "attnc").glob("*.h")))
        for prefix, kind in {
            "DTYPE": "DType", "FAMILY": "Family", "KERNEL": "KernelKind", "OFFSETS": "QueryOffsets", "KV_LOOP": "KvLoop",
            "LOG": "LogLevel", "CAPTURE": "Kind",
        }.items():  # fmt: skip
            body = re.search(rf"enum class {kind}\b[^{{]*\{{(.*?)\n *\}};", headers, re.S).group(1)
            names = map(in_c, re.findall(r"\w+", re.sub("//.*", "", body)))
            of_c = numbers(prefix)
            listed = ["DEFAULT", *names] if "DEFAULT" in of_c else [*names]
            with self.subTest(kind=kind):
                self.assertEqual(of_c, {name: number for number, name in enumerate(listed)})
        for name in ("dtype", "family"):
            for of_c, number in numbers(name.upper()).items():
                text = getattr(library(), f"attnc_{name}_name")(number)
                self.assertEqual(text, None if of_c == "DEFAULT" else of_c.lower().encode())

    def test_features_of_options_have_their_places_in_features_def(self):
        rows = re.findall(r"^ATTNC_FEATURE\((\w+), (\w+),", (INCLUDE / "attnc/features.def").read_text(), re.M)
        bits = {in_c(name): 1 << i for i, (name, option) in enumerate(rows) if option == "features"}
        self.assertEqual(numbers("FEATURE"), bits)

    def test_numbers_are_below_the_limits_of_choices_def(self):
        with unittest.mock.patch.dict(spec.LIMITS, low_rank_error=4):
            self.assertEqual(members_of({"low_rank_error": 3.5}), (("low_rank_error", 3.5),))
            for refused in 4, -1, "1":
                with self.assertRaisesRegex(TypeError, r"low_rank_error is .*\[0, 4\)"):
                    members_of({"low_rank_error": refused})


if __name__ == "__main__":
    unittest.main()
